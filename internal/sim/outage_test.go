package sim

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/election"
	"github.com/lockstep-ha/lockstep/monitor/operation"
)

// outageRuns is how many deaths of a primary are looked at.
const outageRuns = 100

// dying is a run in which nothing happens but that the primary's process ends, in
// a cluster in which that counts as proof of its death.
func dying(seed uint64) Script {
	s := Expand(seed)
	o := &s.Options
	o.Forged, o.Lossy, o.SemiSync = false, false, true
	o.Lag = min(o.Lag, 20*time.Millisecond) // replicas keep up
	o.Length = 3 * time.Minute
	r := generator(seed, "death")
	s.Faults = []Fault{{At: 60*time.Second + time.Duration(r.Int64N(int64(20*time.Second))), Kind: "primary process ends", For: 5 * time.Minute}}
	if r.IntN(2) == 0 {
		s.Faults = append(s.Faults, Fault{At: s.Faults[0].At - 2*time.Second, Kind: "replica lags", A: r.IntN(1 << 20), For: 4 * time.Second})
	}
	return s
}

// TestOutageOfADeadPrimary holds L2: a primary that is known dead is replaced after
// dead_primary_delay, as long as it takes to apply the relay log, and a few round
// trips.
func TestOutageOfADeadPrimary(t *testing.T) {
	t.Parallel()
	var overheads []time.Duration
	for seed := range uint64(outageRuns) {
		s := dying(seed + 1)
		r := Run(s, false)
		require.Nil(t, r.Violation, "seed %d", seed+1)
		require.NotEmpty(t, r.Stats.Outages, "seed %d: %+v", seed+1, s.Options)
		o := s.Options
		if o.Interval > 2*time.Second && o.Mode == election.MajorityOfAll {
			require.Less(t, o.timing().Settle, s.Faults[0].At, "it has settled")
		}
		out := r.Stats.Outages[0]
		delay := operation.Policy{}.WithDefaults(o.Interval).DeadPrimaryDelay
		apply := time.Duration(out.Backlog) * (o.Lag + 100*time.Microsecond)
		if len(s.Faults) > 1 {
			apply += time.Duration(out.Backlog+1) * 3 * time.Second // one more may be half applied
		}
		over := out.Took - delay - apply
		overheads = append(overheads, over)
		require.Less(t, over, 250*time.Millisecond, "seed %d: %v, of which the delay is %v and %d transactions take %v", seed+1, out.Took, delay, out.Backlog, apply)
		require.GreaterOrEqual(t, out.Took, delay, "seed %d: sooner than the evidence must last", seed+1)
	}
	slices.Sort(overheads)
	t.Logf("beyond delay and relay log: median %v, longest %v", overheads[len(overheads)/2], overheads[len(overheads)-1])
}
