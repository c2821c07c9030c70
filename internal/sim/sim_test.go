package sim

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "replay one seed, print its trace, and shrink it if it breaks an invariant")
	seedsFlag = flag.Int("seeds", 60, "how many seeds to run")
	firstFlag = flag.Uint64("first", 1, "the first of them")
	stopFlag  = flag.Bool("stop", false, "stop at the first violation")
	forFlag   = flag.Duration("for", 0, "run seeds for so long instead of a number of them")
)

// TestInvariants runs seeds and holds the invariants against them.
func TestInvariants(t *testing.T) {
	t.Parallel()
	if *seedFlag != 0 {
		replay(t, Expand(*seedFlag))
		return
	}
	var (
		mu        sync.Mutex
		sum       = Stats{Faults: map[string]int{}, Operations: map[string]int{}}
		simulated time.Duration
		checks    int
		broken    []string
		next      atomic.Uint64
		runs      atomic.Uint64
		wg        sync.WaitGroup
	)
	began := time.Now()
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for {
				n := next.Add(1) - 1
				if *forFlag == 0 && n >= uint64(*seedsFlag) || *forFlag > 0 && time.Since(began) > *forFlag {
					return
				}
				s := Expand(*firstFlag + n)
				r := Run(s, false)
				runs.Add(1)
				mu.Lock()
				if r.Violation != nil {
					broken = append(broken, fmt.Sprintf("run %d, seed %d: %v", n+1, s.Seed, r.Violation))
					if len(broken) >= 20 || *stopFlag {
						next.Store(1 << 62)
					}
				}
				simulated += r.Length
				checks += r.Checks
				sum.add(r.Stats)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	took := time.Since(began)
	var b strings.Builder
	fmt.Fprintf(&b, "%d runs, %v simulated in %v (%.0f times as fast as the clock), %d ticks of monitors (%.0f a second)\n",
		runs.Load(), simulated.Round(time.Second), took.Round(time.Millisecond), simulated.Seconds()/took.Seconds(), sum.Ticks, float64(sum.Ticks)/took.Seconds())
	fmt.Fprintf(&b, "%d writes, %d acknowledged; %d publications; invariants checked %d times; violations: %d\n", sum.Writes, sum.Acked, sum.Published, checks, len(broken))
	for _, m := range []map[string]int{sum.Operations, sum.Faults} {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			fmt.Fprintf(&b, "%8d  %s\n", m[k], k)
		}
	}
	t.Log("\n" + b.String())
	slices.Sort(broken)
	require.Empty(t, broken, "replay one with -seed")
}

// replay prints the trace of a run, and the shortest script that was found to
// break the same invariant.
func replay(t *testing.T, s Script) {
	r := Run(s, true)
	t.Log(strings.Join(r.Trace, "\n"))
	if r.Violation == nil {
		return
	}
	short := Shrink(s, 400)
	again := Run(short, false)
	require.NotNil(t, again.Violation)
	short.Note = again.Violation.Error()
	text, err := json.MarshalIndent(short, "", "\t")
	require.NoError(t, err)
	t.Fatalf("%v\nshrunk from %d faults to %d; save it as testdata/NAME.json:\n%s", r.Violation, len(s.Faults), len(short.Faults), text)
}

func (s *Stats) add(o Stats) {
	s.Ticks += o.Ticks
	s.Writes += o.Writes
	s.Acked += o.Acked
	s.Published += o.Published
	for k, n := range o.Faults {
		s.Faults[k] += n
	}
	for k, n := range o.Operations {
		s.Operations[k] += n
	}
}

func TestSameSeedSameTrace(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		s := Expand(seed + 1000)
		first := Run(s, false)
		second := Run(s, true)
		require.Equal(t, first.Sum, second.Sum, "seed %d", s.Seed)
		require.Equal(t, first.Events, second.Events, "seed %d", s.Seed)
	}
}

// TestScripts runs what once broke an invariant.
func TestScripts(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".json"), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(f)
			require.NoError(t, err)
			var s Script
			require.NoError(t, json.Unmarshal(text, &s))
			require.Nil(t, Run(s, false).Violation, "it broke this: %s", s.Note)
		})
	}
}

// TestEveryFaultIsDrawn: a fault that never happens proves nothing.
func TestEveryFaultIsDrawn(t *testing.T) {
	t.Parallel()
	drawn := map[string]bool{}
	for seed := range uint64(200) {
		for _, f := range Expand(seed).Faults {
			drawn[f.Kind] = true
		}
	}
	for _, f := range faults {
		require.True(t, drawn[f.kind], f.kind)
	}
}
