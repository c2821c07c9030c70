package integration

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/internal/testdb"
	"github.com/lockstep-ha/lockstep/monitor"
	"github.com/lockstep-ha/lockstep/monitor/operation"
	"github.com/lockstep-ha/lockstep/topology"
)

// installDisks installs the plugin that shows disks, where the server came with it.
func installDisks(t *testing.T, s *testdb.Server) {
	t.Helper()
	if err := s.Exec(t.Context(), "SET SESSION sql_log_bin=0", "INSTALL SONAME 'disks'"); err != nil {
		require.ErrorContains(t, err, "disks.so")
		t.Skip("this server's package lacks the plugin disks")
	}
}

// TestLowDisk looks at disks that are all below the limit: what is missing for that
// is said, then how full they are.
func TestLowDisk(t *testing.T) {
	c := operated(t, 3, nil)
	look := func(change func(*operation.Policy)) running {
		return start(t, configOf(c, byHand, policy(func(p *operation.Policy) { p.MinFreeDisk = 100 }), policy(change)))
	}
	nothing := func(*operation.Policy) {}
	says := func(m running, code, text, remedy string) {
		t.Helper()
		for i := range c.Servers {
			v := until(t, m, 10*time.Second, code, hasFault(code, serverName(i)))
			f, _ := faultOf(v, code, serverName(i))
			require.Contains(t, f.Text, text)
			require.Contains(t, f.Remedy, remedy)
		}
		m.stop()
	}
	says(look(nothing), "disk_unknown", "plugin", "INSTALL SONAME 'disks'")
	for _, s := range c.Servers {
		installDisks(t, s)
	}
	says(look(nothing), "disk_unknown", "no file system", "GRANT FILE")
	for _, s := range c.Servers {
		s.MustExec(t, "SET SESSION sql_log_bin=0", "GRANT FILE ON *.* TO "+testdb.MonitorUser+"@'%'")
	}
	m := look(func(p *operation.Policy) { p.DrainOnLowDisk = true })
	until(t, m, 10*time.Second, "settles", settled)
	v := until(t, m, 5*time.Second, "all are low", func(v monitor.View) bool {
		return hasFault("disk_low", "s1")(v) && hasFault("disk_low", "s2")(v) && hasFault("disk_low", "s3")(v)
	})
	v = until(t, m, 5*time.Second, "a tick later", func(w monitor.View) bool { return w.Tick > v.Tick+1 })
	require.Contains(t, serverOf(t, v, "s1").State, topology.LabelLowDisk)
	require.NotContains(t, serverOf(t, v, "s1").State, topology.LabelDrained, "the primary is not drained")
	require.Contains(t, serverOf(t, v, "s2").State, topology.LabelDrained)
	require.Contains(t, v.Operations.Why, "of its disk are free", "the next primary is chosen all the same")
	r := refusedAs(t, m, monitor.Command{Action: monitor.ActSwitchover}, "low_disk", "min_free_disk is 100")
	require.True(t, r.Force)
	reply := accepted(t, m, monitor.Command{Action: monitor.ActSwitchover, Force: true, DryRun: true})
	require.Contains(t, reply.Plan.Overrides[0], "of its disk are free")
}

// TestSwitchoverOnLowDisk has the primary on a disk that is fuller than the one of
// one of its replicas.
func TestSwitchoverOnLowDisk(t *testing.T) {
	dir, err := os.MkdirTemp("/dev/shm", "lockstep")
	if err != nil {
		t.Skipf("a second file system is needed: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	c := operated(t, 3, func(i int, o *testdb.Options) {
		if i == 2 {
			o.Dir = dir + "/s3"
		}
	})
	var free [3]int
	for i, s := range c.Servers {
		installDisks(t, s)
		s.MustExec(t, "SET SESSION sql_log_bin=0", "GRANT FILE ON *.* TO "+testdb.MonitorUser+"@'%'")
		_, err := fmt.Sscan(s.MustQuery(t, "SELECT FLOOR(100*Available/Total) FROM information_schema.DISKS WHERE @@datadir LIKE CONCAT(Path, '%') ORDER BY LENGTH(Path) DESC LIMIT 1"), &free[i])
		require.NoError(t, err)
	}
	if free[2] < free[0]+3 {
		t.Skipf("/dev/shm has %d %% free, and the disk %d %%", free[2], free[0])
	}
	m := leader(t, configOf(c, byHand, policy(func(p *operation.Policy) { p.MinFreeDisk, p.SwitchoverOnLowDisk = free[0]+2, true })))
	until(t, m, 15*time.Second, "s3 is the primary", offers("s3"))
	until(t, m, 15*time.Second, "it is over", func(monitor.View) bool {
		list := m.Operations()
		return len(list) == 1 && list[0].Outcome == operation.Done
	})
	rec := m.Operations()[0]
	require.Equal(t, operation.Switchover, rec.Kind)
	require.True(t, rec.Automatic)
	require.Contains(t, rec.Reason, "of its disk are free")
	require.Contains(t, rec.Reason, "disk space")
	oneTopology(t, m, c, "s3")
	require.Eventually(t, func() bool { return contains(keptRow(t, c.Servers[1], "switchover"), `"from":"s1"`, `"ended":true`) }, 15*time.Second, 20*time.Millisecond, "the end is noted")
	require.Equal(t, "2", c.Servers[1].MustQuery(t, "SELECT version FROM lockstep.state WHERE name='switchover'"), "and so was the beginning, before s1 was set read-only")
}
