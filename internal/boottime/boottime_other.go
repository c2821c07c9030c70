//go:build !linux

// Package boottime reads a monotonic clock that goes on while the machine is
// suspended, where the system has one.
package boottime

import "time"

// Now returns the time since the process was started.
func Now() time.Duration { return fallback() }
