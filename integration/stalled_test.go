package integration

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/internal/testdb"
	"github.com/lockstep-ha/lockstep/monitor"
	"github.com/lockstep-ha/lockstep/monitor/operation"
)

// TestFailoverStalledWrites has a primary that answers every query and writes
// nothing: only the write probe can tell.
func TestFailoverStalledWrites(t *testing.T) {
	c := testdb.NewCluster(t, 3, testdb.ClusterOptions{Server: testdb.Options{Operate: true}})
	c.Primary().MustExec(t, "CREATE DATABASE lockstep", "CREATE TABLE lockstep.heartbeat (id INT PRIMARY KEY, at DATETIME(6))")
	require.NoError(t, c.WaitSync(t.Context()))
	m := start(t, configOf(c, operating, func(cfg *monitor.Config) {
		cfg.Policy.WriteProbe = "lockstep.heartbeat"
		cfg.Policy.KeepConnections = []string{testdb.RootUser} // what stalls the writes is not to be ended
	}))
	v := until(t, m, 10*time.Second, "settles", settled)
	require.Empty(t, v.Faults)
	never(t, m, 3*m.Timing().Interval, "a fault", func(v monitor.View) bool { return len(v.Faults) > 0 || !offers("s1")(v) })

	conn, err := c.Primary().Root().Connx(t.Context())
	require.NoError(t, err)
	_, err = conn.ExecContext(t.Context(), "FLUSH TABLES WITH READ LOCK")
	require.NoError(t, err)
	v = until(t, m, 20*time.Second, "another primary", otherThan("s1"))
	rec := lastOf(t, m, operation.Failover)
	require.Contains(t, rec.Reason, "write probe failed")
	t.Logf("%s: %s", rec.To, rec.Reason)
	_, err = conn.ExecContext(t.Context(), "UNLOCK TABLES")
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	until(t, m, 20*time.Second, "the former primary follows", replicates("s1", v.Primary.Name))
}

// TestWriteProbeWithoutTable names what is wrong with the probe, and does nothing.
func TestWriteProbeWithoutTable(t *testing.T) {
	c := testdb.NewCluster(t, 2, testdb.ClusterOptions{Server: testdb.Options{Operate: true}})
	m := start(t, configOf(c, operating, func(cfg *monitor.Config) { cfg.Policy.WriteProbe = "lockstep.heartbeat" }))
	v := until(t, m, 10*time.Second, "it says so", hasFault("write_probe", "s1"))
	f, _ := faultOf(v, "write_probe", "s1")
	require.Contains(t, f.Remedy, "CREATE TABLE lockstep.heartbeat")
	never(t, m, 4*m.Timing().Interval, "a failure", func(v monitor.View) bool { return !offers("s1")(v) || v.Operations.Failed })
}

// TestPrimaryReturnsWithLess restarts the primary within the delay, without what
// its replicas have: it must not go on, and is replaced.
func TestPrimaryReturnsWithLess(t *testing.T) {
	c := testdb.NewCluster(t, 3, testdb.ClusterOptions{Server: testdb.Options{Operate: true}})
	c.Primary().MustExec(t, "CREATE TABLE app.t (id INT PRIMARY KEY)", "INSERT INTO app.t VALUES (1)")
	require.NoError(t, c.WaitSync(t.Context()))
	m := start(t, configOf(c, operating, func(cfg *monitor.Config) { cfg.Policy.DeadPrimaryDelay = 20 * time.Second }))
	until(t, m, 10*time.Second, "settles", settled)
	time.Sleep(2 * time.Second) // the server's uptime counts in seconds
	require.NoError(t, c.Servers[0].Kill())
	until(t, m, 5*time.Second, "it is missed", func(v monitor.View) bool { return v.Primary == nil })
	require.NoError(t, c.Servers[0].Restart(t.Context(), "--skip-log-bin"))
	v := until(t, m, 15*time.Second, "another primary", func(v monitor.View) bool {
		require.False(t, offers("s1")(v) && v.Operations.Running == nil && len(m.Operations()) > 0)
		return otherThan("s1")(v)
	})
	require.Contains(t, lastOf(t, m, operation.Failover).Reason, "lacks transactions")
	until(t, m, 10*time.Second, "it is read-only", func(v monitor.View) bool {
		s := serverOf(t, v, "s1")
		return s.ReadOnly != nil && *s.ReadOnly
	})
	require.NotEqual(t, "s1", v.Primary.Name)
}

// TestPrimaryReturnsInTime restarts the primary within the delay: it keeps its place.
func TestPrimaryReturnsInTime(t *testing.T) {
	c := testdb.NewCluster(t, 3, testdb.ClusterOptions{Server: testdb.Options{Operate: true}})
	m := start(t, configOf(c, operating, func(cfg *monitor.Config) { cfg.Policy.DeadPrimaryDelay = 20 * time.Second }))
	until(t, m, 10*time.Second, "settles", settled)
	require.NoError(t, c.Servers[0].Kill())
	until(t, m, 5*time.Second, "it is missed", func(v monitor.View) bool { return v.Primary == nil && v.Operations.Failed })
	require.NoError(t, c.Servers[0].Restart(t.Context()))
	until(t, m, 10*time.Second, "it is offered again", offers("s1"))
	require.Empty(t, m.Operations())
}
