// Package election decides, from counted locks, what a monitor may do and which
// locks it should take or release. It is pure: one function from a state and an
// observation to the next state and a decision. It does no I/O, reads no clock
// and has its randomness injected.
//
// It promises that with MajorityOfAll two monitors never both have the role
// Primary on leases that have not run out (package locks has the argument), and
// that a monitor without a majority asks for every lock that it has to be
// released in the same tick. It does not promise that MajorityOfRunning is
// exclusive when the network splits: then each side may have a majority of what
// it can reach.
package election

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/lockstep-ha/lockstep/locks"
)

// Mode is the quorum mode.
type Mode uint8

// Quorum modes.
const (
	// MajorityOfAll asks for more than half of the votes of all configured
	// servers, those in maintenance included.
	MajorityOfAll Mode = iota
	// MajorityOfRunning asks for more than half of the votes of the servers that
	// the monitor can reach and whose locks it can ask for.
	MajorityOfRunning
	// None takes no locks: this is the only monitor of the cluster.
	None
)

var modeNames = [...]string{"majority_of_all", "majority_of_running", "none"}

func (m Mode) String() string { return modeNames[min(int(m), len(modeNames)-1)] }

// MarshalText writes the mode as in the configuration.
func (m Mode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (m *Mode) UnmarshalText(b []byte) (err error) {
	*m, err = ParseMode(string(b))
	return err
}

// ParseMode reads a mode as written in the configuration.
func ParseMode(s string) (Mode, error) {
	for i, n := range modeNames {
		if n == s {
			return Mode(i), nil
		}
	}
	return 0, fmt.Errorf("quorum %q: it must be majority_of_all, majority_of_running or none", s)
}

// Role is what a monitor may do.
type Role uint8

// Roles.
const (
	Secondary Role = iota // watches; follows the published primary
	Settling              // has the majority, for less than Timing.Settle; starts nothing
	Primary               // may publish a primary and run operations
)

var roleNames = [...]string{"secondary", "settling", "primary"}

func (r Role) String() string { return roleNames[min(int(r), len(roleNames)-1)] }

// MarshalText writes the role as a word.
func (r Role) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (r *Role) UnmarshalText(b []byte) error {
	for i, n := range roleNames {
		if n == string(b) {
			*r = Role(i)
			return nil
		}
	}
	return fmt.Errorf("role %q: it must be secondary, settling or primary", b)
}

// Config is what does not change from tick to tick.
type Config struct {
	Mode   Mode
	Timing locks.Timing
	// Passive monitors take no lock: one that is told not to act must not keep
	// others from acting.
	Passive bool
	// QuickSettle is after how long a majority may replace a primary that is known
	// dead, and do nothing else, though it has not settled, where it was gained after
	// the one before had let go of its own: see Observation.Vacated. Zero for never.
	QuickSettle time.Duration
}

// Server is one server of an observation.
type Server struct {
	Name string
	// Votes is zero for servers that do not vote.
	Votes int
	// Row is the last completed answer.
	Row locks.Row
}

// Observation is what one tick has seen. Servers are in canonical order: by name.
type Observation struct {
	Now     time.Duration
	Servers []Server
	// Vacated is true where whoever held the majority before is known to have let
	// go of it: its connections were closed, or it released its locks, so that it
	// does not act on them any more.
	Vacated bool
	// Refuse forbids to take locks until an instant (release-locks command).
	RefuseUntil time.Duration
}

// State is all that is remembered between ticks. The zero value is the start.
type State struct {
	Role    Role
	Tenures map[string]locks.Tenure
	// TryAt is the earliest instant of the next attempt to gain a majority.
	TryAt time.Duration
	// Failures counts attempts that gained no majority, since the last success.
	Failures int
	// Contested is the instant since which locks are partly free, partly held by
	// others; zero when they are not.
	Contested time.Duration
	// Attempting is true between an attempt and the recount that follows it.
	Attempting bool
	// Quick is the instant at which a majority was gained that the one before had
	// let go of; zero while there is none.
	Quick time.Duration
	// Accepted are the tenures, by the instant at which they began, that count
	// although they have not settled: see accept.
	Accepted map[string]time.Duration
	// Since is since when the majority has been held without a break.
	Since time.Duration
}

// Tally counts the votes.
type Tally struct {
	Mode    Mode `json:"mode"`
	Held    int  `json:"held"`
	Needed  int  `json:"needed"`
	Free    int  `json:"free"`
	Others  int  `json:"others"`
	Running int  `json:"running"`
	Total   int  `json:"total"`
}

// Has reports whether the majority is held.
func (t Tally) Has() bool { return t.Held >= t.Needed }

func (t Tally) String() string {
	return fmt.Sprintf("%d of %d needed votes held (%s: %d running, %d in all; %d free, %d held by others)",
		t.Held, t.Needed, t.Mode, t.Running, t.Total, t.Free, t.Others)
}

// Decision is the outcome of a step. Locks are taken before the caller counts
// again with another step of the same tick.
type Decision struct {
	Role  Role
	Tally Tally
	// Take lists the servers whose lock to ask for, in canonical order. With
	// FirstDecides set the rest is taken only if the first was got.
	Take         []string
	FirstDecides bool
	// Release asks for all locks on all servers to be released, at once.
	Release bool
	// Lease is the instant until which the role may be believed (zero for None and
	// for secondaries): the one at which the votes proved, of those that count,
	// fall below the needed number.
	Lease time.Duration
	// Since is when the majority was gained; zero for none.
	Since time.Duration
	// Quick is true for a settling monitor that may replace a primary which is known
	// dead: see Config.QuickSettle. Whoever had the majority before has ended, or
	// was cut off in a way that only looks so; either way it can change nothing
	// any more, since the sessions that held its locks have ended.
	Quick bool
	// SettledAt is when a settling monitor becomes primary if nothing changes.
	SettledAt time.Duration
	// Again asks for a new observation after that time instead of a whole
	// interval; zero for none.
	Again time.Duration
	// Reason says why the role is what it is.
	Reason string
}

// Contest times: how long a picture with locks partly taken by others must last
// before a monitor without locks tries for the rest. It lets the first of
// several that start at once finish.
const (
	contestShort = 20 * time.Millisecond
	contestLong  = 60 * time.Millisecond
)

// maxBackoff is the number of failed attempts from which on the wait before the
// next one grows no more.
const maxBackoff = 3

// backoff bounds the random wait after failed attempts. The first is short:
// sessions that end one after the other refuse the first lock for a moment.
func backoff(interval time.Duration, failures int) time.Duration {
	if failures <= 1 {
		return min(interval/2, 2*contestLong)
	}
	return interval * time.Duration(failures) / 2
}

// Step computes the next state and what to do. s is not changed.
func Step(c Config, s State, o Observation, rng *rand.Rand) (State, Decision) {
	if c.Mode == None {
		return stepAlone(c, s)
	}
	next := State{TryAt: s.TryAt, Failures: s.Failures, Contested: s.Contested, Accepted: s.Accepted, Tenures: make(map[string]locks.Tenure, len(o.Servers))}
	for _, sv := range o.Servers {
		if t := s.Tenures[sv.Name].Extend(sv.Row); t.Session != 0 {
			next.Tenures[sv.Name] = t
		}
	}
	d := Decision{Tally: count(c, next.Tenures, o)}
	if d.Tally.Has() {
		next.Quick, next.Since = s.Quick, s.Since
		if s.Role == Secondary && o.Vacated {
			next.Quick = o.Now
		}
	}
	holding := holdsAny(o)
	switch {
	case c.Passive:
		d.Release = holding
		d.Reason = "passive: takes no locks"
	case o.Now < o.RefuseUntil:
		d.Release = holding
		d.Reason = "locks were released by command and are not taken again yet"
	case d.Tally.Has():
		next.lead(c, o, &d)
	default:
		next.follow(c, s, o, rng, &d, holding)
	}
	next.Role = d.Role
	return next, d
}

func stepAlone(c Config, s State) (State, Decision) {
	d := Decision{Role: Primary, Tally: Tally{Mode: None}, Reason: "quorum is none: this monitor acts alone"}
	if c.Passive {
		d.Role, d.Reason = Secondary, "passive: does not act"
	}
	s.Role = d.Role
	return s, d
}

// lead fills the decision of a monitor with a majority.
func (s *State) lead(c Config, o Observation, d *Decision) {
	s.Failures, s.Contested = 0, 0
	d.Take = free(o)
	aged, lease, since, settled := s.authority(c, o, d.Tally.Needed)
	d.Lease, d.SettledAt = lease, settled
	if aged < d.Tally.Needed || s.Since == 0 {
		s.Since = since
	}
	d.Since = s.Since
	d.Role = Settling
	d.Reason = "has the majority: " + d.Tally.String()
	if aged >= d.Tally.Needed {
		d.Role = Primary
		s.accept(c, o, d.Tally.Needed)
	} else {
		d.Reason += fmt.Sprintf("; settling for another %v", (settled - o.Now).Round(time.Millisecond))
		d.Again = max(settled-o.Now, time.Millisecond)
		if at, ok := s.quick(c, o, d.Tally.Needed); ok && o.Now >= at {
			d.Quick = true
		} else if ok {
			d.Again = min(d.Again, max(at-o.Now, time.Millisecond))
		}
	}
	if d.Tally.Others > 0 || len(d.Take) > 0 {
		// Stale locks of the one before go one by one: pick each up when it does.
		if d.Role == Settling {
			d.Again = min(d.Again, contestLong)
		}
	}
}

// quick returns the instant from which on a majority that is settling may replace
// a dead primary; ok is false where it was not gained from one that had let go.
func (s *State) quick(c Config, o Observation, needed int) (at time.Duration, ok bool) {
	if s.Quick == 0 || c.QuickSettle <= 0 {
		return 0, false
	}
	held := 0
	for _, sv := range o.Servers {
		if t, ok := s.Tenures[sv.Name]; ok && t.Since <= s.Quick && t.Held(o.Now, c.Timing.Lease) {
			held += sv.Votes
			at = max(at, t.Since+c.QuickSettle)
		}
	}
	return at, held >= needed
}

// accept counts every vote x that is held beside a settled majority as settled,
// provided that enough votes k of that majority were proved, by a query sent at a,
// at most Settle - Lease before x was gained, at g.
//
// Another monitor that counted x as its own settled vote at or after g would
// have had its last proof of x before g, so that it believed in x until g + Lease
// at most, and in a majority of votes that it gained before
// g + Lease - Settle <= a. One of these is such a k. This monitor held k without a
// break from when it gained it to a, so that the other one lost k before that: by
// then its belief in k has ended, since k is settled, or accepted, here.
func (s *State) accept(c Config, o Observation, needed int) {
	before := s.Accepted
	s.Accepted = map[string]time.Duration{}
	settled := func(name string, t locks.Tenure) bool {
		at, ok := before[name]
		return o.Now >= t.Since+c.Timing.Settle || (ok && at == t.Since)
	}
	for _, x := range o.Servers {
		t, ok := s.Tenures[x.Name]
		if !ok || !t.Held(o.Now, c.Timing.Lease) {
			continue
		}
		fresh := 0
		for _, k := range o.Servers {
			if u, ok := s.Tenures[k.Name]; ok && settled(k.Name, u) && u.SentAt >= t.Since-(c.Timing.Settle-c.Timing.Lease) {
				fresh += k.Votes
			}
		}
		if settled(x.Name, t) || fresh >= needed {
			s.Accepted[x.Name] = t.Since
		}
	}
}

// follow fills the decision of a monitor without a majority.
func (s *State) follow(c Config, before State, o Observation, rng *rand.Rand, d *Decision, holding bool) {
	d.Reason = "no majority: " + d.Tally.String()
	d.Release = holding
	if before.Attempting {
		// The attempt before this recount gained no majority.
		s.Failures = min(before.Failures+1, maxBackoff)
		s.TryAt = o.Now + time.Duration(rng.Int64N(int64(backoff(c.Timing.Interval, s.Failures))+1))
		d.Again = s.TryAt - o.Now + time.Millisecond
		return
	}
	if holding {
		// Just lost: look again before trying for more.
		d.Again = contestShort
		return
	}
	takeable := free(o)
	if len(takeable) == 0 || d.Tally.Free < d.Tally.Needed {
		s.Contested = 0
		return
	}
	if o.Now < s.TryAt {
		d.Again = s.TryAt - o.Now + time.Millisecond
		return
	}
	if d.Tally.Others > 0 {
		wait := contestShort + time.Duration(rng.Int64N(int64(contestLong-contestShort)))
		if s.Contested == 0 {
			s.Contested = o.Now
			d.Again = wait
			return
		}
		if o.Now-s.Contested < contestShort {
			d.Again = wait
			return
		}
	}
	s.Contested = 0
	s.Attempting = true
	d.Take, d.FirstDecides = takeable, true
}

// authority counts the votes of leases that are old enough to act on, and tells
// until when at least needed votes are proved, and when needed votes are old
// enough.
func (s *State) authority(c Config, o Observation, needed int) (aged int, lease, since, settled time.Duration) {
	type vote struct {
		until, since, settled time.Duration
		n                     int
	}
	var held []vote
	for _, sv := range o.Servers {
		t, ok := s.Tenures[sv.Name]
		if !ok || sv.Votes == 0 || !t.Held(o.Now, c.Timing.Lease) {
			continue
		}
		settles := t.Since + c.Timing.Settle
		if at, ok := s.Accepted[sv.Name]; ok && at == t.Since {
			settles = t.Since
		}
		held = append(held, vote{t.SentAt + c.Timing.Lease, t.Since, settles, sv.Votes})
		if o.Now >= settles {
			aged += sv.Votes
		}
	}
	sum := 0
	slices.SortFunc(held, func(a, b vote) int { return cmp.Compare(a.settled, b.settled) })
	for _, v := range held {
		if sum += v.n; sum >= needed {
			since, settled = v.since, v.settled
			break
		}
	}
	// Once settled, only votes that are old enough keep the role alive.
	if aged >= needed {
		held = slices.DeleteFunc(held, func(v vote) bool { return o.Now < v.settled })
	}
	sum = 0
	slices.SortFunc(held, func(a, b vote) int { return cmp.Compare(b.until, a.until) })
	for _, v := range held {
		if sum += v.n; sum >= needed {
			lease = v.until
			break
		}
	}
	return aged, lease, since, settled
}

func count(c Config, tenures map[string]locks.Tenure, o Observation) Tally {
	t := Tally{Mode: c.Mode}
	for _, sv := range o.Servers {
		t.Total += sv.Votes
		if !sv.Row.Answered {
			continue
		}
		if sv.Row.ServerLock.Forged() && c.Mode == MajorityOfRunning {
			continue // its lock cannot be asked for
		}
		t.Running += sv.Votes
		switch sv.Row.ServerLock.State {
		case locks.Self:
			if tenures[sv.Name].Held(o.Now, c.Timing.Lease) {
				t.Held += sv.Votes
			}
		case locks.Free:
			t.Free += sv.Votes
		case locks.Other:
			t.Others += sv.Votes
		case locks.Unknown:
		}
	}
	of := t.Total
	if c.Mode == MajorityOfRunning {
		of = t.Running
	}
	t.Needed = of/2 + 1
	return t
}

// free lists the servers whose server lock can be taken. Servers without a vote
// are among them once the majority is held: the primary lock needs the server
// lock beside it.
func free(o Observation) []string {
	var names []string
	for _, sv := range o.Servers {
		if sv.Row.Answered && sv.Row.ServerLock.State == locks.Free {
			names = append(names, sv.Name)
		}
	}
	return names
}

func holdsAny(o Observation) bool {
	return slices.ContainsFunc(o.Servers, func(sv Server) bool {
		return sv.Row.ServerLock.State == locks.Self || sv.Row.PrimaryLock.State == locks.Self
	})
}
