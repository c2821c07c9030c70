package integration

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/election"
	"github.com/lockstep-ha/lockstep/internal/testdb"
	"github.com/lockstep-ha/lockstep/locks"
	"github.com/lockstep-ha/lockstep/monitor"
)

// sample is a view at an instant, as far as the tests need it.
type sample struct {
	at      time.Time
	offered string // "" for none
	reason  string
	lead    bool // has the majority
	role    election.Role
	held    int
	tick    uint64
	tickMS  float64
}

// recorder samples the views of a monitor every 2 ms.
type recorder struct {
	done    chan struct{}
	wg      sync.WaitGroup
	samples []sample
}

func record(m running) *recorder {
	r := &recorder{done: make(chan struct{})}
	r.wg.Go(func() {
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for {
			v := m.View()
			s := sample{at: time.Now(), reason: v.Reason, lead: v.Monitor.Primary, role: v.Monitor.Role,
				held: v.Monitor.Majority.Held, tick: v.Tick, tickMS: v.TickMS}
			if v.Primary != nil {
				s.offered = v.Primary.Name
			}
			r.samples = append(r.samples, s)
			select {
			case <-r.done:
				return
			case <-tick.C:
			}
		}
	})
	return r
}

type samples []sample

func (r *recorder) stop() samples {
	close(r.done)
	r.wg.Wait()
	return r.samples
}

// without is the longest time without a primary.
func (s samples) without() time.Duration {
	var longest time.Duration
	var since time.Time
	for _, x := range s {
		switch {
		case x.offered != "":
			since = time.Time{}
		case since.IsZero():
			since = x.at
			longest = max(longest, time.Microsecond)
		default:
			longest = max(longest, x.at.Sub(since))
		}
	}
	return longest
}

// lastOffer is when a primary was offered for the last time.
func (s samples) lastOffer() time.Time {
	var last time.Time
	for _, x := range s {
		if x.offered != "" {
			last = x.at
		}
	}
	return last
}

// why returns the reason of the first sample without a primary.
func (s samples) why() string {
	for _, x := range s {
		if x.offered == "" {
			return x.reason
		}
	}
	return ""
}

// trio is three monitors with a link each, of which the first is primary.
type trio struct {
	c     *testdb.Cluster
	m     [3]running
	link  [3]*link
	names [3]string
}

func newTrio(t *testing.T, change ...func(*monitor.Config)) *trio {
	t.Helper()
	x := &trio{c: testdb.NewCluster(t, 3, testdb.ClusterOptions{}), names: [3]string{"m1", "m2", "m3"}}
	for i, n := range x.names {
		var cfg monitor.Config
		cfg, x.link[i] = linked(t, x.c, n, change...)
		x.m[i] = start(t, cfg)
		until(t, x.m[i], 10*time.Second, n+" offers s1", offers("s1"))
	}
	until(t, x.m[0], 20*time.Second, "m1 settles", func(v monitor.View) bool { return v.Monitor.Role == election.Primary })
	for _, m := range x.m[1:] {
		require.Equal(t, election.Secondary, m.View().Monitor.Role)
	}
	// What follows may come at any point between two ticks.
	time.Sleep(rand.N(x.m[0].Timing().Interval))
	return x
}

// succession waits until m2 or m3 leads and the other follows it, and checks
// what they offered in the meantime.
func (x *trio) succession(t *testing.T, began time.Time, within time.Duration, rec [2]*recorder) {
	t.Helper()
	lead := -1
	require.Eventually(t, func() bool {
		for i, m := range x.m[1:] {
			if v := m.View(); v.Monitor.Primary && v.Monitor.PrimaryLockHeld && offers("s1")(v) {
				lead = i
			}
		}
		return lead >= 0
	}, within, 2*time.Millisecond, "nobody took over")
	took := time.Since(began)
	other := x.m[2-lead]
	v := until(t, other, 5*time.Second, "the third follows", func(v monitor.View) bool {
		return offers("s1")(v) && v.Monitor.Role == election.Secondary && serverOf(t, v, "s1").PrimaryLockOwner != nil
	})
	require.NotEqual(t, "this monitor", serverOf(t, v, "s1").LockOwner.Kind)
	interval := x.m[0].Timing().Interval
	time.Sleep(2 * interval) // what goes wrong may do so late
	var got [2]samples
	for i := range rec {
		got[i] = rec[i].stop()
	}
	t.Logf("%s took over after %v; the third was without a primary for %v", x.names[lead+1], took.Round(time.Millisecond), got[1-lead].without().Round(time.Millisecond))
	require.Zero(t, got[lead].without(), "the one that took over offered none: %s", got[lead].why())
	require.LessOrEqual(t, got[1-lead].without(), interval, "the third offered none: %s", got[1-lead].why())
	for _, s := range got {
		for _, y := range s {
			require.Contains(t, []string{"", "s1"}, y.offered)
		}
	}
	require.False(t, other.View().Monitor.Primary)
}

func TestTakeoverAfterStop(t *testing.T) {
	x := newTrio(t)
	rec := [2]*recorder{record(x.m[1]), record(x.m[2])}
	began := time.Now()
	x.m[0].stop()
	require.Nil(t, x.m[0].View().Primary)
	x.succession(t, began, 3*time.Second, rec)
}

func TestTakeoverAfterCut(t *testing.T) {
	const interval, timeout = 500 * time.Millisecond, time.Second
	x := newTrio(t, func(cfg *monitor.Config) { cfg.Interval, cfg.Timeout = interval, timeout })
	first := record(x.m[0])
	rec := [2]*recorder{record(x.m[1]), record(x.m[2])}
	began := time.Now()
	x.link[0].set(linkDrop)
	tm := x.m[0].Timing()
	// The locks of the one cut off last for its wait_timeout, which began at most
	// an interval before the cut.
	x.succession(t, began, tm.WaitTimeout+2*tm.Interval, rec)
	s := first.stop()
	stopped := s.lastOffer().Sub(began)
	t.Logf("the one cut off offered for %v more (interval %v, timeout %v)", stopped.Round(time.Millisecond), interval, timeout)
	require.LessOrEqual(t, stopped, (interval+timeout)*11/10)
	v := x.m[0].View()
	require.Nil(t, v.Primary)
	require.False(t, v.Monitor.Primary)

	// Back again it follows.
	x.link[0].set(linkPass)
	v = until(t, x.m[0], 10*time.Second, "m1 follows", offers("s1"))
	require.Equal(t, election.Secondary, v.Monitor.Role)
	require.False(t, v.Monitor.PrimaryLockHeld)
}

func TestTakeoverAfterReset(t *testing.T) {
	x := newTrio(t)
	rec := [2]*recorder{record(x.m[1]), record(x.m[2])}
	first := record(x.m[0])
	began := time.Now()
	x.link[0].set(linkReset)
	x.succession(t, began, 3*time.Second, rec)
	stopped := first.stop().lastOffer().Sub(began)
	t.Logf("the one that was reset offered for %v more", stopped.Round(time.Millisecond))
	require.Less(t, stopped, fastInterval)
}

// TestLostMajority cuts the only monitor off from two of three servers: it gives
// up the lock of the third too.
func TestLostMajority(t *testing.T) {
	c := testdb.NewCluster(t, 3, testdb.ClusterOptions{})
	l := newLink(t)
	m := start(t, configOf(c, func(cfg *monitor.Config) {
		for i := range 2 {
			cfg.Servers[i+1].Address = l.to(t, cfg.Servers[i+1].Address)
		}
	}))
	until(t, m, 5*time.Second, "s1 is offered", func(v monitor.View) bool { return offers("s1")(v) && v.Monitor.Majority.Held == 3 })
	l.set(linkDrop)
	cut := time.Now()
	v := until(t, m, 5*time.Second, "the majority is lost", func(v monitor.View) bool { return !v.Monitor.Primary })
	require.Nil(t, v.Primary)
	require.Contains(t, v.Monitor.Reason, "no majority: ")
	// In the tick in which it was noticed.
	noLocks(t, time.Second, c.Servers[0])
	t.Logf("no lock is left on the server still reached %v after the cut", time.Since(cut).Round(time.Millisecond))
	// Those of the others go by wait_timeout.
	tm := m.Timing()
	noLocks(t, tm.WaitTimeout+time.Second, c.Servers...)
	t.Logf("no lock is left on any server %v after the cut (wait_timeout %v)", time.Since(cut).Round(time.Millisecond), tm.WaitTimeout)
	never(t, m, time.Second, "it takes locks again", func(v monitor.View) bool {
		return v.Monitor.Primary || v.Primary != nil || holder(t, c.Servers[0], locks.DefaultServerLock) != ""
	})
	l.set(linkPass)
	until(t, m, 10*time.Second, "s1 is offered again", offers("s1"))
}

func TestCleanStopLeavesNothing(t *testing.T) {
	c := testdb.NewCluster(t, 3, testdb.ClusterOptions{})
	m := start(t, configOf(c))
	until(t, m, 5*time.Second, "s1 is offered", func(v monitor.View) bool { return offers("s1")(v) && v.Monitor.Majority.Held == 3 })
	m.stop()
	for _, s := range c.Servers {
		require.Empty(t, holder(t, s, locks.DefaultServerLock))
		require.Empty(t, holder(t, s, locks.DefaultPrimaryLock))
	}
	// The server ends a connection a moment after its client has.
	for _, s := range c.Servers {
		require.Eventually(t, func() bool {
			return s.MustQuery(t, "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER=?", testdb.MonitorUser) == "0"
		}, 2*time.Second, 5*time.Millisecond, "a connection is left on %s", s.Name())
	}
}
