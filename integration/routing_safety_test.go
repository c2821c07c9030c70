package integration

import (
	"context"
	"database/sql"
	"errors"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/internal/testdb"
	"github.com/lockstep-ha/lockstep/locks"
	"github.com/lockstep-ha/lockstep/monitor"
	"github.com/lockstep-ha/lockstep/monitor/api"
	"github.com/lockstep-ha/lockstep/monitor/routing"
)

// frozen is a source that gives one view and never another.
type frozen struct{ view routing.View }

func (f frozen) Watch(ctx context.Context, publish func(routing.View)) {
	publish(f.view)
	<-ctx.Done()
}

// viewOf makes a view that names a server as the primary for some time.
func viewOf(c *testdb.Cluster, primary string, valid time.Duration) routing.View {
	v := routing.View{Primary: primary, Until: routing.Now() + valid, Reason: "frozen"}
	for i, s := range c.Servers {
		v.Servers = append(v.Servers, routing.Server{Name: serverName(i), Address: s.Addr(), Readable: serverName(i) != primary})
	}
	return v
}

// TestRoutingFrozenView: a router whose source stands still gets no connection for
// writes on a server that has lost its primary lock, though the view still names it
// and it is writable.
func TestRoutingFrozenView(t *testing.T) {
	c, m, r := routed(t)
	old := router(t, frozen{viewOf(c, "s1", time.Hour)})
	_, err := old.Primary().ExecContext(t.Context(), "INSERT INTO orders VALUES (1, 1, 1)")
	require.NoError(t, err, "as long as s1 has the lock")
	conn, err := old.Primary().Conn(t.Context())
	require.NoError(t, err)
	_, err = conn.ExecContext(t.Context(), "INSERT INTO orders VALUES (2, 1, 1)")
	require.NoError(t, err)

	switchTo(t, m, "s2")
	primaryIs(t, r, "s2")
	late := router(t, frozen{viewOf(c, "s1", time.Hour)})
	_, err = late.Primary().ExecContext(t.Context(), "INSERT INTO orders VALUES (3, 1, 1)")
	require.ErrorIs(t, err, routing.ErrNoPrimary)
	require.ErrorIs(t, err, routing.ErrNotPrimary)
	require.ErrorContains(t, err, "it is read-only")

	// A connection from before meets the server's own refusal.
	_, err = conn.ExecContext(t.Context(), "INSERT INTO orders VALUES (4, 1, 1)")
	require.ErrorIs(t, err, routing.ErrPrimaryChanged)
	require.NotErrorIs(t, err, routing.ErrOutcomeUnknown)
	require.NoError(t, conn.Close())

	// Even writable it is refused: it is the lock that counts.
	m.stop()
	c.Servers[0].MustExec(t, "SET GLOBAL read_only = 0")
	_, err = late.Primary().ExecContext(t.Context(), "INSERT INTO orders VALUES (5, 1, 1)")
	require.ErrorIs(t, err, routing.ErrNotPrimary)
	require.ErrorContains(t, err, "nobody holds its primary lock")
	taken := mustConnect(t, c.Servers[0], testdb.MonitorUser)
	taken.run("DO GET_LOCK('" + locks.DefaultPrimaryLock + "', 0)")
	_, err = late.Primary().ExecContext(t.Context(), "INSERT INTO orders VALUES (6, 1, 1)")
	require.ErrorContains(t, err, "not held by the same connection")
	taken.run("DO GET_LOCK('" + locks.DefaultServerLock + "', 0)")
	_, err = late.Primary().ExecContext(t.Context(), "INSERT INTO orders VALUES (7, 1, 1)")
	require.NoError(t, err)
	require.Equal(t, uint64(3), late.Stats().Refused)
	require.Equal(t, "3", c.Servers[0].MustQuery(t, "SELECT COUNT(*) FROM app.orders"))
}

// TestRoutingExpiredView: a view that has run out offers no primary, not even to what
// is under way.
func TestRoutingExpiredView(t *testing.T) {
	c, _, _ := routed(t)
	r := router(t, frozen{viewOf(c, "s1", 400*time.Millisecond)})
	tx, err := r.Primary().BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = tx.Exec("INSERT INTO orders VALUES (1, 1, 1)")
	require.NoError(t, err)
	primaryIs(t, r, "")
	_, err = r.Primary().ExecContext(t.Context(), "INSERT INTO orders VALUES (2, 1, 1)")
	require.ErrorIs(t, err, routing.ErrNoPrimary)
	require.ErrorContains(t, err, "the view has expired")
	err = tx.Commit()
	require.ErrorIs(t, err, routing.ErrPrimaryChanged)
	require.NotErrorIs(t, err, routing.ErrOutcomeUnknown)
	require.Equal(t, "0", c.Servers[0].MustQuery(t, "SELECT COUNT(*) FROM app.orders"))
	require.Equal(t, uint64(1), r.Stats().ViewsExpired)
	_, err = r.Replica(t.Context(), routing.Any)
	require.NoError(t, err, "replicas stay readable")
}

// TestRoutingHardCut: statements under way on a server that is the primary no more
// fail at once.
func TestRoutingHardCut(t *testing.T) {
	c, m, r := routed(t, func(o *routing.Options) { o.HardCut = true })
	primaryIs(t, r, "s1")
	failed := make(chan error, 2)
	var ready sync.WaitGroup
	for range 2 {
		ready.Add(1)
		go func() {
			conn, err := r.Primary().Conn(context.Background())
			if err == nil {
				_, err = conn.ExecContext(context.Background(), "SET @x = 1")
			}
			ready.Done()
			if err == nil {
				_, err = conn.ExecContext(context.Background(), "DO SLEEP(30)")
				_ = conn.Close()
			}
			failed <- err
		}()
	}
	ready.Wait()
	require.Eventually(t, func() bool {
		return c.Servers[0].MustQuery(t, "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE INFO LIKE 'DO SLEEP%'") == "2"
	}, 5*time.Second, 5*time.Millisecond)
	switchTo(t, m, "s2")
	for range 2 {
		select {
		case err := <-failed:
			require.ErrorIs(t, err, routing.ErrPrimaryChanged)
			require.ErrorIs(t, err, routing.ErrOutcomeUnknown)
		case <-time.After(5 * time.Second):
			t.Fatal("a statement is still under way on the old primary")
		}
	}
	require.Equal(t, uint64(2), r.Stats().Cut)
}

// TestRoutingOpenTransaction: a transaction that was open when the primary changed
// is not committed on the old one, and is begun again.
func TestRoutingOpenTransaction(t *testing.T) {
	c, m, r := routed(t, holding(10*time.Second))
	primaryIs(t, r, "s1")
	attempts := 0
	require.NoError(t, r.Retry(t.Context(), func(tx *sql.Tx) error {
		attempts++
		if _, err := tx.Exec("INSERT INTO orders VALUES (1, ?, @@server_id)", attempts); err != nil {
			return err
		}
		if attempts == 1 {
			switchTo(t, m, "s2")
			primaryIs(t, r, "s2")
		}
		return nil
	}))
	require.Equal(t, 2, attempts)
	inSync(t, c, "s2")
	for _, s := range c.Servers {
		require.Equal(t, "2-2", s.MustQuery(t, "SELECT GROUP_CONCAT(n, '-', on_server) FROM app.orders"))
	}
}

// TestRoutingReadYourWrites: with a replica that applies nothing no read is stale.
func TestRoutingReadYourWrites(t *testing.T) {
	c, _, r := routed(t, func(o *routing.Options) { o.SessionWait = 20 * time.Millisecond; o.Policy = routing.RoundRobin })
	primaryIs(t, r, "s1")
	release := blockApply(t, c, c.Servers[1])
	all := r.DB(routing.Any)
	var wg sync.WaitGroup
	stale, errs := make(chan int, 1000), make(chan error, 1000)
	for w := range 4 {
		wg.Go(func() {
			for i := range 100 {
				id := w*1000 + i
				tracker := routing.NewTracker(routing.Token{})
				ctx := routing.WithTracker(t.Context(), tracker)
				if _, err := all.ExecContext(ctx, "INSERT INTO orders VALUES (?, 1, 1)", id); err != nil {
					errs <- err
					return
				}
				// As it comes back with the next request.
				token, err := r.ParseToken(r.FormatToken(tracker.Token()))
				if err != nil {
					errs <- err
					return
				}
				var got int
				switch err := all.QueryRowContext(routing.WithToken(t.Context(), token), "SELECT id FROM orders WHERE id = ?", id).Scan(&got); {
				case errors.Is(err, sql.ErrNoRows):
					stale <- id
				case err != nil:
					errs <- err
				}
			}
		})
	}
	wg.Wait()
	release()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
	require.Empty(t, stale, "reads that lack the write before them")
	st := r.Stats()
	t.Logf("%d known, %d waited, %d waits in vain, fallbacks %v", picksOf(r, "replica", "session_known"), picksOf(r, "replica", "session_waited"), st.WaitTimeouts, st.Fallbacks)
	require.NotZero(t, st.WaitTimeouts, "the replica that stands still was never asked")

	// Without a token the same reads are stale: the test can fail.
	release = blockApply(t, c, c.Servers[1])
	defer release()
	missing := 0
	for i := range 20 {
		id := 10_000 + i
		_, err := all.ExecContext(t.Context(), "INSERT INTO orders VALUES (?, 1, 1)", id)
		require.NoError(t, err)
		if err := all.QueryRowContext(t.Context(), "SELECT id FROM orders WHERE id = ?", id).Scan(new(int)); errors.Is(err, sql.ErrNoRows) {
			missing++
		}
	}
	require.NotZero(t, missing)
}

// TestRoutingEventual leaves out a replica that is too old, and takes it back.
func TestRoutingEventual(t *testing.T) {
	c, m, r := routed(t)
	primaryIs(t, r, "s1")
	all := r.DB(routing.Eventual(time.Second))
	release := blockApply(t, c, c.Servers[1])
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
				c.Primary().MustExec(t, "INSERT INTO app.orders VALUES ("+strconv.Itoa(i)+", 1, 1)")
			}
		}
	})
	until(t, m, 10*time.Second, "s2 lags", func(v monitor.View) bool {
		s := serverOf(t, v, "s2")
		return s.LagMS != nil && *s.LagMS > 1200
	})
	for range 50 {
		require.NotEqual(t, 2, serverID(t, all))
	}
	close(stop)
	wg.Wait()
	release()
	require.Eventually(t, func() bool { return serverID(t, all) == 2 }, 10*time.Second, 10*time.Millisecond)
}

// TestRoutingFromURL follows a daemon's view.
func TestRoutingFromURL(t *testing.T) {
	c, m, _ := routed(t)
	server := httptest.NewServer(api.Handler(func() []*monitor.Monitor { return []*monitor.Monitor{m.Monitor} }))
	defer server.Close()
	source, err := routing.FromURL(routing.URLConfig{URLs: []string{"http://127.0.0.1:1", server.URL}, Cluster: "test", Poll: 20 * time.Millisecond})
	require.NoError(t, err)
	r := router(t, source, holding(10*time.Second))
	follows(t, c, m, r)
	server.CloseClientConnections()
	server.Close()
	primaryIs(t, r, "")
}

// TestRoutingFromLocks follows the locks alone.
func TestRoutingFromLocks(t *testing.T) {
	c, m, _ := routed(t)
	cfg := routing.LocksConfig{User: testdb.MonitorUser, Password: testdb.MonitorPassword, TrustedUsers: []string{testdb.MonitorUser},
		Interval: fastInterval, Timeout: fastTimeout, WaitTimeoutFloor: time.Second}
	for i, s := range c.Servers {
		cfg.Servers = append(cfg.Servers, routing.LockServer{Name: serverName(i), Address: s.Addr()})
	}
	source, err := routing.FromLocks(cfg)
	require.NoError(t, err)
	r := router(t, source, holding(10*time.Second))
	follows(t, c, m, r)

	// Locks of an account that is no monitor name nobody.
	cfg.TrustedUsers = []string{"somebody"}
	source, err = routing.FromLocks(cfg)
	require.NoError(t, err)
	other := router(t, source)
	require.Eventually(t, func() bool {
		_, err := other.Primary().ExecContext(t.Context(), "DO 1")
		return err != nil && contains(err.Error(), "which is not trusted")
	}, 5*time.Second, 10*time.Millisecond)
	m.stop()
	primaryIs(t, r, "")
}

// follows moves the primary and kills it, under load through a router.
func follows(t *testing.T, c *testdb.Cluster, m running, r *routing.Router) {
	t.Helper()
	primaryIs(t, r, "s1")
	db, err := r.Replica(t.Context(), routing.Any)
	require.NoError(t, err)
	require.NotEqual(t, 1, serverID(t, db))
	s := open(t, r, 4)
	s.more(t, 50)
	switchTo(t, m, "s2")
	primaryIs(t, r, "s2")
	s.more(t, 50)
	require.Empty(t, s.failures())
	until(t, m, 5*time.Second, "s1 follows", replicates("s1", "s2"))
	require.Eventually(t, func() bool { return readable(r) == 2 }, 5*time.Second, 10*time.Millisecond)
	_, token, err := r.Exec(t.Context(), "INSERT INTO orders VALUES (-1, 1, 1)")
	require.NoError(t, err)
	require.NoError(t, r.DB(routing.Session(token)).QueryRowContext(t.Context(), "SELECT n FROM orders WHERE id = -1").Scan(new(int)))
	_, err = r.Primary().ExecContext(t.Context(), "DELETE FROM orders WHERE id = -1")
	require.NoError(t, err)
	s.stop()
	inSync(t, c, "s2")
	s.check(t, c.Servers[2])
}

func readable(r *routing.Router) (n int) {
	for _, s := range r.Stats().Servers {
		if s.Readable {
			n++
		}
	}
	return n
}
