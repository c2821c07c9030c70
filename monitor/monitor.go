package monitor

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/lockstep-ha/lockstep/election"
	"github.com/lockstep-ha/lockstep/locks"
	"github.com/lockstep-ha/lockstep/monitor/backend"
	"github.com/lockstep-ha/lockstep/monitor/operation"
	"github.com/lockstep-ha/lockstep/topology"
)

// ErrRunning is returned by Run when the monitor runs already or has run.
var ErrRunning = errors.New("the monitor runs already or has run before")

// Monitor monitors one cluster. Its methods may be called from any goroutine.
type Monitor struct {
	d derived
	// timing and cluster are those of d; Reconfigure never changes them.
	timing  locks.Timing
	cluster string
	log     zerolog.Logger
	clock   Clock
	rng     *rand.Rand
	fleet   func(d derived, c Clock) (Fleet, error)
	view    atomic.Pointer[View]
	ran     atomic.Bool
	ticked  atomic.Int64 // instant of the end of the last tick
	records atomic.Pointer[[]operation.Record]
	inbox   chan asked
	stopped chan struct{}

	mu          sync.Mutex
	watchers    map[chan struct{}]struct{}
	refuseUntil time.Duration
	pending     *derived

	// Owned by the goroutine of Run.
	state    election.State
	mem      memory
	before   []topology.Server // as the tick before saw them
	holders  holders
	ops      operations
	shared   shared
	writes   writes
	disks    disks
	absences absences
	brake    *Brake
	lag      topology.LagTracker
	logged   loggedState
	ticks    uint64
	lastTick time.Duration
}

// Option changes how a Monitor is made.
type Option func(*Monitor)

// WithLogger sets the logger; without it nothing is logged.
func WithLogger(l zerolog.Logger) Option { return func(m *Monitor) { m.log = l } }

// WithClock sets the clock, for tests in virtual time.
func WithClock(c Clock) Option { return func(m *Monitor) { m.clock = c } }

// WithRand sets the source of back-off times.
func WithRand(r *rand.Rand) Option { return func(m *Monitor) { m.rng = r } }

// WithFleet replaces the servers, for simulations.
func WithFleet(f Fleet) Option {
	return func(m *Monitor) {
		m.fleet = func(derived, Clock) (Fleet, error) { return f, nil }
	}
}

// New makes a monitor. It opens no connection; errors are those of the
// configuration, all at once.
func New(cfg Config, opts ...Option) (*Monitor, error) {
	d, err := derive(cfg)
	if err != nil {
		return nil, err
	}
	m := &Monitor{
		d: d, timing: d.timing, cluster: d.cfg.Cluster, log: zerolog.Nop(), clock: newRealClock(),
		rng:      rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())),
		fleet:    connect,
		watchers: map[chan struct{}]struct{}{},
		inbox:    make(chan asked, 1), stopped: make(chan struct{}),
		ops:      newOperations(),
		absences: absences{},
		shared:   shared{servers: map[string]serverRow{}, rows: map[string]row{}, stale: map[string]bool{}},
	}
	for _, o := range opts {
		o(m)
	}
	m.log = m.log.With().Str("cluster", d.cfg.Cluster).Logger()
	m.view.Store(m.blank("the monitor has not looked at the servers yet"))
	return m, nil
}

func connect(d derived, c Clock) (Fleet, error) {
	return backend.New(backend.Config{Servers: d.servers, Names: d.names, Timing: d.timing,
		TrustedUsers: d.cfg.TrustedLockUsers, Operates: d.cfg.Policy.ReplicationUser != "", Now: c.Now, Wake: c.Wake})
}

// Timing returns the derived timing.
func (m *Monitor) Timing() locks.Timing { return m.timing }

// Cluster returns the name of the cluster.
func (m *Monitor) Cluster() string { return m.cluster }

// minGap keeps a flood of wake-ups from turning the loop into a spin.
const minGap = 5 * time.Millisecond

// Run monitors until ctx ends; then it releases all locks, ends its connections
// and returns nil. It can be called once.
func (m *Monitor) Run(ctx context.Context) error {
	if !m.ran.CompareAndSwap(false, true) {
		return ErrRunning
	}
	fleet, err := m.fleet(m.d, m.clock)
	if err != nil {
		return fmt.Errorf("cluster %s: %w", m.d.cfg.Cluster, err)
	}
	defer close(m.stopped)
	m.logStart()
	for ctx.Err() == nil {
		began := m.clock.Now()
		again := m.tick(ctx, fleet)
		wait := max(m.d.timing.Interval-(m.clock.Now()-began), minGap)
		if again > 0 {
			wait = min(wait, max(again, minGap))
		}
		m.clock.Sleep(ctx, wait)
	}
	// Nothing is offered before the locks go.
	m.publish(m.blank("the monitor is stopping"))
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), m.d.timing.Timeout)
	defer cancel()
	m.wrapUp(bounded)
	err = fleet.Close(bounded)
	m.log.Info().Str("event", "monitor_stopped").Msg("stopped; all locks are released")
	return err
}

// View returns what is true now. Once the view has expired it offers no primary.
func (m *Monitor) View() View { return m.view.Load().at(m.clock.Now()) }

// Primary returns the server to write to and for how long that may be believed;
// ok is false where there is none.
func (m *Monitor) Primary() (p Endpoint, valid time.Duration, ok bool) {
	v := m.view.Load()
	left := v.deadline - m.clock.Now()
	if v.Primary == nil || left <= 0 {
		return Endpoint{}, 0, false
	}
	return *v.Primary, left, true
}

// Role returns what this monitor may do and for how long that may be believed; it
// is election.Secondary, for no time, once the lease on its locks has run out.
func (m *Monitor) Role() (role election.Role, valid time.Duration) {
	v := m.view.Load()
	if v.Monitor.Role == election.Secondary {
		return election.Secondary, 0
	}
	if v.Monitor.Majority.Mode == election.None {
		return v.Monitor.Role, m.timing.Interval
	}
	if left := v.lease - m.clock.Now(); left > 0 {
		return v.Monitor.Role, left
	}
	return election.Secondary, 0
}

// Live reports whether the loop goes on: a tick ended within the session
// wait_timeout. When it does not, the locks of this monitor are running out.
func (m *Monitor) Live() bool {
	last := time.Duration(m.ticked.Load())
	return last != 0 && m.clock.Now()-last < m.timing.WaitTimeout
}

// Ready reports whether the first tick has ended.
func (m *Monitor) Ready() bool { return m.ticked.Load() != 0 }

// Watch calls fn with the current view and then after each change of it, until
// ctx ends. Changes that come faster than fn returns are merged. A view that
// merely expires is not a change: see View.ValidForMS.
func (m *Monitor) Watch(ctx context.Context, fn func(View)) {
	ch := make(chan struct{}, 1)
	m.mu.Lock()
	m.watchers[ch] = struct{}{}
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		delete(m.watchers, ch)
		m.mu.Unlock()
	}()
	for {
		fn(m.View())
		select {
		case <-ctx.Done():
			return
		case <-ch:
		}
	}
}

// ReleaseLocks makes the monitor release all locks and take none for d, so that
// another one takes over.
func (m *Monitor) ReleaseLocks(d time.Duration) {
	m.mu.Lock()
	m.refuseUntil = m.clock.Now() + d
	m.mu.Unlock()
	m.clock.Wake()
}

// publish swaps the view in and wakes the watchers.
func (m *Monitor) publish(v *View) {
	m.view.Store(v)
	m.mu.Lock()
	defer m.mu.Unlock()
	for ch := range m.watchers {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}
