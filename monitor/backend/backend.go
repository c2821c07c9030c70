// Package backend reaches the servers of one cluster: one dedicated connection
// and one goroutine a server, which probes it, keeps its locks alive and carries
// out lock actions on it. It is the only package of the monitor that speaks SQL.
//
// A server that hangs delays nothing but itself: Observe waits for it only for a
// part of the first interval, and the connections to the others are refreshed on
// their own schedule.
package backend

import (
	"context"
	"crypto/tls"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstep-ha/lockstep/internal/sqlrows"
	"github.com/lockstep-ha/lockstep/locks"
	"github.com/lockstep-ha/lockstep/topology"
)

// Server is how to reach one server.
type Server struct {
	topology.Settings
	User     string
	Password string
	// Flavor is what the server must be; FlavorUnknown accepts any.
	Flavor topology.Flavor
	// TLS is nil for connections in the clear. With TLSOptional such a connection
	// is accepted where the server has no TLS.
	TLS         *tls.Config
	TLSOptional bool
}

// Config is what a Fleet is made from.
type Config struct {
	Servers []Server
	Names   locks.Names
	Timing  locks.Timing
	// TrustedUsers are accounts, beside the monitor's own, whose locks count.
	TrustedUsers []string
	// Operates is true for a monitor that is to change servers: privileges that it
	// lacks for that are then faults.
	Operates bool
	// Now is the clock; it must go on during a suspend.
	Now func() time.Duration
	// Wake asks the engine for a tick at once. It must not block.
	Wake func()
}

// Action is one thing to do on one server.
type Action struct {
	Server string
	Kind   ActionKind
	// SQL is what Execute and Ask send, in one round trip; Limit is how long the
	// answer may take before the connection is cut.
	SQL   string
	Limit time.Duration
	// Patience is how long Do waits for the outcome; zero, and what is longer, for
	// the timeout.
	Patience time.Duration
	// Session is the connection that must carry out an Execute: the one on which
	// the lock was verified.
	Session uint64
}

// ActionKind enumerates the actions.
type ActionKind uint8

// Actions on locks.
const (
	TakeServerLock ActionKind = iota
	TakePrimaryLock
	ReleasePrimaryLock
	ReleaseAll
	// Verify asks the server whether its server lock is this connection's: Done
	// if it is.
	Verify
	// Execute runs statements that change the server, on the connection that holds
	// its server lock and on no other.
	Execute
	// Aside runs statements that change the server and may take seconds, on a
	// connection of its own, which sees to it that the lock is held by Session when
	// they begin. It is not waited for longer than the context allows, and goes on.
	Aside
	// Ask runs statements that change nothing, on whatever connection there is.
	Ask
)

func (k ActionKind) String() string {
	return [...]string{"take server lock", "take primary lock", "release primary lock", "release all locks", "verify", "execute", "aside", "ask"}[min(k, 7)]
}

// Result of an action. A lost answer is Unknown: the next observation decides.
type Result uint8

// Results.
const (
	ResultUnknown Result = iota
	Done
	NotDone // the server said no: the lock is held by another
)

// Outcome is what came of an action.
//
// Of an Execute, NotDone means that the server refused one of its statements;
// those before it may have had their effect.
type Outcome struct {
	Action Action
	Result Result
	Err    error
	// Tables are the results of an Execute or Ask.
	Tables []sqlrows.Table
	// Session is the connection that was verified, SentAt the instant before it
	// was asked.
	Session uint64
	SentAt  time.Duration
}

// Fleet is the servers of a cluster.
type Fleet struct {
	cfg     Config
	probers []*prober
	byName  map[string]*prober
	hang    *hangups
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	// ticked is the instant at which the engine last asked for an observation.
	ticked atomic.Int64
	// trusted are the accounts of Config.TrustedUsers as they are now.
	trusted atomic.Pointer[[]string]
}

// New starts the goroutines of a fleet; they connect on their own.
func New(cfg Config) (*Fleet, error) {
	hang, err := newHangups()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	f := &Fleet{cfg: cfg, byName: map[string]*prober{}, hang: hang, cancel: cancel}
	f.ticked.Store(int64(cfg.Now()))
	f.Trust(cfg.TrustedUsers)
	for _, s := range cfg.Servers {
		p := newProber(f, s)
		f.probers = append(f.probers, p)
		f.byName[s.Name] = p
	}
	for _, p := range f.probers {
		f.wg.Go(func() { p.run(ctx) })
	}
	return f, nil
}

// Trust replaces the accounts, beside the monitor's own, whose locks count.
func (f *Fleet) Trust(users []string) { f.trusted.Store(&users) }

// Fence has servers set read-only in the first round trip of their next
// connection, until an instant. Those that are not named are not.
func (f *Fleet) Fence(names []string, until time.Duration) {
	for _, p := range f.probers {
		u := time.Duration(0)
		if slices.Contains(names, p.srv.Name) {
			u = until
		}
		p.fenceUntil.Store(int64(u))
	}
}

// trusts reports whether locks of an account count for a monitor that logs in as own.
func (f *Fleet) trusts(own, user string) bool {
	return user == own || slices.Contains(*f.trusted.Load(), user)
}

// patience is how long a tick waits for answers: half an interval at most, so
// that a server that hangs cannot stretch the tick.
func (f *Fleet) patience() time.Duration { return min(f.cfg.Timing.Timeout, f.cfg.Timing.Interval/2) }

// Observe probes all servers and returns what is known of each, in the order of
// the configuration. A server that has not answered in time is shown by its
// last completed probe; the engine is woken when it does answer.
func (f *Fleet) Observe(ctx context.Context) ([]topology.Server, []locks.Row) {
	f.ticked.Store(int64(f.cfg.Now()))
	r := &round{done: make(chan struct{})}
	r.left.Store(1)
	for _, p := range f.probers {
		p.ask(r)
	}
	r.finish()
	timer := time.NewTimer(f.patience())
	defer timer.Stop()
	select {
	case <-r.done:
	case <-timer.C:
	case <-ctx.Done():
	}
	r.abandoned.Store(true)
	servers, rows := make([]topology.Server, len(f.probers)), make([]locks.Row, len(f.probers))
	for i, p := range f.probers {
		servers[i], rows[i] = p.snapshot()
	}
	return servers, rows
}

// round is one Observe: it is done when every server that it waits for answered.
type round struct {
	left      atomic.Int32
	done      chan struct{}
	abandoned atomic.Bool
}

func (r *round) finish() {
	if r.left.Add(-1) == 0 {
		close(r.done)
	}
}

// Do carries out actions, in parallel over servers. It waits for each no longer
// than the timeout, or than the action's Patience where that is less; an Execute
// goes on after that, until its own limit, and its outcome is then unknown.
func (f *Fleet) Do(ctx context.Context, actions []Action) []Outcome {
	out := make([]Outcome, len(actions))
	var wg sync.WaitGroup
	for i, a := range actions {
		wg.Go(func() {
			patience := f.cfg.Timing.Timeout
			if a.Patience > 0 {
				patience = min(patience, a.Patience)
			}
			ctx, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			if a.Kind == Aside {
				out[i] = f.aside(ctx, a)
			} else {
				out[i] = f.byName[a.Server].do(ctx, a)
			}
			out[i].Action = a
		})
	}
	wg.Wait()
	return out
}

// aside carries out an Aside action.
func (f *Fleet) aside(ctx context.Context, a Action) Outcome {
	p := f.byName[a.Server]
	done := make(chan Outcome, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.Limit)
		defer cancel()
		defer f.cfg.Wake()
		s, err := openSession(ctx, p.srv, f.cfg.Timing.WaitTimeout, "")
		if err != nil {
			done <- Outcome{Result: NotDone, Err: err}
			return
		}
		o := Outcome{Result: Done}
		statements := a.SQL
		if a.Session != 0 {
			statements = f.cfg.Names.GuardStatement(a.Session) + ";" + statements
		}
		o.Tables, o.Err = s.Query(ctx, statements)
		if o.Err != nil {
			if o.Result = ResultUnknown; Code(o.Err) != 0 {
				o.Result = NotDone
			}
			s.close()
		} else {
			s.goodbye()
		}
		done <- o
	}()
	select {
	case o := <-done:
		return o
	case <-ctx.Done():
		return Outcome{Err: ctx.Err()}
	}
}

// Rows returns the newest lock rows without asking the servers again.
func (f *Fleet) Rows() []locks.Row {
	rows := make([]locks.Row, len(f.probers))
	for i, p := range f.probers {
		_, rows[i] = p.snapshot()
	}
	return rows
}

// Close releases every lock, ends every connection and waits for the goroutines.
func (f *Fleet) Close(ctx context.Context) error {
	var wg sync.WaitGroup
	for _, p := range f.probers {
		wg.Go(func() { p.leave(ctx) })
	}
	wg.Wait()
	f.cancel()
	f.wg.Wait()
	f.hang.close()
	return nil
}

// engineAlive reports whether the engine has asked for an observation lately: a
// monitor whose decisions have stopped must not sit on its locks.
func (f *Fleet) engineAlive() bool {
	return f.cfg.Now()-time.Duration(f.ticked.Load()) < f.cfg.Timing.WaitTimeout
}
