package integration

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/internal/testdb"
	"github.com/lockstep-ha/lockstep/locks"
	"github.com/lockstep-ha/lockstep/monitor"
)

// TestManyStartAtOnce starts ten monitors at the same instant, many times over.
func TestManyStartAtOnce(t *testing.T) {
	for _, n := range []int{3, 5} {
		t.Run(fmt.Sprintf("%d servers", n), func(t *testing.T) {
			c := testdb.NewCluster(t, n, testdb.ClusterOptions{})
			runs := 10
			if os.Getenv("LOCKSTEP_LONG") == "1" {
				runs = 50
			}
			var total, longest time.Duration
			for i := range runs {
				var took time.Duration
				ok := t.Run(fmt.Sprint(i+1), func(t *testing.T) { took = tenAtOnce(t, c) })
				if !ok {
					return
				}
				total, longest = total+took, max(longest, took)
				noLocks(t, time.Second, c.Servers...)
			}
			t.Logf("a majority after %v on average, %v at most", (total / time.Duration(runs)).Round(time.Millisecond), longest.Round(time.Millisecond))
		})
	}
}

// tenAtOnce returns how long it took until one of ten had the majority.
func tenAtOnce(t *testing.T, c *testdb.Cluster) time.Duration {
	t.Helper()
	const interval, timeout = 500 * time.Millisecond, 500 * time.Millisecond
	configs := make([]monitor.Config, 10)
	for i := range configs {
		configs[i] = configOf(c, named(fmt.Sprintf("m%d", i+1)), func(cfg *monitor.Config) { cfg.Interval, cfg.Timeout = interval, timeout })
	}
	began := time.Now()
	var all []running
	for _, cfg := range configs {
		all = append(all, start(t, cfg))
	}
	leaders := func() []string {
		var names []string
		for _, m := range all {
			if v := m.View(); v.Monitor.Primary {
				names = append(names, v.Monitor.Name)
			}
		}
		return names
	}
	var first []string
	for len(first) == 0 {
		require.Less(t, time.Since(began), 2*interval, "nobody has the majority")
		time.Sleep(2 * time.Millisecond)
		first = leaders()
	}
	took := time.Since(began)
	require.Len(t, first, 1)
	// It stays the only one, and all come to follow it.
	for _, m := range all {
		until(t, m, 10*interval, "s1 is offered", func(v monitor.View) bool {
			require.Equal(t, first, leaders())
			return offers("s1")(v)
		})
	}
	held := 0
	for _, s := range c.Servers {
		if holder(t, s, locks.DefaultServerLock) != "" {
			held++
		}
	}
	require.Greater(t, held, len(c.Servers)/2)
	return took
}
