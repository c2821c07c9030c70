package monitor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/locks"
	"github.com/lockstep-ha/lockstep/topology"
)

func TestHoldersThatEnded(t *testing.T) {
	timing, err := locks.Derive(locks.Settings{Interval: 2 * time.Second, Timeout: 3 * time.Second})
	require.NoError(t, err)
	const s = time.Second
	servers := []topology.Server{{Settings: topology.Settings{Name: "a", Votes: 1}}, {Settings: topology.Settings{Name: "b", Votes: 1}}, {Settings: topology.Settings{Name: "c", Votes: 1}}}
	other := locks.Lock{State: locks.Other, Holder: locks.Holder{ConnectionID: 9, Trusted: true}}
	rows := func(at time.Duration, each func(i int, r *locks.Row)) []locks.Row {
		out := make([]locks.Row, 3)
		for i := range out {
			out[i] = locks.Row{Session: 5, SentAt: at, DoneAt: at, Answered: true, ServerLock: other, Peer: locks.PeerAgrees, Idle: s}
			each(i, &out[i])
		}
		return out
	}
	held := func(int, *locks.Row) {}
	free := func(_ int, r *locks.Row) { r.ServerLock = locks.Lock{State: locks.Free} }
	for _, c := range []struct {
		name          string
		before, after func(int, *locks.Row)
		at            time.Duration
		want          bool
	}{
		{"all ended at once", held, free, 12 * s, true},
		{"the holder was silent: its sessions may have idled out", func(_ int, r *locks.Row) { r.Idle = 6 * s }, free, 12 * s, false},
		{"so long after that they may have idled out", held, free, 16 * s, false},
		{"the idle time is not known", func(_ int, r *locks.Row) { r.Idle = -1 }, free, 12 * s, false},
		{"the holder runs with another wait_timeout", func(_ int, r *locks.Row) { r.Peer = locks.PeerNoLockstep }, free, 12 * s, false},
		{"the servers were restarted", held, func(_ int, r *locks.Row) { free(0, r); r.Session = 6 }, 12 * s, false},
		{"one server is down, two were let go", held, func(i int, r *locks.Row) {
			if i == 0 {
				*r = locks.Row{}
			} else {
				free(i, r)
			}
		}, 12 * s, true},
		{"one was let go: the holder may have the other two", held, func(i int, r *locks.Row) {
			if i == 0 {
				free(i, r)
			}
		}, 12 * s, false},
		{"another took them", held, held, 12 * s, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var h holders
			require.False(t, h.look(servers, rows(10*s, c.before), timing))
			require.Equal(t, c.want, h.look(servers, rows(c.at, c.after), timing))
		})
	}
}
