package routing

import (
	"context"
	"database/sql"
	"time"
)

// Hedge runs a read on one server and, if it has not ended after a while, the same
// read on another; the first answer without an error counts, and the other read is
// cancelled. It buys a lower worst case with more load: after should be well above
// the usual time of the read. fn may run twice at a time and must only read.
func Hedge[T any](ctx context.Context, r *Router, l Level, after time.Duration, fn func(context.Context, *sql.DB) (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan answer, 2)
	begin := func() {
		go func() {
			var a answer
			db, err := r.Replica(ctx, l)
			if a.err = err; err == nil {
				a.value, a.err = fn(ctx, db)
			}
			answers <- a
		}()
	}
	begin()
	running := 1
	timer := time.NewTimer(after)
	defer timer.Stop()
	late := timer.C
	for {
		select {
		case a := <-answers:
			running--
			if a.err == nil || ctx.Err() != nil || (running == 0 && late == nil) {
				return a.value, a.err
			}
			if late != nil { // the first has failed: no need to wait for the second
				late = nil
				begin()
				running++
			}
		case <-late:
			late = nil
			begin()
			running++
		}
	}
}
