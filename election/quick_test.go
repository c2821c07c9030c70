package election

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/locks"
)

// held is an observation in which this monitor holds the named locks since at.
func heldAt(now time.Duration, vacated bool, names ...string) Observation {
	o := Observation{Now: now, Vacated: vacated}
	for _, n := range []string{"a", "b", "c"} {
		row := locks.Row{Server: n, Session: 1, SentAt: now, DoneAt: now, Answered: true, ServerLock: locks.Lock{State: locks.Other}}
		for _, h := range names {
			if h == n {
				row.ServerLock = locks.Lock{State: locks.Self}
			}
		}
		o.Servers = append(o.Servers, Server{Name: n, Votes: 1, Row: row})
	}
	return o
}

func TestQuickSettle(t *testing.T) {
	timing, err := locks.Derive(locks.Settings{Interval: 2 * time.Second, Timeout: 3 * time.Second})
	require.NoError(t, err)
	c := Config{Mode: MajorityOfAll, Timing: timing, QuickSettle: time.Second}
	rng := rand.New(rand.NewPCG(1, 2))
	const s = time.Second

	_, d := Step(c, State{}, heldAt(100*s, false, "a", "b"), rng)
	require.Equal(t, 110*s, d.SettledAt, "nobody is known to have let go: the whole time")

	st, d := Step(c, State{}, heldAt(100*s, true, "a", "b"), rng)
	require.Equal(t, Settling, d.Role)
	require.False(t, d.Quick)
	st, d = Step(c, st, heldAt(101*s, false, "a", "b"), rng)
	require.Equal(t, Settling, d.Role, "two monitors never both have the role")
	require.True(t, d.Quick)
	require.Equal(t, 110*s, d.SettledAt)

	// The vote of c was gained later, from somebody who may still believe in it.
	st, d = Step(c, st, heldAt(102*s, true, "b", "c"), rng)
	require.Equal(t, Settling, d.Role)
	require.False(t, d.Quick)
	require.Equal(t, 112*s, d.SettledAt)
	_, d = Step(c, st, heldAt(104*s, true, "b", "c"), rng)
	require.False(t, d.Quick)
}

// TestAcceptNeedsFreshProof: this monitor has a settled majority {k,y}, believes
// in k by a lease whose session has ended, and gains x, which another monitor lost
// a moment ago and still counts beside k, which it has gained meanwhile.
func TestAcceptNeedsFreshProof(t *testing.T) {
	timing, err := locks.Derive(locks.Settings{Interval: 2 * time.Second, Timeout: 3 * time.Second})
	require.NoError(t, err)
	c := Config{Mode: MajorityOfAll, Timing: timing}
	rng := rand.New(rand.NewPCG(1, 2))
	const s = time.Second

	st, d := Step(c, State{}, heldAt(5*s, false, "a", "b"), rng)
	require.Equal(t, Settling, d.Role)
	for at := 7 * s; at <= 21*s; at += 2 * s {
		st, d = Step(c, st, heldAt(at, false, "a", "b"), rng)
	}
	require.Equal(t, Primary, d.Role)
	stale := func(now, proved time.Duration) Observation {
		o := heldAt(now, false, "a", "b", "c")
		o.Servers[0].Row.SentAt, o.Servers[0].Row.DoneAt = proved, proved
		o.Servers[1].Row.SentAt, o.Servers[1].Row.DoneAt = proved, proved
		return o
	}
	_, d = Step(c, st, heldAt(26*s, false, "a", "b", "c"), rng)
	require.Equal(t, Primary, d.Role)
	fresh, _ := Step(c, st, heldAt(26*s, false, "a", "b", "c"), rng)
	require.Contains(t, fresh.Accepted, "c")
	old, _ := Step(c, st, stale(26*s, 21*s), rng)
	require.NotContains(t, old.Accepted, "c")
}
