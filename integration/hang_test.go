package integration

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/election"
	"github.com/lockstep-ha/lockstep/internal/testdb"
	"github.com/lockstep-ha/lockstep/locks"
	"github.com/lockstep-ha/lockstep/monitor"
	"github.com/lockstep-ha/lockstep/topology"
)

// TestServerHangs stops a server's process, so that its connections stay and it
// says nothing.
func TestServerHangs(t *testing.T) {
	for _, hung := range []int{1, 3} {
		t.Run(fmt.Sprintf("s%d", hung), func(t *testing.T) { hang(t, hung) })
	}
}

func hang(t *testing.T, number int) {
	t.Helper()
	const interval, timeout = 500 * time.Millisecond, time.Second
	c := testdb.NewCluster(t, 3, testdb.ClusterOptions{})
	m := start(t, configOf(c, func(cfg *monitor.Config) { cfg.Interval, cfg.Timeout = interval, timeout }))
	until(t, m, 20*time.Second, "the monitor settles", func(v monitor.View) bool {
		return v.Monitor.Role == election.Primary && v.Monitor.Majority.Held == 3
	})
	server, name := c.Servers[number-1], fmt.Sprintf("s%d", number)
	var others []*testdb.Server
	holders := map[string]string{}
	for _, s := range c.Servers {
		if s != server {
			others = append(others, s)
			holders[s.Name()] = holder(t, s, locks.DefaultServerLock)
			require.NotEmpty(t, holders[s.Name()])
		}
	}
	require.NoError(t, server.Freeze())
	frozen := time.Now()
	var slowest float64
	var noticed time.Duration
	check := func(v monitor.View) {
		require.Equal(t, election.Primary, v.Monitor.Role, v.Monitor.Reason)
		require.GreaterOrEqual(t, v.Monitor.Majority.Held, 2)
		slowest = max(slowest, v.TickMS)
		for _, s := range others {
			sv := serverOf(t, v, s.Name())
			require.Equal(t, topology.Answered.String(), sv.Evidence)
			require.NotNil(t, sv.LockHeld)
			require.True(t, *sv.LockHeld)
		}
		if number != 1 {
			require.True(t, offers("s1")(v), v.Reason)
		}
	}
	tm := m.Timing()
	for time.Since(frozen) < tm.StaleAfter()+tm.Interval {
		v := m.View()
		check(v)
		sv := serverOf(t, v, name)
		if slices.Contains(sv.State, "Down") && noticed == 0 {
			noticed = time.Since(frozen)
			require.Equal(t, topology.TimedOut.String(), sv.Evidence)
			if number == 1 {
				require.Nil(t, v.Primary)
				require.Contains(t, v.Reason, "s1 cannot take writes: timed out")
			}
		}
		time.Sleep(2 * time.Millisecond)
	}
	for _, s := range others {
		require.Equal(t, holders[s.Name()], holder(t, s, locks.DefaultServerLock), "another connection holds the lock of %s", s.Name())
	}
	t.Logf("down after %v (interval %v, timeout %v); the slowest tick took %.0f ms", noticed.Round(time.Millisecond), interval, timeout, slowest)
	require.NotZero(t, noticed)
	require.LessOrEqual(t, noticed, (interval+timeout)*11/10)
	require.Less(t, slowest, float64(interval.Milliseconds()))

	require.NoError(t, server.Thaw())
	thawed := time.Now()
	until(t, m, 10*time.Second, "the server returns", func(v monitor.View) bool {
		check(v)
		return offers("s1")(v) && v.Monitor.Majority.Held == 3 && slices.Contains(serverOf(t, v, name).State, "Running")
	})
	t.Logf("back %v after it went on", time.Since(thawed).Round(time.Millisecond))
}

// TestPrimaryServerKilled measures how soon it is noticed that the primary
// server's process is gone: a broken connection makes a tick begin.
func TestPrimaryServerKilled(t *testing.T) {
	const interval = 2 * time.Second
	c := testdb.NewCluster(t, 3, testdb.ClusterOptions{})
	slow := func(cfg *monitor.Config) { cfg.Interval, cfg.Timeout = interval, 3*time.Second }
	a := start(t, configOf(c, named("a"), slow))
	until(t, a, 10*time.Second, "a offers s1", func(v monitor.View) bool { return offers("s1")(v) && v.Monitor.Primary })
	b := start(t, configOf(c, named("b"), slow))
	until(t, b, 10*time.Second, "b follows", offers("s1"))
	began := time.Now()
	require.NoError(t, c.Servers[0].Kill())
	for name, m := range map[string]running{"primary monitor": a, "secondary monitor": b} {
		v := until(t, m, interval, name+" offers none", func(v monitor.View) bool { return v.Primary == nil })
		took := time.Since(began)
		t.Logf("the %s offers none %v after the kill: %s", name, took.Round(time.Millisecond), v.Reason)
		require.Less(t, took, interval)
		require.Contains(t, serverOf(t, v, "s1").State, "Down")
	}
	require.True(t, a.View().Monitor.Primary)
}
