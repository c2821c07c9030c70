package monitor

import (
	"context"
	"time"

	"github.com/lockstep-ha/lockstep/internal/boottime"
	"github.com/lockstep-ha/lockstep/locks"
	"github.com/lockstep-ha/lockstep/monitor/backend"
	"github.com/lockstep-ha/lockstep/topology"
)

// Fleet is the servers of a cluster as the loop sees them. Concurrency is behind
// it; the loop itself is sequential and blocking.
type Fleet interface {
	// Observe looks at all servers and returns what is known of each, in
	// canonical order. It never fails as a whole and never waits for a server that
	// hangs.
	Observe(ctx context.Context) ([]topology.Server, []locks.Row)
	// Rows returns the newest state of the locks without looking again.
	Rows() []locks.Row
	// Do carries out actions, in parallel over servers.
	Do(ctx context.Context, actions []backend.Action) []backend.Outcome
	// Close releases all locks and ends all connections.
	Close(ctx context.Context) error
}

// Clock is the only source of time of the loop.
type Clock interface {
	// Now is the time on a monotonic clock that goes on during a suspend.
	Now() time.Duration
	// Sleep waits until d has passed, Wake was called, or ctx ended.
	Sleep(ctx context.Context, d time.Duration)
	// Wake ends the current Sleep, or the next one. It never blocks.
	Wake()
}

type realClock struct{ wake chan struct{} }

func newRealClock() *realClock { return &realClock{wake: make(chan struct{}, 1)} }

// Now implements Clock.
func (*realClock) Now() time.Duration { return boottime.Now() }

// Wake implements Clock.
func (c *realClock) Wake() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Sleep implements Clock.
func (c *realClock) Sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-c.wake:
	case <-ctx.Done():
	}
}
