// Package sim runs the real monitors of a cluster, the loop, the election, the
// planner and the executor, on simulated servers in virtual time, and holds the
// invariants of the design against everything that happens.
//
// A run is decided by its seed: one heap of events, monitors that are coroutines,
// and a generator of randomness for each concern. Simulated are the network, the
// servers (advisory locks, sessions, read_only, GTIDs, asynchronous and
// semi-synchronous replication, relay logs), the clients, and what package
// monitor/backend does on a connection. What the simulated servers do is held
// against real ones by tests in package integration.
package sim

import (
	"os"
	"time"

	"github.com/rs/zerolog"
)

// Script is a run that can be repeated: what a seed expanded to, or what was left
// of that when the faults that do not matter were taken out.
type Script struct {
	Seed    uint64  `json:"seed"`
	Options Options `json:"options"`
	Faults  []Fault `json:"faults"`
	// Note says what the run shows.
	Note string `json:"note,omitempty"`
}

// Result is what came of a run.
type Result struct {
	Violation *Violation
	Sum       uint64 // of the trace
	Trace     []string
	Stats     Stats
	Checks    int
	Events    uint64
	Length    time.Duration
}

// Expand makes the script of a seed.
func Expand(seed uint64) Script {
	o := expand(seed)
	return Script{Seed: seed, Options: o, Faults: draw(seed, o)}
}

// Run runs a script. The trace is kept if keep is set.
func Run(s Script, keep bool) Result {
	c := newCluster(s.Seed, s.Options, keep)
	if os.Getenv("LOCKSTEP_SIM_LOG") != "" && keep {
		c.log = zerolog.New(traceWriter{c.w})
	}
	for _, f := range s.Faults {
		c.w.at(f.At, func() { c.inject(f) })
	}
	c.w.run(s.Options.Length)
	c.w.run(s.Options.Length + c.heal())
	if c.w.failed == nil {
		c.check.converged()
	}
	if c.w.failed == nil {
		c.w.ended = true
		for _, m := range c.monitors {
			c.halt(m)
		}
		c.w.run(c.w.now + 3*s.Options.Timeout + 30*time.Second)
		c.check.left()
	} else {
		for _, m := range c.monitors {
			if m != nil && !m.gone {
				c.count(m)
			}
		}
	}
	c.end()
	if keep && c.w.failed != nil {
		for _, sv := range c.servers {
			c.w.logf("%s", sv)
		}
	}
	return Result{Violation: c.w.failed, Sum: c.w.sum.Sum64(), Trace: c.w.trace, Stats: c.stats, Checks: c.check.checks, Events: c.w.seq, Length: c.w.now}
}

// heal ends all faults and returns by when the cluster must have come together:
// the stale locks go (W), a majority is found (a few backed-off attempts) and
// settles, a failed primary is noticed and replaced once more, relay logs are
// applied, and those that come back are joined.
func (c *cluster) heal() time.Duration {
	if c.w.failed != nil {
		return 0
	}
	c.w.logf("everything heals")
	c.net.heal()
	clear(c.slowApply)
	for _, m := range c.monitors {
		if m != nil && !m.gone {
			m.stall = 0
		}
	}
	longest := time.Duration(0)
	for i, m := range c.monitors {
		if m == nil {
			continue
		}
		longest = max(longest, m.frozen-c.w.now)
		if m.gone {
			c.start(i)
		}
	}
	for _, s := range c.servers {
		longest = max(longest, s.frozen-c.w.now)
		s.boot()
		for _, ses := range s.sorted() {
			if ses.owner == "person" {
				s.awake(func() { s.end(ses, "the person is done") })
			}
		}
		s.awake(func() { c.replicate(s) })
	}
	t := c.opt.timing()
	return longest + 3*(t.StaleAfter()+t.Settle) + c.opt.NetTimeout + 90*time.Second
}

type traceWriter struct{ w *world }

func (t traceWriter) Write(b []byte) (int, error) {
	t.w.trace = append(t.w.trace, string(b[:len(b)-1]))
	return len(b), nil
}

// Shrink takes out of a failing script the faults without which it still breaks
// the same invariant, in at most a number of runs.
func Shrink(s Script, runs int) Script {
	v := Run(s, false).Violation
	if v == nil {
		return s
	}
	for size := max(len(s.Faults)/2, 1); ; size /= 2 {
		for i := 0; i < len(s.Faults) && runs > 0; {
			shorter := s
			shorter.Faults = append(append([]Fault{}, s.Faults[:i]...), s.Faults[min(i+size, len(s.Faults)):]...)
			runs--
			if got := Run(shorter, false).Violation; got != nil && got.Rule == v.Rule {
				s = shorter
				continue
			}
			i += size
		}
		if size <= 1 || runs <= 0 {
			return s
		}
	}
}
