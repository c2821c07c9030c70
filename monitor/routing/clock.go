package routing

import (
	"sync/atomic"
	"time"

	"github.com/lockstep-ha/lockstep/internal/boottime"
)

// Now is the clock of views: time since the machine was started, suspend included.
//
// It costs what time.Now does. The kernel's own clock that counts a suspend takes a
// system call, so it is only asked when the wall clock has moved against Go's
// monotonic one: a suspend moves it, and so does whoever sets it.
func Now() time.Duration {
	t := time.Now()
	mono := t.Sub(started)
	drift := time.Duration(t.UnixNano()) - mono
	if s := synced.Load(); s != nil && drift-s.drift < maxDrift && s.drift-drift < maxDrift {
		return mono + s.offset
	}
	boot := boottime.Now()
	synced.Store(&syncedClock{drift: drift, offset: boot - mono})
	return boot
}

// maxDrift is by how much the two clocks may differ from when they were compared. An
// instant is wrong by no more than that.
const maxDrift = time.Millisecond

// syncedClock is a comparison of clocks.
type syncedClock struct{ drift, offset time.Duration }

var (
	started = time.Now()
	synced  atomic.Pointer[syncedClock]
)
