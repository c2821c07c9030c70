package operation

import (
	"fmt"
	"strings"
	"time"

	"github.com/lockstep-ha/lockstep/election"
	"github.com/lockstep-ha/lockstep/locks"
	"github.com/lockstep-ha/lockstep/topology"
	"github.com/lockstep-ha/lockstep/topology/gtid"
)

// Detector tells whether the primary has failed, and from which instant on it
// may be replaced. It remembers what earlier ticks have seen; it is pure
// otherwise. The zero value is ready.
type Detector struct {
	primary string
	// downSince is when the first probe that failed was sent.
	downSince time.Duration
	// deadSince is since when the evidence of death has been complete.
	deadSince time.Duration
	sources   map[string]reception
	// most is, by server, the most that it had received and that the primary had too,
	// as far as that could be asked; it outlives a change of the primary.
	most map[string]gtid.Position
	// mostAt is when each server was asked what went into most.
	mostAt map[string]time.Duration
}

// reception is what a replica had received when it was last seen to receive.
type reception struct {
	received   gtid.Position
	heartbeats uint64
	at         time.Duration // instant of the last change; zero for none yet
}

// Sight is what Detector looks at.
type Sight struct {
	Cluster
	Timing locks.Timing
	Mode   election.Mode
	// MajoritySince is when this monitor gained the majority.
	MajoritySince time.Duration
	Policy        Policy
}

// Verdict is what Detector found.
type Verdict struct {
	// Failed is true where the primary does not take writes and that counts
	// towards a failover.
	Failed bool
	// Dead is true where there is conclusive evidence that its process has ended.
	Dead bool
	// At is the instant from which on it may be replaced; zero where it may not.
	At time.Duration
	// Almost is true shortly after a primary went away whose replicas may not have
	// noticed yet: it is worth looking again at once.
	Almost bool
	// Reason says so in words, with what is waited for.
	Reason string
}

// Due reports whether the primary may be replaced now.
func (v Verdict) Due(now time.Duration) bool { return v.Failed && v.At != 0 && now >= v.At }

// Look takes in one observation. The primary is known dead when all of these
// hold: it closed the established connection of the monitor, it refuses new ones,
// and no replica that answers is connected to it. Then it may be replaced after
// DeadPrimaryDelay. In majority_of_all that holds only where forged evidence
// could not lose an acknowledged write: with semi-sync that never falls back and
// every replica reached and disconnected, since any one of them could acknowledge.
//
// A primary that is not known dead may be replaced W + N after the later of the
// last instant at which this monitor may have sent something on its lock
// connection and the instant at which it gained the majority, and not before
// Failcount intervals: by then its locks are gone and everybody has noticed.
func (d *Detector) Look(s Sight) Verdict {
	if s.Primary < 0 {
		*d = Detector{}
		return Verdict{Reason: "no server is the primary"}
	}
	p := s.Servers[s.Primary]
	if d.primary != p.Name {
		*d = Detector{primary: p.Name, most: d.most}
	}
	d.follow(s)
	switch {
	case p.Up():
		d.downSince, d.deadSince = 0, 0
		return Verdict{Reason: p.Name + " answers"}
	case !p.Evidence.Down() && (d.downSince == 0 || p.Evidence != topology.ShuttingDown):
		d.downSince, d.deadSince = 0, 0
		return Verdict{Reason: fmt.Sprintf("%s: %s; that does not count as a failure of the server", p.Name, p.Why())}
	case p.Maintenance:
		return Verdict{Reason: p.Name + " is in maintenance: it is not replaced"}
	}
	if d.downSince == 0 {
		d.downSince = max(p.SentAt, 1)
	}
	why := s.notDead()
	if why != "" {
		d.deadSince = 0
	} else if d.deadSince == 0 {
		d.deadSince = s.Now
	}
	v := Verdict{Failed: true}
	if why == "" {
		v.Dead, v.At = true, d.deadSince+s.Policy.DeadPrimaryDelay
		v.Reason = fmt.Sprintf("%s is dead: it closed the connection, refuses new ones, and its replicas have lost it", p.Name)
		return v
	}
	v.Almost = p.Evidence == topology.Refused && p.PeerClosed && s.Now-d.downSince < time.Second
	v.At = d.downSince + s.Timing.FailoverAfter()
	if p.Evidence.Reachable() {
		// Its locks are this monitor's to release, which happens in the first tick.
		v.At = max(v.At, d.downSince+s.Timing.Interval+s.Timing.Notice)
	} else if s.Mode != election.None {
		v.At = max(v.At, max(p.LockSentAt, s.MajoritySince)+s.Timing.StaleAfter())
	}
	v.Reason = fmt.Sprintf("%s does not answer (%s) and is not known dead: %s; its locks are gone, and everybody has noticed, in %v",
		p.Name, p.Evidence, why, max(v.At-s.Now, 0).Round(100*time.Millisecond))
	if alive := d.receiving(s); alive != "" && !p.Evidence.Reachable() {
		v.At = 0
		v.Reason = fmt.Sprintf("%s does not answer this monitor (%s), but it is alive: %s", p.Name, p.Evidence, alive)
	}
	return v
}

// notDead says what is missing for conclusive evidence, "" for nothing.
func (s Sight) notDead() string {
	p := s.Servers[s.Primary]
	switch {
	case p.Evidence != topology.Refused:
		return "new connections are not refused"
	case !p.PeerClosed:
		return "this monitor had no connection to it that it closed"
	}
	var connected, away []string
	for _, i := range s.Graph.Replicas(s.Primary, false) {
		r := s.Servers[i]
		if r.SameAs != "" {
			continue
		}
		if !r.Up() {
			away = append(away, r.Name)
			continue
		}
		if link := s.linkFrom(i, s.Primary); link != nil && link.IO == "Yes" {
			connected = append(connected, r.Name)
		}
	}
	for i, r := range s.Servers {
		if i != s.Primary && (!r.EverSeen || !r.ReplicationKnown) && r.SameAs == "" {
			away = append(away, r.Name) // it may replicate from the primary for all that is known
		}
	}
	if len(connected) > 0 {
		return strings.Join(connected, ", ") + " still connected to it"
	}
	if s.Mode != election.MajorityOfAll || s.Policy.TrustEvidence {
		return ""
	}
	switch {
	case p.SemiSync.Weakness() != "":
		return "a firewall could have forged that, and an acknowledged write be lost: " + p.SemiSync.Weakness()
	case len(away) > 0:
		return "a firewall could have forged that, and " + strings.Join(away, ", ") + ", which cannot be asked, acknowledge writes"
	}
	return ""
}

// follow notes what each replica receives.
func (d *Detector) follow(s Sight) {
	now, received := map[string]reception{}, map[string]gtid.Position{}
	for _, i := range s.Graph.Replicas(s.Primary, false) {
		r := s.Servers[i]
		link := s.linkFrom(i, s.Primary)
		if link == nil {
			continue
		}
		was, known := d.sources[r.Name]
		rec := reception{received: link.Received, heartbeats: link.Heartbeats, at: was.at}
		if r.Up() {
			received[r.Name] = link.Received
		}
		if known && r.Up() && (link.Heartbeats > was.heartbeats || !link.Received.Equal(was.received)) {
			rec.at = r.SentAt
		}
		now[r.Name] = rec
	}
	d.sources = now
	most, mostAt := map[string]gtid.Position{}, map[string]time.Duration{}
	for _, r := range s.Servers {
		had, at := d.most[r.Name], d.mostAt[r.Name]
		// An answer of the primary from before that says nothing.
		if p := s.Servers[s.Primary]; p.Up() && p.SentAt > at {
			had = had.Within(p.BinlogState)
		}
		if got := received[r.Name]; !got.IsEmpty() {
			at = r.SentAt
		}
		if had = (gtid.Progress{Received: received[r.Name], Applied: had}).Have(); !had.IsEmpty() {
			most[r.Name], mostAt[r.Name] = had, at
		}
	}
	d.most, d.mostAt = most, mostAt
}

// Had is, by server, the most that it was seen to have received of the history that
// the primary had when it answered last.
func (d *Detector) Had() map[string]gtid.Position { return d.most }

// receiving names a replica that has received something from the primary within
// the notice time, and since the primary stopped answering.
func (d *Detector) receiving(s Sight) string {
	for _, i := range s.Graph.Replicas(s.Primary, false) {
		r := s.Servers[i]
		link := s.linkFrom(i, s.Primary)
		rec := d.sources[r.Name]
		if r.Up() && link != nil && link.IO == "Yes" && rec.at > d.downSince && s.Now-rec.at < s.Timing.Notice {
			return fmt.Sprintf("%s has received events or heartbeats from it %v ago", r.Name, (s.Now - rec.at).Round(100*time.Millisecond))
		}
	}
	return ""
}
