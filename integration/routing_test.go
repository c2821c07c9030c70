package integration

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/internal/testdb"
	"github.com/lockstep-ha/lockstep/monitor"
	"github.com/lockstep-ha/lockstep/monitor/operation"
	"github.com/lockstep-ha/lockstep/monitor/routing"
)

// appDSN is how the application logs in.
const appDSN = testdb.AppUser + ":" + testdb.AppPassword + "@/" + testdb.AppDatabase

// router opens a router that the test closes.
func router(t testing.TB, source routing.Source, change ...func(*routing.Options)) *routing.Router {
	t.Helper()
	o := routing.Options{DSN: appDSN, SlowStart: -1}
	for _, f := range change {
		f(&o)
	}
	r, err := routing.Open(source, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r
}

func holding(d time.Duration) func(*routing.Options) {
	return func(o *routing.Options) { o.HoldWrites = d }
}

// routed is a settled cluster with a table, and a router over its monitor.
func routed(t testing.TB, change ...func(*routing.Options)) (*testdb.Cluster, running, *routing.Router) {
	t.Helper()
	return routedOver(t, semiSync(t, 3), change...)
}

func routedOver(t testing.TB, c *testdb.Cluster, change ...func(*routing.Options)) (*testdb.Cluster, running, *routing.Router) {
	t.Helper()
	// The monitor's own table is not what is tested here.
	m := start(t, configOf(c, operating, policy(func(p *operation.Policy) { p.StateSchema = "-" })))
	until(t, m, 10*time.Second, "settles", settled)
	c.Primary().MustExec(t, "CREATE TABLE app.orders (id BIGINT PRIMARY KEY, n BIGINT NOT NULL, on_server INT) ENGINE=InnoDB")
	require.NoError(t, c.WaitSync(t.Context()))
	return c, m, router(t, routing.FromMonitor(m.Monitor), change...)
}

// primaryIs waits until a router sends writes to a server.
func primaryIs(t testing.TB, r *routing.Router, name string) {
	t.Helper()
	require.Eventually(t, func() bool {
		for _, s := range r.Stats().Servers {
			if s.Primary {
				return s.Name == name
			}
		}
		return name == ""
	}, 15*time.Second, 2*time.Millisecond, "the primary is not %q", name)
}

// picksOf returns a counter.
func picksOf(r *routing.Router, role, reason string) uint64 {
	for _, p := range r.Stats().Picks {
		if p.Role == role && p.Reason == reason {
			return p.Count
		}
	}
	panic("no such pick: " + role + " " + reason)
}

func serverID(t testing.TB, db *sql.DB) (id int) {
	t.Helper()
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT @@server_id").Scan(&id))
	return id
}

// shop is an application that writes rows through a router and knows which it must
// find.
type shop struct {
	r      *routing.Router
	next   atomic.Int64
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	acked   []int64
	unknown []int64
	errs    []error
	last    time.Time
	longest time.Duration
}

// open starts workers; half of them write single statements, half transactions.
func open(t testing.TB, r *routing.Router, workers int) *shop {
	ctx, cancel := context.WithCancel(t.Context())
	s := &shop{r: r, cancel: cancel, last: time.Now()}
	for w := range workers {
		s.wg.Go(func() {
			for ctx.Err() == nil {
				s.write(ctx, w%2 == 0)
				time.Sleep(time.Millisecond)
			}
		})
	}
	t.Cleanup(s.stop)
	return s
}

func (s *shop) write(ctx context.Context, single bool) {
	id := s.next.Add(1)
	var err error
	if single {
		_, err = s.r.Primary().ExecContext(context.WithoutCancel(ctx), "INSERT INTO orders VALUES (?, 1, @@server_id)", id)
	} else {
		err = s.r.Retry(context.WithoutCancel(ctx), func(tx *sql.Tx) error {
			if _, err := tx.Exec("INSERT INTO orders VALUES (?, 0, @@server_id)", id); err != nil {
				return err
			}
			_, err := tx.Exec("UPDATE orders SET n = n + 1 WHERE id = ?", id)
			return err
		})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch err {
	case nil:
		s.acked = append(s.acked, id)
		s.longest = max(s.longest, time.Since(s.last))
		s.last = time.Now()
	default:
		s.errs = append(s.errs, err)
		if errors.Is(err, routing.ErrOutcomeUnknown) {
			s.unknown = append(s.unknown, id)
		}
	}
}

func (s *shop) stop() {
	s.cancel()
	s.wg.Wait()
}

// count is how many writes were acknowledged.
func (s *shop) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.acked)
}

// failures are the errors so far.
func (s *shop) failures() []error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.errs)
}

// more waits for further acknowledged writes.
func (s *shop) more(t testing.TB, n int) {
	t.Helper()
	want := s.count() + n
	for deadline := time.Now().Add(20 * time.Second); s.count() < want; time.Sleep(time.Millisecond) {
		require.True(t, time.Now().Before(deadline), "no writes: %v", s.failures())
	}
}

// check compares what was acknowledged with what a server has: nothing lost, nothing
// done twice, and nothing there that was refused.
func (s *shop) check(t testing.TB, server *testdb.Server) {
	t.Helper()
	rows, err := server.Root().QueryContext(t.Context(), "SELECT id, n FROM app.orders")
	require.NoError(t, err)
	defer func() { _ = rows.Close() }()
	has := map[int64]int64{}
	for rows.Next() {
		var id, n int64
		require.NoError(t, rows.Scan(&id, &n))
		has[id] = n
	}
	require.NoError(t, rows.Err())
	for _, id := range s.acked {
		require.Equal(t, int64(1), has[id], "row %d", id)
		delete(has, id)
	}
	for _, id := range s.unknown {
		delete(has, id)
	}
	require.Empty(t, has, "rows that were never acknowledged")
}

func switchTo(t testing.TB, m running, to string) {
	t.Helper()
	_, err := m.Command(t.Context(), monitor.Command{Action: monitor.ActSwitchover, Server: to})
	require.NoError(t, err)
	until(t, m, 10*time.Second, to+" is offered", offers(to))
	until(t, m, 10*time.Second, "it ends", func(v monitor.View) bool { return v.Operations.Running == nil })
}

// TestRoutingBasics sends reads and writes where they belong.
func TestRoutingBasics(t *testing.T) {
	_, _, r := routed(t)
	primaryIs(t, r, "s1")
	require.Equal(t, 1, serverID(t, r.Primary()))

	res, token, err := r.Exec(t.Context(), "INSERT INTO orders VALUES (?, 1, 1)", 1)
	require.NoError(t, err)
	n, err := res.RowsAffected()
	require.NoError(t, err)
	require.Equal(t, int64(1), n)
	require.False(t, token.IsEmpty())
	text := r.FormatToken(token)
	back, err := r.ParseToken(text)
	require.NoError(t, err)
	require.True(t, token.Equal(back))

	db, err := r.Replica(t.Context(), routing.Session(back))
	require.NoError(t, err)
	require.NotEqual(t, 1, serverID(t, db))
	var got int
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM orders WHERE id = ?", 1).Scan(&got))
	require.Equal(t, 1, got)
	_, err = db.ExecContext(t.Context(), "DELETE FROM orders")
	require.Error(t, err)
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT @@tx_read_only").Scan(&got))
	require.Equal(t, 1, got, "an account that may write to a read-only server is stopped too")

	// One handle for all: reads to replicas in turn, all else to the primary.
	all := r.DB(routing.Any)
	ids := map[int]int{}
	for range 20 {
		ids[serverID(t, all)]++
	}
	require.Equal(t, map[int]int{2: 10, 3: 10}, ids)
	_, err = all.ExecContext(t.Context(), "UPDATE orders SET on_server = @@server_id WHERE id = ?", 1)
	require.NoError(t, err)
	tx, err := all.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	var id int
	require.NoError(t, tx.QueryRow("SELECT @@server_id").Scan(&id))
	require.Equal(t, 1, id)
	require.NoError(t, tx.Commit())
	tx, err = all.BeginTx(t.Context(), &sql.TxOptions{ReadOnly: true})
	require.NoError(t, err)
	require.NoError(t, tx.QueryRow("SELECT @@server_id").Scan(&id))
	require.NotEqual(t, 1, id)
	require.NoError(t, tx.Rollback())
	require.NoError(t, all.QueryRowContext(routing.WithLevel(t.Context(), routing.Strong), "SELECT @@server_id").Scan(&id))
	require.Equal(t, 1, id)

	// Statements prepared once go to any server.
	st, err := all.PrepareContext(t.Context(), "SELECT @@server_id + ?")
	require.NoError(t, err)
	defer func() { require.NoError(t, st.Close()) }()
	clear(ids)
	for range 20 {
		require.NoError(t, st.QueryRow(100).Scan(&id))
		ids[id]++
	}
	require.Equal(t, map[int]int{102: 10, 103: 10}, ids)
	ins, err := all.PrepareContext(t.Context(), "INSERT INTO orders VALUES (?, 1, @@server_id)")
	require.NoError(t, err)
	defer func() { require.NoError(t, ins.Close()) }()
	for i := range 10 {
		_, err = ins.Exec(100 + i)
		require.NoError(t, err)
	}

	// What a request writes it reads, whatever the level.
	for i := range 50 {
		ctx := routing.WithTracker(t.Context(), routing.NewTracker(routing.Token{}))
		_, err = all.ExecContext(ctx, "INSERT INTO orders VALUES (?, 1, 1)", 200+i)
		require.NoError(t, err)
		require.NoError(t, all.QueryRowContext(ctx, "SELECT id FROM orders WHERE id = ?", 200+i).Scan(&id))
	}
	require.NotZero(t, picksOf(r, "replica", "session_waited")+picksOf(r, "replica", "session_known"))
	s := r.Stats()
	require.Zero(t, s.WriteErrors+s.ReadErrors, "%+v", s)
	inUse := 0
	for _, x := range s.Servers {
		inUse += x.InUse
	}
	require.Zero(t, inUse, "%+v", s.Servers)
}

// TestRoutingSwitchover moves the primary under load; writes are held, and none
// fails, is lost or done twice.
func TestRoutingSwitchover(t *testing.T) {
	c, m, r := routed(t, holding(10*time.Second))
	s := open(t, r, 8)
	s.more(t, 200)
	for _, to := range []string{"s2", "s3", "s1"} {
		switchTo(t, m, to)
		primaryIs(t, r, to)
		s.more(t, 200)
	}
	s.stop()
	require.Empty(t, s.errs)
	inSync(t, c, "s1")
	for _, server := range c.Servers {
		s.check(t, server)
	}
	st := r.Stats()
	t.Logf("%d writes, longest pause %v, %d held, %d sent again, %d transactions again", len(s.acked), s.longest.Round(time.Millisecond), st.Holds, st.Resent, st.Retries)
	require.Equal(t, uint64(3), st.PrimaryChanges)
	require.NotZero(t, st.Holds)
	require.Zero(t, st.OutcomesUnknown)
	require.Equal(t, []string{"1", "2", "3"}, writers(t, c.Servers[0]))
}

// writers are the ids of the servers that took writes.
func writers(t testing.TB, s *testdb.Server) []string {
	t.Helper()
	var ids []string
	require.NoError(t, s.Root().SelectContext(t.Context(), &ids, "SELECT DISTINCT on_server FROM app.orders ORDER BY on_server"))
	slices.Sort(ids)
	return ids
}

// TestRoutingKilledPrimary kills the primary under load: what was under way has an
// unknown outcome at most, what came later is held, and nothing acknowledged is lost.
func TestRoutingKilledPrimary(t *testing.T) {
	c, m, r := routed(t, holding(20*time.Second))
	s := open(t, r, 8)
	s.more(t, 200)
	require.NoError(t, c.Servers[0].Kill())
	v := until(t, m, 15*time.Second, "another primary", func(v monitor.View) bool { return v.Primary != nil && v.Primary.Name != "s1" })
	primaryIs(t, r, v.Primary.Name)
	s.more(t, 200)
	s.stop()
	for _, err := range s.errs {
		require.ErrorIs(t, err, routing.ErrPrimaryChanged)
		require.ErrorIs(t, err, routing.ErrOutcomeUnknown, "a failure that is certain is not the caller's business while writes are held")
	}
	require.LessOrEqual(t, len(s.errs), 8)
	inSyncExcept(t, c, v.Primary.Name, 0)
	for _, server := range c.Servers[1:] {
		s.check(t, server)
	}
	t.Logf("%d writes, %d of unknown outcome, longest pause %v", len(s.acked), len(s.unknown), s.longest.Round(time.Millisecond))
}
