package routing

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/lockstep-ha/lockstep/locks"
	"github.com/lockstep-ha/lockstep/topology"
)

// lockMemory is what a follower of locks remembers. Its decisions are pure.
type lockMemory struct {
	timing        locks.Timing
	majorityOfAll bool
	servers       []LockServer
	lag           topology.LagTracker
	// offered is the server that was named last, at offeredAt.
	offered   string
	offeredAt time.Duration
	// primarySeen is when the primary was asked last.
	primarySeen time.Duration
	everSeen    bool
}

// decide makes a view of what the servers said. The primary is the one server that is
// writable and whose two locks are held by one connection of a trusted account.
// Nothing is named where:
//
//   - more than one server is like that;
//   - so many server locks are free that nobody can have the majority of all: then the
//     primary lock is left over from before the server stood still;
//   - the server that was named before may still take writes: its monitors have not
//     moved the primary away from it, so the other lock is left over, and gone within
//     the wait_timeout.
func (m *lockMemory) decide(seen []sighting, now time.Duration) View {
	v := View{}
	at, why := m.find(seen, now)
	if at >= 0 {
		s := seen[at]
		v.Primary, v.Until = s.server.Name, s.server.SentAt+m.timing.Lease
		v.Reason = fmt.Sprintf("published by the primary monitor (%s)", s.row.PrimaryLock.Holder)
		m.offered, m.offeredAt = s.server.Name, now
		m.primarySeen, m.everSeen = s.server.SentAt, true
		m.lag.Note(s.server.Name, s.server.BinlogPos, s.server.SentAt)
	} else {
		v.Reason = why
	}
	for i, s := range seen {
		r := Server{Name: s.server.Name, Address: s.server.Address, Site: s.server.Site, ServerID: uint32(s.server.ServerID), Flavor: s.server.Flavor}
		if s.server.Up() {
			// Whether its threads run is not asked: one that stands still falls behind.
			r.Readable = i != at && s.server.ReadOnly == topology.Yes && !s.server.SlavePos.IsEmpty()
			r.Position = s.server.CurrentPos
			if lag := m.lag.Measure(s.server, now); lag.Known && i != at && m.everSeen {
				r.Fresh, r.FreshKnown = freshAt(m.primarySeen, s.server.SentAt, lag.Behind, m.timing.Interval), true
			}
		}
		v.Servers = append(v.Servers, r)
	}
	return v
}

// find returns the index of the primary, or -1 and why there is none.
func (m *lockMemory) find(seen []sighting, now time.Duration) (int, string) {
	var found []int
	var why []string
	free, votes := 0, 0
	for i, s := range seen {
		if !m.servers[i].NoVote {
			votes++
			if s.row.Answered && s.row.ServerLock.State == locks.Free {
				free++
			}
		}
		name := s.server.Name
		switch r := s.row; {
		case r.Published() && s.server.Writable():
			found = append(found, i)
		case r.Published():
			why = append(why, name+" carries the primary lock but is read-only")
		case r.PrimaryLock.Forged():
			why = append(why, fmt.Sprintf("the primary lock on %s is held by %s, which is not trusted", name, r.PrimaryLock.Holder))
		case r.PrimaryLock.State == locks.Other && r.PrimaryLock.Holder.User == "":
			why = append(why, fmt.Sprintf("the primary lock on %s is held by connection %d, whose account is not shown: grant PROCESS", name, r.PrimaryLock.Holder.ConnectionID))
		case r.PrimaryLock.State == locks.Other:
			why = append(why, fmt.Sprintf("the primary lock on %s is held by %s, its server lock is not", name, r.PrimaryLock.Holder))
		}
	}
	switch {
	case len(found) > 1:
		why = append(why, fmt.Sprintf("%d servers carry a primary lock", len(found)))
	case len(found) == 1 && m.majorityOfAll && free > votes-(votes/2+1):
		why = append(why, fmt.Sprintf("%s carries a primary lock, whose holder cannot have the majority: %d of %d server locks are free", seen[found[0]].server.Name, free, votes))
	case len(found) == 1 && m.mayTakeWrites(seen, found[0], now):
		why = append(why, fmt.Sprintf("%s carries the primary lock, but %s, which had it a moment ago, may still take writes", seen[found[0]].server.Name, m.offered))
	case len(found) == 1:
		return found[0], ""
	case len(why) == 0:
		why = append(why, "no server carries a primary lock")
	}
	return -1, strings.Join(why, "; ")
}

// mayTakeWrites reports whether the server that was named before, until less than a
// wait_timeout ago, is neither read-only nor refuses connections.
func (m *lockMemory) mayTakeWrites(seen []sighting, choice int, now time.Duration) bool {
	if m.offered == "" || m.offered == seen[choice].server.Name || now-m.offeredAt >= m.timing.WaitTimeout {
		return false
	}
	for _, s := range seen {
		if s.server.Name == m.offered {
			return s.server.Writable() || (!s.server.Up() && s.server.Evidence != topology.Refused)
		}
	}
	return false
}

// isRefused reports whether nobody listens at an address.
func isRefused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }
