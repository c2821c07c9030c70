package routing

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
)

// Router sends statements to the servers of one cluster. Its methods may be called
// from any goroutine.
type Router struct {
	opts     Options
	base     *mysql.Config
	checkSQL string
	source   Source
	primary  *sql.DB
	state    atomic.Pointer[state]
	moved    broadcast
	stats    counters
	turn     atomic.Uint64
	checker  atomic.Pointer[driver.NamedValueChecker]
	closed   atomic.Bool
	viewed   atomic.Int64 // when the last view came
	// connect makes the driver's connector of a server; tests replace it.
	connect func(name string, cfg *mysql.Config) (driver.Connector, error)
	cancel  context.CancelFunc
	done    sync.WaitGroup
	scratch sync.Pool

	// mu is held while the state is changed.
	mu      sync.Mutex
	nodes   map[string]*Node
	expiry  *time.Timer
	handles []*sql.DB
	changes chan struct{}
	// first is closed at the first view.
	first     chan struct{}
	firstOnce sync.Once
}

type change struct{ name, address, reason string }

// state is one view with the nodes that serve it. It is never changed.
type state struct {
	nodes []*Node // by name
	// primaryAt is the index of the primary, -1 for none; until is for how long.
	primaryAt int
	until     time.Duration
	reason    string
	// last is the primary that was known last; there may be none now.
	last     *Node
	readable uint64
	servers  []Server // as nodes
}

// writable returns the primary, or nil and why there is none.
func (s *state) writable(now time.Duration) (*Node, string) {
	switch {
	case s.primaryAt < 0:
		return nil, s.reason
	case now >= s.until:
		return nil, expiredReason
	}
	return s.nodes[s.primaryAt], ""
}

const expiredReason = "the view has expired: nothing new was heard of the cluster for too long"

// Open makes a router and starts to follow the source. It opens no connection to a
// server; errors are those of the options, all at once.
func Open(source Source, o Options) (*Router, error) {
	opts, base, names, err := o.withDefaults()
	if err == nil && source == nil {
		err = errors.New("no source: give FromMonitor, FromURL or FromLocks")
	}
	if err != nil {
		return nil, fmt.Errorf("routing: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &Router{opts: opts, base: base, source: source, cancel: cancel, nodes: map[string]*Node{}, changes: make(chan struct{}, 1), first: make(chan struct{})}
	r.connect = func(_ string, cfg *mysql.Config) (driver.Connector, error) { return mysql.NewConnector(cfg) }
	r.checkSQL = checkStatement(names.Server, names.Primary, !opts.NoLockCheck)
	r.scratch.New = func() any { s := make([]*Node, 0, maxServers); return &s }
	r.state.Store(&state{primaryAt: -1, reason: "the cluster was not looked at yet"})
	r.expiry = time.AfterFunc(time.Hour, r.expire)
	r.expiry.Stop()
	r.primary = r.handle(connector{r: r, level: Strong, fixed: true})
	r.done.Go(func() { source.Watch(ctx, r.apply) })
	r.done.Go(func() { r.report(ctx) })
	return r, nil
}

// Close stops following the source and closes all connections; statements under
// way fail.
func (r *Router) Close() error {
	if r.closed.Swap(true) {
		return nil
	}
	r.cancel()
	r.moved.signal()
	r.done.Wait()
	r.mu.Lock()
	r.expiry.Stop()
	handles, nodes := r.handles, r.nodes
	r.handles = nil
	r.mu.Unlock()
	for _, n := range nodes {
		n.reads.revoke(true)
		n.writes.revoke(true)
	}
	var errs []error
	for _, db := range handles {
		errs = append(errs, db.Close())
	}
	return errors.Join(errs...)
}

// handleIdle is how many shells of connections a handle keeps: they hold no
// connection to a server while they are not in use.
const handleIdle = 256

// handle opens a database handle that the router closes.
func (r *Router) handle(c connector) *sql.DB {
	db := sql.OpenDB(c)
	db.SetMaxIdleConns(handleIdle)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.handles = append(r.handles, db)
	return db
}

// Primary returns the handle for writes. Each statement or transaction goes to the
// server that is the primary when it begins. It is the same handle every time; do
// not close it. SetMaxOpenConns on it bounds what is in use at a time.
func (r *Router) Primary() *sql.DB { return r.primary }

// DB returns a new handle for programs that want one for everything: statements
// that return rows are reads of the level, all else (Exec, transactions that are
// not read-only) goes to the primary. See Connector. The router closes it.
func (r *Router) DB(l Level) *sql.DB { return r.handle(connector{r: r, level: l}) }

// Connector is what DB opens, for sql.OpenDB and what is built on it. Query and
// read-only transactions are reads of the level, chosen anew for each; Exec and all
// other transactions go to the primary. A statement that returns rows and writes
// (INSERT ... RETURNING, SELECT ... FOR UPDATE) belongs into a transaction or onto
// Primary: SQL is not looked at, and connections to replicas are read-only.
//
// A context changes the level (WithLevel), and makes reads see writes
// (WithTracker, WithToken).
func (r *Router) Connector(l Level) driver.Connector { return connector{r: r, level: l} }

// Replica chooses a server for a read and returns the handle to just that server,
// for as many statements as belong together. It is the handle of Primary where the
// read falls back to it. A Session level is met when Replica returns. Ask again for
// the next read; do not close it.
func (r *Router) Replica(ctx context.Context, l Level) (*sql.DB, error) {
	if err := l.check(); err != nil {
		return nil, err
	}
	if err := r.looked(ctx); err != nil {
		return nil, err
	}
	n, err := r.settle(ctx, l, callOf(ctx))
	switch {
	case err != nil:
		return nil, err
	case n == nil:
		return r.primary, nil
	}
	return n.db(), nil
}

// Ready waits until there is a primary: for programs that start together with what
// they follow. Statements do not need it; before the first view they wait for one by
// themselves, at most Options.DialTimeout.
func (r *Router) Ready(ctx context.Context) error {
	for {
		moved := r.moved.wait()
		n, why := r.state.Load().writable(Now())
		switch {
		case r.closed.Load():
			return ErrClosed
		case n != nil:
			return nil
		}
		if err := pauseFor(ctx, moved, time.Second); err != nil {
			return fmt.Errorf("%w: %w", err, &unavailable{reason: why})
		}
	}
}

// looked waits for the first view.
func (r *Router) looked(ctx context.Context) error {
	select {
	case <-r.first:
		return nil
	default:
	}
	t := time.NewTimer(r.opts.DialTimeout)
	defer t.Stop()
	select {
	case <-r.first:
	case <-t.C: // what follows says that there is no server
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// FormatToken returns the text of a token for a client, signed with
// Options.TokenKey where that is set.
func (r *Router) FormatToken(t Token) string { return sign(t.String(), r.opts.TokenKey) }

// ParseToken reads what FormatToken wrote. Errors wrap ErrToken.
func (r *Router) ParseToken(text string) (Token, error) {
	body, err := unsign(text, r.opts.TokenKey)
	if err != nil {
		return Token{}, err
	}
	return ParseToken(body)
}

// hurry asks the source to look again.
func (r *Router) hurry() {
	if h, ok := r.source.(Hurrier); ok {
		h.Hurry()
	}
}

// learnChecker keeps the driver's way to convert arguments, which is the same on
// every connection and uses none.
func (r *Router) learnChecker(s session) {
	if r.checker.Load() == nil {
		c := driver.NamedValueChecker(s)
		r.checker.CompareAndSwap(nil, &c)
	}
}

// broadcast wakes all who wait. The zero value is ready.
type broadcast struct {
	mu sync.Mutex
	ch chan struct{}
}

// wait returns a channel that the next signal closes.
func (b *broadcast) wait() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch == nil {
		b.ch = make(chan struct{})
	}
	return b.ch
}

func (b *broadcast) signal() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch != nil {
		close(b.ch)
		b.ch = nil
	}
}
