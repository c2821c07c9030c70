package routing

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// spread counts where n reads go.
func (b *bed) spread(l Level, n int) map[string]int {
	b.t.Helper()
	got := map[string]int{}
	for range n {
		node, err := b.settle(b.t.Context(), l, call{})
		require.NoError(b.t, err)
		if node == nil {
			got["primary"]++
			continue
		}
		got[node.name]++
	}
	return got
}

// near checks a share, with four standard deviations to spare.
func near(t *testing.T, want, got int) {
	t.Helper()
	require.InDelta(t, want, got, 0.1*float64(want)+20)
}

func TestPolicies(t *testing.T) {
	weights := func(o *Options) {
		o.Servers = map[string]ServerOptions{"s2": {Weight: 3}, "s3": {Weight: 1}, "s4": {Standby: true}}
	}
	for _, p := range []Policy{"", LeastOutstanding, RoundRobin} {
		got := newBed(t, 4, func(o *Options) { o.Policy = p }).spread(Any, 3000)
		require.Equal(t, map[string]int{"s2": 1000, "s3": 1000, "s4": 1000}, got, p)
	}
	got := newBed(t, 4, func(o *Options) { o.Policy = Random }, weights).spread(Any, 8000)
	near(t, 4000, got["s2"])
	near(t, 4000, got["s3"])
	for _, p := range []Policy{Weighted, LeastOutstanding} {
		got := newBed(t, 4, func(o *Options) { o.Policy = p }, weights).spread(Any, 8000)
		near(t, 6000, got["s2"])
		near(t, 2000, got["s3"])
		require.Zero(t, got["s4"]+got["primary"])
	}

	// A standby serves when nobody else does.
	b := newBed(t, 4, weights)
	b.server("s2", func(s *Server) { s.Readable = false })
	b.server("s3", func(s *Server) { s.Readable = false })
	b.show()
	require.Equal(t, map[string]int{"s4": 10}, b.spread(Any, 10))

	// Least outstanding goes by what is in use for the weight.
	b = newBed(t, 3, func(o *Options) { o.Servers = map[string]ServerOptions{"s2": {Weight: 4}} })
	b.nodes["s2"].out.Store(3)
	require.Equal(t, map[string]int{"s3": 10}, b.spread(Any, 10))
	b.nodes["s3"].out.Store(1)
	require.Equal(t, map[string]int{"s2": 10}, b.spread(Any, 10))
}

func TestSitesTagsFilters(t *testing.T) {
	b := newBed(t, 4, func(o *Options) {
		o.Sites = []string{"paris", "lyon"}
		o.Servers = map[string]ServerOptions{"s2": {Site: "lyon", Tags: []string{"reports"}}, "s3": {Site: "paris"}, "s4": {Site: "rome"}}
	})
	require.Equal(t, map[string]int{"s3": 10}, b.spread(Any, 10))
	b.server("s3", func(s *Server) { s.Readable = false })
	b.show()
	require.Equal(t, map[string]int{"s2": 10}, b.spread(Any, 10))
	require.Equal(t, map[string]int{"s2": 10}, b.spread(Any.Tagged("reports"), 10))
	require.Equal(t, map[string]int{"primary": 10}, b.spread(Any.Tagged("x"), 10))

	b = newBed(t, 4, func(o *Options) {
		o.Filters = []Filter{func(_ context.Context, _ Level, in []*Node) []*Node { return in[1:] }}
		o.Picker = func(_ context.Context, _ Level, in []*Node) *Node { return in[len(in)-1] }
	})
	require.Equal(t, map[string]int{"s4": 10}, b.spread(Any, 10))
	b = newBed(t, 3, func(o *Options) {
		o.Filters = []Filter{func(context.Context, Level, []*Node) []*Node { return nil }}
	})
	require.Equal(t, map[string]int{"primary": 1}, b.spread(Any, 1))
	b = newBed(t, 3, func(o *Options) { o.Picker = func(context.Context, Level, []*Node) *Node { return &Node{} } })
	_, err := b.Replica(t.Context(), Any)
	require.ErrorContains(t, err, "was not among those given to it")
}

func TestLevels(t *testing.T) {
	b := newBed(t, 3)
	require.Equal(t, map[string]int{"primary": 5}, b.spread(Strong, 5))
	require.Equal(t, map[string]int{"primary": 5}, b.spread(Eventual(time.Minute), 5), "nothing is known of how old they are")
	b.server("s2", func(s *Server) { s.Fresh, s.FreshKnown = Now()-10*time.Second, true })
	b.server("s3", func(s *Server) { s.Fresh, s.FreshKnown = Now()-40*time.Second, true })
	b.show()
	require.Equal(t, map[string]int{"s2": 5}, b.spread(Eventual(30*time.Second), 5))
	require.Equal(t, map[string]int{"primary": 5}, b.spread(Eventual(5*time.Second), 5))
	require.Equal(t, map[string]int{"s2": 5, "s3": 5}, b.spread(Eventual(time.Minute), 10))
	b.position("s3", "0-1-50")
	b.show()
	require.Equal(t, map[string]int{"s3": 5}, b.spread(Session(mariaToken(t, "0-1-50")), 5))
	require.Equal(t, map[string]int{"s2": 5, "s3": 5}, b.spread(Session(Token{}), 10))

	// A position that goes back is believed, once the server was away.
	b.server("s3", func(s *Server) { s.Readable = false })
	b.show()
	b.position("s3", "0-1-40")
	b.server("s3", func(s *Server) { s.Readable = true })
	b.show()
	require.Equal(t, map[string]int{"primary": 1}, b.spread(Session(mariaToken(t, "0-1-50")).Within(-1), 1))

	b = newBed(t, 3, func(o *Options) { o.PrimaryOnly = true })
	require.Equal(t, map[string]int{"primary": 5}, b.spread(Any, 5))
	b = newBed(t, 3, func(o *Options) { o.ReadPrimary = true })
	got := b.spread(Any, 6000)
	near(t, 2000, got["primary"])
	near(t, 2000, got["s3"])
	for want, l := range map[string]Level{"strong": Strong, "any": Any, "eventual(1s) tagged x": Eventual(time.Second).Tagged("x")} {
		require.Equal(t, want, l.String())
	}
}

func TestSticky(t *testing.T) {
	b := newBed(t, 5, func(o *Options) { o.Sticky = true; o.Policy = RoundRobin })
	ctx := WithTracker(t.Context(), NewTracker(Token{}))
	first := b.where(ctx, Any)
	for range 10 {
		require.Equal(t, first, b.where(ctx, Any))
	}
	b.server(first, func(s *Server) { s.Readable = false })
	b.show()
	require.NotEqual(t, first, b.where(ctx, Any))
}

func TestCircuitAndSlowStart(t *testing.T) {
	b := newBed(t, 3, func(o *Options) { o.CircuitAfter, o.CircuitWait = 2, 50*time.Millisecond })
	b.stubs["s2"].mu.Lock()
	b.stubs["s2"].dialErr = io.EOF
	b.stubs["s2"].mu.Unlock()
	for range 20 {
		require.Equal(t, "s3", b.where(t.Context(), Any))
	}
	n := b.nodes["s2"]
	require.True(t, n.circuitOpen(Now()))
	require.Equal(t, uint64(2), b.Stats().ConnectErrors+b.Stats().ReadErrors)
	// When the time is over, one failure is enough, and the next time is longer.
	require.Eventually(t, func() bool { return !n.circuitOpen(Now()) }, 5*time.Second, time.Millisecond)
	for range 4 {
		b.where(t.Context(), Any)
	}
	require.Equal(t, uint64(2), b.Stats().CircuitsOpened)
	require.Greater(t, time.Duration(n.openUntil.Load())-Now(), 50*time.Millisecond)
	b.stubs["s2"].dialErr = nil
	n.openUntil.Store(0)
	for range 4 {
		b.where(t.Context(), Any)
	}
	require.Zero(t, n.opens.Load())

	b = newBed(t, 3, func(o *Options) { o.SlowStart = time.Hour; o.Policy = Random })
	b.nodes["s2"].backAt.Store(int64(Now()))
	b.nodes["s3"].backAt.Store(0)
	got := b.spread(Any, 11000)
	near(t, 1000, got["s2"])
	b.nodes["s2"].backAt.Store(int64(Now() - 30*time.Minute))
	require.InDelta(t, 550, b.nodes["s2"].ramp(Now()), 5)
	b.nodes["s2"].backAt.Store(int64(Now() - time.Hour))
	require.Equal(t, uint64(fullRamp), b.nodes["s2"].ramp(Now()))
	require.Zero(t, b.nodes["s2"].backAt.Load())
	b.server("s2", func(s *Server) { s.Readable = false })
	b.show()
	b.primary("s1")
	require.NotZero(t, b.nodes["s2"].backAt.Load(), "it has come back")
}

func TestOptions(t *testing.T) {
	_, err := Open(nil, Options{DSN: "a@/"})
	require.ErrorContains(t, err, "no source")
	src := &manual{publish: make(chan func(View), 1)}
	for want, o := range map[string]Options{
		"neither DSN nor Config":          {},
		"DSN: invalid DSN":                {DSN: "x"},
		`policy is "rondom"`:              {DSN: "a@/", Policy: "rondom"},
		"HoldWrites is -1ns":              {DSN: "a@/", HoldWrites: -1},
		"rejectReadOnly":                  {DSN: "a@/?rejectReadOnly=true"},
		"server s1: weight is 70000":      {DSN: "a@/", Servers: map[string]ServerOptions{"s1": {Weight: 70000}}},
		"but it is a standby":             {DSN: "a@/", Servers: map[string]ServerOptions{"s1": {Weight: 1, Standby: true}}},
		`address "x" is not host:port`:    {DSN: "a@/", Servers: map[string]ServerOptions{"s1": {Address: "x"}}},
		"exclude each other":              {DSN: "a@/", PrimaryOnly: true, NoFallback: true},
		"quotes, backslashes and control": {DSN: "a@/", ServerLock: "it's"},
	} {
		_, err := Open(src, o)
		require.ErrorContains(t, err, want)
	}
	_, err = Open(src, Options{DSN: "a@/", Policy: "x", HoldWrites: -1})
	require.ErrorContains(t, err, "policy")
	require.ErrorContains(t, err, "HoldWrites")
	for _, p := range policies {
		got, err := ParsePolicy(string(p))
		require.NoError(t, err)
		require.Equal(t, p, got)
	}
	_, err = ParsePolicy("")
	require.Error(t, err)
}

func TestChanges(t *testing.T) {
	seen := make(chan string, 10)
	b := newBed(t, 2, func(o *Options) { o.OnChange = func(name, addr, _ string) { seen <- name + "@" + addr } })
	require.Equal(t, "s1@s1:3306", <-seen)
	b.primary("s1")
	b.primary("s2")
	require.Equal(t, "s2@s2:3306", <-seen)
	b.view.Primary = ""
	b.show()
	require.Equal(t, "@", <-seen)
	b.primary("s9")
	_, err := b.Primary().Exec("W")
	require.ErrorContains(t, err, "names s9 as the primary, but does not list it")
	// An expired view, or one without servers, is as good as none.
	b.primary("s1")
	require.NoError(t, b.Ready(t.Context()))
	b.view.Until = Now()
	b.show()
	_, err = b.Primary().Exec("W")
	require.ErrorIs(t, err, ErrNoPrimary)
	st := *b.state.Load()
	st.primaryAt, st.until = 0, Now()
	n, why := st.writable(Now())
	require.Nil(t, n, "whether or not a timer has noticed")
	require.Equal(t, expiredReason, why)
	b.view.Servers = nil
	b.show()
	_, err = b.Replica(t.Context(), Any)
	require.NoError(t, err)
}

func TestPools(t *testing.T) {
	b := newBed(t, 2, func(o *Options) { o.MaxIdle = 2; o.MaxIdleTime = time.Hour })
	use := func(n int) {
		var conns []func()
		for range n {
			c, err := b.Primary().Conn(t.Context())
			require.NoError(t, err)
			_, err = c.ExecContext(t.Context(), "W")
			require.NoError(t, err)
			conns = append(conns, func() { require.NoError(t, c.Close()) })
		}
		for _, f := range conns {
			f()
		}
	}
	use(4)
	n := b.nodes["s1"]
	require.Equal(t, 2, n.writes.idleCount())
	require.Len(t, n.writes.all, 2)
	require.Zero(t, n.Outstanding())
	use(2)
	require.Equal(t, 4, b.stubs["s1"].sessions, "idle ones are used again")
	n.writes.idle[0].used -= 2 * time.Hour
	b.show()
	require.Equal(t, 1, n.writes.idleCount(), "too old")
	b.primary("s2")
	require.Zero(t, n.writes.idleCount(), "a demoted server keeps none")
	require.Empty(t, n.writes.all)
	// Another address is another server.
	b.server("s2", func(s *Server) { s.Address = "s2:3307" })
	use(1)
	old := b.nodes["s2"]
	b.show()
	require.NotSame(t, old, b.nodes["s2"])
	require.Zero(t, old.writes.idleCount())
}

func BenchmarkChoose(b *testing.B) {
	for _, p := range policies {
		for _, n := range []int{3, 10} {
			b.Run(fmt.Sprintf("%s/%d", p, n), func(b *testing.B) {
				bed := newBed(b, n, func(o *Options) { o.Policy = p; o.Servers = map[string]ServerOptions{"s2": {Weight: 3}} })
				ctx := b.Context()
				b.ReportAllocs()
				for b.Loop() {
					bed.choose(ctx, Any, Token{}, nil, 0)
				}
			})
		}
	}
}

// BenchmarkQuery compares a query through a router with one through a bare *sql.DB
// with the same driver, which answers at once.
func BenchmarkQuery(b *testing.B) {
	bed := newBed(b, 3)
	bed.server("s2", func(s *Server) { s.Fresh, s.FreshKnown = Now(), true })
	bed.show()
	pinned, err := bed.Replica(b.Context(), Any)
	require.NoError(b, err)
	plain := sql.OpenDB(bed.stubs["s2"])
	defer func() { require.NoError(b, plain.Close()) }()
	for _, c := range []struct {
		name string
		db   *sql.DB
	}{{"bare", plain}, {"pinned", pinned}, {"any", bed.DB(Any)}, {"eventual", bed.DB(Eventual(time.Hour))}, {"primary", bed.Primary()}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			var n int
			for b.Loop() {
				if err := c.db.QueryRowContext(b.Context(), "SELECT 1").Scan(&n); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
