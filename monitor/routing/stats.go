package routing

import (
	"sync/atomic"
	"time"
)

// pick is why a server was chosen.
type pick uint8

const (
	pickWrite pick = iota
	pickStrong
	pickFallback
	pickShared
	pickAny
	pickEventual
	pickSessionKnown
	pickSessionWaited
	pickSticky
	picks
)

var pickNames = [picks]Pick{
	{Role: "primary", Reason: "write"}, {Role: "primary", Reason: "strong"}, {Role: "primary", Reason: "fallback"}, {Role: "primary", Reason: "shared"},
	{Role: "replica", Reason: "any"}, {Role: "replica", Reason: "eventual"}, {Role: "replica", Reason: "session_known"},
	{Role: "replica", Reason: "session_waited"}, {Role: "replica", Reason: "sticky"},
}

// fallback is why a read went to the primary though its level did not ask for it.
type fallback uint8

const (
	fallNoReplica fallback = iota // none answers and replicates, has the tag, or passed the filters
	fallTooOld                    // none is fresh enough
	fallWaitEnded                 // the token was not reached in time
	fallWaitsFull                 // too many wait already, or waiting is off
	fallConnect                   // no connection to any could be had
	fallLostToken                 // a write of the tracker has no known token
	fallbacks
)

var fallbackNames = [fallbacks]string{"no_replica", "too_old", "wait_ended", "waits_full", "connect_failed", "token_lost"}

// Stats are counters since Open; take the difference of two for a rate.
type Stats struct {
	// Picks counts servers chosen for a statement or transaction, by role and reason.
	Picks []Pick
	// Fallbacks counts reads that went to the primary though they need not, by reason.
	Fallbacks []Fallback

	// Waits counts waits for a token on a replica, WaitTimeouts those in vain, WaitTime
	// the time spent.
	Waits, WaitTimeouts uint64
	WaitTime            time.Duration
	// Holds counts waits for a primary, HoldTimeouts those in vain, HeldNow those that
	// go on, HoldTime the time spent by those that ended.
	Holds, HoldTimeouts uint64
	HeldNow             int64
	HoldTime            time.Duration

	// PrimaryChanges counts changes to another primary, and ViewsExpired how often
	// there was none because the source had fallen silent.
	PrimaryChanges, ViewsExpired uint64
	// Refused counts connections for writes that were closed again because the server
	// did not hold its primary lock or was read-only.
	Refused uint64
	// ConnectErrors, ReadErrors and WriteErrors count failed connections, and those
	// that broke in use.
	ConnectErrors, ReadErrors, WriteErrors uint64
	// CircuitsOpened counts how often a replica was taken out of the choice.
	CircuitsOpened uint64
	// Cut counts connections in use that were closed because of HardCut.
	Cut uint64
	// Resent counts statements sent again unseen by the caller, which the first server
	// had certainly not carried out, or which were reads.
	Resent uint64
	// Retries counts transactions begun again by Retry and Write, OutcomesUnknown
	// errors that match ErrOutcomeUnknown.
	Retries, OutcomesUnknown uint64
	// CacheHits, CacheLoads and CacheShared count answers of caches: from memory, from
	// a server, and from another caller's load.
	CacheHits, CacheLoads, CacheShared uint64

	Servers []ServerStats
}

// Pick is how often a server was chosen for a reason.
type Pick struct {
	Role   string
	Reason string
	Count  uint64
}

// Fallback is how often reads went to the primary for a reason.
type Fallback struct {
	Reason string
	Count  uint64
}

// ServerStats are figures of one server.
type ServerStats struct {
	Name, Address string
	// Primary and Readable are what the view says now; CircuitOpen is true while the
	// server is out of the choice because of failures.
	Primary, Readable, CircuitOpen bool
	// InUse and Idle are connections now, Reads and Writes those handed out.
	InUse, Idle   int
	Reads, Writes uint64
}

// counters are what Stats is made of.
type counters struct {
	picks                         [picks]atomic.Uint64
	fallbacks                     [fallbacks]atomic.Uint64
	waits, waitTimeouts           atomic.Uint64
	waitTime, holdTime, heldNow   atomic.Int64
	holds, holdTimeouts           atomic.Uint64
	changes, expired, refused     atomic.Uint64
	connectErrors                 atomic.Uint64
	readErrors, writeErrors       atomic.Uint64
	circuits, cut, resent         atomic.Uint64
	retries, unknown              atomic.Uint64
	cacheHits, cacheLoads, shared atomic.Uint64
}

// Stats returns the counters.
func (r *Router) Stats() Stats {
	c := &r.stats
	s := Stats{
		Waits: c.waits.Load(), WaitTimeouts: c.waitTimeouts.Load(), WaitTime: time.Duration(c.waitTime.Load()),
		Holds: c.holds.Load(), HoldTimeouts: c.holdTimeouts.Load(), HeldNow: c.heldNow.Load(), HoldTime: time.Duration(c.holdTime.Load()),
		PrimaryChanges: c.changes.Load(), ViewsExpired: c.expired.Load(), Refused: c.refused.Load(),
		ConnectErrors: c.connectErrors.Load(), ReadErrors: c.readErrors.Load(), WriteErrors: c.writeErrors.Load(),
		CircuitsOpened: c.circuits.Load(), Cut: c.cut.Load(), Resent: c.resent.Load(),
		Retries: c.retries.Load(), OutcomesUnknown: c.unknown.Load(),
		CacheHits: c.cacheHits.Load(), CacheLoads: c.cacheLoads.Load(), CacheShared: c.shared.Load(),
	}
	for i := range c.picks {
		p := pickNames[i]
		p.Count = c.picks[i].Load()
		s.Picks = append(s.Picks, p)
	}
	for i := range c.fallbacks {
		s.Fallbacks = append(s.Fallbacks, Fallback{fallbackNames[i], c.fallbacks[i].Load()})
	}
	st, now := r.state.Load(), Now()
	for i, n := range st.nodes {
		s.Servers = append(s.Servers, ServerStats{
			Name: n.name, Address: n.address, Primary: i == st.primaryAt && now < st.until,
			Readable: st.readable&(1<<i) != 0, CircuitOpen: n.circuitOpen(now),
			InUse: n.Outstanding(), Idle: n.reads.idleCount() + n.writes.idleCount(),
			Reads: n.reads.handed.Load(), Writes: n.writes.handed.Load(),
		})
	}
	return s
}
