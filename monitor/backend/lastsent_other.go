//go:build !linux

package backend

import "time"

// sentAgo is not known here: data may have been sent until now.
func sentAgo(socket) time.Duration { return 0 }
