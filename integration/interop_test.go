package integration

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/election"
	"github.com/lockstep-ha/lockstep/internal/testdb"
	"github.com/lockstep-ha/lockstep/locks"
	"github.com/lockstep-ha/lockstep/monitor"
)

// TestFollowsAnotherProgram has a program that knows only the two lock names, as
// a MaxScale does, be the primary monitor.
func TestFollowsAnotherProgram(t *testing.T) {
	c := testdb.NewCluster(t, 3, testdb.ClusterOptions{})
	program := []*client{
		mustConnect(t, c.Servers[0], testdb.MonitorUser).lock(locks.DefaultServerLock, locks.DefaultPrimaryLock),
		mustConnect(t, c.Servers[1], testdb.MonitorUser).lock(locks.DefaultServerLock),
	}
	m := start(t, configOf(c))
	v := until(t, m, 5*time.Second, "the program is followed", offers("s1"))
	require.Equal(t, election.Secondary, v.Monitor.Role)
	require.Empty(t, v.Faults)
	require.Contains(t, strings.Join(v.Notes, "\n"), "server s1: the server lock is held by a program other than Lockstep (monitor@")
	require.Equal(t, "other program", serverOf(t, v, "s1").LockOwner.Kind)
	require.Equal(t, program[0].id, serverOf(t, v, "s1").PrimaryLockOwner.ConnectionID)
	// With the majority gone, it does not take the free lock.
	never(t, m, 5*fastInterval, "the monitor does not follow", func(v monitor.View) bool {
		return !offers("s1")(v) || v.Monitor.Role != election.Secondary || v.Monitor.Majority.Held != 0
	})
	require.Empty(t, holder(t, c.Servers[2], locks.DefaultServerLock))

	// The program moves the primary lock off s1: nothing is published.
	var released int
	require.NoError(t, program[0].conn.QueryRowContext(t.Context(), "SELECT RELEASE_LOCK(?)", locks.DefaultPrimaryLock).Scan(&released))
	require.Equal(t, 1, released)
	until(t, m, 5*time.Second, "nothing is published", func(v monitor.View) bool {
		return v.Primary == nil && strings.Contains(v.Reason, "no primary is published")
	})
	program[0].lock(locks.DefaultPrimaryLock)
	until(t, m, 5*time.Second, "the program is followed again", offers("s1"))

	w := record(m)
	left := time.Now()
	var closing sync.WaitGroup
	for _, cl := range program {
		closing.Go(cl.close)
	}
	closing.Wait()
	until(t, m, 5*time.Second, "the monitor takes over", func(v monitor.View) bool {
		return v.Monitor.Primary && v.Monitor.PrimaryLockHeld && offers("s1")(v)
	})
	t.Logf("took over %v after the program left", time.Since(left).Round(time.Millisecond))
	until(t, m, 5*time.Second, "the monitor settles", func(v monitor.View) bool { return v.Monitor.Role == election.Primary })
	require.Zero(t, w.stop().without(), "the monitor that took over offered none for a time")
}

// TestLocksOfTwoConnections has the two locks of a server on two connections:
// that is no publication, whoever they belong to.
func TestLocksOfTwoConnections(t *testing.T) {
	c := testdb.NewCluster(t, 3, testdb.ClusterOptions{})
	voter := mustConnect(t, c.Servers[0], testdb.MonitorUser).lock(locks.DefaultServerLock)
	mustConnect(t, c.Servers[1], testdb.MonitorUser).lock(locks.DefaultServerLock)
	stray := mustConnect(t, c.Servers[0], testdb.MonitorUser).lock(locks.DefaultPrimaryLock)
	m := start(t, configOf(c))
	v := until(t, m, 5*time.Second, "the reason is given", func(v monitor.View) bool {
		require.Nil(t, v.Primary)
		return strings.Contains(v.Reason, "the primary lock on s1 is held by monitor@")
	})
	require.Contains(t, v.Reason, "the server lock by monitor@")
	require.Equal(t, stray.id, serverOf(t, v, "s1").PrimaryLockOwner.ConnectionID)
	require.Equal(t, voter.id, serverOf(t, v, "s1").LockOwner.ConnectionID)
	never(t, m, time.Second, "it was followed", func(v monitor.View) bool { return v.Primary != nil || v.Monitor.Primary })
	stray.close()
	require.Eventually(t, func() bool { return holder(t, c.Servers[0], locks.DefaultPrimaryLock) == "" }, 5*time.Second, 5*time.Millisecond)
	voter.lock(locks.DefaultPrimaryLock)
	until(t, m, 5*time.Second, "now it is followed", offers("s1"))
}
