package integration

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/election"
	"github.com/lockstep-ha/lockstep/internal/testdb"
	"github.com/lockstep-ha/lockstep/monitor"
	"github.com/lockstep-ha/lockstep/monitor/operation"
)

// ticksLater waits for some more ticks, and checks each view.
func ticksLater(t *testing.T, m running, n uint64, check func(v monitor.View)) {
	t.Helper()
	tick := m.View().Tick
	until(t, m, 10*time.Second, "some ticks later", func(v monitor.View) bool {
		check(v)
		return v.Tick > tick+n
	})
}

// byName returns a server of a cluster.
func byName(t *testing.T, c *testdb.Cluster, name string) *testdb.Server {
	t.Helper()
	for i, s := range c.Servers {
		if serverName(i) == name {
			return s
		}
	}
	t.Fatalf("no server %s", name)
	return nil
}

// TestEnforceReadOnly makes replicas writable, one by one and all at once.
func TestEnforceReadOnly(t *testing.T) {
	c := operated(t, 3, nil)
	m := leader(t, configOf(c, byHand, policy(func(p *operation.Policy) { p.EnforceReadOnly = true })))
	for _, list := range [][]*testdb.Server{{c.Servers[1]}, {c.Servers[2]}, c.Replicas()} {
		for _, s := range list {
			s.MustExec(t, "SET GLOBAL read_only=0")
		}
		until(t, m, 5*time.Second, "all replicas are read-only again", func(v monitor.View) bool {
			require.True(t, offers("s1")(v), v.Reason)
			require.Equal(t, "0", c.Primary().MustQuery(t, "SELECT @@read_only"))
			return !slices.ContainsFunc(list, func(s *testdb.Server) bool { return s.MustQuery(t, "SELECT @@read_only") == "0" })
		})
	}
	ticksLater(t, m, 3, func(v monitor.View) { require.True(t, offers("s1")(v), v.Reason) })
	require.Equal(t, "0", c.Primary().MustQuery(t, "SELECT @@read_only"))
	require.Empty(t, m.Operations())

	// A person may read_only the primary: that is not taken back.
	c.Primary().MustExec(t, "SET GLOBAL read_only=1")
	ticksLater(t, m, 3, func(monitor.View) {})
	require.Equal(t, "1", c.Primary().MustQuery(t, "SELECT @@read_only"))
}

// TestLeftoverConnection has the primary keep a stopped connection to a replica, as a
// promotion that was cut short leaves it.
func TestLeftoverConnection(t *testing.T) {
	c := operated(t, 3, nil)
	p, s2 := c.Primary(), c.Servers[1]
	point := fmt.Sprintf("CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT=%s, MASTER_USER='x', MASTER_USE_GTID=slave_pos", s2.MustQuery(t, "SELECT @@port"))
	p.MustExec(t, point)
	m := leader(t, configOf(c, byHand))
	ticksLater(t, m, 3, func(v monitor.View) { require.True(t, offers("s1")(v), v.Reason) })
	require.False(t, alone(t, p), "nothing is changed by surprise")
	m.stop()
	m = leader(t, configOf(c, byHand, policy(func(p *operation.Policy) { p.AutoRejoin = true })))
	until(t, m, 10*time.Second, "it is removed", func(v monitor.View) bool {
		require.True(t, offers("s1")(v), v.Reason)
		return alone(t, p)
	})
	oneTopology(t, m, c, "s1")
	require.Empty(t, m.Operations())
}

// TestNothingByDefault has a monitor without a policy see a writable replica, a
// server that stands alone, and then a dead primary: it says so and changes nothing.
func TestNothingByDefault(t *testing.T) {
	c := operated(t, 3, nil)
	s2, s3 := c.Servers[1], c.Servers[2]
	m := leader(t, configOf(c))
	s2.MustExec(t, "SET GLOBAL read_only=0")
	s3.MustExec(t, "STOP SLAVE", "RESET SLAVE ALL")
	before := atRest(t, c.Servers...)
	until(t, m, 5*time.Second, "the fault is stated", hasFault("writable_beside_primary", "s2"))
	ticksLater(t, m, 8, func(v monitor.View) { require.True(t, offers("s1")(v), v.Reason) })
	require.Equal(t, before, moment(t, c.Servers...))

	s2.MustExec(t, "SET GLOBAL read_only=1")
	before = atRest(t, s3)
	require.NoError(t, c.Primary().Kill())
	v := until(t, m, 5*time.Second, "s1 has failed", func(v monitor.View) bool { return v.Operations.Failed })
	for deadline := time.Now().Add(m.Timing().StaleAfter() + m.Timing().Interval); time.Now().Before(deadline); {
		ticksLater(t, m, 1, func(v monitor.View) { require.Nil(t, v.Primary) })
	}
	v = until(t, m, time.Second, "it is said why nothing is done", func(v monitor.View) bool { return contains(v.Operations.Pending, "auto_failover is off") })
	require.False(t, v.Operations.AutoFailover)
	require.Equal(t, before, moment(t, s3))
	require.Equal(t, "1", s2.MustQuery(t, "SELECT @@read_only"))
	require.Empty(t, m.Operations())
}

// TestPause pauses automatic operations and stops the monitor that was told so: the
// next one knows it, and neither joins a server nor replaces the primary until
// it is told to go on.
func TestPause(t *testing.T) {
	c := semiSync(t, 3)
	first := leader(t, configOf(c, operating, named("first")))
	second := start(t, configOf(c, operating, named("second")))
	until(t, second, 5*time.Second, "follows", offers("s1"))
	require.Contains(t, accepted(t, first, monitor.Command{Action: monitor.ActPause}).Text, "paused")
	until(t, first, 5*time.Second, "it is paused, and that is kept", func(v monitor.View) bool {
		return v.Operations.Paused != "" && keptRow(t, c.Primary(), "pause") != ""
	})
	require.NoError(t, c.WaitSync(t.Context()))

	first.stop()
	until(t, second, 10*time.Second, "the second takes over", settled)
	until(t, second, time.Second, "the monitor that took over knows of the pause", func(v monitor.View) bool {
		return contains(v.Operations.Paused, "lockstepctl call resume")
	})
	c.Servers[2].MustExec(t, "STOP SLAVE", "RESET SLAVE ALL")
	ticksLater(t, second, 4, func(v monitor.View) { require.True(t, offers("s1")(v), v.Reason) })
	require.True(t, alone(t, c.Servers[2]), "it was joined")
	require.NoError(t, c.Primary().Kill())
	until(t, second, 5*time.Second, "it is said why nothing is done", func(v monitor.View) bool {
		require.False(t, otherThan("s1")(v))
		return v.Operations.Failed && contains(v.Operations.Pending, "automatic operations are paused")
	})
	ticksLater(t, second, 5, func(v monitor.View) { require.Nil(t, v.Primary) })
	require.Empty(t, second.Operations())

	accepted(t, second, monitor.Command{Action: monitor.ActResume})
	until(t, second, 10*time.Second, "another primary", offers("s2"))
	until(t, second, 10*time.Second, "the other is joined", replicates("s3", "s2"))
	require.Empty(t, second.View().Operations.Paused)
}

// TestStateWithoutLocks pauses a monitor that acts alone, and starts another: where
// there are no locks, what is kept outlives the monitor all the same.
func TestStateWithoutLocks(t *testing.T) {
	c := operated(t, 3, nil)
	alone := func(cfg *monitor.Config) { cfg.Quorum = election.None }
	m := start(t, configOf(c, byHand, alone))
	until(t, m, 5*time.Second, "s1 is offered", offers("s1"))
	accepted(t, m, monitor.Command{Action: monitor.ActPause})
	for _, s := range c.Servers {
		until(t, m, 10*time.Second, "it is kept on every server", func(monitor.View) bool { return contains(keptRow(t, s, "pause"), `"paused":true`) })
	}
	m.stop()
	m = start(t, configOf(c, byHand, alone))
	until(t, m, 5*time.Second, "another one knows", func(v monitor.View) bool { return v.Operations.Paused != "" })
	require.Empty(t, c.Primary().MustQuery(t, "SELECT @@gtid_binlog_pos"), "nothing was logged")
}

// keptRow returns what is kept for all monitors under a name, as a server has it.
func keptRow(t *testing.T, s *testdb.Server, name string) string {
	t.Helper()
	if s.MustQuery(t, "SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA='lockstep' AND TABLE_NAME='state'") == "0" {
		return ""
	}
	return s.MustQuery(t, "SELECT MAX(value) FROM lockstep.state WHERE cluster='test' AND name=?", name)
}

// TestFailoverBlock has a failover block the next one, for whichever monitor is in
// charge, until a person acknowledges it.
func TestFailoverBlock(t *testing.T) {
	c := semiSync(t, 3)
	first := leader(t, configOf(c, operating, named("first")))
	second := start(t, configOf(c, operating, named("second")))
	until(t, second, 5*time.Second, "follows", offers("s1"))
	require.Empty(t, first.View().Operations.Blocked)
	require.NoError(t, c.Primary().Kill())
	v := until(t, first, 10*time.Second, "another primary", otherThan("s1"))
	next := v.Primary.Name
	blocked := func(v monitor.View) bool {
		return contains(v.Operations.Blocked, "there was a failover from s1 to "+next, "lockstepctl call ack")
	}
	until(t, first, 2*time.Second, "the block is stated", blocked)
	require.NoError(t, c.Primary().Restart(t.Context()))
	until(t, first, 10*time.Second, "s1 is joined", replicates("s1", next))
	until(t, first, 5*time.Second, "it is kept", func(monitor.View) bool { return keptRow(t, byName(t, c, next), "failover") != "" })

	first.stop()
	until(t, second, 10*time.Second, "the second takes over", settled)
	until(t, second, time.Second, "the monitor that took over knows of the block", blocked)
	second.stop()
	third := leader(t, configOf(c, operating, named("third")))
	until(t, third, time.Second, "a monitor that was started again knows of the block", blocked)

	require.NoError(t, byName(t, c, next).Kill())
	until(t, third, 5*time.Second, "it is said why nothing is done", func(v monitor.View) bool {
		return v.Operations.Failed && contains(v.Operations.Pending, "automatic failover is blocked")
	})
	ticksLater(t, third, 5, func(v monitor.View) { require.Nil(t, v.Primary) })
	require.Empty(t, third.Operations())
	require.Contains(t, accepted(t, third, monitor.Command{Action: monitor.ActAcknowledge}).Text, "from s1 to "+next)
	until(t, third, 10*time.Second, "a third primary", otherThan(next))
	require.Equal(t, operation.Done, endOf(t, third, lastOf(t, third, operation.Failover).ID, 5*time.Second).Outcome)
}

// TestTakeoverKnowsTheBlock stops the monitor that has failed over as soon as the
// block is kept. The other monitor, which has read what was kept before that, must
// not replace the next primary.
func TestTakeoverKnowsTheBlock(t *testing.T) {
	c := semiSync(t, 3)
	first := leader(t, configOf(c, operating, named("first")))
	second := start(t, configOf(c, operating, named("second")))
	until(t, second, 5*time.Second, "follows", offers("s1"))
	require.NoError(t, c.Primary().Kill())
	next := until(t, first, 10*time.Second, "another primary", otherThan("s1")).Primary.Name
	until(t, first, 5*time.Second, "it is kept", func(monitor.View) bool { return keptRow(t, byName(t, c, next), "failover") != "" })
	require.NoError(t, c.Primary().Restart(t.Context()))
	until(t, first, 10*time.Second, "s1 is joined", replicates("s1", next))
	inSync(t, c, next)
	first.stop()
	until(t, second, 10*time.Second, "the second takes over", settled)
	require.NoError(t, byName(t, c, next).Kill())
	until(t, second, 5*time.Second, "it is said why nothing is done", func(v monitor.View) bool {
		require.False(t, otherThan(next)(v), "a second failover within the block")
		return v.Operations.Failed && contains(v.Operations.Pending, "automatic failover is blocked")
	})
	require.Empty(t, second.Operations())
}

// TestSettingsAtRunTime sets maintenance and promotion through one monitor: the
// other one shows and heeds them, and one that is started later does.
func TestSettingsAtRunTime(t *testing.T) {
	c := operated(t, 3, nil)
	m := leader(t, configOf(c, byHand))
	second := start(t, configOf(c, byHand, named("second")))
	until(t, second, 5*time.Second, "follows", offers("s1"))
	set := func(a monitor.Action, server, value string) {
		require.NotEmpty(t, accepted(t, m, monitor.Command{Action: a, Server: server, Value: value}).Text)
	}
	set(monitor.ActMaintenance, "s2", "on")
	set(monitor.ActPromotion, "s3", "must_not")
	set(monitor.ActDrain, "s3", "on")
	seen := func(v monitor.View) bool {
		return slices.Contains(v.Servers[1].State, "Maintenance") && v.Servers[2].Promotion == "must_not" && slices.Contains(v.Servers[2].State, "Drained") &&
			contains(v.Operations.Rejected["s2"], "maintenance") && contains(v.Operations.Rejected["s3"], "must_not")
	}
	until(t, m, 2*time.Second, "they are set", seen)
	began := time.Now()
	until(t, second, 12*time.Second, "the other monitor knows them", seen)
	t.Logf("the other monitor knows them after %v", time.Since(began).Round(10*time.Millisecond))

	set(monitor.ActMaintenance, "s2", "off")
	set(monitor.ActPromotion, "s3", "")
	set(monitor.ActDrain, "s3", "")
	plain := func(v monitor.View) bool {
		return v.Tick > 0 && !slices.Contains(v.Servers[1].State, "Maintenance") && v.Servers[2].Promotion == "prefer" && len(v.Operations.Rejected) == 0
	}
	require.NoError(t, c.WaitSync(t.Context()))
	later := start(t, configOf(c, byHand, named("later"), func(cfg *monitor.Config) {
		cfg.Servers[1].Maintenance, cfg.Servers[2].Promotion = true, "prefer"
	}))
	until(t, later, 5*time.Second, "what is set prevails, and what is not is as configured", func(v monitor.View) bool {
		return plain(v) && offers("s1")(v)
	})
}

// enabledAt checks where an event runs, and that nothing else of it has changed.
func enabledAt(t *testing.T, c *testdb.Cluster, primary string) {
	t.Helper()
	for i, s := range c.Servers {
		want := "SLAVESIDE_DISABLED"
		if serverName(i) == primary {
			want = "ENABLED"
		}
		got := s.MustQuery(t, "SELECT CONCAT_WS(' ', STATUS, DEFINER, EVENT_COMMENT, CHARACTER_SET_CLIENT) FROM information_schema.EVENTS WHERE EVENT_SCHEMA='app' AND EVENT_NAME='e'")
		require.Equal(t, want+" app@% kept latin1", got, "on %s, while %s is the primary", serverName(i), primary)
	}
}

// TestEventsFollowThePrimary moves the primary by a switchover and a failover, and
// looks where a scheduled event is enabled.
func TestEventsFollowThePrimary(t *testing.T) {
	c := operated(t, 3, nil)
	c.Primary().MustExec(t, "CREATE TABLE app.t (id INT PRIMARY KEY)", "SET NAMES latin1",
		"CREATE DEFINER='app'@'%' EVENT app.e ON SCHEDULE EVERY 1 DAY COMMENT 'kept' DO INSERT INTO app.t VALUES (1)",
		"CREATE EVENT app.off ON SCHEDULE EVERY 1 DAY DISABLE DO SELECT 1")
	require.NoError(t, c.WaitSync(t.Context()))
	m := leader(t, configOf(c, operating, policy(trusted)))
	enabledAt(t, c, "s1")
	rec := endOf(t, m, accepted(t, m, to("s2")).ID, 10*time.Second)
	require.Equal(t, operation.Done, rec.Outcome, "%+v", rec)
	require.Empty(t, rec.Warnings)
	enabledAt(t, c, "s2")
	off := "SELECT STATUS FROM information_schema.EVENTS WHERE EVENT_NAME='off'"
	require.NotEqual(t, "ENABLED", c.Servers[1].MustQuery(t, off), "an event that was disabled has been enabled")

	accepted(t, m, monitor.Command{Action: monitor.ActPromotion, Server: "s3", Value: "prefer"})
	require.NoError(t, c.Servers[1].Kill())
	until(t, m, 10*time.Second, "s3 is offered", offers("s3"))
	require.NoError(t, c.Servers[1].Restart(t.Context()))
	until(t, m, 10*time.Second, "s2 is joined", replicates("s2", "s3"))
	until(t, m, 5*time.Second, "nothing is under way", func(v monitor.View) bool { return v.Operations.Running == nil && len(v.Operations.Joining) == 0 })
	enabledAt(t, c, "s3")
	t.Run("an event that was disabled stays so", func(t *testing.T) {
		t.Skip("a failover enables events that were DISABLED on the primary: replication gives them the status of the others")
		require.NotEqual(t, "ENABLED", c.Servers[2].MustQuery(t, off))
	})
	until(t, m, 5*time.Second, "all have logged the same", func(monitor.View) bool {
		pos := c.Servers[2].MustQuery(t, "SELECT @@gtid_binlog_pos")
		return !slices.ContainsFunc(c.Servers, func(s *testdb.Server) bool { return s.MustQuery(t, "SELECT @@gtid_binlog_pos") != pos })
	})
}

// semiSyncRoles checks on which server the primary side is on.
func semiSyncRoles(t *testing.T, m running, c *testdb.Cluster, primary string) {
	t.Helper()
	for i, s := range c.Servers {
		want := "OFF ON"
		if serverName(i) == primary {
			want = "ON ON"
		}
		require.Equal(t, want, s.MustQuery(t, "SELECT CONCAT_WS(' ', @@rpl_semi_sync_master_enabled, @@rpl_semi_sync_slave_enabled)"), "on %s, while %s is the primary", serverName(i), primary)
	}
	p := byName(t, c, primary)
	require.Equal(t, "AFTER_SYNC ON 1",
		p.MustQuery(t, "SELECT CONCAT_WS(' ', @@rpl_semi_sync_master_wait_point, @@rpl_semi_sync_master_wait_no_slave, @@rpl_semi_sync_master_timeout > 86400000*365)"))
	until(t, m, 5*time.Second, "both replicas acknowledge", func(monitor.View) bool {
		return p.MustQuery(t, "SELECT variable_value FROM information_schema.global_status WHERE variable_name='Rpl_semi_sync_master_clients'") == "2"
	})
}

// TestSemiSyncRoles moves the primary by a switchover and a failover, and lets the
// old primary come back with the primary side on.
func TestSemiSyncRoles(t *testing.T) {
	c := semiSync(t, 3)
	m := leader(t, configOf(c, operating))
	rec := endOf(t, m, accepted(t, m, to("s2")).ID, 10*time.Second)
	require.Equal(t, operation.Done, rec.Outcome, "%+v", rec)
	semiSyncRoles(t, m, c, "s2")
	require.Empty(t, m.View().Notes)

	accepted(t, m, monitor.Command{Action: monitor.ActPromotion, Server: "s3", Value: "prefer"})
	require.NoError(t, c.Servers[1].Kill())
	until(t, m, 10*time.Second, "s3 is offered", offers("s3"))
	require.NoError(t, c.Servers[1].Restart(t.Context(), "--rpl-semi-sync-master-enabled=ON"))
	until(t, m, 10*time.Second, "s2 is joined", replicates("s2", "s3"))
	until(t, m, 5*time.Second, "nothing is under way", func(v monitor.View) bool { return v.Operations.Running == nil && len(v.Operations.Joining) == 0 })
	semiSyncRoles(t, m, c, "s3")
	c.Servers[2].MustExec(t, "CREATE TABLE app.t (id INT PRIMARY KEY)")
	inSync(t, c, "s3")
}

// TestPrivilegedWriter switches over while accounts write that read_only does not
// stop, and go where the monitor says. One that stays on the former primary writes
// transactions there that nobody else has, and one whose privileges the monitor may
// not see can get one in at the last moment; no switchover can prevent that.
func TestPrivilegedWriter(t *testing.T) {
	for _, x := range []struct {
		name  string
		every time.Duration
	}{
		{"often", time.Millisecond},
		{"without a pause", -1},
		{"now and then", 30 * time.Millisecond},
	} {
		t.Run(x.name, func(t *testing.T) { privilegedWriter(t, x.every) })
	}
}

// privilegedWriter is one such switchover. The monitor may see privileges.
func privilegedWriter(t *testing.T, every time.Duration) {
	t.Helper()
	admin := account("admin", "READ_ONLY ADMIN ON *.*", "SELECT, INSERT ON app.*")
	c := testdb.NewCluster(t, 3, testdb.ClusterOptions{Server: testdb.Options{Operate: true, Accounts: []testdb.Account{admin}}})
	for _, s := range c.Servers {
		s.MustExec(t, "SET SESSION sql_log_bin=0", "GRANT SELECT ON mysql.* TO "+testdb.MonitorUser+"@'%'", "SET SESSION sql_log_bin=1")
	}
	c.Primary().MustExec(t, testdb.WriterTable(""))
	require.NoError(t, c.WaitSync(t.Context()))
	m := leader(t, configOf(c, byHand, policy(func(p *operation.Policy) { p.SwitchoverTimeout = time.Second })))
	target := func() (string, bool) { p, _, ok := m.Primary(); return p.Address, ok }
	w := testdb.StartWriter(t.Context(), target, testdb.WriterOptions{Clients: 2, Every: every, Timeout: time.Second, User: admin.User, Password: admin.Password})
	t.Cleanup(func() { w.Stop() })
	require.NoError(t, w.WaitAcked(t.Context(), 20))

	rec := endOf(t, m, accepted(t, m, to("s2")).ID, 10*time.Second)
	require.NoError(t, w.WaitAcked(t.Context(), 20))
	report := w.Stop()
	const primary = "s2"
	require.Equal(t, operation.Done, rec.Outcome, "%+v", rec)
	t.Logf("%d writes acknowledged; %v", report.Acked, rec.Warnings)
	until(t, m, 5*time.Second, primary+" is offered", offers(primary))
	require.Equal(t, "0", byName(t, c, primary).MustQuery(t, "SELECT @@read_only"))
	nothingLost(t, w, byName(t, c, primary))
	require.True(t, slices.ContainsFunc(rec.Warnings, func(s string) bool { return contains(s, "ended admin@") }), "%v", rec.Warnings)
	inSync(t, c, primary)
	nothingLost(t, w, c.Servers...)
}

// TestOpenTransaction switches over while a transaction that holds many locks is
// open and idle: it cannot be committed any more, and stands in nobody's way.
func TestOpenTransaction(t *testing.T) {
	c := operated(t, 3, nil)
	p, s2 := c.Primary(), c.Servers[1]
	p.MustExec(t, "CREATE TABLE app.t (id INT PRIMARY KEY, n INT)", "INSERT INTO app.t SELECT seq, 0 FROM app.seq_1_to_20000")
	require.NoError(t, c.WaitSync(t.Context()))
	m := leader(t, configOf(c, operating))
	holds := mustConnect(t, p, testdb.AppUser)
	holds.run("BEGIN", "UPDATE app.t SET n=n+1")
	reply := accepted(t, m, to("s2"))
	until(t, m, 5*time.Second, "s2 is offered", offers("s2"))
	s2.MustExec(t, "UPDATE app.t SET n=10 WHERE id<=100")
	_, err := holds.conn.ExecContext(t.Context(), "COMMIT")
	require.Error(t, err)
	holds.close()
	rec := endOf(t, m, reply.ID, 10*time.Second)
	require.Equal(t, operation.Done, rec.Outcome, "%+v", rec)
	t.Logf("%v; the open transaction: %v; %v", rec.EndedAt.Sub(rec.StartedAt).Round(time.Millisecond), err, rec.Warnings)
	oneTopology(t, m, c, "s2")
	for _, s := range c.Servers {
		require.Equal(t, "1000", s.MustQuery(t, "SELECT SUM(n) FROM app.t"))
	}
}

// TestRunningStatement switches over while a statement writes for longer than
// read_only is waited for. The switchover is undone, and does not come back
// afterwards.
func TestRunningStatement(t *testing.T) {
	const stuck = "a timeout of less than a second cuts SET GLOBAL read_only off: undoing it fails, and where the statement ends within the second it still takes effect, so that no server is writable"
	for _, x := range []struct {
		name, seconds string
		timeout       time.Duration
		skip          string
	}{
		{"within the timeout", "3", 1200 * time.Millisecond, ""},
		{"longer than the timeout", "3", fastTimeout, stuck},
		{"ends after the timeout", "0.7", fastTimeout, stuck},
	} {
		t.Run(x.name, func(t *testing.T) {
			if x.skip != "" {
				t.Skip(x.skip)
			}
			runningStatement(t, x.seconds, x.timeout)
		})
	}
}

func runningStatement(t *testing.T, seconds string, timeout time.Duration) {
	t.Helper()
	c := operated(t, 3, nil)
	p := c.Primary()
	p.MustExec(t, "CREATE TABLE app.t (id INT PRIMARY KEY)")
	require.NoError(t, c.WaitSync(t.Context()))
	m := leader(t, configOf(c, operating, func(cfg *monitor.Config) { cfg.Timeout = timeout }))
	writes := mustConnect(t, p, testdb.AppUser)
	ended := make(chan error, 1)
	go func() {
		_, err := writes.conn.ExecContext(context.WithoutCancel(t.Context()), "INSERT INTO app.t SELECT SLEEP("+seconds+")")
		ended <- err
	}()
	until(t, m, 5*time.Second, "the statement runs", func(monitor.View) bool {
		return p.MustQuery(t, "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE INFO LIKE 'INSERT INTO app.t SELECT SLEEP%'") == "1"
	})
	rec := endOf(t, m, accepted(t, m, to("s2")).ID, 10*time.Second)
	t.Logf("%s after %v: %s", rec.Outcome, rec.EndedAt.Sub(rec.StartedAt).Round(time.Millisecond), rec.Detail)
	require.NoError(t, <-ended)
	primary := "s1"
	if rec.Outcome == operation.Done {
		primary = "s2"
	}
	until(t, m, 5*time.Second, primary+" is offered", offers(primary))
	ticksLater(t, m, 3, func(v monitor.View) { require.True(t, offers(primary)(v), v.Reason) })
	oneTopology(t, m, c, primary)
	require.Equal(t, "1", byName(t, c, primary).MustQuery(t, "SELECT COUNT(*) FROM app.t"))
	if rec.Outcome != operation.Done {
		require.Equal(t, operation.Undone, rec.Outcome, "%+v", rec)
	}
}

// TestTargetCannotCatchUp switches over to a replica that cannot apply what it
// receives: all is undone when the time is over, and the replica goes on.
func TestTargetCannotCatchUp(t *testing.T) {
	for name, block := range map[string][]string{
		"FTWRL":       {"FLUSH TABLES WITH READ LOCK"},
		"LOCK TABLES": {"LOCK TABLES app.t WRITE"},
		"row lock":    {"BEGIN", "SELECT * FROM app.t WHERE id=1 FOR UPDATE"},
	} {
		t.Run(name, func(t *testing.T) { cannotCatchUp(t, block) })
	}
}

func cannotCatchUp(t *testing.T, block []string) {
	t.Helper()
	const limit = time.Second
	c := operated(t, 3, nil)
	p, s2 := c.Primary(), c.Servers[1]
	p.MustExec(t, "CREATE TABLE app.t (id INT PRIMARY KEY, n INT)", "INSERT INTO app.t VALUES (1, 0)", "CREATE EVENT app.e ON SCHEDULE EVERY 1 DAY DO SELECT 1")
	require.NoError(t, c.WaitSync(t.Context()))
	m := leader(t, configOf(c, operating, policy(func(p *operation.Policy) { p.SwitchoverTimeout = limit })))
	holds := mustConnect(t, s2, testdb.RootUser)
	holds.run(block...)
	p.MustExec(t, "UPDATE app.t SET n=1 WHERE id=1")
	began := time.Now()
	rec := endOf(t, m, accepted(t, m, to("s2")).ID, 10*time.Second)
	took := time.Since(began)
	require.Equal(t, operation.Undone, rec.Outcome, "%+v", rec)
	require.Contains(t, rec.Detail, "step catch up on s2 took longer than 1s: s2 has applied")
	require.Contains(t, rec.Detail, "undone: ")
	require.GreaterOrEqual(t, took, limit)
	t.Logf("undone after %v: %s", took.Round(time.Millisecond), rec.Detail)
	require.Equal(t, "0", p.MustQuery(t, "SELECT @@read_only"))
	require.Equal(t, "ENABLED", p.MustQuery(t, "SELECT STATUS FROM information_schema.EVENTS WHERE EVENT_NAME='e'"))
	until(t, m, 5*time.Second, "s1 is offered again", offers("s1"))
	p.MustExec(t, "UPDATE app.t SET n=2 WHERE id=1")
	require.Equal(t, fmt.Sprint(p.Port()), mustStatus(t, s2)["Master_Port"])

	holds.close()
	require.NoError(t, c.WaitSync(t.Context()))
	oneTopology(t, m, c, "s1")
	require.Equal(t, "2", s2.MustQuery(t, "SELECT n FROM app.t"))
	require.Equal(t, operation.Done, endOf(t, m, accepted(t, m, to("s2")).ID, 5*time.Second).Outcome)
}

func mustStatus(t *testing.T, s *testdb.Server) map[string]string {
	t.Helper()
	status, err := s.ReplicaStatus(t.Context())
	require.NoError(t, err)
	return status
}

// TestPrimaryDiesDuringSwitchover kills the primary while a switchover waits for the
// target. The switchover does not turn into a failover: it ends, and then what
// holds for any dead primary happens.
func TestPrimaryDiesDuringSwitchover(t *testing.T) {
	c := semiSync(t, 3)
	const limit = 2 * time.Second
	m := leader(t, configOf(c, operating, policy(func(p *operation.Policy) { p.SwitchoverTimeout = limit })))
	release := blockApply(t, c, c.Servers[1])
	defer release()
	reply := accepted(t, m, to("s2"))
	until(t, m, 5*time.Second, "it waits for s2", func(v monitor.View) bool {
		return v.Operations.Running != nil && v.Operations.Running.Step == "s2: catch up"
	})
	require.NoError(t, c.Primary().Kill())
	killed := time.Now()
	rec := endOf(t, m, reply.ID, 10*time.Second)
	require.NotEqual(t, operation.Done, rec.Outcome)
	took := time.Since(killed)
	t.Logf("%s %v after the kill: %s", rec.Outcome, took.Round(time.Millisecond), rec.Detail)
	t.Run("it ends at once", func(t *testing.T) {
		t.Skip("it waits for switchover_timeout, and the failover with it")
		require.Less(t, took, limit/2)
	})
	release()
	v := until(t, m, 10*time.Second, "another primary", otherThan("s1"))
	f := lastOf(t, m, operation.Failover)
	require.True(t, f.Automatic)
	require.Equal(t, "1", byName(t, c, v.Primary.Name).MustQuery(t, "SELECT n FROM app.blocked"), "what was acknowledged is lost")
	require.NoError(t, c.Primary().Restart(t.Context()))
	// Before 10.10 a former primary has nothing in gtid_slave_pos until something comes.
	byName(t, c, v.Primary.Name).MustExec(t, "UPDATE app.blocked SET n=n+1")
	oneTopology(t, m, c, v.Primary.Name)
}

// TestMonitorDiesDuringSwitchover cuts the primary monitor off while the primary is
// read-only for a switchover: the next monitor makes it writable again.
func TestMonitorDiesDuringSwitchover(t *testing.T) {
	c := operated(t, 3, nil)
	cfg, l := linked(t, c, "first", operating)
	first := leader(t, cfg)
	second := start(t, configOf(c, operating, named("second"), func(cfg *monitor.Config) {
		for i, s := range c.Servers {
			cfg.Servers[i].Address = s.Addr()
		}
	}))
	until(t, second, 5*time.Second, "follows", offers("s1"))
	release := blockApply(t, c, c.Servers[1])
	defer release()
	accepted(t, first, to("s2"))
	until(t, first, 5*time.Second, "it waits for s2", func(v monitor.View) bool {
		return v.Operations.Running != nil && v.Operations.Running.Step == "s2: catch up"
	})
	require.Equal(t, "1", c.Primary().MustQuery(t, "SELECT @@read_only"))
	until(t, second, 5*time.Second, "the other monitor sees that", func(v monitor.View) bool { return v.Primary == nil })
	cut := time.Now()
	l.set(linkDrop)
	until(t, second, 10*time.Second, "s1 is offered by the other monitor", offers("s1"))
	t.Logf("writable again %v after the monitor was cut off", time.Since(cut).Round(time.Millisecond))
	require.Equal(t, "0", c.Primary().MustQuery(t, "SELECT @@read_only"))
	l.set(linkPass)
	release()
	oneTopology(t, second, c, "s1")
	until(t, first, 10*time.Second, "the first follows", offers("s1"))
}
