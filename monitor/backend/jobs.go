package backend

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-sql-driver/mysql"

	"github.com/lockstep-ha/lockstep/locks"
	"github.com/lockstep-ha/lockstep/topology"
	"github.com/lockstep-ha/lockstep/topology/mariadb"
)

// Errors of actions that were not sent.
var (
	errNoSession = errors.New("not connected")
	// ErrNotHeld is that of an Execute on a server whose lock this monitor's
	// connection does not hold.
	ErrNotHeld = errors.New("the server lock is not held by this connection")
)

// do hands an action to the goroutine of the server. A connection that is stuck
// in a query cannot release its locks by a statement: it is cut, which makes the
// server release them, and nobody waits for it.
func (p *prober) do(ctx context.Context, a Action) Outcome {
	p.mu.Lock()
	if p.busy && a.Kind == ReleaseAll {
		p.doomed = true
		p.stop()
		p.mu.Unlock()
		return Outcome{Err: errBusy}
	}
	p.mu.Unlock()
	j := job{ctx: ctx, action: a, out: make(chan Outcome, 1)}
	switch a.Kind {
	case Execute, Ask, Verify:
		// Who asked may lose patience; the connection, with its locks, is not cut for
		// that.
		j.ctx = context.WithoutCancel(ctx)
	case TakeServerLock, TakePrimaryLock, ReleasePrimaryLock, ReleaseAll, Aside:
	}
	select {
	case p.jobs <- j:
	case <-ctx.Done():
		return Outcome{Err: errBusy}
	}
	select {
	case o := <-j.out:
		return o
	case <-ctx.Done():
		return Outcome{Err: ctx.Err()}
	}
}

// leave releases all locks by a statement and ends the connection.
func (p *prober) leave(ctx context.Context) {
	p.mu.Lock()
	if p.stop != nil {
		p.stop()
	}
	p.mu.Unlock()
	j := job{ctx: ctx, action: Action{Kind: ReleaseAll}, out: make(chan Outcome, 1), bye: true}
	select {
	case p.jobs <- j:
		select {
		case <-j.out:
		case <-ctx.Done():
		}
	case <-ctx.Done():
	}
}

func (p *prober) perform(j job) {
	var o Outcome
	switch j.action.Kind {
	case Verify:
		o = p.verify(j)
	case Execute, Ask:
		o = p.execute(j)
	default:
		o.Result, o.Err = p.act(j)
	}
	if o.Err != nil && o.Result == ResultUnknown && !errors.Is(o.Err, errNoSession) {
		// Whether the statement had an effect is not known. The session ends, and
		// with it whatever it may hold.
		p.abandon(o.Err)
	}
	if j.bye && p.sess != nil {
		p.sess.goodbye()
		p.sess = nil
	}
	j.out <- o
}

// verify asks whether the server lock is still this connection's.
func (p *prober) verify(j job) Outcome {
	if p.sess == nil {
		return Outcome{Err: errNoSession}
	}
	ctx, end := p.begin(j.ctx, p.f.cfg.Timing.Timeout)
	defer end()
	o := Outcome{Session: p.sess.id, SentAt: p.f.cfg.Now()}
	tables, err := p.sess.Query(ctx, p.f.cfg.Names.VerifyStatement())
	if err != nil {
		return Outcome{Err: fmt.Errorf("verify: %w", err)}
	}
	p.touched()
	o.Result = NotDone
	if len(tables) > 0 && tables[0].Row(0).String("held") == "1" {
		o.Result = Done
	} else {
		o.Err = ErrNotHeld
	}
	return o
}

// execute sends statements. An Execute is refused without sending where the lock
// is not known to be this connection's.
func (p *prober) execute(j job) Outcome {
	if p.sess == nil {
		return Outcome{Err: errNoSession}
	}
	if j.action.Kind == Execute {
		p.mu.Lock()
		held := p.row.ServerLock.State == locks.Self && p.row.Session == p.sess.id
		p.mu.Unlock()
		if !held || (j.action.Session != 0 && j.action.Session != p.sess.id) {
			return Outcome{Result: NotDone, Err: ErrNotHeld}
		}
	}
	limit := j.action.Limit
	if limit <= 0 {
		limit = p.f.cfg.Timing.Timeout
	}
	ctx, end := p.begin(j.ctx, limit)
	defer end()
	o := Outcome{Session: p.sess.id, SentAt: p.f.cfg.Now()}
	var err error
	o.Tables, err = p.sess.Query(ctx, j.action.SQL)
	p.touched()
	var my *mysql.MySQLError
	switch {
	case err == nil:
		o.Result = Done
	case errors.As(err, &my) && mariadb.Classify(my.Number) == topology.OtherFailure:
		o.Result, o.Err = NotDone, err
	default:
		o.Result, o.Err = ResultUnknown, err
	}
	return o
}

// touched notes that something was sent on the lock connection until now.
func (p *prober) touched() {
	p.mu.Lock()
	p.server.LockSentAt = p.f.cfg.Now()
	p.mu.Unlock()
}

// abandon ends the session and forgets what it may have held. cause is the error
// of the last statement, nil for none.
func (p *prober) abandon(cause error) {
	closed := p.sess != nil && cause != nil && classify(cause, true) == topology.Closed
	last := p.drop()
	p.mu.Lock()
	p.doomed = false
	p.server.LockSentAt = last
	p.server.PeerClosed = p.server.PeerClosed || closed
	p.row = locks.Row{Server: p.srv.Name, SentAt: p.row.SentAt, DoneAt: p.f.cfg.Now()}
	p.mu.Unlock()
}

func (p *prober) act(j job) (Result, error) {
	if p.sess == nil {
		return ResultUnknown, errNoSession
	}
	ctx, end := p.begin(j.ctx, p.f.cfg.Timing.Timeout)
	defer end()
	defer p.touched()
	sent := p.f.cfg.Now()
	names, w := p.f.cfg.Names, p.f.cfg.Timing.WaitTimeout
	var got bool
	var err error
	kind := j.action.Kind
	switch kind {
	case TakeServerLock:
		got, err = locks.TakeServerLock(ctx, p.sess, names, p.sess.id, w)
	case TakePrimaryLock:
		got, err = locks.TakePrimaryLock(ctx, p.sess, names, p.sess.id, w)
	case ReleasePrimaryLock:
		_, err = p.sess.Query(ctx, names.ReleasePrimary())
	case ReleaseAll:
		_, err = p.sess.Query(ctx, names.ReleaseAll())
	case Verify, Execute, Aside, Ask:
	}
	if err != nil {
		return ResultUnknown, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	own := locks.Lock{State: locks.Self, Holder: locks.Holder{ConnectionID: p.sess.id, User: p.srv.User, Checked: true, Trusted: true}}
	switch kind {
	case TakeServerLock:
		if !got {
			p.row.ServerLock = locks.Lock{State: locks.Other}
			return NotDone, nil
		}
		p.row.ServerLock = own
		p.row.Session, p.row.SentAt, p.row.DoneAt = p.sess.id, max(p.row.SentAt, sent), p.f.cfg.Now()
	case TakePrimaryLock:
		if !got {
			p.row.PrimaryLock = locks.Lock{State: locks.Other}
			return NotDone, nil
		}
		p.row.PrimaryLock = own
	case ReleasePrimaryLock:
		p.row.PrimaryLock = locks.Lock{State: locks.Free}
	case ReleaseAll:
		for _, l := range []*locks.Lock{&p.row.ServerLock, &p.row.PrimaryLock} {
			if l.State == locks.Self {
				*l = locks.Lock{State: locks.Free}
			}
		}
	case Verify, Execute, Aside, Ask:
	}
	return Done, nil
}
