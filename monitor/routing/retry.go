package routing

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// RetryOption changes what Retry and Write do.
type RetryOption func(*retrying)

type retrying struct {
	unknown bool
	tx      *sql.TxOptions
}

// RetryUnknown makes Retry and Write begin again even where the commit may have been
// carried out: for transactions that do no harm when done twice, such as those that
// first look whether they were done.
func RetryUnknown() RetryOption { return func(o *retrying) { o.unknown = true } }

// WithTxOptions sets the options of the transaction.
func WithTxOptions(t *sql.TxOptions) RetryOption { return func(o *retrying) { o.tx = t } }

// Retry runs fn in a transaction on the primary and commits it. Where the
// transaction was certainly not committed, because the primary was lost or changed,
// or the server broke it off for another one (deadlock, lock wait timeout), it is
// begun again, at most Options.Retries times and as long as ctx lasts. fn may thus
// run several times: what it does beside the database must bear that. An error of
// fn that is none of these rolls back and is returned as it is.
//
// A lost answer to the commit is not repeated without RetryUnknown: the error then
// matches ErrOutcomeUnknown.
func (r *Router) Retry(ctx context.Context, fn func(*sql.Tx) error, opts ...RetryOption) error {
	var o retrying
	for _, f := range opts {
		f(&o)
	}
	for attempt := 0; ; attempt++ {
		err := r.once(ctx, o.tx, fn)
		if err == nil || ctx.Err() != nil || attempt >= r.opts.Retries || !r.repeatable(err, o.unknown) {
			return err
		}
		r.stats.retries.Add(1)
		if perr := pauseFor(ctx, nil, retryPause(attempt)); perr != nil {
			return fmt.Errorf("%w while waiting to try again: %w", perr, err)
		}
	}
}

// retryPause grows from a millisecond to a tenth of a second, less a random half.
func retryPause(attempt int) time.Duration {
	full := min(time.Millisecond<<min(attempt, 10), 100*time.Millisecond)
	return full/2 + rand.N(full/2)
}

// repeatable reports whether a transaction that ended with an error may be begun
// again.
func (r *Router) repeatable(err error, unknown bool) bool {
	if errors.Is(err, ErrOutcomeUnknown) {
		return unknown
	}
	if errors.Is(err, ErrPrimaryChanged) {
		return true
	}
	var no *unavailable
	if errors.As(err, &no) {
		// With holding it was waited for as long as is wanted.
		return r.opts.HoldWrites == 0 && (no.err == nil || worthRepeating(no.err))
	}
	code := codeOf(err)
	return code == codeDeadlock || code == codeLockWait || (code != 0 && slices.Contains(r.opts.RetryCodes, code))
}

func (r *Router) once(ctx context.Context, o *sql.TxOptions, fn func(*sql.Tx) error) (err error) {
	tx, err := r.primary.BeginTx(ctx, o)
	if err != nil {
		return err
	}
	done := false
	defer func() {
		if !done { // also when fn panics
			rerr := tx.Rollback()
			if err != nil && rerr != nil && errors.Is(rerr, ErrPrimaryChanged) && !errors.Is(err, ErrPrimaryChanged) && lostTx(err) {
				err = fmt.Errorf("%w: %w", err, rerr)
			}
		}
	}()
	if err := fn(tx); err != nil {
		return err
	}
	done = true
	return tx.Commit()
}

// lostTx reports whether an error of fn may be that of a transaction that has gone.
func lostTx(err error) bool { return errors.Is(err, sql.ErrTxDone) || classify(err) != failNone }

// Write is Retry, and returns the token of what was written: give it to whoever
// shall see it. A transaction that wrote nothing may return the empty token or an
// older one.
func (r *Router) Write(ctx context.Context, fn func(*sql.Tx) error, opts ...RetryOption) (Token, error) {
	t := callOf(ctx).tracker
	if t == nil {
		t = NewTracker(Token{})
	}
	own := NewTracker(Token{})
	err := r.Retry(WithTracker(ctx, own), fn, opts...)
	if own.Strong() {
		t.lost()
		if err == nil {
			return Token{}, fmt.Errorf("the transaction is committed: %w", ErrNoToken)
		}
	}
	t.Add(own.Token())
	return own.Token(), err
}

// ErrNoToken reports that a write was carried out and its token could not be read.
var ErrNoToken = errors.New("the token of the write is not known")

// Exec runs one statement on the primary and returns the token of what it wrote.
// It is not repeated once it was sent, but for what HoldWrites promises.
func (r *Router) Exec(ctx context.Context, query string, args ...any) (sql.Result, Token, error) {
	own := NewTracker(Token{})
	res, err := r.primary.ExecContext(WithTracker(ctx, own), query, args...)
	if t := callOf(ctx).tracker; t != nil {
		t.Add(own.Token())
		if own.Strong() {
			t.lost()
		}
	}
	if err == nil && own.Strong() {
		return res, Token{}, fmt.Errorf("the statement is carried out: %w", ErrNoToken)
	}
	return res, own.Token(), err
}
