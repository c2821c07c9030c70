package integration

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/monitor"
	"github.com/lockstep-ha/lockstep/monitor/operation"
)

// TestBrakeAcrossClusters has two clusters of one process lose their primaries at
// once: the second waits until a person has seen the first.
func TestBrakeAcrossClusters(t *testing.T) {
	t.Parallel()
	brake := &monitor.Brake{}
	brake.Set(1, time.Hour)
	begin := func(name string) (running, func()) {
		c := operated(t, 3, nil)
		m := start(t, configOf(c, byHand, policy(trusted), policy(func(p *operation.Policy) { p.AutoFailover = true }), func(cfg *monitor.Config) { cfg.Cluster, cfg.Name = name, name }), monitor.WithBrake(brake))
		until(t, m, 10*time.Second, "settles", settled)
		return m, func() { require.NoError(t, c.Primary().Kill()) }
	}
	first, kill := begin("east")
	second, killSecond := begin("west")
	kill()
	until(t, first, 10*time.Second, "east fails over", func(v monitor.View) bool { return v.Primary != nil && v.Primary.Name != "s1" })
	killSecond()
	v := until(t, second, 10*time.Second, "west waits", func(v monitor.View) bool { return contains(v.Operations.Pending, "max_failovers is 1") })
	require.Contains(t, v.Operations.Pending, "east failed over")
	ticksLater(t, second, 5, func(v monitor.View) { require.Nil(t, v.Primary) })
	require.Empty(t, second.Operations())
	accepted(t, first, monitor.Command{Action: monitor.ActAcknowledge})
	until(t, second, 10*time.Second, "west fails over", func(v monitor.View) bool { return v.Primary != nil && v.Primary.Name != "s1" })
}
