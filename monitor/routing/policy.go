package routing

import (
	"math/bits"
	"math/rand/v2"
	"time"
)

// byPolicy returns the index of one server of a set that is not empty.
func (r *Router) byPolicy(st *state, set uint64, now time.Duration) int {
	count := bits.OnesCount64(set)
	if count == 1 {
		return bits.TrailingZeros64(set)
	}
	switch r.opts.Policy {
	case RoundRobin:
		for range count {
			i := nth(set, int(r.turn.Add(1)%uint64(count)))
			if ramp := st.nodes[i].ramp(now); ramp == fullRamp || rand.Uint64N(fullRamp) < ramp {
				return i
			}
		}
		return nth(set, int(r.turn.Add(1)%uint64(count)))
	case Weighted, Random:
		return r.draw(st, set, now)
	case LeastOutstanding:
	}
	return r.least(st, set, now)
}

// nth returns the index of the k-th server of a set.
func nth(set uint64, k int) int {
	for ; k > 0; k-- {
		set &= set - 1
	}
	return bits.TrailingZeros64(set)
}

// share is the part of the reads that a server should get.
func (r *Router) share(n *Node, now time.Duration) uint64 {
	w := uint64(max(n.weight, 1))
	if r.opts.Policy == Random {
		w = 1
	}
	return w * n.ramp(now)
}

func (r *Router) draw(st *state, set uint64, now time.Duration) int {
	var total uint64
	for m := set; m != 0; m &= m - 1 {
		total += r.share(st.nodes[bits.TrailingZeros64(m)], now)
	}
	at := rand.Uint64N(total)
	for m := set; ; m &= m - 1 {
		i := bits.TrailingZeros64(m)
		s := r.share(st.nodes[i], now)
		if at < s || m&(m-1) == 0 {
			return i
		}
		at -= s
	}
}

// least compares connections in use for the share of each server. Those that are
// equal take turns, or are drawn where their shares differ.
func (r *Router) least(st *state, set uint64, now time.Duration) int {
	var tied, bestOut, bestShare uint64
	same := true
	for m := set; m != 0; m &= m - 1 {
		i := bits.TrailingZeros64(m)
		out, share := uint64(max(st.nodes[i].out.Load(), 0)), r.share(st.nodes[i], now)
		switch left, right := out*bestShare, bestOut*share; {
		case tied == 0 || left < right:
			tied, bestOut, bestShare, same = 1<<i, out, share, true
		case left == right:
			tied |= 1 << i
			same = same && share == bestShare
		}
	}
	switch c := bits.OnesCount64(tied); {
	case c == 1:
		return bits.TrailingZeros64(tied)
	case same:
		return nth(tied, int(r.turn.Add(1)%uint64(c)))
	}
	return r.draw(st, tied, now)
}
