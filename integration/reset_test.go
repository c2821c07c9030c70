package integration

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/election"
	"github.com/lockstep-ha/lockstep/internal/testdb"
	"github.com/lockstep-ha/lockstep/monitor"
	"github.com/lockstep-ha/lockstep/monitor/operation"
)

// resetTo starts a reset-replication and waits for its end.
func resetTo(t *testing.T, m running, server string) operation.Record {
	t.Helper()
	id := accepted(t, m, monitor.Command{Action: monitor.ActResetReplication, Server: server, Force: true}).ID
	var rec operation.Record
	until(t, m, 30*time.Second, "reset-replication ends", func(monitor.View) bool {
		rec = lastOf(t, m, operation.ResetReplication)
		return rec.ID == id && rec.EndedAt != nil
	})
	return rec
}

// replicateAnew checks that what is written to a server by now reaches all others,
// under a history that begins with it.
func replicateAnew(t *testing.T, c *testdb.Cluster, p *testdb.Server) {
	t.Helper()
	p.MustExec(t, "INSERT INTO app.t VALUES (1000)")
	for _, s := range c.Servers {
		require.Eventually(t, func() bool {
			return s.MustQuery(t, "SELECT COUNT(*) FROM app.t WHERE id=1000") == "1" && s.MustQuery(t, "SELECT @@gtid_current_pos") == p.MustQuery(t, "SELECT @@gtid_current_pos")
		}, 10*time.Second, 10*time.Millisecond, "%s follows", s.Addr())
	}
	p.MustExec(t, "DELETE FROM app.t WHERE id=1000")
}

// TestResetReplication mends a cluster in which nothing replicates by GTID any
// more: a replica has transactions of its own, another one has lost its source.
func TestResetReplication(t *testing.T) {
	t.Parallel()
	c := semiSync(t, 3)
	p, s2, s3 := c.Primary(), c.Servers[1], c.Servers[2]
	p.MustExec(t, "CREATE TABLE app.t (id INT PRIMARY KEY)", "INSERT INTO app.t VALUES (1)")
	require.NoError(t, c.WaitSync(t.Context()))
	m := leader(t, configOf(c, byHand))
	s2.MustExec(t, "STOP SLAVE", "INSERT INTO app.t VALUES (7)", "DELETE FROM app.t WHERE id=7")
	s3.MustExec(t, "SET GLOBAL rpl_semi_sync_slave_enabled=1", "STOP SLAVE", "START SLAVE")
	own := s2.MustQuery(t, "SELECT @@gtid_current_pos")
	until(t, m, 10*time.Second, "s2 is seen to be different", func(v monitor.View) bool { return v.Servers[1].CurrentPos == own })
	r := refusedAs(t, m, monitor.Command{Action: monitor.ActResetReplication}, "data_differ", "s2 has applied")
	require.True(t, r.Force)

	rec := resetTo(t, m, "")
	require.Equal(t, operation.Done, rec.Outcome, "%+v", rec)
	require.Empty(t, rec.Warnings)
	oneTopology(t, m, c, "s1")
	replicateAnew(t, c, p)
	require.Equal(t, "0", p.MustQuery(t, "SELECT @@read_only"))
	require.Equal(t, "1", p.MustQuery(t, "SELECT @@rpl_semi_sync_master_enabled"), "what was on goes on")
	require.Equal(t, "1", s2.MustQuery(t, "SELECT @@read_only"))

	rec = resetTo(t, m, "s3")
	require.Equal(t, operation.Done, rec.Outcome, "%+v", rec)
	oneTopology(t, m, c, "s3")
	replicateAnew(t, c, s3)
	require.Equal(t, "1", s3.MustQuery(t, "SELECT @@rpl_semi_sync_master_enabled"))
	require.Equal(t, "0", p.MustQuery(t, "SELECT @@rpl_semi_sync_master_enabled"))
}

// TestResetReplicationCutShort has the monitor of a reset-replication end in the
// middle: a person can repeat it, to the same server or to another.
func TestResetReplicationCutShort(t *testing.T) {
	t.Parallel()
	for name, forget := range map[string]func(c *testdb.Cluster) []*testdb.Server{
		"one server has forgotten": func(c *testdb.Cluster) []*testdb.Server { return c.Servers[:1] },
		"all have forgotten":       func(c *testdb.Cluster) []*testdb.Server { return c.Servers },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := operated(t, 3, nil)
			p := c.Primary()
			p.MustExec(t, "CREATE TABLE app.t (id INT PRIMARY KEY)", "INSERT INTO app.t VALUES (1)")
			require.NoError(t, c.WaitSync(t.Context()))
			p.MustExec(t, "SET GLOBAL read_only=1")
			for _, s := range forget(c) {
				s.MustExec(t, "STOP SLAVE", "RESET SLAVE ALL", "RESET MASTER", "SET GLOBAL gtid_slave_pos=''")
			}
			m := start(t, configOf(c, byHand))
			until(t, m, 10*time.Second, "settles", func(v monitor.View) bool { return v.Monitor.Role == election.Primary })
			ticksLater(t, m, 3, func(v monitor.View) { require.Nil(t, v.Primary) })
			rec := resetTo(t, m, "s1")
			require.Equal(t, operation.Done, rec.Outcome, "%+v", rec)
			oneTopology(t, m, c, "s1")
			replicateAnew(t, c, p)
		})
	}
}

// TestPrimaryLeftReadOnlyByReset has the monitor of a reset-replication end after it
// has set the primary read-only, and before anything was thrown away.
func TestPrimaryLeftReadOnlyByReset(t *testing.T) {
	t.Parallel()
	c := operated(t, 3, nil)
	p := c.Primary()
	m := leader(t, configOf(c, byHand))
	rec := resetTo(t, m, "")
	require.Equal(t, operation.Done, rec.Outcome, "%+v", rec)
	require.Eventually(t, func() bool {
		return contains(p.MustQuery(t, "SELECT COALESCE(GROUP_CONCAT(value), '') FROM lockstep.state WHERE name='switchover'"), `"from":"s1"`, `"ended":true`)
	}, 10*time.Second, 10*time.Millisecond, "its end is noted")
	m.stop()
	p.MustExec(t, `UPDATE lockstep.state SET value='{"from":"s1","to":"s1"}', at=UTC_TIMESTAMP(6) WHERE name='switchover'`)
	require.NoError(t, c.WaitSync(t.Context()))
	p.MustExec(t, "SET GLOBAL read_only=1")
	m = leader(t, configOf(c, byHand))
	until(t, m, 15*time.Second, "it is opened", offers("s1"))
	require.Equal(t, "0", p.MustQuery(t, "SELECT @@read_only"))
}
