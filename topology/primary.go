package topology

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/lockstep-ha/lockstep/topology/gtid"
)

// Choice is which server is the primary, and why, or why there is none.
type Choice struct {
	// Name is the chosen server; it may be down or read-only: then Usable is false.
	Name   string
	Usable bool
	// Sole is true where every configured server answers, this is the only
	// writable one, and every other replicates from it: no other monitor can offer
	// a server that accepts writes.
	Sole   bool
	Reason string
}

// ChoosePrimary decides which server is the primary. before is the choice of the
// tick before, "" for none.
//
// A choice sticks while its server is writable or down: what replaces a dead
// primary is a failover, never a new look at the topology. It moves only when
// its server is read-only, or replicates from a member, and one other server is
// writable with more running replicas. Without a choice before, the primary is
// the writable server from which the most others replicate; when two are equal,
// or when more servers replicate from one that cannot be it, there is none.
func ChoosePrimary(servers []Server, g Graph, before string) Choice {
	cur := slices.IndexFunc(servers, func(s Server) bool { return s.Name == before && before != "" })
	var cands []int
	for i := range servers {
		if disqualified(servers, g, i) == "" {
			cands = append(cands, i)
		}
	}
	if cur >= 0 {
		return keep(servers, g, cur, cands)
	}
	return fresh(servers, g, cands)
}

// disqualified says why server i cannot be chosen as the primary, "" if it can.
func disqualified(servers []Server, g Graph, i int) string {
	s := servers[i]
	switch why := unusable(servers, g, i); {
	case why != "":
		return why
	case s.Maintenance:
		return "in maintenance"
	case s.Promotion == MustNot:
		return "promotion = must_not"
	case !s.ReplicationKnown:
		return "its replication state cannot be read"
	}
	return ""
}

// unusable says why server i, were it the primary, could not take writes. What a
// person set about future choices is no such reason.
func unusable(servers []Server, g Graph, i int) string {
	s := servers[i]
	switch {
	case s.SameAs != "":
		return "the same server as " + s.SameAs
	case !s.Up():
		return s.Why()
	case s.ReadOnly == Unknown:
		return "read_only is not known"
	case s.ReadOnly == Yes:
		return "read-only"
	}
	if src := g.Follows(i); len(src) > 0 && !g.InCycle(i) {
		return "replicates from " + servers[src[0]].Name
	}
	return ""
}

func keep(servers []Server, g Graph, cur int, cands []int) Choice {
	s := servers[cur]
	why := unusable(servers, g, cur)
	if why == "" {
		return Choice{Name: s.Name, Usable: true, Sole: sole(servers, g, cur), Reason: fmt.Sprintf("%s is writable and was the primary before", s.Name)}
	}
	stays := Choice{Name: s.Name, Reason: fmt.Sprintf("the primary %s cannot take writes: %s", s.Name, why)}
	if s.Up() || s.Evidence.Reachable() {
		if i := idle(servers, g); i >= 0 && i != cur && (len(g.Below(cur, false)) == 0 || (HasAll(servers, i, cur) && !HasAll(servers, cur, i)) || slices.Contains(g.Below(i, false), cur)) {
			return Choice{Name: servers[i].Name, Reason: fmt.Sprintf("%s was the primary and is read-only; %s is read-only too, replicates from nobody, and %d servers replicate from it", s.Name, servers[i].Name, len(g.Below(i, false)))}
		}
	}
	if !s.Up() || s.ReadOnly == Unknown {
		if alive := g.Replicas(cur, true); len(alive) > 0 {
			names := make([]string, len(alive))
			for i, r := range alive {
				names[i] = servers[r].Name
			}
			stays.Reason += "; it is alive as seen from " + strings.Join(names, ", ") + ", which say that they replicate from it"
		}
		return stays
	}
	if src := g.Follows(cur); len(src) == 1 && !servers[src[0]].Up() && missing(servers, g) == src[0] {
		return Choice{Name: servers[src[0]].Name, Reason: fmt.Sprintf("%s was the primary and replicates from %s by now, as all that answer do; %s cannot take writes: %s",
			s.Name, servers[src[0]].Name, servers[src[0]].Name, servers[src[0]].Why())}
	}
	own := len(g.Below(cur, true))
	all := slices.Clone(cands)
	cands = slices.DeleteFunc(cands, func(c int) bool {
		return c == cur || (len(g.Below(c, true)) <= own && !slices.Contains(g.Sources(cur), c))
	})
	switch len(cands) {
	case 0:
		if c := successor(servers, g, cur, all); c >= 0 {
			return Choice{Name: servers[c].Name, Usable: true, Sole: sole(servers, g, c),
				Reason: fmt.Sprintf("%s (%s) was the primary; %s is the only writable server, replicates from nobody and has all transactions", s.Name, why, servers[c].Name)}
		}
		return stays
	case 1:
		c := cands[0]
		return Choice{Name: servers[c].Name, Usable: true, Sole: sole(servers, g, c),
			Reason: fmt.Sprintf("%s (%s) was the primary; %s is writable and replicated from", s.Name, why, servers[c].Name)}
	}
	names := make([]string, len(cands))
	for i, c := range cands {
		names[i] = servers[c].Name
	}
	stays.Reason += "; " + strings.Join(names, " and ") + " are writable and replicated from: set all but one read-only"
	return stays
}

// successor is the server that a switchover had promoted which was cut short before
// anything replicated from it, -1 for none: the only writable one, and it has
// every transaction that any other server has.
func successor(servers []Server, g Graph, cur int, cands []int) int {
	found := -1
	for _, c := range cands {
		if c == cur {
			continue
		}
		if found >= 0 {
			return -1
		}
		found = c
	}
	if found < 0 || len(g.Sources(found)) > 0 || servers[found].CurrentPos.IsEmpty() || Ahead(servers, found, true) != "" {
		return -1
	}
	return found
}

func fresh(servers []Server, g Graph, cands []int) Choice {
	if len(cands) == 0 {
		if i := missing(servers, g); i >= 0 {
			return Choice{Name: servers[i].Name, Reason: fmt.Sprintf("every server that answers replicates from %s, which cannot take writes: %s", servers[i].Name, unusable(servers, g, i))}
		}
		if i := idle(servers, g); i >= 0 {
			return Choice{Name: servers[i].Name, Reason: fmt.Sprintf("%s is read-only; it replicates from nobody, %d of %d other servers replicate from it", servers[i].Name, len(g.Below(i, false)), len(servers)-1)}
		}
		return Choice{Reason: "no writable server: " + excuses(servers, g)}
	}
	reach := func(i int) int { return len(g.Below(i, false)) }
	best := slices.MaxFunc(cands, func(a, b int) int { return reach(a) - reach(b) })
	var ties []string
	for _, c := range cands {
		if reach(c) == reach(best) {
			ties = append(ties, servers[c].Name)
		}
	}
	if len(ties) > 1 {
		var complete []int
		for _, c := range cands {
			if !servers[c].CurrentPos.IsEmpty() && Ahead(servers, c, true) == "" {
				complete = append(complete, c)
			}
		}
		complete = slices.DeleteFunc(complete, func(c int) bool { return !slices.Contains(ties, servers[c].Name) })
		if len(complete) == 1 {
			c := complete[0]
			return Choice{Name: servers[c].Name, Usable: true, Reason: fmt.Sprintf("%s are writable, and only %s has all transactions", strings.Join(ties, " and "), servers[c].Name)}
		}
		return Choice{Reason: fmt.Sprintf("%d writable servers with %d replicas each (%s): set all but one read-only (SET GLOBAL read_only=1)", len(ties), reach(best), strings.Join(ties, ", "))}
	}
	for i := range servers {
		if i == best || slices.Contains(g.Below(best, false), i) || reach(i) == 0 || reach(i) < reach(best) || len(g.Sources(i)) > 0 {
			continue
		}
		// A read-only one that was switched over from takes no writes any more.
		if servers[i].ReadOnly != Yes || !servers[i].Up() || successor(servers, g, i, cands) != best {
			return Choice{Reason: fmt.Sprintf("%s is writable, but %d servers replicate from %s, which cannot be the primary: %s",
				servers[best].Name, reach(i), servers[i].Name, disqualified(servers, g, i))}
		}
	}
	if why := behindSilent(servers, g, best); why != "" {
		return Choice{Reason: why}
	}
	if why := behindOthers(servers, g, best); why != "" {
		if i := whole(servers); i >= 0 {
			return Choice{Name: servers[i].Name, Reason: fmt.Sprintf("%s; %s, which is read-only, replicates from nobody and has all transactions: it must have been the primary", why, servers[i].Name)}
		}
		c := Choice{Reason: why}
		if n := len(g.Below(best, false)); n > 0 && n >= len(servers)/2 {
			c.Name = servers[best].Name // it was the primary, and has lost something
		}
		return c
	}
	return Choice{Name: servers[best].Name, Usable: true, Sole: sole(servers, g, best),
		Reason: fmt.Sprintf("%s is writable and %d of %d other servers replicate from it", servers[best].Name, reach(best), len(servers)-1)}
}

// missing is the server that does not answer and from which every one that does
// replicates, -1 for none: the primary, though it was never seen as such.
func missing(servers []Server, g Graph) int {
	found, replicas := -1, 0
	for i, s := range servers {
		if s.SameAs != "" || !s.Up() {
			continue
		}
		root := i
		for range servers {
			if src := g.Sources(root); len(src) == 1 && servers[root].Up() {
				root = src[0]
			}
		}
		if servers[root].Up() || s.ReadOnly != Yes || (found >= 0 && root != found) {
			return -1
		}
		found = root
		replicas++
	}
	if replicas == 0 || replicas < len(servers)/2 || servers[found].Promotion == MustNot {
		return -1
	}
	return found
}

// idle is the read-only server that must have been the primary, though nothing may
// write to it, -1 for none: one that replicates from nobody, and either half of all
// servers replicate from it, or every server answers and it has all transactions.
func idle(servers []Server, g Graph) int {
	var many, complete []int
	all := true
	for i, s := range servers {
		switch {
		case s.SameAs != "":
		case !s.Up() && !s.Evidence.Reachable():
			all = false
		case s.ReadOnly != Yes && len(g.Follows(i)) == 0:
			return -1
		case !s.Up(): // it answers, and is to be replaced
		case !rests(s):
		default:
			if n := len(g.Below(i, false)); n > 0 && n >= len(servers)/2 {
				many = append(many, i)
			}
			if !s.CurrentPos.IsEmpty() && Ahead(servers, i, true) == "" {
				complete = append(complete, i)
			}
		}
	}
	switch {
	case all && len(complete) == 1 && len(servers) > 1:
		return complete[0]
	case len(many) == 1:
		return many[0]
	case all && len(complete) > 1:
		// They have the same: it does not matter which.
		return slices.MinFunc(complete, byPreference(servers))
	}
	return -1
}

// whole is the read-only server that replicates from nobody and has all transactions
// of all servers, where every one of them answers; -1 for none, or several.
func whole(servers []Server) int {
	found := -1
	for i, s := range servers {
		if s.SameAs != "" {
			continue
		}
		if !s.Up() {
			return -1
		}
		if !rests(s) || s.CurrentPos.IsEmpty() || Ahead(servers, i, true) != "" {
			continue
		}
		if found >= 0 {
			return -1
		}
		found = i
	}
	return found
}

// rests reports whether a server is read-only, replicates from nobody, and may be the
// primary.
func rests(s Server) bool {
	return s.ReadOnly == Yes && len(s.Replication) == 0 && s.ReplicationKnown && !s.Maintenance && s.Promotion != MustNot
}

// byPreference compares servers by their promotion rule, then by their order.
func byPreference(servers []Server) func(a, b int) int {
	return func(a, b int) int {
		return cmp.Or(-compareBool(servers[a].Promotion == Prefer, servers[b].Promotion == Prefer), cmp.Compare(a, b))
	}
}

// behindSilent refuses a first choice if more of the servers that answer replicate
// from it only through one that does not answer than otherwise: what that one
// replicates from is what was seen last, and it may have been made the primary since.
func behindSilent(servers []Server, g Graph, best int) string {
	near, silent := 0, map[int][]string{}
	for i, s := range servers {
		if i == best || !s.Up() || s.SameAs != "" {
			continue
		}
		at := i
		for range servers {
			if src := g.Sources(at); len(src) == 1 && at != best && servers[at].Up() {
				at = src[0]
			}
		}
		switch {
		case at == best:
			near++
		case !servers[at].Up():
			silent[at] = append(silent[at], s.Name)
		}
	}
	for at := range servers {
		if names := silent[at]; len(names) > near {
			return fmt.Sprintf("%s is writable, but %s replicate from %s, which does not answer (%s) and may be the primary by now", servers[best].Name, strings.Join(names, ", "), servers[at].Name, servers[at].Why())
		}
	}
	return ""
}

// behindOthers refuses a first choice that nobody replicates from at the moment
// while another server has transactions that it lacks: an empty or outdated
// server that stands alone must not be taken for the primary.
func behindOthers(servers []Server, g Graph, best int) string {
	if len(g.Below(best, true)) > 0 {
		return ""
	}
	if ahead := Ahead(servers, best, true); ahead != "" {
		return fmt.Sprintf("%s is writable, but nothing replicates from it and %s: not taken for the primary", servers[best].Name, ahead)
	}
	return ""
}

// Ahead names a server that answers and has applied, logged or received a
// transaction that server i lacks, "" for none. Without local, what a server has
// written itself is left out: such a transaction is errant, not lost. The servers
// are not sampled at one instant: a busy primary can seem to be behind for one
// sample.
func Ahead(servers []Server, i int, local bool) string {
	s := servers[i]
	for j, other := range servers {
		if j == i || !other.Up() {
			continue
		}
		if id, more := other.more(s, local); more {
			return fmt.Sprintf("%s has transactions that it lacks (%s; it has %q)", other.Name, id, s.CurrentPos)
		}
	}
	return ""
}

// Overtaken names a server that answers and has every transaction of server i and
// more, "" for none. One that has gone another way, and lacks what server i has, does
// not count.
func Overtaken(servers []Server, i int) string {
	s := servers[i]
	for j, other := range servers {
		if j == i || !other.Up() {
			continue
		}
		if id, more := other.more(s, true); more && HasAll(servers, j, i) {
			return fmt.Sprintf("%s has all transactions of %s and more (%s)", other.Name, s.Name, id)
		}
	}
	return ""
}

// HasAll reports whether server i has every transaction that server j has logged,
// applied or received.
func HasAll(servers []Server, i, j int) bool {
	_, more := servers[j].more(servers[i], true)
	return !more
}

// more names a transaction that a server has logged, applied or received and that
// another lacks. Without local, what the server wrote itself is left out.
func (s Server) more(other Server, local bool) (gtid.GTID, bool) {
	positions := []gtid.Position{s.CurrentPos, s.BinlogPos}
	for _, r := range s.Replication {
		positions = append(positions, r.Received)
	}
	for _, p := range positions {
		for id := range p.All() {
			if (local || uint64(id.Server) != s.ServerID) && !other.has(id) {
				return id, true
			}
		}
	}
	return gtid.GTID{}, false
}

// has reports whether a server has a transaction, as far as its binary log state
// and its position tell. An equal number by another server is another transaction.
func (s Server) has(id gtid.GTID) bool {
	if s.BinlogState.Contains(id) {
		return true
	}
	cur, ok := s.CurrentPos.Get(id.Domain)
	if !ok || cur.Seq < id.Seq {
		return false
	}
	_, logged := s.BinlogState.Last(id.Domain)
	return cur.Server == id.Server || !logged
}

func sole(servers []Server, g Graph, i int) bool {
	below := g.Below(i, true)
	for j, s := range servers {
		if j != i && s.SameAs == "" && (!s.Up() || s.ReadOnly != Yes || !slices.Contains(below, j)) {
			return false
		}
	}
	return servers[i].Writable()
}

func excuses(servers []Server, g Graph) string {
	parts := make([]string, len(servers))
	for i, s := range servers {
		parts[i] = s.Name + " " + disqualified(servers, g, i)
	}
	return strings.Join(parts, "; ")
}
