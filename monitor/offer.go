package monitor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-ha/lockstep/election"
	"github.com/lockstep-ha/lockstep/locks"
	"github.com/lockstep-ha/lockstep/topology"
)

// memory is what the decision which primary to offer remembers between ticks.
type memory struct {
	// chosen is the server that is the primary of the cluster, be it up or down.
	chosen string
	// offered is the server that the view of the tick before offered and that has
	// not expired.
	offered string
	// followed is true where offered was published by another monitor, not chosen
	// by this one.
	followed bool
	// offeredAt is when the chosen server was offered, or promoted, last. led is true
	// where this monitor has had the majority without a break since it did that
	// itself: then nobody else can have moved the primary.
	offeredAt time.Duration
	led       bool
	// promoted is the server that an operation of this monitor has made the primary
	// under the majority that it has.
	promoted string
	// publisher is the connection that held the locks of the followed server.
	publisher uint64
	// barredUntil is when a server may be offered in the place of one that may
	// still take writes: views elsewhere that name the other have expired by then.
	barredUntil time.Duration
	// vanished is the instant since which nothing is published that was before;
	// zero otherwise.
	vanished time.Duration
	// started is when the chosen server was started, as far as was seen; unproven
	// is set when it was started again and has not yet been compared with its
	// replicas.
	started  time.Duration
	unproven bool
	// answered is when the chosen server answered last; silent is set when it did not.
	answered time.Duration
	silent   bool
}

// offer is what the view will say about the primary.
type offer struct {
	name     string // "" for none
	deadline time.Duration
	reason   string
	// publish is the server that should carry the primary lock, "" for none.
	publish string
	// unpublish are the servers on which the lock must be released first.
	unpublish []string
	again     time.Duration
}

// scene is what one tick has seen and decided so far.
type scene struct {
	now     time.Duration
	servers []topology.Server
	rows    []locks.Row
	graph   topology.Graph
	timing  locks.Timing
	d       election.Decision
	// old are the servers whose publication may be one of before they fell silent,
	// and for how long: see absences.
	old map[string]oldLock
	// before are the servers as the tick before saw them; nil for the first.
	before []topology.Server
	// noted is the server that was made the primary last, as all monitors keep it;
	// "" where that is not known.
	noted string
}

// decideOffer is step 5 of a tick: the primary monitor says where the primary
// lock belongs, a secondary accepts or refuses the published one. It is pure.
//
// A settling monitor publishes only the server that its own view offered
// already, or the only writable server of a cluster in which every other server
// answers, is read-only and replicates from it: there no stale view of another
// monitor can name a server that would accept a write.
func decideOffer(s scene, m memory) (offer, memory) {
	if m.offered != "" && s.now-m.offeredAt >= s.timing.Lease {
		m.offered = "" // that view has expired
	}
	if s.d.Role == election.Secondary {
		m.promoted, m.led = "", false
		o, m := follow(s, m)
		if o.name != "" {
			m.offeredAt = s.now
		}
		return o, m
	}
	c := topology.ChoosePrimary(s.servers, s.graph, m.chosen)
	if !m.led && s.now-m.offeredAt > s.timing.Notice {
		// What this monitor remembers is old: others may have moved the primary since.
		if anew := topology.ChoosePrimary(s.servers, s.graph, ""); c.Usable || anew.Usable {
			c = anew
		}
	} else if m.chosen != "" && c.Name != m.chosen && !c.Usable {
		// Nobody else has moved it; answers can be older than its promotion.
		c.Name = m.chosen
	}
	c = notedOr(s, m, c)
	m.restarted(s, c.Name)
	if i := indexOf(s.servers, m.chosen); i >= 0 && c.Name != m.chosen && (!s.servers[i].Up() || s.servers[i].ReadOnly != topology.Yes) {
		m.barredUntil = s.now + s.timing.Notice
	}
	m.chosen, m.followed, m.vanished = c.Name, false, 0
	o := offer{reason: c.Reason}
	allowed := c.Usable
	if c.Usable && m.unproven {
		if why := unproven(s, c.Name); why != "" {
			allowed, o.reason, o.again = false, fmt.Sprintf("%s was started again and %s: it is not offered", c.Name, why), s.timing.Interval/4
		} else {
			m.unproven = false
		}
	}
	if allowed && s.now < m.barredUntil {
		allowed, o.again = false, m.barredUntil-s.now
		o.reason += fmt.Sprintf("; it is offered in %v, when no monitor offers the one before any more", o.again.Round(time.Millisecond))
	}
	if allowed && s.d.Role == election.Settling && c.Name != m.offered && c.Name != m.promoted && !c.Sole {
		allowed = false
		o.reason = fmt.Sprintf("%s; it is not offered before this monitor has settled", c.Reason)
	}
	for i, r := range s.rows {
		if r.PrimaryLock.State == locks.Self && (!allowed || s.servers[i].Name != c.Name) {
			o.unpublish = append(o.unpublish, s.servers[i].Name)
		}
	}
	if !allowed {
		m.offered = ""
		return o, m
	}
	i := indexOf(s.servers, c.Name)
	r := s.rows[i]
	o.deadline = s.servers[i].SentAt + s.timing.Lease
	if s.d.Tally.Mode != election.None {
		o.deadline = min(o.deadline, s.d.Lease)
		if r.ServerLock.State == locks.Self && r.PrimaryLock.State == locks.Free {
			o.publish = c.Name
		}
		switch {
		case r.PrimaryLock.State == locks.Self:
		case r.PrimaryLock.State == locks.Other:
			o.reason += fmt.Sprintf("; its primary lock is held by %s", r.PrimaryLock.Holder)
		case r.ServerLock.State != locks.Self:
			o.reason += "; its server lock is not ours yet, so that it cannot be published"
		}
		forged := s.d.Role == election.Primary && (r.PrimaryLock.Forged() || r.ServerLock.Forged())
		if r.PrimaryLock.State != locks.Self && c.Name != m.offered && !forged && !r.Published() && o.publish == "" {
			o.reason += "; not offered before it is published"
			m.offered = ""
			return o, m
		}
	}
	o.name, m.offered, m.offeredAt, m.led = c.Name, c.Name, s.now, true
	return o, m
}

// notedOr returns the server that was made the primary last, where this monitor has
// offered none itself, that server takes writes, and the one that looks like the
// primary lacks something that it has: so a former primary that came back writable,
// with replicas that had not been told, is not taken for it. Where nothing can be
// chosen by what the servers say, all of them answer, and none has anything that it
// lacks, it is the one too, though it may be read-only.
func notedOr(s scene, m memory, c topology.Choice) topology.Choice {
	i := indexOf(s.servers, s.noted)
	if m.led || i < 0 || c.Name == s.noted {
		return c
	}
	k := topology.ChoosePrimary(s.servers, s.graph, s.noted)
	if c.Name == "" {
		silent := slices.ContainsFunc(s.servers, func(sv topology.Server) bool { return !sv.Up() && sv.SameAs == "" })
		if k.Name == s.noted && !silent && len(s.graph.Follows(i)) == 0 && topology.Ahead(s.servers, i, true) == "" {
			return k
		}
		return c
	}
	if !c.Usable {
		return c
	}
	if !k.Usable || k.Name != s.noted || topology.HasAll(s.servers, indexOf(s.servers, c.Name), i) {
		return c
	}
	k.Reason = s.noted + " is writable and was made the primary last"
	return k
}

// unproven says why a server that was started again may lack transactions: a
// replica has more, or has not answered since. One that stays away is waited for
// as long as a new majority settles.
func unproven(s scene, name string) string {
	i := indexOf(s.servers, name)
	if ahead := aheadBefore(s.servers, s.before, i); ahead != "" {
		return ahead
	}
	at := s.servers[i].StartedAt
	for j, other := range s.servers {
		if j != i && other.EverSeen && other.SameAs == "" && (!other.Up() || other.SentAt < at) && s.now < at+s.timing.Settle {
			return other.Name + " has not said since what it has"
		}
	}
	return ""
}

// restartSlack is the resolution of a server's uptime, doubled.
const restartSlack = 2 * time.Second

// aheadBefore names a server that had something, when the tick before asked it, that
// server i lacks by now, "" for none: a server that takes writes seems to be behind
// where it was asked a moment earlier than its replicas. One that the tick before did
// not hear of is taken as it is now.
func aheadBefore(servers, before []topology.Server, i int) string {
	mixed := slices.Clone(servers)
	for j, b := range before {
		if j != i && j < len(mixed) && b.Name == mixed[j].Name && b.Up() && mixed[j].Up() && b.SentAt >= servers[i].StartedAt && b.SentAt <= servers[i].SentAt {
			mixed[j] = b
		}
	}
	return topology.Ahead(mixed, i, false)
}

// recentStart is for how long after its start a server counts as started again for a
// monitor that has just been started itself and cannot know what went before.
const recentStart = 10 * time.Minute

// restarted notes whether the server that was the primary before was started
// again since, at a resolution of seconds. A crash can lose what its replicas have
// received: it gets the primary lock back only if none of them is ahead of it. So
// does a server that this monitor has not offered before and that has just been started.
func (m *memory) restarted(s scene, choice string) {
	i := indexOf(s.servers, choice)
	if i < 0 {
		return
	}
	if !s.servers[i].Up() {
		m.silent = m.silent || choice == m.chosen
		return
	}
	at := s.servers[i].StartedAt
	switch {
	case choice == m.promoted && m.started == 0:
	case m.started == 0, choice != m.chosen:
		m.unproven = s.now-at < recentStart
	case at > m.started+restartSlack, m.silent && at+restartSlack > m.answered:
		m.unproven = true
	}
	m.started, m.answered, m.silent = at, s.servers[i].SentAt, false
}

// follow accepts the published primary of another monitor: server lock and
// primary lock on it have the same trusted holder, which is not this monitor and
// may have the majority for all that is seen of the other locks, and it is
// writable. It is believed for a lease after it was seen.
func follow(s scene, m memory) (offer, memory) {
	var o offer
	var found []int
	var why []string
	for i, r := range s.rows {
		sv := s.servers[i]
		if r.PrimaryLock.State == locks.Self {
			o.unpublish = append(o.unpublish, sv.Name)
		}
		switch {
		case r.Published() && s.now >= sv.SentAt+s.timing.Lease:
			why = append(why, fmt.Sprintf("%s carried the primary lock, but has not answered for %v", sv.Name, (s.now-sv.SentAt).Round(time.Millisecond)))
		case r.Published() && noMajority(s.d.Tally):
			why = append(why, fmt.Sprintf("%s carries the primary lock of %s, which cannot have the majority: %d of %d votes are free", sv.Name, r.PrimaryLock.Holder, s.d.Tally.Free, s.d.Tally.Total))
		case r.Published() && m.mayTakeWrites(s, sv.Name):
			why = append(why, fmt.Sprintf("%s carries the primary lock, but %s, which was offered a moment ago, may still take writes", sv.Name, m.chosen))
		case r.Published() && s.old[sv.Name].left > 0 && (s.old[sv.Name].long || (m.chosen != "" && m.chosen != sv.Name)):
			why = append(why, fmt.Sprintf("%s carries the primary lock that it had before it fell silent, and its holder has sent nothing since: it is believed when it has, or if the lock is still there in %v", sv.Name, s.old[sv.Name].left.Round(time.Millisecond)))
		case r.Published() && len(s.graph.Below(i, true)) == 0 && topology.Ahead(s.servers, i, false) != "":
			why = append(why, fmt.Sprintf("%s carries the primary lock, but nothing replicates from it, and %s", sv.Name, topology.Ahead(s.servers, i, false)))
		case r.Published() && sv.Writable():
			found = append(found, i)
		case r.Published():
			why = append(why, fmt.Sprintf("%s carries the primary lock but is read-only", sv.Name))
		case r.PrimaryLock.Forged():
			why = append(why, fmt.Sprintf("the primary lock on %s is held by %s, which is not trusted", sv.Name, r.PrimaryLock.Holder))
		case r.PrimaryLock.State == locks.Other:
			why = append(why, fmt.Sprintf("the primary lock on %s is held by %s, the server lock by %s", sv.Name, r.PrimaryLock.Holder, describe(r.ServerLock)))
		}
	}
	switch {
	case len(found) == 1:
		i := found[0]
		o.name = s.servers[i].Name
		o.deadline = s.servers[i].SentAt + s.timing.Lease
		o.reason = fmt.Sprintf("published by the primary monitor (%s)", s.rows[i].PrimaryLock.Holder)
		m.restarted(s, o.name)
		m.unproven, m.barredUntil = false, 0 // the primary monitor has decided
		m.publisher = s.rows[i].ServerLock.Holder.ConnectionID
		m.chosen, m.offered, m.followed, m.vanished = o.name, o.name, true, 0
		return o, m
	case len(found) > 1:
		why = append(why, fmt.Sprintf("%d servers carry a primary lock", len(found)))
	case len(why) == 0:
		why = append(why, "no primary is published: "+unpublished(s))
	}
	o.reason = strings.Join(why, "; ")
	if m.offered != "" && m.vanished == 0 {
		m.vanished = s.now
	}
	grace := min(handover, s.timing.Interval/4)
	if i := indexOf(s.servers, m.offered); len(found) == 0 && i >= 0 && m.followed && s.now < m.vanished+grace &&
		(s.rows[i].ServerLock.State != locks.Other || s.rows[i].ServerLock.Holder.ConnectionID != m.publisher) &&
		s.servers[i].Writable() && s.rows[i].Answered && s.rows[i].PrimaryLock.State == locks.Free {
		o.name, o.deadline = m.offered, min(m.vanished+grace, s.servers[i].SentAt+s.timing.Lease)
		o.reason = "its primary lock has just been released, and it is writable: whoever takes over publishes it"
		o.again = contestPause
		return o, m
	}
	m.offered = ""
	if m.vanished != 0 && s.now-m.vanished < 2*s.timing.Interval {
		// Whoever takes over publishes soon: look often at first, then less.
		o.again = max((s.now-m.vanished)/2, 20*time.Millisecond)
	}
	return o, m
}

// mayTakeWrites reports whether another server than the one named was offered until
// less than a wait_timeout ago and is neither seen to be read-only nor refuses
// connections. Such a primary is not replaced: one that is silent has been so for
// longer when it is. So the lock on the other server is stale, and gone when its
// session has idled out.
func (m memory) mayTakeWrites(s scene, name string) bool {
	i := indexOf(s.servers, m.chosen)
	if i < 0 || m.chosen == name || m.offeredAt == 0 || s.now-m.offeredAt >= s.timing.WaitTimeout {
		return false
	}
	sv := s.servers[i]
	return sv.Writable() || (!sv.Up() && sv.Evidence != topology.Refused)
}

// noMajority reports whether nobody but this monitor can have the majority, since so
// many locks are seen to be free. A primary lock that is seen all the same is
// stale: its server stood still, say, while its holder was replaced.
func noMajority(t election.Tally) bool {
	return t.Mode == election.MajorityOfAll && t.Free+t.Held > t.Total-t.Needed
}

// handover is how long a secondary goes on offering a writable server whose
// primary lock was released, so that a change of primary monitor is not seen as
// a loss of the primary; a quarter of an interval where that is less. A lock that
// its holder gave up while it kept the server lock is no change of monitor. It is far below Notice, for which every failover waits.
const handover = 100 * time.Millisecond

// unpublished says what a secondary knows about why nothing is published.
func unpublished(s scene) string {
	c := topology.ChoosePrimary(s.servers, s.graph, "")
	holders := 0
	for _, r := range s.rows {
		if r.ServerLock.State == locks.Other {
			holders++
		}
	}
	if holders == 0 {
		return "no other monitor holds a server lock; as far as this one can see, " + c.Reason
	}
	return fmt.Sprintf("other monitors hold %d server locks and have published none; as far as this one can see, %s", holders, c.Reason)
}

func describe(l locks.Lock) string {
	if l.State == locks.Other {
		return l.Holder.String()
	}
	return "nobody"
}

func indexOf(servers []topology.Server, name string) int {
	for i, s := range servers {
		if s.Name == name {
			return i
		}
	}
	return -1
}
