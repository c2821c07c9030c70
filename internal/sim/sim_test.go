package sim

import (
	"flag"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "replay one seed and print its trace")
	seedsFlag = flag.Int("seeds", 40, "how many seeds to run")
	firstFlag = flag.Uint64("first", 1, "the first of them")
)

func TestInvariants(t *testing.T) {
	t.Parallel()
	if *seedFlag != 0 {
		r := Run(Expand(*seedFlag), true)
		t.Log(strings.Join(r.Trace, "\n"))
		require.Nil(t, r.Violation)
		return
	}
	began := time.Now()
	var total time.Duration
	faults := map[string]int{}
	ticks := 0
	ops := map[string]int{}
	for i := range *seedsFlag {
		s := Expand(*firstFlag + uint64(i))
		r := Run(s, false)
		if r.Violation != nil {
			t.Errorf("seed %d (%+v): %v", s.Seed, s.Options, r.Violation)
		}
		total += r.Length
		ticks += r.Stats.Ticks
		for k, n := range r.Stats.Faults {
			faults[k] += n
		}
		for k, n := range r.Stats.Operations {
			ops[k] += n
		}
	}
	t.Logf("%v simulated in %v, %d ticks, faults %v, operations %v", total, time.Since(began), ticks, faults, ops)
}

func TestSameSeedSameTrace(t *testing.T) {
	t.Parallel()
	for seed := range uint64(10) {
		s := Expand(seed + 1000)
		require.Equal(t, Run(s, false).Sum, Run(s, false).Sum, "seed %d", s.Seed)
	}
}
