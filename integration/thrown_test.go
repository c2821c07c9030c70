package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/monitor"
)

// TestRelayLogThrownAway has a person stop and start the replication of replicas
// that have not applied what only they and the dead primary have.
func TestRelayLogThrownAway(t *testing.T) {
	t.Parallel()
	c := operated(t, 3, nil)
	p := c.Primary()
	p.MustExec(t, "CREATE TABLE app.t (id INT PRIMARY KEY)")
	require.NoError(t, c.WaitSync(t.Context()))
	m := leader(t, configOf(c, byHand, policy(trusted)))
	for _, s := range c.Replicas() {
		s.MustExec(t, "STOP SLAVE SQL_THREAD")
	}
	p.MustExec(t, "INSERT INTO app.t VALUES (1)", "INSERT INTO app.t VALUES (2)")
	last := p.MustQuery(t, "SELECT @@gtid_binlog_pos")
	received := func(v monitor.View) bool {
		for _, s := range v.Servers[1:] {
			if len(s.Replication) != 1 || s.Replication[0].Received != last {
				return false
			}
		}
		return v.Servers[0].BinlogPos == last
	}
	until(t, m, 10*time.Second, "the replicas have received it", received)
	ticksLater(t, m, 1, func(monitor.View) {})
	require.NoError(t, p.Kill())
	until(t, m, 10*time.Second, "s1 has failed", func(v monitor.View) bool { return v.Operations.Failed })
	failover := monitor.Command{Action: monitor.ActFailover, DryRun: true, Force: true}
	require.Empty(t, accepted(t, m, failover).Plan.Overrides, "nothing is lost yet")
	for _, s := range c.Replicas() {
		s.MustExec(t, "STOP SLAVE", "START SLAVE")
	}
	until(t, m, 10*time.Second, "it is gone", func(v monitor.View) bool {
		return v.Servers[1].Replication[0].Received != last && v.Servers[2].Replication[0].Received != last && v.Servers[1].Replication[0].SQL == "Yes" && v.Servers[2].Replication[0].SQL == "Yes"
	})
	require.Eventually(t, func() bool {
		_, err := m.Command(t.Context(), monitor.Command{Action: monitor.ActFailover})
		return err != nil && contains(err.Error(), "thrown it away")
	}, 10*time.Second, 20*time.Millisecond, "until the failover is safe it is refused for that")
	r := refusedAs(t, m, monitor.Command{Action: monitor.ActFailover}, "thrown_away", fmt.Sprintf("had received %s from s1 and has thrown it away", last), "start s1 again")
	require.True(t, r.Force)
	require.Len(t, accepted(t, m, failover).Plan.Overrides, 2, "each of the replicas has")
	require.NoError(t, p.Restart(t.Context()))
	until(t, m, 20*time.Second, "s1 is back", offers("s1"))
	inSync(t, c, "s1")
	require.Empty(t, m.Operations())
}
