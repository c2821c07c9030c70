package gtid

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// TSID is the source of MySQL transactions: the UUID of the server that first
// wrote them and, from MySQL 8.3 on, perhaps a tag. The same UUID with another
// tag, or with none, is another source with numbers of its own.
type TSID struct {
	UUID UUID
	// Tag is in lower case, and empty for transactions without a tag.
	Tag string
}

// String returns "uuid" or "uuid:tag".
func (t TSID) String() string {
	if t.Tag == "" {
		return t.UUID.String()
	}
	return t.UUID.String() + ":" + t.Tag
}

func compareTSID(a, b TSID) int {
	return cmp.Or(a.UUID.Compare(b.UUID), cmp.Compare(a.Tag, b.Tag))
}

// sourceSet is the transactions of one source.
type sourceSet struct {
	id        TSID
	intervals []Interval // normal and not empty
}

func bySource(a, b sourceSet) int { return compareTSID(a.id, b.id) }

// Set is a set of MySQL transactions. The zero value is the empty set.
type Set struct {
	sources []sourceSet // sorted by TSID, unique; never modified; nil if empty
}

// NewSet returns the set of transactions of one source with numbers in any of the
// intervals, which may be in any order and overlap. An interval that is not within
// 1 and [MaxNumber], or that is the wrong way round, and a malformed tag are
// errors that wrap [ErrMalformed].
func NewSet(id TSID, intervals ...Interval) (Set, error) {
	if id.Tag != "" {
		tag, reason := parseTag(id.Tag)
		if reason != "" {
			return Set{}, malformed("tag", id.Tag, "%s", reason)
		}
		id.Tag = tag
	}
	ranges := make([]sourceRange, len(intervals))
	for i, r := range intervals {
		if r.First < 1 || r.First > r.Last || r.Last > MaxNumber {
			return Set{}, malformed("interval", fmt.Sprintf("%d-%d", r.First, r.Last), "not within 1 and %d in ascending order", uint64(MaxNumber))
		}
		ranges[i] = sourceRange{id, r}
	}
	return makeSet(ranges), nil
}

// sourceRange is one interval of a source, as it comes from a text.
type sourceRange struct {
	id TSID
	Interval
}

// makeSet takes over ranges, which may come in any order and overlap.
func makeSet(ranges []sourceRange) Set {
	order := func(a, b sourceRange) int {
		return cmp.Or(compareTSID(a.id, b.id), byFirst(a.Interval, b.Interval))
	}
	if !slices.IsSortedFunc(ranges, order) {
		slices.SortFunc(ranges, order)
	}
	var s Set
	for start := 0; start < len(ranges); {
		end := start + 1
		for end < len(ranges) && ranges[end].id == ranges[start].id {
			end++
		}
		intervals := make([]Interval, 0, end-start)
		for _, r := range ranges[start:end] {
			intervals = appendMerged(intervals, r.Interval)
		}
		s.sources = append(s.sources, sourceSet{ranges[start].id, intervals})
		start = end
	}
	return s
}

// Sources returns the sources of the set in ascending order, the one without a tag
// before those with one.
func (s Set) Sources() []TSID {
	ids := make([]TSID, len(s.sources))
	for i, source := range s.sources {
		ids[i] = source.id
	}
	return ids
}

// Intervals returns the transaction numbers of one source, in ascending order and
// merged as far as they can be.
func (s Set) Intervals(id TSID) []Interval {
	return slices.Clone(s.intervals(id))
}

func (s Set) intervals(id TSID) []Interval {
	i, found := slices.BinarySearchFunc(s.sources, sourceSet{id: id}, bySource)
	if !found {
		return nil
	}
	return s.sources[i].intervals
}

// ForUUID returns the part of the set that was first written by the given servers,
// with any tag and with none.
func (s Set) ForUUID(uuids ...UUID) Set {
	var out Set
	for _, source := range s.sources {
		if slices.Contains(uuids, source.id.UUID) {
			out.sources = append(out.sources, source)
		}
	}
	return out
}

// Union returns the transactions that are in s, in t, or in both.
func (s Set) Union(t Set) Set { return combine(s, t, unionIntervals) }

// Subtract returns the transactions that are in s and not in t, as GTID_SUBTRACT()
// of MySQL does.
func (s Set) Subtract(t Set) Set { return combine(s, t, subtractIntervals) }

// Intersect returns the transactions that are both in s and in t.
func (s Set) Intersect(t Set) Set { return combine(s, t, intersectIntervals) }

// combine applies an operation source by source, with an empty list for a source
// that one of the sets lacks.
func combine(s, t Set, operation func(a, b []Interval) []Interval) Set {
	a, b := s.sources, t.sources
	var out Set
	for len(a) > 0 || len(b) > 0 {
		var next sourceSet
		switch order := compareHeads(a, b); {
		case order < 0:
			next, a = sourceSet{a[0].id, operation(a[0].intervals, nil)}, a[1:]
		case order > 0:
			next, b = sourceSet{b[0].id, operation(nil, b[0].intervals)}, b[1:]
		default:
			next = sourceSet{a[0].id, operation(a[0].intervals, b[0].intervals)}
			a, b = a[1:], b[1:]
		}
		if len(next.intervals) > 0 {
			out.sources = append(out.sources, next)
		}
	}
	return out
}

// compareHeads orders the first elements of two lists, of which one may have ended.
func compareHeads(a, b []sourceSet) int {
	switch {
	case len(b) == 0:
		return -1
	case len(a) == 0:
		return 1
	default:
		return bySource(a[0], b[0])
	}
}

// Contains reports whether every transaction of t is in s, as GTID_SUBSET(t, s) of
// MySQL does.
func (s Set) Contains(t Set) bool {
	for _, source := range t.sources {
		if !containsIntervals(s.intervals(source.id), source.intervals) {
			return false
		}
	}
	return true
}

// Equal reports whether both sets have the same transactions.
func (s Set) Equal(t Set) bool {
	return slices.EqualFunc(s.sources, t.sources, func(a, b sourceSet) bool {
		return a.id == b.id && slices.Equal(a.intervals, b.intervals)
	})
}

// IsEmpty reports whether the set has no transaction.
func (s Set) IsEmpty() bool { return len(s.sources) == 0 }

// Count returns the number of transactions in the set, or the largest uint64 if it
// does not fit. It is for people: a replica that counts more need not have more of
// what matters.
func (s Set) Count() uint64 {
	var sum uint64
	for _, source := range s.sources {
		for _, i := range source.intervals {
			n := i.Last - i.First + 1
			if n > math.MaxUint64-sum {
				return math.MaxUint64
			}
			sum += n
		}
	}
	return sum
}

// String returns the canonical text in the format of MySQL, on one line: sources
// in ascending order, each UUID once, its intervals without a tag first and each
// tag before its own, as in "uuid:1-5:7:tag:1-3,uuid:1".
func (s Set) String() string {
	var b strings.Builder
	var number []byte
	for i, source := range s.sources {
		if i == 0 || s.sources[i-1].id.UUID != source.id.UUID {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(source.id.UUID.String())
		}
		if source.id.Tag != "" {
			b.WriteByte(':')
			b.WriteString(source.id.Tag)
		}
		for _, interval := range source.intervals {
			b.WriteByte(':')
			number = interval.appendTo(number[:0])
			b.Write(number)
		}
	}
	return b.String()
}

// CompareSets says how set a stands to set b: whether one contains the other.
func CompareSets(a, b Set) Relation {
	return relationOf(!b.Contains(a), !a.Contains(b))
}
