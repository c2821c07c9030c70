package backend

import (
	"context"
	"errors"

	"github.com/lockstep-ha/lockstep/locks"
)

var errNoSession = errors.New("not connected")

// do hands an action to the goroutine of the server. A connection that is stuck
// in a query cannot release its locks by a statement: it is cut, which makes the
// server release them, and nobody waits for it.
func (p *prober) do(ctx context.Context, kind ActionKind) (Result, error) {
	p.mu.Lock()
	if p.busy && kind == ReleaseAll {
		p.doomed = true
		p.stop()
		p.mu.Unlock()
		return ResultUnknown, errBusy
	}
	p.mu.Unlock()
	j := job{ctx: ctx, kind: kind, out: make(chan Outcome, 1)}
	select {
	case p.jobs <- j:
	case <-ctx.Done():
		return ResultUnknown, errBusy
	}
	select {
	case o := <-j.out:
		return o.Result, o.Err
	case <-ctx.Done():
		return ResultUnknown, ctx.Err()
	}
}

// leave releases all locks by a statement and ends the connection.
func (p *prober) leave(ctx context.Context) {
	p.mu.Lock()
	if p.stop != nil {
		p.stop()
	}
	p.mu.Unlock()
	j := job{ctx: ctx, kind: ReleaseAll, out: make(chan Outcome, 1), bye: true}
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
	result, err := p.act(j)
	if err != nil && !errors.Is(err, errNoSession) {
		// Whether the statement had an effect is not known. The session ends, and
		// with it whatever it may hold.
		p.abandon()
	}
	if j.bye && p.sess != nil {
		p.sess.goodbye()
		p.sess = nil
	}
	j.out <- Outcome{Result: result, Err: err}
}

// abandon ends the session and forgets what it may have held.
func (p *prober) abandon() {
	p.drop()
	p.mu.Lock()
	p.doomed = false
	p.row = locks.Row{Server: p.srv.Name, SentAt: p.row.SentAt, DoneAt: p.f.cfg.Now()}
	p.mu.Unlock()
}

func (p *prober) act(j job) (Result, error) {
	if p.sess == nil {
		return ResultUnknown, errNoSession
	}
	ctx, end := p.begin(j.ctx)
	defer end()
	sent := p.f.cfg.Now()
	names, w := p.f.cfg.Names, p.f.cfg.Timing.WaitTimeout
	var got bool
	var err error
	switch j.kind {
	case TakeServerLock:
		got, err = locks.TakeServerLock(ctx, p.sess, names, p.sess.id, w)
	case TakePrimaryLock:
		got, err = locks.TakePrimaryLock(ctx, p.sess, names, p.sess.id, w)
	case ReleasePrimaryLock:
		_, err = p.sess.Query(ctx, names.ReleasePrimary())
	case ReleaseAll:
		_, err = p.sess.Query(ctx, names.ReleaseAll())
	}
	if err != nil {
		return ResultUnknown, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	own := locks.Lock{State: locks.Self, Holder: locks.Holder{ConnectionID: p.sess.id, User: p.srv.User, Checked: true, Trusted: true}}
	switch j.kind {
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
	}
	return Done, nil
}
