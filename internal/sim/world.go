package sim

import (
	"errors"
	"fmt"
	"hash"
	"hash/fnv"
	"iter"
	"math/rand/v2"
	"time"
)

// world is the virtual time: one heap of events, run one after the other.
type world struct {
	now    time.Duration
	seq    uint64
	events eventHeap
	sum    hash.Hash64
	trace  []string
	keep   bool // keep the trace, not only its checksum
	failed *Violation
	ended  bool
}

// Violation is a broken invariant.
type Violation struct {
	Rule string        `json:"rule"`
	At   time.Duration `json:"at"`
	Text string        `json:"text"`
}

func (v *Violation) Error() string { return fmt.Sprintf("%s at %v: %s", v.Rule, v.At, v.Text) }

type event struct {
	at  time.Duration
	seq uint64
	run func()
}

// eventHeap is a binary heap; that of the standard library boxes each event.
type eventHeap []event

func (h eventHeap) less(i, j int) bool {
	return h[i].at < h[j].at || (h[i].at == h[j].at && h[i].seq < h[j].seq)
}

func (h *eventHeap) push(e event) {
	*h = append(*h, e)
	q := *h
	for i := len(q) - 1; i > 0; {
		up := (i - 1) / 2
		if !q.less(i, up) {
			return
		}
		q[i], q[up] = q[up], q[i]
		i = up
	}
}

func (h *eventHeap) pop() event {
	q := *h
	top, n := q[0], len(q)-1
	q[0] = q[n]
	q[n] = event{}
	q = q[:n]
	*h = q
	for i := 0; ; {
		down := 2*i + 1
		if down >= n {
			return top
		}
		if down+1 < n && q.less(down+1, down) {
			down++
		}
		if !q.less(down, i) {
			return top
		}
		q[i], q[down] = q[down], q[i]
		i = down
	}
}

func newWorld(keep bool) *world { return &world{sum: fnv.New64a(), keep: keep} }

// generator is a source of randomness of one concern: a change in one of them
// leaves what the others draw as it was.
func generator(seed uint64, concern string) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(concern)) // it never fails
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

// at runs f at an instant, in the order of the calls where instants are equal.
func (w *world) at(t time.Duration, f func()) {
	w.seq++
	w.events.push(event{max(t, w.now), w.seq, f})
}

func (w *world) after(d time.Duration, f func()) { w.at(w.now+d, f) }

// run goes on until an instant, or until an invariant is broken.
func (w *world) run(until time.Duration) {
	for len(w.events) > 0 && w.failed == nil {
		if w.events[0].at > until {
			break
		}
		e := w.events.pop()
		w.now = e.at
		e.run()
	}
	if w.failed == nil {
		w.now = until
	}
}

// logf notes what happened. Two runs of one seed give the same notes.
func (w *world) logf(format string, args ...any) {
	line := fmt.Sprintf("%12v ", w.now) + fmt.Sprintf(format, args...)
	_, _ = w.sum.Write([]byte(line)) // it never fails
	if w.keep {
		w.trace = append(w.trace, line)
	}
}

func (w *world) fail(rule, format string, args ...any) {
	if w.failed == nil {
		w.failed = &Violation{Rule: rule, At: w.now, Text: fmt.Sprintf(format, args...)}
		w.logf("VIOLATION %s: %s", rule, w.failed.Text)
	}
}

// proc is code that blocks, run as a coroutine: it goes on only when the world
// lets it, and the world waits while it does.
type proc struct {
	next  func() (struct{}, bool)
	stop  func()
	yield func(struct{}) bool
	ended bool
}

// spawn makes a coroutine; the first call of resume starts it.
func spawn(f func(p *proc)) *proc {
	p := &proc{}
	p.next, p.stop = iter.Pull(func(yield func(struct{}) bool) {
		defer func() {
			p.ended = true
			if r := recover(); r != nil && r != errKilled {
				panic(r)
			}
		}()
		p.yield = yield
		f(p)
	})
	return p
}

// errKilled unwinds a coroutine that was stopped while it was parked.
var errKilled any = errors.New("killed")

func (p *proc) resume() {
	if !p.ended {
		p.next()
	}
}

// park gives control back to the world until the next resume.
func (p *proc) park() {
	if !p.yield(struct{}{}) {
		panic(errKilled)
	}
}
