package gtid

import (
	"math"
	"slices"
)

// Progress is how far a MariaDB replica has come.
type Progress struct {
	// Received is Gtid_IO_Pos: what is in the relay log.
	Received Position
	// Applied is @@gtid_current_pos, or @@gtid_slave_pos for what came by
	// replication only.
	Applied Position
}

// Have returns the position the replica can reach without its primary: in each
// domain the later one of received and applied.
func (p Progress) Have() Position {
	have := slices.Clone(p.Applied.gtids)
	for _, g := range p.Received.gtids {
		i, found := slices.BinarySearchFunc(have, g, byDomain)
		switch {
		case !found:
			have = slices.Insert(have, i, g)
		case g.Seq > have[i].Seq:
			have[i] = g
		}
	}
	return Position{gtids: have}
}

func (p Progress) restrict(domains []uint32) Progress {
	return Progress{Received: p.Received.Restrict(domains...), Applied: p.Applied.Restrict(domains...)}
}

// Backlog returns how many transactions a replica has received and not applied,
// counted in sequence numbers, which is more than the transactions where numbers
// were skipped. A domain in which applied is ahead counts 0 and one that applied
// lacks counts from its beginning. The same sequence number by two servers counts
// 1: what was received cannot be shown to be applied. A sum that does not fit is
// the largest uint64.
//
// Read applied before received, and the result is too high at worst. The other way
// round it misses what arrives in between, unless the IO thread is stopped.
func Backlog(received, applied Position) uint64 {
	var sum uint64
	for _, g := range received.gtids {
		n := g.Seq
		if h, found := applied.Get(g.Domain); found {
			switch {
			case g.Seq > h.Seq:
				n = g.Seq - h.Seq
			case g.Seq == h.Seq && g.Server != h.Server:
				n = 1
			default:
				n = 0
			}
		}
		if n > math.MaxUint64-sum {
			return math.MaxUint64
		}
		sum += n
	}
	return sum
}

// CompareProgress says how the progress of replica a stands to that of b. What
// they have decides, received or applied; if that is the same, what they have
// applied does. Both by [ComparePositions].
func CompareProgress(a, b Progress) Relation {
	if r := ComparePositions(a.Have(), b.Have()); r != Equal {
		return r
	}
	return ComparePositions(a.Applied, b.Applied)
}

// MostAdvanced says which MariaDB replica has the most, by [CompareProgress]. If
// no one has all that the others have, and domains are given, only those domains
// are compared: the domain of the primary is the natural choice. The one chosen
// has to apply what it has received before it is promoted.
func MostAdvanced(candidates []Progress, domains ...uint32) Choice {
	compare := func(i, j int) Relation { return CompareProgress(candidates[i], candidates[j]) }
	if len(domains) == 0 {
		return choose(len(candidates), compare, nil)
	}
	return choose(len(candidates), compare, func(i, j int) Relation {
		return CompareProgress(candidates[i].restrict(domains), candidates[j].restrict(domains))
	})
}
