package integration

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql" // the driver of plain clients
	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/election"
	"github.com/lockstep-ha/lockstep/internal/testdb"
	"github.com/lockstep-ha/lockstep/locks"
	"github.com/lockstep-ha/lockstep/monitor"
	"github.com/lockstep-ha/lockstep/topology"
)

// client is a connection that is no monitor's.
type client struct {
	t    *testing.T
	db   *sql.DB
	conn *sql.Conn
	id   uint64
}

// connectAs opens one connection to a server.
func connectAs(t *testing.T, s *testdb.Server, user string) (*client, error) {
	t.Helper()
	db, err := sql.Open("mysql", s.DSN(user))
	require.NoError(t, err)
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { _ = db.Close() })
	conn, err := db.Conn(t.Context())
	if err != nil {
		_ = db.Close()
		return nil, err
	}
	c := &client{t: t, db: db, conn: conn}
	require.NoError(t, conn.QueryRowContext(t.Context(), "SELECT CONNECTION_ID()").Scan(&c.id))
	return c, nil
}

func mustConnect(t *testing.T, s *testdb.Server, user string) *client {
	t.Helper()
	c, err := connectAs(t, s, user)
	require.NoError(t, err)
	return c
}

// lock takes locks, none of which may be held by another.
func (c *client) lock(names ...string) *client {
	c.t.Helper()
	for _, n := range names {
		var got int
		require.NoError(c.t, c.conn.QueryRowContext(c.t.Context(), "SELECT GET_LOCK(?,0)", n).Scan(&got))
		require.Equal(c.t, 1, got, "lock %s", n)
	}
	return c
}

func (c *client) close() {
	_ = c.conn.Close()
	_ = c.db.Close()
}

// holder returns who holds a lock on a server, "" for nobody.
func holder(t *testing.T, s *testdb.Server, name string) string {
	t.Helper()
	return s.MustQuery(t, "SELECT IS_USED_LOCK(?)", name)
}

// noLocks waits until no lock is held on any server, and checks that none comes.
func noLocks(t *testing.T, within time.Duration, servers ...*testdb.Server) {
	t.Helper()
	require.Eventually(t, func() bool {
		for _, s := range servers {
			if holder(t, s, locks.DefaultServerLock)+holder(t, s, locks.DefaultPrimaryLock) != "" {
				return false
			}
		}
		return true
	}, within, 5*time.Millisecond, "locks are left")
}

func faultOf(v monitor.View, code, server string) (monitor.FaultView, bool) {
	i := slices.IndexFunc(v.Faults, func(f monitor.FaultView) bool { return f.Code == code && f.Server == server })
	if i < 0 {
		return monitor.FaultView{}, false
	}
	return v.Faults[i], true
}

func hasFault(code, server string) func(monitor.View) bool {
	return func(v monitor.View) bool { _, ok := faultOf(v, code, server); return ok }
}

func noFaults(v monitor.View) bool { return len(v.Faults) == 0 }

func serverOf(t *testing.T, v monitor.View, name string) monitor.ServerView {
	t.Helper()
	i := slices.IndexFunc(v.Servers, func(s monitor.ServerView) bool { return s.Name == name })
	require.GreaterOrEqual(t, i, 0, "no server %s", name)
	return v.Servers[i]
}

func account(user string, grants ...string) testdb.Account {
	return testdb.Account{User: user, Password: user + "-secret", Grants: grants}
}

// as makes a monitor log in with an account made by account.
func as(user string) func(*monitor.Config) {
	return func(cfg *monitor.Config) { cfg.User, cfg.Password = user, user+"-secret" }
}

func TestServerDownAtStart(t *testing.T) {
	c := testdb.NewCluster(t, 3, testdb.ClusterOptions{})
	require.NoError(t, c.Servers[2].Stop(t.Context()))
	m := start(t, configOf(c))
	v := until(t, m, 5*time.Second, "s1 is offered", offers("s1"))
	require.Equal(t, 2, v.Monitor.Majority.Held)
	s3 := serverOf(t, v, "s3")
	require.Equal(t, topology.Refused.String(), s3.Evidence)
	require.Contains(t, s3.Detail, "connection refused")
	require.Equal(t, []string{"Down"}, s3.State)
	require.EqualValues(t, -1, s3.ProbeAgeMS)
	for _, name := range []string{"s1", "s2"} {
		s := serverOf(t, v, name)
		require.Equal(t, topology.Answered.String(), s.Evidence)
		require.Contains(t, s.State, "Running")
	}
	require.NoError(t, c.Servers[2].Restart(t.Context()))
	until(t, m, 10*time.Second, "s3 is counted", func(v monitor.View) bool {
		return v.Monitor.Majority.Held == 3 && slices.Contains(serverOf(t, v, "s3").State, "Running")
	})
}

func TestPrimaryServerDownAtStart(t *testing.T) {
	c := testdb.NewCluster(t, 3, testdb.ClusterOptions{})
	require.NoError(t, c.Servers[0].Kill())
	m := start(t, configOf(c))
	v := until(t, m, 5*time.Second, "the majority is held", func(v monitor.View) bool { return v.Monitor.Primary })
	require.Nil(t, v.Primary)
	require.Contains(t, v.Reason, "s1, which cannot take writes: connection refused")
	require.NoError(t, c.Servers[0].Restart(t.Context()))
	until(t, m, 10*time.Second, "s1 is offered", offers("s1"))
}

// TestPrimaryServerDownAtStartIsReplaced starts a monitor that has never seen the
// primary: what its replicas say is enough, after the time for stale locks.
func TestPrimaryServerDownAtStartIsReplaced(t *testing.T) {
	c := testdb.NewCluster(t, 3, testdb.ClusterOptions{Server: testdb.Options{Operate: true}})
	require.NoError(t, c.Servers[0].Kill())
	m := start(t, configOf(c, operating))
	began := time.Now()
	until(t, m, 15*time.Second, "another primary", otherThan("s1"))
	require.GreaterOrEqual(t, time.Since(began), m.Timing().StaleAfter())
}

func TestWrongPassword(t *testing.T) {
	c := testdb.NewCluster(t, 3, testdb.ClusterOptions{})
	m := start(t, configOf(c, func(cfg *monitor.Config) {
		cfg.Servers[2].User, cfg.Servers[2].Password = testdb.MonitorUser, "wrong"
	}))
	v := until(t, m, 5*time.Second, "s1 is offered", offers("s1"))
	f, ok := faultOf(v, "access_denied", "s3")
	require.True(t, ok, "%v", v.Faults)
	require.Contains(t, f.Text, "Access denied")
	require.Contains(t, f.Remedy, `"monitor"`)
	require.NotContains(t, fmt.Sprint(v), "wrong")
	deadline := time.Now().Add(5 * fastInterval)
	for time.Now().Before(deadline) {
		v = m.View()
		s3 := serverOf(t, v, "s3")
		require.Contains(t, s3.State, "Auth Error")
		require.Equal(t, topology.AccessDenied.String(), s3.Evidence)
		require.False(t, topology.AccessDenied.Down())
		require.True(t, offers("s1")(v))
		require.Equal(t, 2, v.Monitor.Majority.Held)
		time.Sleep(10 * time.Millisecond)
	}
}

// grantMissing starts a monitor whose account lacks a privilege, and grants it
// with the very statement that the fault gives.
func grantMissing(t *testing.T) (*testdb.Cluster, running) {
	t.Helper()
	c := testdb.NewCluster(t, 3, testdb.ClusterOptions{Server: testdb.Options{Accounts: []testdb.Account{account("bare", "PROCESS ON *.*")}}})
	m := start(t, configOf(c, as("bare")))
	v := until(t, m, 5*time.Second, "the fault", hasFault("missing_privilege", "s2"))
	f, _ := faultOf(v, "missing_privilege", "s2")
	require.Contains(t, f.Text, "SLAVE MONITOR")
	require.True(t, strings.HasPrefix(f.Remedy, "GRANT SLAVE MONITOR ON *.* TO "), f.Remedy)
	require.Contains(t, serverOf(t, v, "s2").State, "Running")
	for _, s := range c.Servers {
		s.MustExec(t, "SET SESSION sql_log_bin=0", f.Remedy, "SET SESSION sql_log_bin=1")
	}
	return c, m
}

func TestMissingReplicationPrivilege(t *testing.T) {
	c, m := grantMissing(t)
	for _, s := range c.Servers { // a grant holds for connections that begin after it
		s.MustExec(t, "KILL USER bare")
	}
	until(t, m, 10*time.Second, "the fault goes", func(v monitor.View) bool { return noFaults(v) && offers("s1")(v) })
}

// TestGrantIsNoticed expects the same of the connections that there are.
func TestGrantIsNoticed(t *testing.T) {
	_, m := grantMissing(t)
	until(t, m, 10*time.Second, "the fault goes", func(v monitor.View) bool { return noFaults(v) && offers("s1")(v) })
}

func TestMissingProcessPrivilege(t *testing.T) {
	c := testdb.NewCluster(t, 3, testdb.ClusterOptions{Server: testdb.Options{Accounts: []testdb.Account{account("blind", "REPLICA MONITOR ON *.*")}}})
	foreign := mustConnect(t, c.Servers[2], testdb.AppUser).lock(locks.DefaultServerLock)
	m := start(t, configOf(c, as("blind")))
	v := until(t, m, 5*time.Second, "the fault", hasFault("forged_server_lock", "s3"))
	f, _ := faultOf(v, "forged_server_lock", "s3")
	require.Contains(t, f.Text, "cannot see")
	require.Contains(t, f.Remedy, "GRANT PROCESS ON *.* TO blind")
	require.Contains(t, f.Remedy, fmt.Sprintf("KILL %d", foreign.id))
	until(t, m, 5*time.Second, "s1 is offered", offers("s1"))
	// Another monitor of the same account is recognised all the same.
	other := start(t, configOf(c, as("blind"), named("other")))
	v = until(t, other, 5*time.Second, "the other follows", offers("s1"))
	require.Equal(t, election.Secondary, v.Monitor.Role)
	foreign.close()
	until(t, m, 5*time.Second, "the fault goes", func(v monitor.View) bool {
		return !hasFault("forged_server_lock", "s3")(v) && v.Monitor.Majority.Held == 3
	})
}

func TestDuplicateServerID(t *testing.T) {
	c := testdb.NewCluster(t, 2, testdb.ClusterOptions{NoReplication: true, Each: func(_ int, o *testdb.Options) { o.ServerID = 7 }})
	c.Servers[1].MustExec(t, "SET GLOBAL read_only=1")
	m := start(t, configOf(c))
	v := until(t, m, 5*time.Second, "the fault", hasFault("duplicate_server_id", "s2"))
	f, _ := faultOf(v, "duplicate_server_id", "s2")
	require.Contains(t, f.Text, "s1 and s2 both have server_id 7")
	require.NotEmpty(t, f.Remedy)
	require.False(t, hasFault("same_server", "s2")(v))
	until(t, m, 5*time.Second, "both are counted", func(v monitor.View) bool { return v.Monitor.Majority.Held == 2 })
}

func TestSameServerTwice(t *testing.T) {
	c := testdb.NewCluster(t, 2, testdb.ClusterOptions{})
	m := start(t, twice(t, c, newLink(t)))
	v := until(t, m, 5*time.Second, "s1 is offered", offers("s1"))
	f, ok := faultOf(v, "same_server", "s1again")
	require.True(t, ok, "%v", v.Faults)
	require.Contains(t, f.Text, "s1 and s1again are the same server")
	require.NotEmpty(t, f.Remedy)
	require.Equal(t, 2, v.Monitor.Majority.Held)

	// Alone it is one vote of three, not two.
	require.NoError(t, c.Servers[1].Stop(t.Context()))
	until(t, m, 5*time.Second, "the majority is lost", func(v monitor.View) bool { return !v.Monitor.Primary })
	deadline := time.Now().Add(2 * time.Second)
	for time.Now().Before(deadline) {
		v = m.View()
		require.False(t, v.Monitor.Primary, v.Monitor.Reason)
		require.LessOrEqual(t, v.Monitor.Majority.Held, 1)
		require.Nil(t, v.Primary, v.Reason) // it must not follow itself
		time.Sleep(2 * time.Millisecond)
	}
	require.NoError(t, c.Servers[1].Restart(t.Context()))
	until(t, m, 10*time.Second, "s1 is offered again", offers("s1"))

}

// TestSameServerTwiceOneWayCut cuts the first of two ways to one server: the
// second may then be the vote, but never are both.
func TestSameServerTwiceOneWayCut(t *testing.T) {
	c := testdb.NewCluster(t, 2, testdb.ClusterOptions{})
	first := newLink(t)
	m := start(t, twice(t, c, first))
	until(t, m, 5*time.Second, "s1 is offered", offers("s1"))
	first.set(linkReset)
	never(t, m, 2*time.Second, "one server was two votes", func(v monitor.View) bool { return v.Monitor.Majority.Held > 2 })
	first.set(linkPass)
	v := until(t, m, 10*time.Second, "s1 is offered once more", func(v monitor.View) bool {
		require.LessOrEqual(t, v.Monitor.Majority.Held, 2)
		return offers("s1")(v) && v.Monitor.Majority.Held == 2
	})
	require.True(t, hasFault("same_server", "s1again")(v), "%v", v.Faults)
}

// twice describes a cluster of two with its first server listed twice, the first
// time behind a link.
func twice(t *testing.T, c *testdb.Cluster, first *link) monitor.Config {
	t.Helper()
	return configOf(c, func(cfg *monitor.Config) {
		cfg.Servers = append(cfg.Servers, monitor.ServerConfig{Name: "s1again", Address: newLink(t).to(t, c.Servers[0].Addr())})
		cfg.Servers[0].Address = first.to(t, c.Servers[0].Addr())
		cfg.Servers[0].PrivateAddress = c.Servers[0].Addr()
	})
}

// TestSameServerTwiceElsewhere lists it twice under addresses that the replicas
// do not know.
func TestSameServerTwiceElsewhere(t *testing.T) {
	c := testdb.NewCluster(t, 2, testdb.ClusterOptions{})
	m := start(t, configOf(c, func(cfg *monitor.Config) {
		l := newLink(t)
		cfg.Servers = append(cfg.Servers, monitor.ServerConfig{Name: "s1again", Address: l.to(t, c.Servers[0].Addr())})
		cfg.Servers[0].Address = l.to(t, c.Servers[0].Addr())
	}))
	v := until(t, m, 5*time.Second, "s1 is offered", offers("s1"))
	require.True(t, hasFault("same_server", "s1again")(v), "%v", v.Faults)
	require.Equal(t, "s1", serverOf(t, v, "s2").Source)
}

func TestMaxConnections(t *testing.T) {
	c := testdb.NewCluster(t, 3, testdb.ClusterOptions{Server: testdb.Options{MaxConnections: 15}})
	m := start(t, configOf(c, named("before")))
	until(t, m, 10*time.Second, "the first settles", func(v monitor.View) bool { return v.Monitor.Role == election.Primary })
	var full []*client
	for {
		cl, err := connectAs(t, c.Servers[0], testdb.AppUser)
		if err != nil {
			require.ErrorContains(t, err, "1040")
			break
		}
		full = append(full, cl)
	}
	require.NotEmpty(t, full)
	late := start(t, configOf(c, named("after")))
	v := until(t, late, 5*time.Second, "the fault", hasFault("too_many_connections", "s1"))
	f, _ := faultOf(v, "too_many_connections", "s1")
	require.NotEmpty(t, f.Remedy)
	deadline := time.Now().Add(5 * fastInterval)
	for time.Now().Before(deadline) {
		v = m.View()
		require.Equal(t, election.Primary, v.Monitor.Role, v.Monitor.Reason)
		require.Equal(t, 3, v.Monitor.Majority.Held)
		require.True(t, offers("s1")(v), v.Reason)
		v = late.View()
		s1 := serverOf(t, v, "s1")
		require.Equal(t, topology.TooManyConnections.String(), s1.Evidence)
		require.NotContains(t, s1.State, "Down")
		require.Equal(t, election.Secondary, v.Monitor.Role)
		time.Sleep(5 * time.Millisecond)
	}
	for _, cl := range full {
		cl.close()
	}
	until(t, late, 5*time.Second, "the late one follows", func(v monitor.View) bool { return noFaults(v) && offers("s1")(v) })
}

func TestNothingWritable(t *testing.T) {
	c := testdb.NewCluster(t, 3, testdb.ClusterOptions{})
	before := start(t, configOf(c, named("before")))
	until(t, before, 5*time.Second, "s1 is offered", offers("s1"))
	c.Servers[0].MustExec(t, "SET GLOBAL read_only=1")
	v := until(t, before, 5*time.Second, "no primary", func(v monitor.View) bool { return v.Primary == nil })
	require.Contains(t, v.Reason, "s1 cannot take writes: read-only")
	require.True(t, v.Monitor.Primary)
	until(t, before, 5*time.Second, "the primary lock goes", func(v monitor.View) bool { return !v.Monitor.PrimaryLockHeld })
	require.Empty(t, holder(t, c.Servers[0], locks.DefaultPrimaryLock))
	before.stop()

	after := start(t, configOf(c, named("after")))
	v = until(t, after, 5*time.Second, "the majority is held", func(v monitor.View) bool { return v.Monitor.Primary })
	require.Nil(t, v.Primary)
	require.Contains(t, v.Reason, "s1 is read-only; it replicates from nobody, 2 of 2 other servers replicate from it")
	c.Servers[0].MustExec(t, "SET GLOBAL read_only=0")
	until(t, after, 5*time.Second, "s1 is offered", offers("s1"))
}

func TestTwoWritable(t *testing.T) {
	c := testdb.NewCluster(t, 2, testdb.ClusterOptions{NoReplication: true})
	m := start(t, configOf(c))
	v := until(t, m, 10*time.Second, "the monitor settles", func(v monitor.View) bool { return v.Monitor.Role == election.Primary })
	require.Nil(t, v.Primary)
	require.Contains(t, v.Reason, "2 writable servers")
	require.Contains(t, v.Reason, "s1, s2")
	for _, s := range c.Servers {
		require.Empty(t, holder(t, s, locks.DefaultPrimaryLock))
	}
	c.Servers[0].MustExec(t, "SET GLOBAL read_only=1")
	until(t, m, 5*time.Second, "the writable one is offered", offers("s2"))
}

func TestNameDoesNotResolve(t *testing.T) {
	c := testdb.NewCluster(t, 2, testdb.ClusterOptions{})
	m := start(t, configOf(c, func(cfg *monitor.Config) {
		cfg.Servers = append(cfg.Servers, monitor.ServerConfig{Name: "s3", Address: "name.invalid:3306"})
	}))
	v := until(t, m, 5*time.Second, "s1 is offered", offers("s1"))
	require.Equal(t, 2, v.Monitor.Majority.Held)
	v = until(t, m, 5*time.Second, "the fault", hasFault("name_resolution", "s3"))
	f, _ := faultOf(v, "name_resolution", "s3")
	require.Contains(t, f.Text, "name.invalid")
	require.NotEmpty(t, f.Remedy)
	require.Equal(t, topology.NameResolution.String(), serverOf(t, v, "s3").Evidence)
	require.False(t, topology.NameResolution.Down())
}
