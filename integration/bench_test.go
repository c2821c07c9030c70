package integration

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/election"
	"github.com/lockstep-ha/lockstep/internal/testdb"
	"github.com/lockstep-ha/lockstep/monitor"
)

// at sets the timing; zero values are the defaults.
func at(interval, timeout time.Duration) func(*monitor.Config) {
	return func(c *monitor.Config) {
		c.Interval, c.Timeout, c.WaitTimeoutFloor = interval, timeout, 0
		c.Policy.FailoverBlock = -1
	}
}

func quorum(m election.Mode) func(*monitor.Config) {
	return func(c *monitor.Config) { c.Quorum = m }
}

// BenchmarkFailoverKilled measures the time from the first failed to the first
// good write after kill -9 of the primary.
func BenchmarkFailoverKilled(b *testing.B) {
	for _, c := range []struct {
		name     string
		interval time.Duration
		mode     election.Mode
	}{
		{"defaults/majority_of_running", 2 * time.Second, election.MajorityOfRunning},
		{"defaults/majority_of_all", 2 * time.Second, election.MajorityOfAll},
		{"500ms/majority_of_running", 500 * time.Millisecond, election.MajorityOfRunning},
		{"500ms/majority_of_all", 500 * time.Millisecond, election.MajorityOfAll},
	} {
		b.Run(c.name, func(b *testing.B) {
			cl := semiSync(b, 3)
			m := start(b, configOf(cl, operating, at(c.interval, 3*time.Second), quorum(c.mode)))
			until(b, m, 30*time.Second, "settles", settled)
			w := writing(b, cl, m)
			var outages []time.Duration
			for b.Loop() {
				p := m.View().Primary
				require.NotNil(b, p)
				i := slices.IndexFunc(cl.Servers, func(s *testdb.Server) bool { return s.Addr() == p.Address })
				before := len(w.Snapshot().Outages)
				require.NoError(b, cl.Servers[i].Kill())
				until(b, m, 60*time.Second, "another primary", func(v monitor.View) bool { return v.Primary != nil && v.Primary.Name != p.Name })
				require.NoError(b, w.WaitAcked(b.Context(), 20))
				list := w.Snapshot().Outages
				require.Len(b, list, before+1)
				outages = append(outages, list[before].Duration())
				require.NoError(b, cl.Servers[i].Restart(b.Context()))
				next := m.View().Primary.Name
				until(b, m, 60*time.Second, "rejoined", replicates(p.Name, next))
				inSync(b, cl, next)
			}
			w.Stop()
			inSync(b, cl, m.View().Primary.Name)
			nothingLost(b, w, cl.Servers...)
			slices.Sort(outages)
			b.ReportMetric(float64(outages[len(outages)/2].Milliseconds()), "median-ms")
			b.ReportMetric(float64(outages[len(outages)-1].Milliseconds()), "max-ms")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkSwitchover measures for how long writes are refused.
func BenchmarkSwitchover(b *testing.B) {
	cl := semiSync(b, 3)
	m := start(b, configOf(cl, operating, at(2*time.Second, 3*time.Second)))
	until(b, m, 30*time.Second, "settles", settled)
	w := writing(b, cl, m)
	var outages []time.Duration
	for b.Loop() {
		p := m.View().Primary.Name
		before := len(w.Snapshot().Outages)
		_, err := m.Command(b.Context(), monitor.Command{Action: monitor.ActSwitchover})
		require.NoError(b, err)
		until(b, m, 60*time.Second, "another primary", func(v monitor.View) bool { return v.Primary != nil && v.Primary.Name != p })
		until(b, m, 60*time.Second, "it ends", func(v monitor.View) bool { return v.Operations.Running == nil })
		require.NoError(b, w.WaitAcked(b.Context(), 20))
		for _, o := range w.Snapshot().Outages[before:] {
			outages = append(outages, o.Duration())
		}
		inSync(b, cl, m.View().Primary.Name)
	}
	w.Stop()
	inSync(b, cl, m.View().Primary.Name)
	nothingLost(b, w, cl.Servers...)
	slices.Sort(outages)
	b.ReportMetric(float64(outages[len(outages)/2].Milliseconds()), "median-ms")
	b.ReportMetric(float64(outages[len(outages)-1].Milliseconds()), "max-ms")
	b.ReportMetric(0, "ns/op")
}

// oneRun starts a cluster with a timing, measures one outage and reports it.
func oneRun(b *testing.B, interval, timeout time.Duration, fail func(cl *testdb.Cluster, m running)) {
	b.Helper()
	var outages []time.Duration
	for b.Loop() {
		cl := semiSync(b, 3)
		m := start(b, configOf(cl, operating, at(interval, timeout)))
		until(b, m, 30*time.Second, "settles", settled)
		w := writing(b, cl, m)
		fail(cl, m)
		v := until(b, m, 60*time.Second, "another primary", otherThan("s1"))
		require.NoError(b, w.WaitAcked(b.Context(), 20))
		list := w.Stop().Outages
		require.Len(b, list, 1)
		outages = append(outages, list[0].Duration())
		inSyncExcept(b, cl, v.Primary.Name, 0)
		nothingLost(b, w, cl.Servers[1], cl.Servers[2])
		m.stop()
	}
	slices.Sort(outages)
	b.ReportMetric(float64(outages[len(outages)/2].Milliseconds()), "median-ms")
	b.ReportMetric(float64(outages[len(outages)-1].Milliseconds()), "max-ms")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkFailoverHung measures the outage when the process of the primary is
// stopped while its connections stay open.
func BenchmarkFailoverHung(b *testing.B) {
	for _, c := range []struct {
		name              string
		interval, timeout time.Duration
	}{{"defaults", 2 * time.Second, 3 * time.Second}, {"1s-1s", time.Second, time.Second}} {
		b.Run(c.name, func(b *testing.B) {
			oneRun(b, c.interval, c.timeout, func(cl *testdb.Cluster, _ running) { require.NoError(b, cl.Servers[0].Freeze()) })
		})
	}
}

// BenchmarkMonitorAndPrimaryKilled measures the outage when the primary monitor
// and the primary end at the same instant.
func BenchmarkMonitorAndPrimaryKilled(b *testing.B) {
	var outages []time.Duration
	for b.Loop() {
		cl := semiSync(b, 3)
		cfg, l := linked(b, cl, "first", operating, at(2*time.Second, 3*time.Second))
		first := start(b, cfg)
		until(b, first, 30*time.Second, "settles", settled)
		second := start(b, configOf(cl, operating, named("second"), at(2*time.Second, 3*time.Second)))
		until(b, second, 10*time.Second, "follows", func(v monitor.View) bool { return offers("s1")(v) && v.Tick > 3 })
		w := writing(b, cl, second)
		l.set(linkReset)
		require.NoError(b, cl.Servers[0].Kill())
		v := until(b, second, 60*time.Second, "another primary", otherThan("s1"))
		require.NoError(b, w.WaitAcked(b.Context(), 20))
		list := w.Stop().Outages
		require.Len(b, list, 1)
		outages = append(outages, list[0].Duration())
		inSyncExcept(b, cl, v.Primary.Name, 0)
		nothingLost(b, w, cl.Servers[1], cl.Servers[2])
		first.stop()
		second.stop()
	}
	slices.Sort(outages)
	b.ReportMetric(float64(outages[len(outages)/2].Milliseconds()), "median-ms")
	b.ReportMetric(float64(outages[len(outages)-1].Milliseconds()), "max-ms")
	b.ReportMetric(0, "ns/op")
}
