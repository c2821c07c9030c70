package gtid

import (
	"cmp"
	"slices"
	"strconv"
)

// MaxNumber is the highest transaction number of MySQL, 2^63-2.
const MaxNumber = 1<<63 - 2

// Interval is a range of MySQL transaction numbers, both ends included, with
// 1 <= First <= Last <= [MaxNumber].
type Interval struct {
	First, Last uint64
}

// String returns the interval as MySQL writes it: "3" or "3-5".
func (i Interval) String() string { return string(i.appendTo(nil)) }

func (i Interval) appendTo(b []byte) []byte {
	b = strconv.AppendUint(b, i.First, 10)
	if i.Last != i.First {
		b = append(b, '-')
		b = strconv.AppendUint(b, i.Last, 10)
	}
	return b
}

// The functions below work on normal lists: ascending, with at least one number
// between any two intervals. They return normal lists, do not modify their
// arguments, and may return one of them.

func byFirst(a, b Interval) int { return cmp.Compare(a.First, b.First) }

// appendMerged appends an interval that begins at or after the last one of a
// normal list.
func appendMerged(list []Interval, next Interval) []Interval {
	if n := len(list); n > 0 && next.First <= list[n-1].Last+1 {
		list[n-1].Last = max(list[n-1].Last, next.Last)
		return list
	}
	return append(list, next)
}

func unionIntervals(a, b []Interval) []Interval {
	if len(a) == 0 {
		return b
	}
	if len(b) == 0 {
		return a
	}
	out := make([]Interval, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		if a[0].First <= b[0].First {
			out, a = appendMerged(out, a[0]), a[1:]
		} else {
			out, b = appendMerged(out, b[0]), b[1:]
		}
	}
	for _, i := range a {
		out = appendMerged(out, i)
	}
	for _, i := range b {
		out = appendMerged(out, i)
	}
	return out
}

func subtractIntervals(a, b []Interval) []Interval {
	if len(a) == 0 || len(b) == 0 {
		return a
	}
	var out []Interval
	for _, i := range a {
		for len(b) > 0 && b[0].Last < i.First {
			b = b[1:]
		}
		// b stays where it is: an interval of it may reach into the next of a.
		for k := 0; k < len(b) && b[k].First <= i.Last; k++ {
			if b[k].First > i.First {
				out = append(out, Interval{i.First, b[k].First - 1})
			}
			i.First = b[k].Last + 1
		}
		if i.First <= i.Last {
			out = append(out, i)
		}
	}
	return out
}

func intersectIntervals(a, b []Interval) []Interval {
	var out []Interval
	for len(a) > 0 && len(b) > 0 {
		first, last := max(a[0].First, b[0].First), min(a[0].Last, b[0].Last)
		if first <= last {
			out = append(out, Interval{first, last})
		}
		if a[0].Last < b[0].Last {
			a = a[1:]
		} else {
			b = b[1:]
		}
	}
	return out
}

func containsIntervals(a, b []Interval) bool {
	for _, i := range b {
		k, found := slices.BinarySearchFunc(a, i, byFirst)
		if !found {
			k--
		}
		if k < 0 || a[k].Last < i.Last {
			return false
		}
	}
	return true
}
