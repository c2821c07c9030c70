package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/election"
	"github.com/lockstep-ha/lockstep/internal/testdb"
	"github.com/lockstep-ha/lockstep/locks"
	"github.com/lockstep-ha/lockstep/monitor"
)

func trusting(users ...string) func(*monitor.Config) {
	return func(cfg *monitor.Config) { cfg.TrustedLockUsers = users }
}

// never checks for a time that no view has a property.
func never(t *testing.T, m running, d time.Duration, what string, bad func(monitor.View) bool) {
	t.Helper()
	for deadline := time.Now().Add(d); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		if v := m.View(); bad(v) {
			t.Fatalf("%s\nrole %s (%s)\nprimary %v (%s)\nfaults %v", what, v.Monitor.Role, v.Monitor.Reason, v.Primary, v.Reason, v.Faults)
		}
	}
}

// killsIt checks that a fault says how to end a connection.
func killsIt(t *testing.T, v monitor.View, code, server string, c *client) {
	t.Helper()
	f, ok := faultOf(v, code, server)
	require.True(t, ok, "%v", v.Faults)
	require.Contains(t, f.Text, "app@127.0.0.1:")
	require.Contains(t, f.Text, fmt.Sprintf("connection %d", c.id))
	require.Contains(t, f.Remedy, fmt.Sprintf("KILL %d on %s", c.id, server))
}

func TestForgedServerLock(t *testing.T) {
	c := testdb.NewCluster(t, 3, testdb.ClusterOptions{})
	forger := mustConnect(t, c.Servers[2], testdb.AppUser).lock(locks.DefaultServerLock)
	m := start(t, configOf(c, named("a")))
	v := until(t, m, 5*time.Second, "s1 is offered", offers("s1"))
	require.Equal(t, 2, v.Monitor.Majority.Held)
	v = until(t, m, 5*time.Second, "the fault", hasFault("forged_server_lock", "s3"))
	killsIt(t, v, "forged_server_lock", "s3", forger)
	owner := serverOf(t, v, "s3").LockOwner
	require.NotNil(t, owner)
	require.Equal(t, "app", owner.User)
	require.False(t, owner.Trusted)

	other := start(t, configOf(c, named("b")))
	v = until(t, other, 5*time.Second, "the secondary follows", offers("s1"))
	require.Equal(t, election.Secondary, v.Monitor.Role)

	// The remedy works.
	c.Servers[2].MustExec(t, fmt.Sprintf("KILL %d", forger.id))
	until(t, m, 5*time.Second, "the vote is got", func(v monitor.View) bool { return v.Monitor.Majority.Held == 3 && noFaults(v) })
}

// TestForgedPrimaryLock takes the primary lock of the primary server, alone and
// with the server lock, before the monitors come.
func TestForgedPrimaryLock(t *testing.T) {
	c := testdb.NewCluster(t, 3, testdb.ClusterOptions{})
	forger := mustConnect(t, c.Servers[0], testdb.AppUser).lock(locks.DefaultPrimaryLock)
	m := start(t, configOf(c, named("a")))
	v := until(t, m, 5*time.Second, "the majority is held", func(v monitor.View) bool { return v.Monitor.Majority.Held == 3 })
	killsIt(t, v, "forged_primary_lock", "s1", forger)
	v = until(t, m, 5*time.Second, "the monitor settles", func(v monitor.View) bool { return v.Monitor.Role == election.Primary })
	require.True(t, offers("s1")(v), v.Reason)
	require.False(t, v.Monitor.PrimaryLockHeld)

	other := start(t, configOf(c, named("b")))
	v = until(t, other, 5*time.Second, "the fault", hasFault("forged_primary_lock", "s1"))
	killsIt(t, v, "forged_primary_lock", "s1", forger)
	require.Contains(t, v.Reason, "not trusted")
	never(t, other, time.Second, "a forged lock was followed", func(v monitor.View) bool { return v.Primary != nil })

	c.Servers[0].MustExec(t, fmt.Sprintf("KILL %d", forger.id))
	until(t, other, 5*time.Second, "the secondary follows", offers("s1"))
}

// TestForgedPublication has an application hold both locks of a replica, on one
// connection, while there are monitors.
func TestForgedPublication(t *testing.T) {
	c := testdb.NewCluster(t, 3, testdb.ClusterOptions{})
	forger := mustConnect(t, c.Servers[1], testdb.AppUser).lock(locks.DefaultServerLock, locks.DefaultPrimaryLock)
	c.Servers[1].MustExec(t, "SET GLOBAL read_only=0")
	m := start(t, configOf(c, named("a")))
	other := start(t, configOf(c, named("b")))
	both := []running{m, other}
	for _, x := range both {
		v := until(t, x, 5*time.Second, "s1 is offered", func(v monitor.View) bool {
			require.False(t, offers("s2")(v), "the forged lock was followed")
			return offers("s1")(v) && hasFault("forged_primary_lock", "s2")(v)
		})
		killsIt(t, v, "forged_server_lock", "s2", forger)
		killsIt(t, v, "forged_primary_lock", "s2", forger)
	}
	for _, x := range both {
		never(t, x, time.Second, "s1 is no longer offered", func(v monitor.View) bool { return !offers("s1")(v) })
	}
	roles := []election.Role{m.View().Monitor.Role, other.View().Monitor.Role}
	require.Contains(t, roles, election.Secondary)
	require.NotEqual(t, roles[0], roles[1])

	// On a majority it keeps the monitors from electing, and is still not followed.
	m.stop()
	other.stop()
	mustConnect(t, c.Servers[0], testdb.AppUser).lock(locks.DefaultServerLock, locks.DefaultPrimaryLock)
	m = start(t, configOf(c, named("c")))
	v := until(t, m, 5*time.Second, "the fault", hasFault("forged_server_lock", "s1"))
	require.Nil(t, v.Primary)
	never(t, m, time.Second, "a forged lock was followed", func(v monitor.View) bool {
		return v.Primary != nil || v.Monitor.Primary
	})
}

// TestForgedServerLockOfPrimary takes the vote of the primary server itself.
func TestForgedServerLockOfPrimary(t *testing.T) {
	c := testdb.NewCluster(t, 3, testdb.ClusterOptions{})
	forger := mustConnect(t, c.Servers[0], testdb.AppUser).lock(locks.DefaultServerLock)
	m := start(t, configOf(c))
	v := until(t, m, 5*time.Second, "the monitor settles", func(v monitor.View) bool { return v.Monitor.Role == election.Primary })
	require.Equal(t, 2, v.Monitor.Majority.Held)
	killsIt(t, v, "forged_server_lock", "s1", forger)
	t.Logf("while the server lock of s1 is forged: primary %v (%s)", v.Primary, v.Reason)
	if v.Primary == nil {
		require.Contains(t, v.Reason, "s1")
	}
	c.Servers[0].MustExec(t, fmt.Sprintf("KILL %d", forger.id))
	until(t, m, 5*time.Second, "s1 is offered and published", func(v monitor.View) bool { return offers("s1")(v) && v.Monitor.PrimaryLockHeld })
}

func TestTrustedLockUsers(t *testing.T) {
	c := testdb.NewCluster(t, 3, testdb.ClusterOptions{})
	app := mustConnect(t, c.Servers[0], testdb.AppUser).lock(locks.DefaultServerLock, locks.DefaultPrimaryLock)
	app2 := mustConnect(t, c.Servers[1], testdb.AppUser).lock(locks.DefaultServerLock)
	m := start(t, configOf(c, trusting("someone", testdb.AppUser)))
	v := until(t, m, 5*time.Second, "the trusted account is followed", offers("s1"))
	require.Equal(t, election.Secondary, v.Monitor.Role)
	require.Empty(t, v.Faults)
	require.Equal(t, 2, v.Monitor.Majority.Others)
	require.True(t, serverOf(t, v, "s1").PrimaryLockOwner.Trusted)
	app.close()
	app2.close()
	until(t, m, 5*time.Second, "the monitor takes over", func(v monitor.View) bool { return v.Monitor.Primary && offers("s1")(v) })
}
