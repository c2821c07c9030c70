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
	require.Equal(t, 101*s, d.SettledAt)
	st, d = Step(c, st, heldAt(101*s, false, "a", "b"), rng)
	require.Equal(t, Primary, d.Role)

	// The vote of c was gained later, from somebody who may still believe in it.
	st, d = Step(c, st, heldAt(102*s, true, "b", "c"), rng)
	require.Equal(t, Settling, d.Role)
	require.Equal(t, 112*s, d.SettledAt)
	_, d = Step(c, st, heldAt(104*s, true, "b", "c"), rng)
	require.Equal(t, Settling, d.Role)
}
