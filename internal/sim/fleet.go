package sim

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/lockstep-ha/lockstep/locks"
	"github.com/lockstep-ha/lockstep/monitor"
	"github.com/lockstep-ha/lockstep/monitor/backend"
	"github.com/lockstep-ha/lockstep/topology"
)

// instance is one monitor process: the real loop on simulated connections.
type instance struct {
	node
	*monitor.Monitor
	c        *cluster
	index    int
	rate     float64
	skew     time.Duration
	p        *proc
	cancel   context.CancelFunc
	gone     bool // killed or stopped
	began    time.Duration
	conns    []*conn
	timing   locks.Timing
	ticked   time.Duration // local
	woken    bool
	sleep    func() // ends the current Sleep
	stall    time.Duration
	rng      *rand.Rand
	stopping bool
	asked    chan struct{} // not nil while a person's command is handed over
	offered  string        // what the view offered last, for the trace
	// heldUntil is when a session of it lost the lock of each server last.
	heldUntil []time.Duration
	role      string
}

var (
	_ monitor.Fleet = (*instance)(nil)
	_ monitor.Clock = (*instance)(nil)
)

// local is the monitor's clock at an instant of the world.
func (m *instance) local(t time.Duration) time.Duration {
	return m.skew + time.Duration(float64(t)*m.rate)
}

// Now implements monitor.Clock.
func (m *instance) Now() time.Duration { return m.local(m.c.w.now) }

// real is how long a time of the monitor's clock takes in the world.
func (m *instance) real(d time.Duration) time.Duration { return time.Duration(float64(d) / m.rate) }

// live runs f as soon as the process does not stand still.
func (m *instance) live(f func()) {
	if m.gone {
		return
	}
	if m.frozen > m.c.w.now {
		m.c.w.at(m.frozen, func() { m.live(f) })
		return
	}
	f()
}

// goOn lets the loop go on.
func (m *instance) goOn() {
	m.live(func() {
		m.p.resume()
		m.c.check.viewed(m)
	})
}

// await parks the loop until done is called, or for a time of its own clock.
func (m *instance) await(limit time.Duration, begin func(done func())) {
	over, parked := false, false
	done := func() {
		if over {
			return
		}
		if over = true; parked {
			m.goOn()
		}
	}
	begin(done)
	if over && m.frozen <= m.c.w.now {
		return
	}
	over, parked = false, true
	m.c.w.after(m.real(limit), done)
	m.p.park()
}

// Sleep implements monitor.Clock.
func (m *instance) Sleep(_ context.Context, d time.Duration) {
	if m.woken {
		m.woken, d = false, 0
	}
	m.await(d, func(done func()) { m.sleep = done })
	m.sleep = nil
	m.woken = false
}

// Wake implements monitor.Clock.
func (m *instance) Wake() {
	if m.asked != nil {
		m.asked <- struct{}{}
		return
	}
	if m.sleep != nil {
		m.sleep()
		return
	}
	m.woken = true
}

func (m *instance) patience() time.Duration { return min(m.timing.Timeout, m.timing.Interval/2) }

// Observe implements monitor.Fleet.
func (m *instance) Observe(context.Context) ([]topology.Server, []locks.Row) {
	m.ticked = m.Now()
	m.await(m.patience(), func(done func()) {
		left, begun := 1, false
		one := func() {
			if left--; left == 0 && begun {
				done()
			}
		}
		for _, c := range m.conns {
			if !c.busy && c.server.Evidence != topology.TimedOut {
				left++
				c.probe(one)
				continue
			}
			c.want = true
			if !c.busy {
				c.idle()
			}
		}
		begun = true
		one()
	})
	servers, rows := make([]topology.Server, len(m.conns)), make([]locks.Row, len(m.conns))
	for i, c := range m.conns {
		servers[i], rows[i] = c.server, c.row
	}
	return servers, rows
}

// Rows implements monitor.Fleet.
func (m *instance) Rows() []locks.Row {
	rows := make([]locks.Row, len(m.conns))
	for i, c := range m.conns {
		rows[i] = c.row
	}
	return rows
}

// Do implements monitor.Fleet.
func (m *instance) Do(_ context.Context, actions []backend.Action) []backend.Outcome {
	out := make([]backend.Outcome, len(actions))
	if len(actions) == 0 {
		return out
	}
	for _, a := range actions {
		m.c.check.sent(m, a)
	}
	if m.stall > 0 && (actions[0].Kind == backend.Execute || actions[0].Kind == backend.Aside) {
		d := m.stall
		m.stall = 0
		m.c.w.logf("%s stands still for %v before it sends", m.name, d)
		m.frozen = max(m.frozen, m.c.w.now+d)
		m.await(0, func(func()) {})
	}
	longest := time.Duration(0)
	for _, a := range actions {
		longest = max(longest, m.limit(a))
	}
	m.await(longest, func(done func()) {
		left := len(actions)
		for i, a := range actions {
			out[i].Action = a
			out[i].Err = context.DeadlineExceeded
			over := false
			set := func(o backend.Outcome) {
				if over {
					return
				}
				over = true
				o.Action = a
				out[i] = o
				if left--; left == 0 {
					done()
				}
			}
			m.c.w.after(m.real(m.limit(a)), func() { set(backend.Outcome{Err: context.DeadlineExceeded}) })
			m.conns[m.c.byName(a.Server).index].do(a, set)
		}
	})
	return out
}

func (m *instance) limit(a backend.Action) time.Duration {
	if a.Patience > 0 {
		return min(a.Patience, m.timing.Timeout)
	}
	return m.timing.Timeout
}

// Fence has servers set read-only in the greeting of their next connection.
func (m *instance) Fence(names []string, until time.Duration) {
	for _, c := range m.conns {
		c.fenceUntil = 0
		for _, n := range names {
			if n == c.s.name {
				c.fenceUntil = until
			}
		}
	}
}

// Close implements monitor.Fleet: a clean stop.
func (m *instance) Close(context.Context) error {
	m.await(m.timing.Timeout, func(done func()) {
		left := len(m.conns)
		for _, c := range m.conns {
			c.leave(func() {
				if left--; left == 0 {
					done()
				}
			})
		}
	})
	m.gone = true
	for _, c := range m.conns {
		c.drop()
	}
	return nil
}
