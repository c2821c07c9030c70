package integration

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/election"
	"github.com/lockstep-ha/lockstep/internal/testdb"
	"github.com/lockstep-ha/lockstep/monitor"
	"github.com/lockstep-ha/lockstep/monitor/operation"
)

// operating lets a monitor fail over and rejoin by itself.
func operating(c *monitor.Config) {
	c.Policy = operation.Policy{ReplicationUser: testdb.ReplUser, ReplicationPassword: testdb.ReplPassword,
		AutoFailover: true, AutoRejoin: true}
}

// semiSync starts servers that replicate semi-synchronously and never fall back.
func semiSync(t testing.TB, n int) *testdb.Cluster {
	t.Helper()
	c := testdb.NewCluster(t, n, testdb.ClusterOptions{Server: testdb.Options{Operate: true, ExtraArgs: testdb.SemiSyncArgs()}})
	require.NoError(t, c.EnableSemiSync(t.Context()))
	return c
}

// writing starts a writer that asks a monitor where to write.
func writing(t testing.TB, c *testdb.Cluster, m running) *testdb.Writer {
	t.Helper()
	c.Primary().MustExec(t, testdb.WriterTable(""))
	require.NoError(t, c.WaitSync(t.Context()))
	w := testdb.StartWriter(t.Context(), func() (string, bool) {
		p, _, ok := m.Primary()
		return p.Address, ok
	}, testdb.WriterOptions{Clients: 2, Every: 2 * time.Millisecond, Timeout: 2 * time.Second})
	t.Cleanup(func() { w.Stop() })
	require.NoError(t, w.WaitAcked(t.Context(), 50))
	return w
}

// nothingLost checks the table of a writer on a server.
func nothingLost(t testing.TB, w *testdb.Writer, servers ...*testdb.Server) {
	t.Helper()
	for _, s := range servers {
		lost, twice, _, err := w.Check(t.Context(), s)
		require.NoError(t, err)
		require.Empty(t, lost, "acknowledged writes are missing on %s", s.Name())
		require.Empty(t, twice)
	}
}

// inSync waits until all servers have what the primary has.
func inSync(t testing.TB, c *testdb.Cluster, primary string) {
	t.Helper()
	var pos string
	for i, s := range c.Servers {
		if fmt.Sprintf("s%d", i+1) == primary {
			pos = s.MustQuery(t, "SELECT @@gtid_binlog_pos")
		}
	}
	for i, s := range c.Servers {
		if fmt.Sprintf("s%d", i+1) != primary {
			require.NoError(t, s.WaitGTID(t.Context(), pos))
		}
	}
}

func settled(v monitor.View) bool { return v.Monitor.Role == election.Primary && v.Primary != nil }

func replicates(server, source string) func(monitor.View) bool {
	return func(v monitor.View) bool {
		for _, s := range v.Servers {
			if s.Name == server {
				return s.Source == source && len(s.Replication) == 1 && s.Replication[0].IO == "Yes" && s.Replication[0].SQL == "Yes" && s.ReadOnly != nil && *s.ReadOnly
			}
		}
		return false
	}
}

func TestFailoverKilledPrimary(t *testing.T) {
	c := semiSync(t, 3)
	m := start(t, configOf(c, operating))
	until(t, m, 10*time.Second, "settles", settled)
	second := start(t, configOf(c, operating, named("second")))
	until(t, second, 5*time.Second, "follows", offers("s1"))
	w := writing(t, c, m)

	require.NoError(t, c.Servers[0].Kill())
	v := until(t, m, 10*time.Second, "another primary is offered", func(v monitor.View) bool { return v.Primary != nil && v.Primary.Name != "s1" })
	next := v.Primary.Name
	require.NoError(t, w.WaitAcked(t.Context(), 50))
	until(t, second, 2*time.Second, "the secondary follows", offers(next))
	other := map[string]string{"s2": "s3", "s3": "s2"}[next]
	until(t, m, 5*time.Second, "the other replica is repointed", replicates(other, next))

	require.NoError(t, c.Servers[0].Restart(t.Context()))
	until(t, m, 20*time.Second, "the old primary is rejoined", replicates("s1", next))
	require.NoError(t, w.WaitAcked(t.Context(), 50))
	report := w.Stop()
	t.Logf("%+v", report)
	require.Len(t, report.Outages, 1)
	inSync(t, c, next)
	nothingLost(t, w, c.Servers...)
	require.Equal(t, operation.Done, lastOf(t, m, operation.Failover).Outcome)
}

func serverName(i int) string { return fmt.Sprintf("s%d", i+1) }

// splitAddr splits host:port.
func splitAddr(t testing.TB, addr string) (host, port string) {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	return host, port
}

// lastOf returns the newest operation of a kind.
func lastOf(t *testing.T, m running, kind operation.Kind) operation.Record {
	t.Helper()
	for _, r := range m.Operations() {
		if r.Kind == kind {
			return r
		}
	}
	t.Fatalf("no %s in %+v", kind, m.Operations())
	return operation.Record{}
}

func TestSwitchoverUnderLoad(t *testing.T) {
	c := semiSync(t, 3)
	m := start(t, configOf(c, operating))
	until(t, m, 10*time.Second, "settles", settled)
	w := writing(t, c, m)

	for _, to := range []string{"s2", "s3", "s1"} {
		before := m.View().Primary.Name
		reply, err := m.Command(t.Context(), monitor.Command{Action: monitor.ActSwitchover, Server: to})
		require.NoError(t, err)
		require.NotEmpty(t, reply.ID)
		until(t, m, 5*time.Second, to+" is offered", offers(to))
		until(t, m, 5*time.Second, "the old primary follows", replicates(before, to))
		until(t, m, 5*time.Second, "it ends", func(v monitor.View) bool { return v.Operations.Running == nil })
		rec, ok := m.Operation(reply.ID)
		require.True(t, ok)
		require.Equal(t, operation.Done, rec.Outcome, "%+v", rec)
		require.Empty(t, rec.Warnings)
		require.NoError(t, w.WaitAcked(t.Context(), 50))
	}
	report := w.Stop()
	t.Logf("%+v", report)
	inSync(t, c, "s1")
	nothingLost(t, w, c.Servers...)
}
