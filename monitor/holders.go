package monitor

import (
	"time"

	"github.com/lockstep-ha/lockstep/locks"
	"github.com/lockstep-ha/lockstep/topology"
)

// holders remembers who held the server locks, to tell a primary monitor that has
// ended, or has given up its locks, from one that has merely gone silent. The
// latter may still believe in its locks until its lease ends; the former does not.
type holders struct {
	seen    map[string]sighting
	vacated map[string]time.Duration
}

// sighting is one lock held by another monitor.
type sighting struct {
	session uint64 // of this monitor: while it lives the server has not restarted
	// expires is the earliest instant at which the server could have closed the
	// holder's connection for idleness.
	expires time.Duration
}

// idleSlack is taken off the earliest idle end of a session: the server counts it
// in whole seconds.
const idleSlack = time.Second

// look takes in one observation and reports whether the monitor that held the
// locks before cannot have a majority of all votes any more, because so many of
// its connections ended before they could have idled out.
func (h *holders) look(servers []topology.Server, rows []locks.Row, t locks.Timing) bool {
	seen, vacated := map[string]sighting{}, map[string]time.Duration{}
	total, gone := 0, 0
	for i, r := range rows {
		name := servers[i].Name
		total += servers[i].Votes
		if !r.Answered {
			if w, ok := h.seen[name]; ok {
				seen[name] = w
			}
			continue
		}
		if r.ServerLock.State == locks.Other {
			if r.Idle >= 0 && r.Peer == locks.PeerAgrees && r.ServerLock.Holder.Trusted {
				seen[name] = sighting{r.Session, r.SentAt - r.Idle + t.WaitTimeout - idleSlack}
			}
			continue
		}
		at, ok := h.vacated[name]
		if was, held := h.seen[name]; held {
			at, ok = r.DoneAt, r.Session == was.session && r.Session != 0 && r.DoneAt < was.expires
		}
		if ok && r.DoneAt-at < t.WaitTimeout {
			vacated[name] = at
			gone += servers[i].Votes
		}
	}
	h.seen, h.vacated = seen, vacated
	return gone > 0 && total-gone < total/2+1
}
