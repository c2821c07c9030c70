package monitor

import (
	"time"

	"github.com/lockstep-ha/lockstep/locks"
	"github.com/lockstep-ha/lockstep/topology"
)

// absences remembers who had published a server before it fell silent. A machine
// that stood still goes on with the locks that it had, until its sessions have
// idled out: for a wait_timeout such a publication may be one of long ago.
type absences map[string]absence

type absence struct {
	silent bool
	// holder is the connection that published the server when it answered last,
	// at seenAt; before the one that did when it fell silent, zero for none.
	holder, before uint64
	seenAt         time.Duration
	// backAt is when it answered again, gap how long after seenAt.
	backAt, gap time.Duration
}

// idleResolution is taken off how long a session is said to have been idle.
const idleResolution = 50 * time.Millisecond

// oldLock is a publication from before a silence.
type oldLock struct {
	// left is for how long it may be stale: then its session has idled out, or was
	// used.
	left time.Duration
	// long is set where the silence was so long that the primary may have been
	// moved in it, even if this server was it: whoever had published it held the
	// lock when it was last seen, had heard of it less than a wait_timeout before,
	// and could replace it W + N after that at the earliest.
	long bool
}

// look takes in one observation and names the servers whose publication is the
// one from before their silence, and whose holder has sent nothing since.
func (a absences) look(servers []topology.Server, rows []locks.Row, now time.Duration, t locks.Timing) map[string]oldLock {
	var old map[string]oldLock
	for i, r := range rows {
		name := servers[i].Name
		w := a[name]
		if !r.Answered {
			w.silent = true
			a[name] = w
			continue
		}
		if w.silent {
			w.silent, w.before, w.backAt, w.gap = false, w.holder, now, now-w.seenAt
		}
		w.holder, w.seenAt = 0, r.SentAt
		if r.Published() {
			w.holder = r.PrimaryLock.Holder.ConnectionID
		}
		if w.holder != w.before || (r.Idle >= 0 && r.Idle+idleResolution < r.SentAt-w.backAt) {
			w.before = 0 // somebody is there
		}
		if left := w.backAt + t.WaitTimeout - now; w.before != 0 && left > 0 {
			if old == nil {
				old = map[string]oldLock{}
			}
			old[name] = oldLock{left, w.gap >= t.Notice}
		}
		a[name] = w
	}
	return old
}
