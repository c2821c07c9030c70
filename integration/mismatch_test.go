package integration

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/election"
	"github.com/lockstep-ha/lockstep/internal/testdb"
	"github.com/lockstep-ha/lockstep/monitor"
)

// TestOtherConfiguration runs monitors that must agree and do not.
func TestOtherConfiguration(t *testing.T) {
	c := testdb.NewCluster(t, 3, testdb.ClusterOptions{})
	a := start(t, configOf(c, func(c *monitor.Config) { c.Name = "a" }))
	until(t, a, 5*time.Second, "a has the majority", func(v monitor.View) bool { return v.Monitor.Primary && v.Primary != nil })
	for what, change := range map[string]func(*monitor.Config){
		"failcount": func(c *monitor.Config) { c.Failcount = 9 },
		"quorum":    func(c *monitor.Config) { c.Quorum = election.MajorityOfRunning },
		"servers":   func(c *monitor.Config) { c.Servers = c.Servers[:2] },
		"votes":     func(c *monitor.Config) { c.Servers[2].NoVote = true },
	} {
		b := start(t, configOf(c, change))
		v := until(t, b, 5*time.Second, "b follows", offers("s1"))
		require.NotEmpty(t, v.Faults, what)
		require.Equal(t, "other_configuration", v.Faults[0].Code, what)
		b.stop()
	}
	b := start(t, configOf(c))
	require.Empty(t, until(t, b, 5*time.Second, "b follows", offers("s1")).Faults)
}

// TestRestartedServerIsNotStolen restarts a server: the secondary must not take
// the lock that the restart frees.
func TestRestartedServerIsNotStolen(t *testing.T) {
	c := testdb.NewCluster(t, 3, testdb.ClusterOptions{})
	a := start(t, configOf(c, func(c *monitor.Config) { c.Name = "a" }))
	until(t, a, 10*time.Second, "a is primary", func(v monitor.View) bool { return v.Monitor.Role == election.Primary })
	b := start(t, configOf(c, func(c *monitor.Config) { c.Name = "b" }))
	until(t, b, 5*time.Second, "b follows", offers("s1"))
	require.NoError(t, c.Servers[2].Stop(t.Context()))
	require.NoError(t, c.Servers[2].Restart(t.Context()))
	deadline := time.Now().Add(2 * time.Second)
	for time.Now().Before(deadline) {
		require.Zero(t, b.View().Monitor.Majority.Held)
		require.Equal(t, election.Primary, a.View().Monitor.Role)
		time.Sleep(5 * time.Millisecond)
	}
	until(t, a, 5*time.Second, "a has all three again", func(v monitor.View) bool { return v.Monitor.Majority.Held == 3 })
}
