package locks

import (
	"errors"
	"fmt"
	"time"
)

// Limits of the session wait_timeout that lock connections get.
const (
	// DefaultWaitTimeoutFloor keeps short intervals from producing sessions that
	// the server closes during a hiccup.
	DefaultWaitTimeoutFloor = 5 * time.Second
	// MinWaitTimeoutFloor is the smallest floor: the server counts in seconds.
	MinWaitTimeoutFloor = time.Second
	// MaxWaitTimeout is the server's own default.
	MaxWaitTimeout = 28800 * time.Second

	minDuration  = 100 * time.Microsecond
	maxFailcount = 100_000
)

// ErrUnsafeFailcount reports a failcount for which a stale lock could still
// exist, or a monitor could still believe in one, when a failover starts.
var ErrUnsafeFailcount = errors.New("unsafe failcount")

// Timing are the intervals derived from what the operator sets. See Derive.
type Timing struct {
	// Interval is the time from tick to tick.
	Interval time.Duration
	// Timeout bounds each network operation on a server: connect and query.
	Timeout time.Duration
	// WaitTimeout (W) is the session wait_timeout of lock connections: how long
	// the locks of a vanished monitor stay. Whole seconds.
	WaitTimeout time.Duration
	// Notice (N) is how long a live monitor needs at most to notice that a lock
	// of its own, or a published one, is gone.
	Notice time.Duration
	// Failcount is the number of ticks a primary must be missing before it is
	// replaced, and the number of ticks that a new majority settles.
	Failcount int
	// SafeFailcount is the smallest Failcount that is safe, and the default.
	SafeFailcount int
	// Settle is the time from gaining a majority to acting on it: Failcount
	// intervals or Notice, whichever is longer.
	Settle time.Duration
	// Margin is taken off leases, for clocks whose rates differ: one percent of
	// Notice, but at most half a Timeout, so that a lease outlasts the time from
	// one answer to the next.
	Margin time.Duration
	// Lease is how long a lock is believed held after the moment before the
	// query was sent that showed it: the lesser of WaitTimeout and Notice, less
	// Margin. Where the floor makes WaitTimeout longer than Notice the lease does
	// not grow with it, so that it stays below Settle.
	Lease time.Duration
}

// Settings are what Derive starts from.
type Settings struct {
	Interval time.Duration
	Timeout  time.Duration
	// Failcount zero means the smallest safe one.
	Failcount int
	// AllowUnsafe accepts a Failcount below the smallest safe one.
	AllowUnsafe bool
	// Floor is the least WaitTimeout; zero means DefaultWaitTimeoutFloor.
	Floor time.Duration
}

// Derive computes the timing of a cluster. With i the interval and t the timeout:
//
//	W = i + 2t rounded up to whole seconds, within Floor … 28800 s
//	N = i + 2t
//	smallest safe failcount = 1 + 2t/i rounded up, plus one tick of margin
//
// The failcount formula: the monitor that lost the majority may have looked just
// before (one tick), and needs two timeouts (the query in flight and the one
// after it) to notice. A Failcount below the smallest safe one is refused with
// an error that matches ErrUnsafeFailcount, unless AllowUnsafe is set.
func Derive(s Settings) (Timing, error) {
	if s.Interval < minDuration || s.Interval > MaxWaitTimeout {
		return Timing{}, fmt.Errorf("interval is %v: it must be from %v to %v", s.Interval, minDuration, MaxWaitTimeout)
	}
	if s.Timeout < minDuration || s.Timeout > MaxWaitTimeout {
		return Timing{}, fmt.Errorf("timeout is %v: it must be from %v to %v", s.Timeout, minDuration, MaxWaitTimeout)
	}
	floor := s.Floor
	if floor == 0 {
		floor = DefaultWaitTimeoutFloor
	}
	if floor < MinWaitTimeoutFloor || floor > MaxWaitTimeout {
		return Timing{}, fmt.Errorf("wait_timeout floor is %v: it must be from %v to %v", floor, MinWaitTimeoutFloor, MaxWaitTimeout)
	}
	notice := s.Interval + 2*s.Timeout
	if notice > MaxWaitTimeout {
		return Timing{}, fmt.Errorf("interval + 2 × timeout is %v: it must be at most %v", notice, MaxWaitTimeout)
	}
	t := Timing{
		Interval:      s.Interval,
		Timeout:       s.Timeout,
		Notice:        notice,
		WaitTimeout:   min(max(ceil(notice, time.Second), ceil(floor, time.Second)), MaxWaitTimeout),
		SafeFailcount: 2 + int((2*s.Timeout+s.Interval-1)/s.Interval),
		Failcount:     s.Failcount,
		Margin:        min(notice/100+time.Millisecond, s.Timeout/2),
	}
	if t.Failcount == 0 {
		t.Failcount = t.SafeFailcount
	}
	if t.Failcount < 0 || t.Failcount > maxFailcount {
		return Timing{}, fmt.Errorf("failcount is %d: it must be from %d to %d", t.Failcount, t.SafeFailcount, maxFailcount)
	}
	t.Settle = max(time.Duration(t.Failcount)*t.Interval, t.Notice)
	t.Lease = min(t.WaitTimeout, t.Notice) - t.Margin
	if t.Failcount < t.SafeFailcount && !s.AllowUnsafe {
		return t, fmt.Errorf("%w: failcount is %d, the smallest safe one is %d (interval %v, timeout %v: wait_timeout %v, failover starts after %v); raise failcount, or set allow_unsafe_failcount = true",
			ErrUnsafeFailcount, t.Failcount, t.SafeFailcount, t.Interval, t.Timeout, t.WaitTimeout, time.Duration(t.SafeFailcount)*t.Interval)
	}
	return t, nil
}

// Unsafe reports whether the failcount is below the smallest safe one.
func (t Timing) Unsafe() bool { return t.Failcount < t.SafeFailcount }

// FailoverAfter is when the failover of a primary that answers nothing starts,
// counted from its first missed tick: Failcount intervals.
func (t Timing) FailoverAfter() time.Duration { return time.Duration(t.Failcount) * t.Interval }

// FailoverWorst is the longest time before a failover starts when each of the
// ticks waits for a timeout: (Interval + Timeout) × Failcount.
func (t Timing) FailoverWorst() time.Duration {
	return time.Duration(t.Failcount) * (t.Interval + t.Timeout)
}

// StaleAfter is how long a vanished monitor can still matter: its locks stay
// for WaitTimeout, and every other monitor notices within Notice after that.
func (t Timing) StaleAfter() time.Duration { return t.WaitTimeout + t.Notice }

func ceil(d, unit time.Duration) time.Duration { return (d + unit - 1) / unit * unit }
