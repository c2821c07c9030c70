package routing

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/election"
	"github.com/lockstep-ha/lockstep/locks"
	"github.com/lockstep-ha/lockstep/monitor"
	"github.com/lockstep-ha/lockstep/topology"
	"github.com/lockstep-ha/lockstep/topology/gtid"
)

// monitorView is one primary and two replicas, of which the second lags.
func monitorView() monitor.View {
	none, some := int64(0), int64(700)
	server := func(name string, labels ...string) monitor.ServerView {
		return monitor.ServerView{Name: name, Address: name + ":3306", Evidence: "answered", State: labels, ProbeAgeMS: 100, Flavor: "mariadb", CurrentPos: "0-1-9", ServerID: 3}
	}
	v := monitor.View{Cluster: "main", Primary: &monitor.Endpoint{Name: "s1", Address: "s1:3306"}, Reason: "because", ValidForMS: 5000,
		Servers: []monitor.ServerView{server("s1", "Primary"), server("s2", "Replica", "Read-only"), server("s3", "Replica")}}
	v.Monitor.Timing.IntervalMS = 1000
	v.Servers[1].LagMS, v.Servers[2].LagMS, v.Servers[2].ProbeAgeMS = &none, &some, 50
	return v
}

func TestConvert(t *testing.T) {
	var f freshness
	at := time.Hour
	v := f.convert(monitorView(), at)
	require.Equal(t, "s1", v.Primary)
	require.Equal(t, at+5*time.Second, v.Until)
	require.False(t, v.Servers[0].Readable)
	require.True(t, v.Servers[1].Readable)
	require.Equal(t, "0-1-9", v.Servers[1].Position.String())
	require.Equal(t, topology.MariaDB, v.Servers[1].Flavor)
	require.Equal(t, uint32(3), v.Servers[1].ServerID)
	require.Equal(t, at-100*time.Millisecond, v.Servers[1].Fresh)
	require.Equal(t, at-100*time.Millisecond-700*time.Millisecond-time.Second, v.Servers[2].Fresh, "a lag is known to an interval")

	// Without a primary replicas get older, however often they are asked.
	m := monitorView()
	m.Primary = nil
	v = f.convert(m, at+10*time.Second)
	require.Empty(t, v.Primary)
	require.Equal(t, at-100*time.Millisecond, v.Servers[1].Fresh)
	for _, change := range []func(*monitor.ServerView){
		func(s *monitor.ServerView) { s.State = append(s.State, "Maintenance") },
		func(s *monitor.ServerView) { s.State = append(s.State, "Drained") },
		func(s *monitor.ServerView) { s.State = []string{"Running"} },
		func(s *monitor.ServerView) { s.Evidence = "timed out" },
	} {
		m = monitorView()
		change(&m.Servers[1])
		require.False(t, f.convert(m, at).Servers[1].Readable)
	}
	m = monitorView()
	m.Servers[1].LagMS = nil
	require.False(t, f.convert(m, at).Servers[1].FreshKnown)
	require.False(t, new(freshness).convert(monitor.View{Servers: m.Servers}, at).Servers[2].FreshKnown, "no primary was ever seen")
}

// daemon is an HTTP API that a test drives.
type daemon struct {
	*httptest.Server
	mu     sync.Mutex
	view   monitor.View
	asked  atomic.Int32
	came   time.Duration // instant of the last request
	stream bool
	events chan string
	broken atomic.Bool
}

func newDaemon(t *testing.T, stream bool) *daemon {
	d := &daemon{view: monitorView(), stream: stream, events: make(chan string)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/clusters/{name}", func(w http.ResponseWriter, r *http.Request) {
		d.asked.Add(1)
		if d.broken.Load() || r.PathValue("name") != "main" {
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"error": "no cluster"}`))
			return
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		d.came = Now()
		time.Sleep(5 * time.Millisecond)
		_ = json.NewEncoder(w).Encode(d.view)
	})
	if stream {
		mux.HandleFunc("GET /v1/clusters/{name}/events", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			w.WriteHeader(http.StatusOK)
			for {
				_ = http.NewResponseController(w).Flush()
				select {
				case e := <-d.events:
					_, _ = w.Write([]byte(e))
				case <-r.Context().Done():
					return
				}
			}
		})
	}
	d.Server = httptest.NewServer(mux)
	t.Cleanup(func() { d.CloseClientConnections(); d.Close() })
	return d
}

func (d *daemon) set(change func(*monitor.View)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change(&d.view)
}

// watch follows a source until the test ends.
func watch(t *testing.T, s Source) chan View {
	ctx, cancel := context.WithCancel(context.Background())
	views := make(chan View, 1000)
	done := make(chan struct{})
	go func() { defer close(done); s.Watch(ctx, func(v View) { views <- v }) }()
	t.Cleanup(func() { cancel(); <-done })
	return views
}

func TestFromURL(t *testing.T) {
	for want, cfg := range map[string]URLConfig{
		"no URL of lockstepd":    {},
		`"localhost:8990" is no`: {URLs: []string{"localhost:8990"}},
		"Poll is 1ms":            {URLs: []string{"http://a"}, Poll: time.Millisecond},
		"Timeout is -1ns":        {URLs: []string{"http://a"}, Timeout: -1},
	} {
		_, err := FromURL(cfg)
		require.ErrorContains(t, err, want)
	}

	d := newDaemon(t, false)
	var errs sync.Map
	s, err := FromURL(URLConfig{URLs: []string{"http://127.0.0.1:1", d.URL + "/"}, Poll: 10 * time.Millisecond, OnError: func(err error) { errs.Store(err.Error(), true) }})
	require.NoError(t, err)
	before := Now()
	views := watch(t, s)
	v := <-views
	d.set(func(*monitor.View) {
		require.LessOrEqual(t, v.Until, d.came+5*time.Second, "however long the answer takes")
	})
	require.Equal(t, "s1", v.Primary)
	require.GreaterOrEqual(t, v.Until, before+5*time.Second)
	require.LessOrEqual(t, v.Until, Now()+5*time.Second)
	refused := 0
	errs.Range(func(any, any) bool { refused++; return true })
	require.Equal(t, 1, refused, "the first URL refuses")
	d.set(func(v *monitor.View) { v.Primary = &monitor.Endpoint{Name: "s2", Address: "s2:3306"} })
	require.Eventually(t, func() bool { return (<-views).Primary == "s2" }, 5*time.Second, time.Microsecond)
	d.broken.Store(true)
	require.Eventually(t, func() bool {
		_, ok := errs.Load(fmt.Sprintf("get %s/v1/clusters/main: 404 Not Found: no cluster", d.URL))
		return ok
	}, 5*time.Second, time.Millisecond)
	for len(views) > 0 {
		<-views
	}
	time.Sleep(30 * time.Millisecond)
	require.Empty(t, views, "nothing is published that was not heard")
}

// TestFromURLEvents: an event makes it ask at once.
func TestFromURLEvents(t *testing.T) {
	d := newDaemon(t, true)
	s, err := FromURL(URLConfig{URLs: []string{d.URL}, Poll: time.Hour})
	require.NoError(t, err)
	d.set(func(v *monitor.View) { v.ValidForMS = 3_600_000 * 10 })
	views := watch(t, s)
	require.Equal(t, "s1", (<-views).Primary)
	d.events <- ": keep alive\n\nevent: other\ndata: {}\n\n"
	d.set(func(v *monitor.View) { v.Primary = nil })
	d.events <- "event: view\ndata: {}\n\n"
	select {
	case v := <-views:
		require.Empty(t, v.Primary)
	case <-time.After(5 * time.Second):
		t.Fatal("the event was not noticed")
	}
	require.Equal(t, int32(2), d.asked.Load())
}

// seen makes what one server said: its locks' holders and whether it is read-only.
func seen(name string, server, primary uint64, user string, readOnly topology.Tri) sighting {
	lock := func(id uint64) locks.Lock {
		if id == 0 {
			return locks.Lock{State: locks.Free}
		}
		return locks.Lock{State: locks.Other, Holder: locks.Holder{ConnectionID: id, User: user, Checked: true, Trusted: user == "lockstep"}}
	}
	pos, _ := gtid.ParsePosition("0-1-5")
	return sighting{
		server: topology.Server{Settings: topology.Settings{Name: name, Address: name + ":3306"}, Evidence: topology.Answered, ReadOnly: readOnly,
			CurrentPos: pos, BinlogPos: pos, SlavePos: pos, SentAt: time.Minute},
		row: locks.Row{Server: name, Answered: true, ServerLock: lock(server), PrimaryLock: lock(primary)},
	}
}

func TestLockRule(t *testing.T) {
	timing, err := locks.Derive(locks.Settings{Interval: time.Second, Timeout: time.Second})
	require.NoError(t, err)
	memory := func() lockMemory {
		return lockMemory{timing: timing, majorityOfAll: true, servers: make([]LockServer, 3)}
	}
	replica := func(name string) sighting { return seen(name, 7, 0, "lockstep", topology.Yes) }
	down := func(name string, e topology.Evidence) sighting {
		return sighting{server: topology.Server{Settings: topology.Settings{Name: name}, Evidence: e}}
	}
	good := []sighting{seen("s1", 7, 7, "lockstep", topology.No), replica("s2"), replica("s3")}
	for name, c := range map[string]struct {
		first sighting
		why   string
	}{
		"published":   {good[0], ""},
		"read-only":   {seen("s1", 7, 7, "lockstep", topology.Yes), "is read-only"},
		"not known":   {seen("s1", 7, 7, "lockstep", topology.Unknown), "is read-only"},
		"other":       {seen("s1", 7, 8, "lockstep", topology.No), "its server lock is not"},
		"forged":      {seen("s1", 7, 7, "app", topology.No), "which is not trusted"},
		"no PROCESS":  {seen("s1", 7, 7, "", topology.No), "grant PROCESS"},
		"no lock":     {seen("s1", 7, 0, "lockstep", topology.No), "no server carries"},
		"no answer":   {down("s1", topology.TimedOut), "no server carries"},
		"server free": {seen("s1", 0, 7, "lockstep", topology.No), "its server lock is not"},
	} {
		m := memory()
		v := m.decide([]sighting{c.first, good[1], good[2]}, time.Minute)
		if c.why != "" {
			require.Empty(t, v.Primary, name)
			require.Contains(t, v.Reason, c.why, name)
			continue
		}
		require.Equal(t, "s1", v.Primary)
		require.Equal(t, time.Minute+timing.Lease, v.Until)
		require.True(t, v.Servers[1].Readable)
		require.True(t, v.Servers[1].FreshKnown)
	}
	m := memory()
	require.Contains(t, m.decide([]sighting{good[0], seen("s2", 9, 9, "lockstep", topology.No), good[2]}, time.Minute).Reason, "2 servers carry")
	free := func(name string) sighting { return seen(name, 0, 0, "", topology.Yes) }
	require.Contains(t, m.decide([]sighting{good[0], free("s2"), free("s3")}, time.Minute).Reason, "cannot have the majority")
	m.majorityOfAll = false
	require.Equal(t, "s1", m.decide([]sighting{good[0], free("s2"), free("s3")}, time.Minute).Primary)

	// The lock moves: the old server must be read-only, gone, or long silent.
	next := seen("s2", 7, 7, "lockstep", topology.No)
	for name, c := range map[string]struct {
		old   sighting
		after time.Duration
		ok    bool
	}{
		"read-only":   {replica("s1"), time.Second, true},
		"refuses":     {down("s1", topology.Refused), time.Second, true},
		"writable":    {seen("s1", 7, 0, "lockstep", topology.No), time.Second, false},
		"silent":      {down("s1", topology.TimedOut), time.Second, false},
		"long silent": {down("s1", topology.TimedOut), timing.WaitTimeout, true},
	} {
		m := memory()
		require.Equal(t, "s1", m.decide(good, time.Minute).Primary)
		v := m.decide([]sighting{c.old, next, good[2]}, time.Minute+c.after)
		require.Equal(t, c.ok, v.Primary == "s2", "%s: %s", name, v.Reason)
	}
}

func TestFromLocksRefused(t *testing.T) {
	good := LocksConfig{Servers: []LockServer{{Name: "s1", Address: "a:1"}}, TrustedUsers: []string{"lockstep"}}
	s, err := FromLocks(good)
	require.NoError(t, err)
	l, ok := s.(*locksSource)
	require.True(t, ok)
	l.close()
	for want, change := range map[string]func(*LocksConfig){
		"0 servers":         func(c *LocksConfig) { c.Servers = nil },
		"no trusted users":  func(c *LocksConfig) { c.TrustedUsers = nil },
		"is not host:port":  func(c *LocksConfig) { c.Servers = []LockServer{{Name: "s1", Address: "a"}} },
		"a name of its own": func(c *LocksConfig) { c.Servers = append(c.Servers, c.Servers[0]) },
		"has no locks":      func(c *LocksConfig) { c.Quorum = election.None },
		"interval is":       func(c *LocksConfig) { c.Interval = -1 },
		"are not allowed":   func(c *LocksConfig) { c.PrimaryLock = "'" },
	} {
		c := good
		change(&c)
		_, err := FromLocks(c)
		require.ErrorContains(t, err, want)
	}
}

func TestCache(t *testing.T) {
	b := newBed(t, 2)
	fresh := func(ago time.Duration) {
		b.server("s2", func(s *Server) { s.Fresh, s.FreshKnown = Now()-ago, true })
		b.show()
	}
	fresh(time.Second)
	c, err := NewCache[int](b.Router, 2)
	require.NoError(t, err)
	var loads atomic.Int32
	load := func(context.Context, *sql.DB) (int, error) { return int(loads.Add(1)), nil }
	get := func(key string, age time.Duration) int {
		t.Helper()
		v, err := c.Get(t.Context(), key, age, load)
		require.NoError(t, err)
		return v
	}
	require.Equal(t, 1, get("a", time.Minute))
	require.Equal(t, 1, get("a", time.Minute))
	require.Equal(t, 2, get("a", 900*time.Millisecond), "it was a second old when it was read")
	require.Equal(t, 2, get("a", time.Minute), "the fresher one is kept")
	require.Equal(t, 3, get("b", time.Minute))
	require.Equal(t, 4, get("c", time.Minute))
	require.Equal(t, 5, get("a", time.Minute), "only two are kept")
	c.Forget("a")
	require.Equal(t, 6, get("a", time.Minute))
	boom := errors.New("boom")
	_, err = c.Get(t.Context(), "x", time.Minute, func(context.Context, *sql.DB) (int, error) { return 0, boom })
	require.ErrorIs(t, err, boom)
	_, err = c.Get(t.Context(), "x", 0, load)
	require.Error(t, err)
	_, err = NewCache[int](b.Router, 0)
	require.Error(t, err)

	// Many at once load once; one that gives up does not end it for the others.
	begun, release := make(chan struct{}), make(chan struct{})
	var calls atomic.Int32
	slow := func(ctx context.Context, _ *sql.DB) (int, error) {
		calls.Add(1)
		close(begun)
		<-release
		return 42, ctx.Err()
	}
	first, cancel := context.WithCancel(t.Context())
	gone := make(chan error)
	go func() {
		_, err := c.Get(first, "slow", time.Minute, slow)
		gone <- err
	}()
	<-begun
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if v, err := c.Get(context.Background(), "slow", time.Minute, slow); v != 42 || err != nil {
				t.Errorf("got %d, %v", v, err)
			}
		})
	}
	cancel()
	require.ErrorIs(t, <-gone, context.Canceled)
	close(release)
	wg.Wait()
	require.Equal(t, int32(1), calls.Load())
}
