package election

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMajoritiesAreExclusive goes through all pairs of consistent views that two
// monitors can have of one to five servers: each lock is free, held by A, by B,
// by a third monitor or by an account that is not trusted, and each of the two
// sees the server or does not.
func TestMajoritiesAreExclusive(t *testing.T) {
	const owners = "fABCx"
	const states = len(owners) * 4
	view := func(state int, who byte) byte {
		seen := state/len(owners)&1 != 0
		if who == 'B' {
			seen = state/len(owners)&2 != 0
		}
		switch owner := owners[state%len(owners)]; {
		case !seen:
			return '-'
		case owner == who:
			return 's'
		case owner == 'f' || owner == 'x':
			return owner
		}
		return 'o'
	}
	largest := 5
	if testing.Short() {
		largest = 3
	}
	cfg := Config{Timing: timing(t)}
	rng := seeded(1)
	has := func(mode Mode, kinds string) bool {
		cfg.Mode = mode
		_, d := Step(cfg, State{}, picture(100*second, kinds), rng)
		require.Equal(t, d.Tally.Has(), d.Role != Secondary)
		return d.Role != Secondary
	}
	for n := 1; n <= largest; n++ {
		pairs, both := 0, 0
		memo := map[string]bool{}
		majority := func(mode Mode, kinds string) bool {
			key := mode.String() + kinds
			if v, ok := memo[key]; ok {
				return v
			}
			memo[key] = has(mode, kinds)
			return memo[key]
		}
		// Servers with one vote each are alike: their states in ascending order
		// stand for every order.
		picked := make([]int, n)
		var walk func(i, from int)
		walk = func(i, from int) {
			if i < n {
				for s := from; s < states; s++ {
					picked[i] = s
					walk(i+1, s)
				}
				return
			}
			a, b := make([]byte, n), make([]byte, n)
			for j, s := range picked {
				a[j], b[j] = view(s, 'A'), view(s, 'B')
			}
			pairs++
			require.False(t, majority(MajorityOfAll, string(a)) && majority(MajorityOfAll, string(b)), "A sees %s, B sees %s", a, b)
			if majority(MajorityOfRunning, string(a)) && majority(MajorityOfRunning, string(b)) {
				both++
			}
		}
		walk(0, 0)
		t.Logf("%d servers: %d pairs of views; majority_of_all: both have a majority in 0, majority_of_running: in %d", n, pairs, both)
		if n > 1 {
			require.Positive(t, both, "majority_of_running is not exclusive when the network splits")
		}
	}
}

// TestWeightedMajoritiesAreExclusive does the same at random for other votes.
func TestWeightedMajoritiesAreExclusive(t *testing.T) {
	rng := seeded(5)
	runs := 50000
	if testing.Short() {
		runs = 5000
	}
	cfg := Config{Mode: MajorityOfAll, Timing: timing(t)}
	for range runs {
		n := 1 + rng.IntN(7)
		votes, a, b := make([]int, n), make([]byte, n), make([]byte, n)
		for i := range votes {
			votes[i] = rng.IntN(4)
			pair := [][2]byte{{'s', 'o'}, {'o', 's'}, {'f', 'f'}, {'o', 'o'}, {'x', 'x'}}[rng.IntN(5)]
			a[i], b[i] = pair[0], pair[1]
			if rng.IntN(6) == 0 {
				a[i] = '-'
			}
			if rng.IntN(6) == 0 {
				b[i] = '-'
			}
		}
		_, da := Step(cfg, State{}, picture(100*second, string(a), votes...), rng)
		_, db := Step(cfg, State{}, picture(100*second, string(b), votes...), rng)
		require.False(t, da.Tally.Has() && db.Tally.Has(), "votes %v: A sees %s, B sees %s", votes, a, b)
	}
}
