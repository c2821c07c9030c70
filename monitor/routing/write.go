package routing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

// unavailable is an error that nothing was sent because there is no primary to
// send it to.
type unavailable struct {
	reason string
	err    error
	held   time.Duration
}

func (e *unavailable) Error() string {
	s := ErrNoPrimary.Error() + ": " + e.reason
	if e.held > 0 {
		s = fmt.Sprintf("%v within %v: %s", ErrNoPrimary, e.held, e.reason)
	}
	return s
}

// Is matches ErrNoPrimary.
func (e *unavailable) Is(target error) bool { return target == ErrNoPrimary }

// Unwrap gives what kept from using the server that the view names.
func (e *unavailable) Unwrap() error { return e.err }

// patience is for how long one statement may wait for a primary, all its attempts
// together. The zero value has not begun.
type patience struct {
	until time.Duration
	began time.Duration
}

// start begins to wait and reports whether there is time to.
func (p *patience) start(r *Router) bool {
	if r.opts.HoldWrites == 0 {
		return false
	}
	now := Now()
	if p.began == 0 {
		p.began, p.until = now, now+r.opts.HoldWrites
	}
	return now < p.until
}

// Pauses of those who wait for a primary.
const (
	// probePause is the time between attempts on a server that refused.
	probePause = 5 * time.Millisecond
	// maxProbePause is what that grows to.
	maxProbePause = 50 * time.Millisecond
	// lookAgain bounds a wait of one that waits for another's attempt.
	lookAgain = 100 * time.Millisecond
)

// bindWrite returns a connection to the primary that was verified when it was made.
func (r *Router) bindWrite(ctx context.Context, p *patience) (*realConn, error) {
	pause := probePause
	holding := false
	defer func() {
		if holding {
			r.stats.heldNow.Add(-1)
			r.stats.holdTime.Add(int64(Now() - p.began))
		}
	}()
	for {
		if r.closed.Load() {
			return nil, ErrClosed
		}
		st := r.state.Load()
		n, reason := st.writable(Now())
		var err error
		wait, tried := lookAgain, false
		if n != nil {
			var c *realConn
			if c, tried, err = r.tryWrite(ctx, n); c != nil {
				return c, nil
			}
			switch {
			case ctx.Err() != nil:
				return nil, cmp.Or(err, ctx.Err())
			case !tried && r.opts.HoldWrites == 0:
				// Somebody else tries: without holding each finds out for itself.
				if c, err = r.dialWrite(ctx, n); c != nil {
					return c, nil
				}
			case tried:
				wait, pause = pause, min(2*pause, maxProbePause)
			}
			if err != nil && !worthRepeating(err) {
				return nil, err
			}
			if err != nil {
				reason = err.Error()
			}
		}
		if !p.start(r) {
			if p.began != 0 {
				r.stats.holdTimeouts.Add(1)
				return nil, &unavailable{reason, err, r.opts.HoldWrites}
			}
			return nil, &unavailable{reason, err, 0}
		}
		if !holding {
			if r.stats.heldNow.Add(1) > int64(r.opts.MaxHeld) {
				r.stats.heldNow.Add(-1)
				return nil, &unavailable{fmt.Sprintf("%d wait for one already; %s", r.opts.MaxHeld, reason), err, 0}
			}
			holding = true
			r.stats.holds.Add(1)
		}
		moved := r.moved.wait()
		if r.closed.Load() || r.state.Load() != st || (n != nil && !tried && !n.suspect.Load()) {
			continue // it came before it could be waited for
		}
		if err := pauseFor(ctx, moved, min(wait, p.until-Now())); err != nil {
			return nil, fmt.Errorf("%w while waiting for a primary: %w", err, &unavailable{reason, nil, 0})
		}
	}
}

// pauseFor waits for a change, or for some time.
func pauseFor(ctx context.Context, moved <-chan struct{}, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-moved:
	case <-t.C:
	}
	return nil
}

// tryWrite borrows a connection to the primary. While that is suspect, only one
// caller at a time does; for the others tried is false.
func (r *Router) tryWrite(ctx context.Context, n *Node) (c *realConn, tried bool, err error) {
	if !n.suspect.Load() {
		c, err = r.dialWrite(ctx, n)
		return c, true, err
	}
	if !n.probing.CompareAndSwap(false, true) {
		return nil, false, nil
	}
	defer n.probing.Store(false)
	c, err = r.dialWrite(ctx, n)
	return c, true, err
}

// dialWrite borrows a connection and makes sure that the server is still the
// primary when it is there.
func (r *Router) dialWrite(ctx context.Context, n *Node) (*realConn, error) {
	c, err := n.writes.borrow(ctx)
	if err != nil {
		if ctx.Err() == nil && worthRepeating(err) {
			r.suspectPrimary(n)
		}
		return nil, err
	}
	if n.suspect.CompareAndSwap(true, false) {
		r.moved.signal()
	}
	if why := r.admits(c); why != "" {
		n.writes.discard(c)
		return nil, &unavailable{reason: why}
	}
	return c, nil
}

// suspectPrimary notes that the server named as the primary does not serve.
func (r *Router) suspectPrimary(n *Node) {
	n.suspect.Store(true)
	r.hurry()
}

// admits says why a connection must not be written to any more, "" if it may.
func (r *Router) admits(c *realConn) string {
	n, why := r.state.Load().writable(Now())
	switch {
	case r.closed.Load():
		return ErrClosed.Error()
	case n == nil:
		return "there is no primary now: " + why
	case n != c.node():
		return "the primary is " + n.name + " now"
	case c.gen != c.pool.gen.Load():
		return "it has ceased to be the primary in between"
	}
	return ""
}

// readmit is admits for a connection in a transaction: where there is no primary
// just now, it waits for one as long as writes are held.
func (r *Router) readmit(ctx context.Context, c *realConn) string {
	if r.admits(c) == "" {
		return ""
	}
	var p patience
	for {
		moved := r.moved.wait()
		why := r.admits(c)
		if why == "" || r.closed.Load() || c.gen != c.pool.gen.Load() {
			return why
		}
		if n, _ := r.state.Load().writable(Now()); n != nil || !p.start(r) {
			return why
		}
		if pauseFor(ctx, moved, min(lookAgain, p.until-Now())) != nil {
			return why
		}
	}
}

// worthRepeating reports whether an error of connecting may be gone in a moment.
// That of an account or database is not.
func worthRepeating(err error) bool {
	if errors.Is(err, ErrClosed) {
		return false
	}
	switch codeOf(err) {
	case 1044, 1045, 1049, 1130, 1698, 1820, 3118, 4151:
		return false
	}
	return true
}
