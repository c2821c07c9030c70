package gtid

import (
	"errors"
	"fmt"
	"strconv"
)

// ErrMalformed is in the chain of every error of the parsers and constructors
// of this package: the text is not what a server would send, so the observation
// it belongs to must not be used.
var ErrMalformed = errors.New("malformed GTID text")

// maxQuoted bounds, in bytes, how much of a malformed text an error repeats.
const maxQuoted = 200

// blank is the white space tolerated around elements.
const blank = " \t\n\v\f\r"

// malformed returns an error that wraps [ErrMalformed], names the text and says
// what is wrong with it.
func malformed(what, text, format string, args ...any) error {
	return fmt.Errorf("%w: %s %s: %s", ErrMalformed, what, quote(text), fmt.Sprintf(format, args...))
}

func quote(text string) string {
	if len(text) <= maxQuoted {
		return strconv.Quote(text)
	}
	return strconv.Quote(text[:maxQuoted]) + "..."
}

// Relation says how what one server has stands to what another has.
type Relation uint8

const (
	// Unknown is the zero value: nothing was compared.
	Unknown Relation = iota
	// Equal: both have the same.
	Equal
	// Behind: the first has a part of what the second has.
	Behind
	// Ahead: the first has all of what the second has, and more.
	Ahead
	// Diverged: each has something that the other lacks.
	Diverged
)

// String returns the lower-case name of the relation.
func (r Relation) String() string {
	switch r {
	case Equal:
		return "equal"
	case Behind:
		return "behind"
	case Ahead:
		return "ahead"
	case Diverged:
		return "diverged"
	default:
		return "unknown"
	}
}

// relationOf builds a relation from what each side has that the other lacks.
func relationOf(firstHasMore, secondHasMore bool) Relation {
	switch {
	case firstHasMore && secondHasMore:
		return Diverged
	case firstHasMore:
		return Ahead
	case secondHasMore:
		return Behind
	default:
		return Equal
	}
}

// Choice is the answer to which of several candidates is the most advanced.
type Choice struct {
	// OK is set if some candidate has all that any other one has. If it is not
	// set, no automatic choice is safe: whichever is taken, transactions of
	// another are lost.
	OK bool
	// Best holds indices of the candidates in ascending order. With OK set they
	// are those tied for the first place, for the caller to choose among by
	// other criteria. Otherwise they are those that no candidate is ahead of.
	Best []int
	// ByPreference is set if the candidates are incomparable as a whole and the
	// order holds within what the caller preferred only.
	ByPreference bool
}

// choose ranks n candidates by compare, a partial order given on indices. If
// that has no greatest element and preferred is not nil, it ranks by preferred.
func choose(n int, compare, preferred func(i, j int) Relation) Choice {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	best, ok := greatest(all, compare)
	if ok || preferred == nil || n == 0 {
		return Choice{OK: ok, Best: best}
	}
	narrowed, ok := greatest(all, preferred)
	if !ok {
		return Choice{Best: best}
	}
	if finer, ok := greatest(narrowed, compare); ok {
		narrowed = finer
	}
	return Choice{OK: true, Best: narrowed, ByPreference: true}
}

// greatest returns the candidates that are at or ahead of every other one, or
// else, with false, those that no other one is ahead of.
func greatest(candidates []int, compare func(i, j int) Relation) ([]int, bool) {
	var top, maximal []int
	for _, i := range candidates {
		atTop, beaten := true, false
		for _, j := range candidates {
			if i == j {
				continue
			}
			switch compare(i, j) {
			case Equal, Ahead:
			case Behind:
				atTop, beaten = false, true
			default:
				atTop = false
			}
		}
		if atTop {
			top = append(top, i)
		}
		if !beaten {
			maximal = append(maximal, i)
		}
	}
	if len(top) > 0 {
		return top, true
	}
	return maximal, false
}
