package boottime

import "time"

var start = time.Now()

// fallback is Go's monotonic clock, which on some systems stands still during a
// suspend.
func fallback() time.Duration { return time.Since(start) }
