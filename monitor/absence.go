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
	// before the one that did when it fell silent; zero for none.
	holder, before uint64
	backAt         time.Duration
}

// look takes in one observation and names the servers whose publication is the
// one from before their silence, and may be stale, each with the time for which
// that is so.
func (a absences) look(servers []topology.Server, rows []locks.Row, now time.Duration, t locks.Timing) map[string]time.Duration {
	var old map[string]time.Duration
	for i, r := range rows {
		name := servers[i].Name
		w := a[name]
		if !r.Answered {
			w.silent = true
			a[name] = w
			continue
		}
		if w.silent {
			w.silent, w.before, w.backAt = false, w.holder, now
		}
		w.holder = 0
		if r.Published() {
			w.holder = r.PrimaryLock.Holder.ConnectionID
		}
		if left := w.backAt + t.WaitTimeout - now; w.before != 0 && w.holder == w.before && left > 0 {
			if old == nil {
				old = map[string]time.Duration{}
			}
			old[name] = left
		}
		a[name] = w
	}
	return old
}
