package gtid

import (
	"cmp"
	"iter"
	"slices"
)

// State sums up the binlog history of a MariaDB server, as @@gtid_binlog_state
// does: for each pair of domain and server id the highest sequence number
// logged, and for each domain which of them was logged last. An entry stands for
// all lower sequence numbers of the same pair. The zero value is the state of a
// binlog in which nothing was ever logged.
type State struct {
	// entries are sorted by domain. Within a domain they are sorted by server
	// id, except that the one logged last comes last. Pairs of domain and server
	// are unique. Never modified; nil if empty.
	entries []GTID
}

// ParseState parses GTIDs separated by commas. The last one of a domain in the
// text is the one logged last; beyond that their order has no meaning. Empty text
// is the empty state, and white space around elements is tolerated. Everything
// else that a server would not send is an error that wraps [ErrMalformed]: an
// empty element, a missing or oversized part, a pair of domain and server id that
// comes twice.
func ParseState(text string) (State, error) {
	const what = "state"
	list, err := parseList(what, text)
	if err != nil {
		return State{}, err
	}
	return makeState(what, text, list)
}

// NewState returns the state that holds the given GTIDs, of which the last one of
// each domain was logged last. A pair of domain and server id that comes twice is
// an error that wraps [ErrMalformed].
func NewState(gtids ...GTID) (State, error) {
	return makeState("state", formatList(gtids), slices.Clone(gtids))
}

// makeState takes over list.
func makeState(what, text string, list []GTID) (State, error) {
	if len(list) == 0 {
		return State{}, nil
	}
	sorted := slices.SortedFunc(slices.Values(list), byDomainAndServer)
	for i := 1; i < len(sorted); i++ {
		if byDomainAndServer(sorted[i-1], sorted[i]) == 0 {
			return State{}, malformed(what, text, "server %d comes twice in domain %d, as %s and as %s",
				sorted[i].Server, sorted[i].Domain, sorted[i-1], sorted[i])
		}
	}
	slices.SortStableFunc(list, byDomain)
	for start := 0; start < len(list); {
		end := endOfDomain(list, start)
		slices.SortFunc(list[start:end-1], byDomainAndServer)
		start = end
	}
	return State{entries: list}, nil
}

func byDomainAndServer(a, b GTID) int {
	return cmp.Or(cmp.Compare(a.Domain, b.Domain), cmp.Compare(a.Server, b.Server))
}

// endOfDomain returns the index after the run of entries that have the domain of
// the entry at start.
func endOfDomain(entries []GTID, start int) int {
	end := start + 1
	for end < len(entries) && entries[end].Domain == entries[start].Domain {
		end++
	}
	return end
}

// domain returns the entries of a domain, the one logged last at the end.
func (s State) domain(domain uint32) []GTID {
	start, found := slices.BinarySearchFunc(s.entries, GTID{Domain: domain}, byDomain)
	if !found {
		return nil
	}
	return s.entries[start:endOfDomain(s.entries, start)]
}

// Get returns the highest GTID that a server has written in a domain, and whether
// there is one.
func (s State) Get(domain, server uint32) (GTID, bool) {
	for _, g := range s.domain(domain) {
		if g.Server == server {
			return g, true
		}
	}
	return GTID{}, false
}

// Last returns the GTID logged last in a domain, and whether there is one.
func (s State) Last(domain uint32) (GTID, bool) {
	entries := s.domain(domain)
	if len(entries) == 0 {
		return GTID{}, false
	}
	return entries[len(entries)-1], true
}

// Contains reports whether a GTID is in the history: the state has its domain and
// server with the same or a higher sequence number.
func (s State) Contains(g GTID) bool {
	own, found := s.Get(g.Domain, g.Server)
	return found && own.Seq >= g.Seq
}

// highest returns the entry of a domain with the highest sequence number, which
// is not the last one if the domain was written out of order.
func (s State) highest(domain uint32) (GTID, bool) {
	entries := s.domain(domain)
	if len(entries) == 0 {
		return GTID{}, false
	}
	return slices.MaxFunc(entries, func(a, b GTID) int { return cmp.Compare(a.Seq, b.Seq) }), true
}

// Position returns the position at the end of the history, the one that
// @@gtid_binlog_pos shows.
func (s State) Position() Position {
	var last []GTID
	for start := 0; start < len(s.entries); {
		end := endOfDomain(s.entries, start)
		last = append(last, s.entries[end-1])
		start = end
	}
	return Position{gtids: last}
}

// All yields the entries in the order of [State.String].
func (s State) All() iter.Seq[GTID] { return slices.Values(s.entries) }

// Domains returns the domains in ascending order.
func (s State) Domains() []uint32 { return s.Position().Domains() }

// IsEmpty reports whether nothing was ever logged.
func (s State) IsEmpty() bool { return len(s.entries) == 0 }

// Equal reports whether both states have the same entries and, in each domain,
// the same one logged last.
func (s State) Equal(t State) bool { return slices.Equal(s.entries, t.entries) }

// String returns the canonical text, which MariaDB accepts as a state: ordered by
// domain and in it by server id, except that the GTID logged last in a domain
// ends it.
func (s State) String() string { return formatList(s.entries) }

// Covers reports whether every GTID of a position is in the history that a state
// sums up.
func Covers(state State, pos Position) bool {
	for _, g := range pos.gtids {
		if !state.Contains(g) {
			return false
		}
	}
	return true
}

// CompareStates says how history a stands to history b, by the transactions in
// them. The order in which they were logged does not count, so that states which
// are [Equal] may end at different positions.
//
// The two states are never read at the same instant. If one of the servers may be
// written to in between, only one direction can be relied on: what the server
// that was read first has more of is really missing on the other.
func CompareStates(a, b State) Relation {
	return relationOf(hasMore(a, b), hasMore(b, a))
}

func hasMore(a, b State) bool {
	return slices.ContainsFunc(a.entries, func(g GTID) bool { return !b.Contains(g) })
}

// Errant returns the transactions that a replica has in its binlog and its primary
// does not, in ascending order of domain and server id: per pair of these the
// highest such GTID, which stands for itself and perhaps some before it.
//
// The replica's state must be read before the primary's. The other way round,
// what was replicated in between looks errant. It holds also for a replica with
// log_slave_updates off, whose binlog has only what it wrote itself.
func Errant(replica, primary State) []GTID {
	var errant []GTID
	for _, g := range replica.entries {
		if !primary.Contains(g) {
			errant = append(errant, g)
		}
	}
	slices.SortFunc(errant, byDomainAndServer)
	return errant
}
