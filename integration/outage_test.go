package integration

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/election"
	"github.com/lockstep-ha/lockstep/internal/testdb"
	"github.com/lockstep-ha/lockstep/locks"
	"github.com/lockstep-ha/lockstep/monitor"
	"github.com/lockstep-ha/lockstep/monitor/operation"
)

// otherThan accepts a view that offers a server, but not the named one.
func otherThan(name string) func(monitor.View) bool {
	return func(v monitor.View) bool { return v.Primary != nil && v.Primary.Name != name }
}

// TestFailoverHungPrimary stops the process of the primary, whose connections stay
// open: it is replaced when its locks must be gone, and the majority never goes.
func TestFailoverHungPrimary(t *testing.T) {
	c := semiSync(t, 3)
	m := start(t, configOf(c, operating))
	until(t, m, 10*time.Second, "settles", settled)
	w := writing(t, c, m)

	frozen := time.Now()
	require.NoError(t, c.Servers[0].Freeze())
	v := until(t, m, 15*time.Second, "another primary", func(v monitor.View) bool {
		require.Equal(t, election.Primary, v.Monitor.Role, v.Monitor.Reason)
		return otherThan("s1")(v)
	})
	took := time.Since(frozen)
	next := v.Primary.Name
	tm := m.Timing()
	t.Logf("replaced after %v; W + N is %v", took.Round(time.Millisecond), tm.StaleAfter())
	require.GreaterOrEqual(t, took, tm.StaleAfter())
	require.NoError(t, w.WaitAcked(t.Context(), 20))

	require.NoError(t, c.Servers[0].Thaw())
	until(t, m, 15*time.Second, "it is fenced when it returns, or no commit can end there", func(v monitor.View) bool {
		require.False(t, offers("s1")(v))
		s := serverOf(t, v, "s1")
		f, waits := faultOf(v, "not_read_only", "s1")
		return (s.ReadOnly != nil && *s.ReadOnly) || (waits && contains(f.Text, "commits wait there"))
	})
	report := w.Stop()
	t.Logf("%+v", report.Outages)
	inSyncExcept(t, c, next, 0)
	nothingLost(t, w, c.Servers[1], c.Servers[2])
}

// inSyncExcept waits until the servers but one have what the primary has.
func inSyncExcept(t testing.TB, c *testdb.Cluster, primary string, except int) {
	t.Helper()
	var rest testdb.Cluster
	rest.Servers = append(rest.Servers, c.Servers...)
	rest.Servers[except] = nil
	var pos string
	for i, s := range rest.Servers {
		if s != nil && serverName(i) == primary {
			pos = s.MustQuery(t, "SELECT @@gtid_binlog_pos")
		}
	}
	for i, s := range rest.Servers {
		if s != nil && serverName(i) != primary {
			require.NoError(t, s.WaitGTID(t.Context(), pos))
		}
	}
}

// TestFailoverMonitorAndPrimaryKilled ends the primary monitor and the primary at
// the same instant: the other monitor saw that the locks were let go, and acts.
func TestFailoverMonitorAndPrimaryKilled(t *testing.T) {
	c := semiSync(t, 3)
	cfg, l := linked(t, c, "first", operating)
	first := start(t, cfg)
	until(t, first, 10*time.Second, "settles", settled)
	second := start(t, configOf(c, operating, named("second")))
	until(t, second, 5*time.Second, "follows", func(v monitor.View) bool { return offers("s1")(v) && v.Tick > 3 })
	w := writing(t, c, second)

	killed := time.Now()
	l.set(linkReset)
	require.NoError(t, c.Servers[0].Kill())
	v := until(t, second, 15*time.Second, "another primary", otherThan("s1"))
	took := time.Since(killed)
	t.Logf("replaced after %v; settling takes %v", took.Round(time.Millisecond), second.Timing().Settle)
	require.NoError(t, w.WaitAcked(t.Context(), 20))
	w.Stop()
	inSyncExcept(t, c, v.Primary.Name, 0)
	nothingLost(t, w, c.Servers[1], c.Servers[2])
}

// TestNoFailoverWhilePrimaryFeedsReplicas cuts only the monitor off: the replicas
// go on receiving, and the primary keeps its place.
func TestNoFailoverWhilePrimaryFeedsReplicas(t *testing.T) {
	c := semiSync(t, 3)
	l := newLink(t)
	m := start(t, configOf(c, operating, func(cfg *monitor.Config) {
		cfg.Servers[0].Address = l.to(t, cfg.Servers[0].Address)
		cfg.Servers[0].PrivateAddress = c.Servers[0].Addr()
	}))
	until(t, m, 10*time.Second, "settles", settled)
	c.Primary().MustExec(t, testdb.WriterTable(""))
	w := testdb.StartWriter(t.Context(), func() (string, bool) { return c.Servers[0].Addr(), true }, testdb.WriterOptions{})
	t.Cleanup(func() { w.Stop() })
	l.set(linkDrop)
	v := until(t, m, 10*time.Second, "it says that the primary is alive", func(v monitor.View) bool {
		return v.Operations.Failed && contains(v.Operations.Pending, "is alive", "has received events")
	})
	require.Nil(t, v.Primary)
	never(t, m, 2*m.Timing().StaleAfter(), "another primary", otherThan("s1"))
	l.set(linkPass)
	until(t, m, 10*time.Second, "it is offered again", offers("s1"))
	require.Empty(t, m.Operations())
}

// TestPartition leaves the primary with one monitor on the minority side.
func TestPartition(t *testing.T) {
	c := semiSync(t, 3)
	p := c.Servers[0]
	// The replicas reach the primary through a link of their own.
	replication := newLink(t)
	private := replication.to(t, p.Addr())
	host, port := splitAddr(t, private)
	for _, s := range c.Replicas() {
		s.MustExec(t, "STOP SLAVE", "CHANGE MASTER TO MASTER_HOST='"+host+"', MASTER_PORT="+port, "START SLAVE")
		require.NoError(t, s.WaitReplicating(t.Context()))
	}
	known := func(cfg *monitor.Config) { cfg.Servers[0].PrivateAddress = private }
	majority := newLink(t) // of the majority side to the primary
	outer := start(t, configOf(c, operating, named("outer"), known, func(cfg *monitor.Config) { cfg.Servers[0].Address = majority.to(t, p.Addr()) }))
	until(t, outer, 10*time.Second, "settles", settled)
	minority := newLink(t) // of the minority side to the replicas
	inner := start(t, configOf(c, operating, named("inner"), known, func(cfg *monitor.Config) {
		cfg.Policy.FenceOnLostMajority = true
		for i := 1; i < 3; i++ {
			cfg.Servers[i].Address = minority.to(t, cfg.Servers[i].Address)
		}
	}))
	until(t, inner, 5*time.Second, "follows", offers("s1"))
	w := writing(t, c, outer)

	cut := time.Now()
	for _, l := range []*link{replication, majority, minority} {
		l.set(linkDrop)
	}
	tm := outer.Timing()
	until(t, inner, 10*time.Second, "the minority offers nothing", func(v monitor.View) bool { return v.Primary == nil })
	stopped := time.Since(cut)
	v := until(t, outer, 15*time.Second, "the majority has a primary", otherThan("s1"))
	resumed := time.Since(cut)
	t.Logf("minority stopped after %v (W + i is %v), majority resumed after %v (W + N is %v)",
		stopped.Round(time.Millisecond), tm.WaitTimeout+tm.Interval, resumed.Round(time.Millisecond), tm.StaleAfter())
	require.Greater(t, resumed, stopped)
	require.GreaterOrEqual(t, resumed, tm.StaleAfter())
	require.NoError(t, w.WaitAcked(t.Context(), 20))
	require.Nil(t, inner.View().Primary)
	until(t, inner, 10*time.Second, "the primary of the minority is fenced, or commits wait there", func(monitor.View) bool {
		return p.MustQuery(t, "SELECT @@read_only") == "1" || p.MustQuery(t, "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE STATE LIKE '%semi-sync%'") != "0"
	})

	w.Stop()
	for _, l := range []*link{replication, majority, minority} {
		l.set(linkPass)
	}
	until(t, inner, 15*time.Second, "the minority follows", offers(v.Primary.Name))
	inSyncExcept(t, c, v.Primary.Name, 0)
	nothingLost(t, w, c.Servers[1], c.Servers[2])
	require.Equal(t, operation.Done, lastOf(t, outer, operation.Failover).Outcome)
	require.Empty(t, holder(t, p, locks.DefaultPrimaryLock))
}
