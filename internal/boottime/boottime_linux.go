// Package boottime reads a monotonic clock that goes on while the machine is
// suspended, so that a lease never outlives a sleep.
package boottime

import (
	"time"

	"golang.org/x/sys/unix"
)

// Now returns the time since the machine was started.
func Now() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return fallback()
	}
	return time.Duration(ts.Nano())
}
