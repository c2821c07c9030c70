package election

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/locks"
)

// The simulation: monitors that tick like the real loop (probe, step, act,
// recount) over servers that each hold one lock. Everything takes time that
// differs from monitor to monitor; clocks run at different rates; sessions are
// killed, servers restart, links break in both directions or only on the way
// back, monitors freeze and restart. Time is simulated: nothing waits.

type event struct {
	at  time.Duration
	seq int
	run func()
}

type agenda []event

func (a agenda) Len() int { return len(a) }
func (a agenda) Less(i, j int) bool {
	return a[i].at < a[j].at || (a[i].at == a[j].at && a[i].seq < a[j].seq)
}
func (a agenda) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a *agenda) Push(x any) {
	if e, ok := x.(event); ok {
		*a = append(*a, e)
	}
}

func (a *agenda) Pop() any {
	old := *a
	last := old[len(old)-1]
	*a = old[:len(old)-1]
	return last
}

// simServer is one server: who holds its lock, and when each session was last
// heard of.
type simServer struct {
	name   string
	down   time.Duration // refuses everything until then
	next   uint64
	owner  uint64
	heard  map[uint64]time.Duration // sessions that exist
	broken []time.Duration          // by monitor: the link is broken until then
}

// closeIdle ends sessions that nothing was heard of for wait_timeout.
func (s *simServer) closeIdle(now, wait time.Duration) {
	if at, ok := s.heard[s.owner]; s.owner != 0 && (!ok || now-at >= wait) {
		s.kill(s.owner)
	}
}

func (s *simServer) kill(session uint64) {
	delete(s.heard, session)
	if s.owner == session {
		s.owner = 0
	}
}

type act uint8

const (
	look act = iota
	takeLock
	releaseLock
)

type simMonitor struct {
	w       *world
	index   int
	slow    time.Duration // typical one-way delay
	rate    float64
	offset  time.Duration
	frozen  time.Duration // until then nothing runs
	life    int           // callbacks of an earlier process do nothing
	state   State
	rng     *rand.Rand
	session []uint64
	rows    []locks.Row
	began   time.Duration
	round   int
	// view is what the monitor last said of itself.
	view Decision
}

type world struct {
	cfg        Config
	rng        *rand.Rand
	now        time.Duration
	seq        int
	todo       agenda
	servers    []*simServer
	monitors   []*simMonitor
	violation  string
	tookOffice int
	calm       bool // nothing goes wrong, nothing is slow
}

func (w *world) after(d time.Duration, run func()) {
	w.seq++
	heap.Push(&w.todo, event{w.now + max(d, 0), w.seq, run})
}

// local is the monitor's own clock.
func (m *simMonitor) local() time.Duration {
	return m.offset + time.Duration(float64(m.w.now)*m.rate)
}

// later runs a step of the monitor, not before it is thawed, and only if its
// process still lives.
func (m *simMonitor) later(d time.Duration, run func()) {
	life := m.life
	var try func()
	try = func() {
		switch {
		case m.life != life:
		case m.w.now < m.frozen:
			m.w.after(m.frozen-m.w.now, try)
		default:
			run()
		}
	}
	m.w.after(d, try)
}

func (m *simMonitor) delay() time.Duration {
	d := time.Duration(m.rng.Int64N(int64(2*m.slow) + 1))
	if !m.w.calm && m.rng.IntN(40) == 0 {
		d += time.Duration(m.rng.Int64N(int64(m.w.cfg.Timing.Timeout)))
	}
	return d
}

// ask sends one statement to a server and calls done once its outcome is known.
func (m *simMonitor) ask(i int, what act, done func(got bool)) {
	s, to := m.w.servers[i], m.w.cfg.Timing.Timeout
	sent := m.local() // before it is sent
	life, there, back := m.life, m.delay(), m.delay()
	answered := func(ok bool, r locks.Row, got bool) {
		if !ok {
			// The connection is given up; whether the server learns of it depends on the link.
			if old := m.session[i]; old != 0 && m.w.now >= s.broken[m.index] && m.rng.IntN(2) == 0 {
				s.kill(old)
			}
			m.session[i] = 0
			r = locks.Row{Server: s.name}
		} else {
			m.session[i] = r.Session
		}
		r.SentAt, r.DoneAt = sent, m.local()
		m.rows[i] = r
		done(got)
	}
	if m.w.now < s.broken[m.index] && m.rng.IntN(2) == 0 {
		m.later(to, func() { answered(false, locks.Row{}, false) })
		return
	}
	m.w.after(there, func() { // at the server, whether the monitor is frozen or not
		if m.life != life {
			return
		}
		var r locks.Row
		got, ok := false, m.w.now >= s.down
		if ok {
			s.closeIdle(m.w.now, m.w.cfg.Timing.WaitTimeout)
			id := m.session[i]
			if _, lives := s.heard[id]; id != 0 && (!lives || m.w.now-s.heard[id] >= m.w.cfg.Timing.WaitTimeout) {
				s.kill(id)
				ok = false // closed by the server
			} else if id == 0 {
				if what != look {
					ok = false // a lock is never asked for on a connection that was just made
				}
				s.next++
				id = s.next
			}
			if ok {
				s.heard[id] = m.w.now
				switch {
				case what == takeLock && (s.owner == 0 || s.owner == id):
					s.owner, got = id, true
				case what == releaseLock && s.owner == id:
					s.owner = 0
				}
				r = locks.Row{Server: s.name, Session: id, Answered: true}
				switch s.owner {
				case 0:
					r.ServerLock.State = locks.Free
				case id:
					r.ServerLock.State = locks.Self
				default:
					r.ServerLock = locks.Lock{State: locks.Other, Holder: locks.Holder{ConnectionID: s.owner, Checked: true, Trusted: true}}
				}
			}
		}
		wait := back
		if there+back > to || m.w.now < s.broken[m.index] { // too late, or lost on the way back
			ok, wait = false, max(to-there, 0)
		}
		m.later(wait, func() { answered(ok, r, got && ok) })
	})
}

// all sends one statement to several servers at once.
func (m *simMonitor) all(servers []int, what act, done func()) {
	left := len(servers)
	if left == 0 {
		done()
		return
	}
	for _, i := range servers {
		m.ask(i, what, func(bool) {
			if left--; left == 0 {
				done()
			}
		})
	}
}

func (m *simMonitor) everywhere() []int {
	out := make([]int, len(m.w.servers))
	for i := range out {
		out[i] = i
	}
	return out
}

func (m *simMonitor) tick() {
	m.began, m.round = m.w.now, 0
	m.all(m.everywhere(), look, m.count)
}

func (m *simMonitor) count() {
	o := Observation{Now: m.local()}
	for i, s := range m.w.servers {
		o.Servers = append(o.Servers, Server{Name: s.name, Votes: 1, Row: m.rows[i]})
	}
	var d Decision
	m.state, d = Step(m.w.cfg, m.state, o, m.rng)
	m.round++
	const rounds = 4
	end := func() { m.end(d) }
	next := m.count
	if m.round == rounds {
		next = end
	}
	var take []int
	for i, s := range m.w.servers {
		for _, name := range d.Take {
			if s.name == name {
				take = append(take, i)
			}
		}
	}
	switch {
	case d.Release:
		if d.Again == 0 {
			next = end
		}
		m.all(m.everywhere(), releaseLock, next)
	case d.FirstDecides && len(take) > 0:
		m.ask(take[0], takeLock, func(got bool) {
			if !got {
				next()
				return
			}
			m.all(take[1:], takeLock, next)
		})
	case len(take) > 0:
		m.all(take, takeLock, next)
	default:
		end()
	}
}

// end says what the monitor is and plans the next tick.
func (m *simMonitor) end(d Decision) {
	w := m.w
	if d.Role == Primary && m.view.Role != Primary {
		w.tookOffice++
	}
	m.view = d
	if m.believes() {
		for _, other := range w.monitors {
			if other != m && other.believes() && w.violation == "" {
				w.violation = fmt.Sprintf("at %v monitors %d and %d both are primary: leases for another %v and %v",
					w.now, m.index, other.index, m.view.Lease-m.local(), other.view.Lease-other.local())
			}
		}
	}
	wait := w.cfg.Timing.Interval
	if d.Again > 0 {
		wait = min(wait, d.Again)
	}
	m.later(max(m.began+wait-w.now, time.Millisecond), m.tick)
}

func (m *simMonitor) believes() bool {
	return m.view.Role == Primary && m.local() < m.view.Lease
}

// restart replaces the process: it remembers nothing. A process that ended told
// the servers, unless its machine is gone.
func (m *simMonitor) restart(crash bool) {
	m.life++
	for i, s := range m.w.servers {
		if !crash && m.session[i] != 0 {
			s.kill(m.session[i])
		}
		m.session[i] = 0
	}
	m.state, m.view, m.frozen = State{}, Decision{}, 0
	m.later(time.Duration(m.rng.Int64N(int64(5*time.Second))), m.tick)
}

// fault does something bad, or nothing.
func (w *world) fault() {
	s := w.servers[w.rng.IntN(len(w.servers))]
	m := w.monitors[w.rng.IntN(len(w.monitors))]
	span := func(most time.Duration) time.Duration { return time.Duration(w.rng.Int64N(int64(most))) }
	switch w.rng.IntN(8) {
	case 0, 1:
		s.kill(s.owner)
	case 2: // every session of the one who holds locks
		for _, s := range w.servers {
			s.kill(s.owner)
		}
	case 3:
		clear(s.heard)
		s.owner, s.down = 0, w.now+span(3*time.Second)
	case 4:
		s.broken[m.index] = w.now + span(20*time.Second)
	case 5, 6:
		m.frozen = w.now + span(25*time.Second)
	case 7:
		m.restart(w.rng.IntN(2) == 0)
	}
}

// simulate runs one seeded world for a while and returns the first violation of
// E1, and how often a monitor became primary.
func simulate(cfg Config, seed uint64, length time.Duration) (violation string, tookOffice int) {
	w := newWorld(cfg, seed)
	for at := 12 * time.Second; at < length; at += time.Duration(1 + w.rng.Int64N(int64(15*time.Second))) {
		w.after(at, w.fault)
		if w.rng.IntN(3) == 0 { // misfortunes come in company
			w.after(at+time.Millisecond, w.fault)
		}
	}
	w.play(length)
	return w.violation, w.tookOffice
}

func newWorld(cfg Config, seed uint64) *world {
	rng := seeded(seed)
	w := &world{cfg: cfg, rng: rng}
	monitors := 2 + rng.IntN(2)
	for i := range []int{1, 2, 3, 3, 3, 5}[rng.IntN(6)] {
		w.servers = append(w.servers, &simServer{name: fmt.Sprintf("s%d", i+1), heard: map[uint64]time.Duration{}, broken: make([]time.Duration, monitors)})
	}
	for i := range monitors {
		m := &simMonitor{
			w: w, index: i, rng: seeded(seed*31 + uint64(i)), slow: time.Duration(rng.IntN(40)) * time.Millisecond,
			rate: 1 + (rng.Float64()-0.5)*0.008, offset: time.Duration(rng.IntN(1e9)) * 1000,
			session: make([]uint64, len(w.servers)), rows: make([]locks.Row, len(w.servers)),
		}
		w.monitors = append(w.monitors, m)
		m.later(time.Duration(rng.Int64N(int64(2*cfg.Timing.Interval))), m.tick)
	}
	return w
}

// play runs what is planned until a moment, or until E1 is broken.
func (w *world) play(until time.Duration) {
	for len(w.todo) > 0 && w.violation == "" {
		if w.todo[0].at > until {
			return
		}
		e, ok := heap.Pop(&w.todo).(event)
		if !ok {
			return
		}
		w.now = e.at
		e.run()
	}
}

func simulatedRuns() uint64 {
	if testing.Short() {
		return 150
	}
	return 2500
}

func TestNeverTwoPrimaries(t *testing.T) {
	cfg := Config{Mode: MajorityOfAll, Timing: timing(t)}
	took := 0
	for seed := range simulatedRuns() {
		violation, n := simulate(cfg, seed, 90*time.Second)
		require.Empty(t, violation, "seed %d", seed)
		took += n
	}
	t.Logf("%d runs; monitors became primary %d times", simulatedRuns(), took)
	require.Greater(t, took, int(simulatedRuns()), "the runs must come to the point")
}

// TestNeverTwoPrimariesWithUnsafeFailcount: a failcount that was allowed against
// the rule shortens the wait for a failover, not the exclusion.
func TestNeverTwoPrimariesWithUnsafeFailcount(t *testing.T) {
	tm, err := locks.Derive(locks.Settings{Interval: 2 * second, Timeout: 3 * second, Failcount: 1, AllowUnsafe: true})
	require.NoError(t, err)
	for seed := range simulatedRuns() / 5 {
		violation, _ := simulate(Config{Mode: MajorityOfAll, Timing: tm}, seed, 90*time.Second)
		require.Empty(t, violation, "seed %d", seed)
	}
}

// TestSimulationFindsViolations: the same simulation must object to a rule that
// is left out.
func TestSimulationFindsViolations(t *testing.T) {
	for _, c := range []struct {
		name   string
		mutate func(*Config)
	}{
		{"no settling", func(c *Config) { c.Timing.Settle = 0 }},
		{"leases that outlast settling", func(c *Config) { c.Timing.Lease = c.Timing.Settle + 10*second }},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := Config{Mode: MajorityOfAll, Timing: timing(t)}
			c.mutate(&cfg)
			for seed := range uint64(2500) {
				if violation, _ := simulate(cfg, seed, 90*time.Second); violation != "" {
					t.Logf("seed %d: %s", seed, violation)
					return
				}
			}
			t.Fatal("no violation found")
		})
	}
}

// TestOneBecomesPrimary: while nothing goes wrong one monitor becomes primary
// soon after the settling time, and no other ever does.
func TestOneBecomesPrimary(t *testing.T) {
	cfg := Config{Mode: MajorityOfAll, Timing: timing(t)}
	latest := time.Duration(0)
	for seed := range uint64(200) {
		w := newWorld(cfg, seed)
		w.calm = true
		for until := 8 * time.Second; w.tookOffice == 0; until += 100 * time.Millisecond {
			require.Less(t, until, time.Minute, "seed %d: nobody becomes primary", seed)
			w.play(until)
			latest = max(latest, until)
		}
		w.play(100 * time.Second)
		require.Equal(t, 1, w.tookOffice, "seed %d", seed)
		primaries := 0
		for _, m := range w.monitors {
			if m.believes() {
				primaries++
			}
		}
		require.Equal(t, 1, primaries, "seed %d", seed)
	}
	t.Logf("the latest became primary %v after the start, settling takes %v", latest, cfg.Timing.Settle)
}
