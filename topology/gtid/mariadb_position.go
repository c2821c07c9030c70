package gtid

import (
	"cmp"
	"iter"
	"slices"
	"strconv"
	"strings"
)

// GTID names one MariaDB transaction (event group).
type GTID struct {
	// Domain is the replication domain, gtid_domain_id of the connection that wrote it.
	Domain uint32
	// Server is server_id of the server that first wrote the transaction.
	Server uint32
	// Seq is the sequence number within the domain.
	Seq uint64
}

// ParseGTID parses one GTID, "domain-server-sequence" in decimal. White space
// around it is tolerated. An error wraps [ErrMalformed].
func ParseGTID(text string) (GTID, error) {
	g, reason := parseGTID(strings.Trim(text, blank))
	if reason != "" {
		return GTID{}, malformed("GTID", text, "%s", reason)
	}
	return g, nil
}

// String returns the GTID as MariaDB writes it, "domain-server-sequence".
func (g GTID) String() string { return string(g.appendTo(nil)) }

func (g GTID) appendTo(b []byte) []byte {
	b = strconv.AppendUint(b, uint64(g.Domain), 10)
	b = append(b, '-')
	b = strconv.AppendUint(b, uint64(g.Server), 10)
	b = append(b, '-')
	return strconv.AppendUint(b, g.Seq, 10)
}

// parseGTID parses a trimmed element. It returns a reason if it cannot.
func parseGTID(text string) (g GTID, reason string) {
	domain, rest, found := strings.Cut(text, "-")
	server, seq, more := strings.Cut(rest, "-")
	if !found || !more {
		return GTID{}, "not of the form domain-server-sequence"
	}
	d, reason := parseNumber("domain", domain, 32)
	if reason != "" {
		return GTID{}, reason
	}
	s, reason := parseNumber("server id", server, 32)
	if reason != "" {
		return GTID{}, reason
	}
	n, reason := parseNumber("sequence number", seq, 64)
	if reason != "" {
		return GTID{}, reason
	}
	return GTID{Domain: uint32(d), Server: uint32(s), Seq: n}, ""
}

func parseNumber(what, text string, bits int) (n uint64, reason string) {
	if text == "" {
		return 0, what + " is missing"
	}
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return 0, what + " " + quote(text) + " is not a decimal number"
		}
	}
	n, err := strconv.ParseUint(text, 10, bits)
	if err != nil {
		return 0, what + " " + quote(text) + " does not fit in " + strconv.Itoa(bits) + " bits"
	}
	return n, ""
}

// parseList parses GTIDs separated by commas. Empty text is an empty list; an
// empty element is an error.
func parseList(what, text string) ([]GTID, error) {
	if strings.Trim(text, blank) == "" {
		return nil, nil
	}
	list := make([]GTID, 0, 1+strings.Count(text, ","))
	for element := range strings.SplitSeq(text, ",") {
		element = strings.Trim(element, blank)
		if element == "" {
			return nil, malformed(what, text, "element %d is empty", len(list)+1)
		}
		g, reason := parseGTID(element)
		if reason != "" {
			return nil, malformed(what, text, "element %d %s: %s", len(list)+1, quote(element), reason)
		}
		list = append(list, g)
	}
	return list, nil
}

func formatList(list []GTID) string {
	b := make([]byte, 0, 16*len(list))
	for i, g := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = g.appendTo(b)
	}
	return string(b)
}

// Position is a place in the streams of a MariaDB server: at most one GTID per
// domain. It is the shape of @@gtid_binlog_pos, @@gtid_slave_pos,
// @@gtid_current_pos, Gtid_IO_Pos and BINLOG_GTID_POS(). The zero value is the
// empty position, before the first transaction of every domain.
type Position struct {
	gtids []GTID // sorted by domain, unique; never modified; nil if empty
}

// ParsePosition parses GTIDs separated by commas. Empty text is the empty
// position, and white space around elements is tolerated. Everything else that a
// server would not send is an error that wraps [ErrMalformed]: an empty element,
// a missing or oversized part, a domain that comes twice.
func ParsePosition(text string) (Position, error) {
	const what = "position"
	list, err := parseList(what, text)
	if err != nil {
		return Position{}, err
	}
	return makePosition(what, text, list)
}

// NewPosition returns the position that holds the given GTIDs. A domain that
// comes twice is an error that wraps [ErrMalformed].
func NewPosition(gtids ...GTID) (Position, error) {
	return makePosition("position", formatList(gtids), slices.Clone(gtids))
}

// makePosition takes over list.
func makePosition(what, text string, list []GTID) (Position, error) {
	if len(list) == 0 {
		return Position{}, nil
	}
	slices.SortStableFunc(list, byDomain)
	for i := 1; i < len(list); i++ {
		if list[i].Domain == list[i-1].Domain {
			return Position{}, malformed(what, text, "domain %d comes twice, as %s and as %s",
				list[i].Domain, list[i-1], list[i])
		}
	}
	return Position{gtids: list}, nil
}

func byDomain(a, b GTID) int { return cmp.Compare(a.Domain, b.Domain) }

// Get returns the GTID in a domain, and whether there is one.
func (p Position) Get(domain uint32) (GTID, bool) {
	i, found := slices.BinarySearchFunc(p.gtids, GTID{Domain: domain}, byDomain)
	if !found {
		return GTID{}, false
	}
	return p.gtids[i], true
}

// has reports whether g is exactly the position's GTID in its domain.
func (p Position) has(g GTID) bool {
	own, found := p.Get(g.Domain)
	return found && own == g
}

// All yields the GTIDs in ascending order of domain.
func (p Position) All() iter.Seq[GTID] { return slices.Values(p.gtids) }

// Domains returns the domains in ascending order.
func (p Position) Domains() []uint32 {
	domains := make([]uint32, len(p.gtids))
	for i, g := range p.gtids {
		domains[i] = g.Domain
	}
	return domains
}

// Restrict returns the part of the position in the given domains.
func (p Position) Restrict(domains ...uint32) Position {
	var kept []GTID
	for _, g := range p.gtids {
		if slices.Contains(domains, g.Domain) {
			kept = append(kept, g)
		}
	}
	return Position{gtids: kept}
}

// Within returns the GTIDs that a state contains.
func (p Position) Within(s State) Position {
	return Position{gtids: slices.DeleteFunc(slices.Clone(p.gtids), func(g GTID) bool { return !s.Contains(g) })}
}

// Without returns the GTIDs that a state does not contain.
func (p Position) Without(s State) Position {
	return Position{gtids: slices.DeleteFunc(slices.Clone(p.gtids), s.Contains)}
}

// IsEmpty reports whether the position has no GTID.
func (p Position) IsEmpty() bool { return len(p.gtids) == 0 }

// Equal reports whether both positions have the same GTIDs.
func (p Position) Equal(q Position) bool { return slices.Equal(p.gtids, q.gtids) }

// String returns the canonical text, ordered by domain, which MariaDB accepts as
// a position.
func (p Position) String() string { return formatList(p.gtids) }

// ComparePositions says how position a stands to position b. A domain that one
// side lacks counts as its beginning there, and domains that disagree make the
// positions [Diverged].
//
// Within a domain the sequence numbers decide, except that the same number by two
// servers is a divergence. That is as much as positions can tell: a higher number
// by another server may be a divergence too. Where the states of both servers
// are at hand, [CompareStates], [CanReplicate] and [Divergent] know.
func ComparePositions(a, b Position) Relation {
	var aMore, bMore bool
	for _, g := range a.gtids {
		h, found := b.Get(g.Domain)
		switch {
		case !found || g.Seq > h.Seq:
			aMore = true
		case g.Seq < h.Seq:
			bMore = true
		case g.Server != h.Server:
			aMore, bMore = true, true
		}
	}
	for _, h := range b.gtids {
		if _, found := a.Get(h.Domain); !found {
			bMore = true
		}
	}
	return relationOf(aMore, bMore)
}
