package gtid

import (
	"fmt"
	"slices"
	"strings"
)

// Upstream is what has to be known of a MariaDB server to tell who can replicate
// from it.
//
// SlavePos must be read before State, or to the left of it in one SELECT. An
// upstream that is itself replicating logs a transaction before it moves
// gtid_slave_pos, so that read the other way round its position can be ahead of
// its log and [CanReplicate] reports [NotLogged] in error.
type Upstream struct {
	// State is @@gtid_binlog_state.
	State State
	// SlavePos is @@gtid_slave_pos.
	SlavePos Position
	// Oldest is the position at the start of the oldest binlog file left, which
	// BINLOG_GTID_POS(file, 4) gives. It is empty if nothing was ever purged.
	Oldest Position
	// OldestKnown says whether Oldest was read. Otherwise purged binlogs go
	// unnoticed here, and only the server can refuse for them.
	OldestKnown bool
}

// Problem is one reason against a MariaDB server replicating from another.
type Problem struct {
	Kind ProblemKind
	// GTID is what the problem is about: for [Purged] the GTID of the upstream
	// before which binlogs are gone, for [NotLogged] the one applied by the
	// upstream, and otherwise the one of the replica.
	GTID GTID
	// Text says it in a sentence for an operator.
	Text string
}

// Verdict says whether a MariaDB server can replicate from another.
type Verdict struct {
	// OK is set if there is no problem.
	OK bool
	// Problems come with those that the server itself refuses for first, and
	// within either part in ascending order of domain.
	Problems []Problem
	// Ignored are the GTIDs of the replica in domains of which the upstream knows
	// nothing. The server does not check them. They are errant, or the replica has
	// another upstream for them.
	Ignored []GTID
	// PurgeChecked is [Upstream.OldestKnown]: whether the verdict took purged
	// binlogs into account.
	PurgeChecked bool
}

// ServerAccepts reports whether the upstream server would accept the connection,
// regardless of what this package refuses beyond that.
func (v Verdict) ServerAccepts() bool {
	return !slices.ContainsFunc(v.Problems, func(p Problem) bool { return p.Kind.RefusedByServer() })
}

// String returns the texts of the problems, or "ok".
func (v Verdict) String() string {
	if v.OK {
		return "ok"
	}
	texts := make([]string, len(v.Problems))
	for i, p := range v.Problems {
		texts[i] = p.Text
	}
	return strings.Join(texts, "; ")
}

// CanReplicate says whether a replica that connects with position pos (its
// gtid_slave_pos, or gtid_current_pos in that mode) can replicate from an
// upstream.
//
// It follows the check that a MariaDB upstream makes at connect. A GTID of the
// replica is accepted if it is in the history of the upstream's binlog, if the
// upstream's own gtid_slave_pos is exactly there, or if its domain is unknown to
// the upstream's binlog. And the oldest binlog left must begin at or before the
// replica's position in every domain of it, where a domain that the replica lacks
// counts as its beginning.
//
// It refuses more than the server does where replication would start and data be
// missing: [UpstreamEmpty] if no GTID of the replica could be checked at all, and
// [NotLogged] if the upstream has applied what it cannot pass on.
//
// The replica's position must be read before the upstream's values.
func CanReplicate(upstream Upstream, pos Position) Verdict {
	problems, ignored := checkHistory(upstream, pos)
	v := Verdict{Problems: problems, Ignored: ignored, PurgeChecked: upstream.OldestKnown}
	if upstream.OldestKnown {
		v.Problems = append(slices.Clip(problems), checkPurged(upstream.Oldest, pos, problems)...)
		sortProblems(v.Problems)
	}
	v.Problems = append(v.Problems, checkSilent(upstream, pos, problems, ignored)...)
	v.OK = len(v.Problems) == 0
	return v
}

// Divergent reports whether two servers have parted: neither can replicate from
// the other, purged binlogs left aside. posA and posB are the positions with which
// a and b would connect.
//
// Both servers must be at rest for the answer to last; on servers that are
// written to or replicating it may be about moments that never met.
func Divergent(a, b Upstream, posA, posB Position) bool {
	fromA, _ := checkHistory(a, posB)
	fromB, _ := checkHistory(b, posA)
	return len(fromA) > 0 && len(fromB) > 0
}

// checkHistory finds the GTIDs of pos that the upstream refuses as not its own,
// and those that it does not check.
func checkHistory(upstream Upstream, pos Position) (problems []Problem, ignored []GTID) {
	for _, g := range pos.gtids {
		if upstream.State.Contains(g) || upstream.SlavePos.has(g) {
			continue
		}
		top, found := upstream.State.highest(g.Domain)
		switch {
		case !found:
			ignored = append(ignored, g)
		case top.Seq >= g.Seq:
			problems = append(problems, Problem{DivergedHistory, g, fmt.Sprintf(
				"the replica has %s, which is not in the upstream's binlog though that has reached %s: they have diverged", g, top)})
		default:
			problems = append(problems, Problem{NotInBinlog, g, fmt.Sprintf(
				"the replica has %s, which is not in the upstream's binlog: that ends at %s", g, top)})
		}
	}
	return problems, ignored
}

// checkPurged finds the domains in which the upstream's oldest binlog begins
// after pos. A domain that is refused already is not looked at.
func checkPurged(oldest, pos Position, refused []Problem) []Problem {
	var problems []Problem
	for _, o := range oldest.gtids {
		if concerns(refused, o.Domain) {
			continue
		}
		g, found := pos.Get(o.Domain)
		switch {
		case !found:
			problems = append(problems, Problem{Purged, o, fmt.Sprintf(
				"the upstream has purged its binlogs up to %s, and the replica has nothing of domain %d", o, o.Domain)})
		case g.Seq < o.Seq || g.Seq == o.Seq && g.Server != o.Server:
			problems = append(problems, Problem{Purged, o, fmt.Sprintf(
				"the upstream has purged its binlogs up to %s, and the replica is at %s", o, g)})
		}
	}
	return problems
}

// checkSilent finds what the server would let pass and should not.
func checkSilent(upstream Upstream, pos Position, refused []Problem, ignored []GTID) []Problem {
	var problems []Problem
	if len(ignored) == len(pos.gtids) {
		for _, g := range ignored {
			problems = append(problems, Problem{UpstreamEmpty, g, fmt.Sprintf(
				"the replica has %s, and the upstream's binlog has nothing of any domain of the replica", g)})
		}
	}
	for _, p := range upstream.SlavePos.gtids {
		if upstream.State.Contains(p) || pos.has(p) ||
			concerns(refused, p.Domain) || concerns(problems, p.Domain) {
			continue
		}
		// A GTID from the upstream's binlog that comes after p is as good as p.
		if g, found := pos.Get(p.Domain); found && g.Seq > p.Seq && upstream.State.Contains(g) {
			continue
		}
		problems = append(problems, Problem{NotLogged, p, fmt.Sprintf(
			"the upstream has applied %s without logging it, and the replica is not there", p)})
	}
	sortProblems(problems)
	return problems
}

func sortProblems(problems []Problem) {
	slices.SortStableFunc(problems, func(a, b Problem) int { return byDomain(a.GTID, b.GTID) })
}

func concerns(problems []Problem, domain uint32) bool {
	return slices.ContainsFunc(problems, func(p Problem) bool { return p.GTID.Domain == domain })
}
