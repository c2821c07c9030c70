package routing

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"time"
)

// choice is where a read goes.
type choice struct {
	// node is the replica; nil for the primary.
	node *Node
	why  pick
	// wait is set where the replica has to be waited for.
	wait bool
	fall fallback
	err  error
	// asked is true where the level itself asks for the primary.
	asked bool
}

// settle chooses a server and, where it has to be waited for, waits. It returns nil
// for the primary.
func (r *Router) settle(ctx context.Context, l Level, c call) (*Node, error) {
	rc, err := r.bindRead(ctx, l, c, true)
	switch {
	case err != nil:
		return nil, err
	case rc.node == nil:
		return nil, nil
	}
	if rc.conn != nil {
		rc.node.reads.give(rc.conn)
	}
	return rc.node, nil
}

// bound is the outcome of bindRead: a connection, or only a node.
type bound struct {
	node *Node
	conn *realConn
}

// tokenOf is what a read must see.
func tokenOf(l Level, c call) Token {
	if c.tracker == nil {
		return l.token
	}
	if t := c.tracker.Token(); !t.IsEmpty() {
		return l.token.Merge(t)
	}
	return l.token
}

// bindRead finds a server for a read. The node of the result is nil for the
// primary, to which no connection is made here. With lazy no connection is made to
// a replica either, unless one has to be waited for.
func (r *Router) bindRead(ctx context.Context, l Level, c call, lazy bool) (bound, error) {
	token := tokenOf(l, c)
	var excluded uint64
	var cause error
	for range maxServers {
		ch := r.choose(ctx, l, token, c.tracker, excluded)
		if ch.err != nil {
			return bound{}, ch.err
		}
		if ch.node == nil {
			if cause != nil && ch.fall == fallNoReplica {
				ch.fall = fallConnect
			}
			return bound{}, r.fallBack(l, ch, cause)
		}
		if lazy && !ch.wait {
			r.chosen(ch, c)
			return bound{node: ch.node}, nil
		}
		conn, err := ch.node.reads.borrow(ctx)
		if err == nil && ch.wait {
			var has bool
			if has, err = r.await(ctx, ch.node, conn, token, l); err == nil && !has {
				ch.node.reads.give(conn)
				return bound{}, r.fallBack(l, choice{fall: fallWaitEnded}, nil)
			} else if err != nil {
				ch.node.reads.discard(conn)
				r.stats.readErrors.Add(1)
			}
		}
		if err == nil {
			r.chosen(ch, c)
			return bound{ch.node, conn}, nil
		}
		if ctx.Err() != nil {
			return bound{}, err
		}
		ch.node.failed()
		cause = err
		excluded |= r.bit(ch.node)
	}
	return bound{}, r.fallBack(l, choice{fall: fallConnect}, cause)
}

// chosen notes the choice of a replica.
func (r *Router) chosen(ch choice, c call) {
	r.stats.picks[ch.why].Add(1)
	if r.opts.Sticky && c.tracker != nil {
		c.tracker.node.Store(ch.node)
	}
}

// await waits for a token, with a bound on how many do.
func (r *Router) await(ctx context.Context, n *Node, conn *realConn, t Token, l Level) (bool, error) {
	defer n.waits.Add(-1)
	if int(n.waits.Add(1)) > r.opts.MaxWaits {
		return false, nil
	}
	limit := r.opts.SessionWait
	if l.wait != 0 {
		limit = l.wait
	}
	return conn.waitFor(ctx, t, limit)
}

// fallBack counts a read that goes to the primary, or refuses it.
func (r *Router) fallBack(l Level, ch choice, cause error) error {
	if ch.asked {
		r.stats.picks[ch.why].Add(1)
		return nil
	}
	if r.opts.NoFallback {
		if cause != nil {
			return fmt.Errorf("%w: level %v: %s: %w", ErrNoReplica, l, fallbackNames[ch.fall], cause)
		}
		return fmt.Errorf("%w: level %v: %s", ErrNoReplica, l, fallbackNames[ch.fall])
	}
	r.stats.fallbacks[ch.fall].Add(1)
	r.stats.picks[pickFallback].Add(1)
	return nil
}

// bit is the position of a node in the current state, zero where it is in it no more.
func (r *Router) bit(n *Node) uint64 {
	if i := slices.Index(r.state.Load().nodes, n); i >= 0 {
		return 1 << i
	}
	return 0
}

// choose decides where a read goes, from what is known. It allocates nothing unless
// there are filters or a picker.
func (r *Router) choose(ctx context.Context, l Level, token Token, t *Tracker, excluded uint64) choice {
	if l.kind == kindStrong || r.opts.PrimaryOnly {
		return choice{asked: true, why: pickStrong}
	}
	if t != nil && t.Strong() {
		return choice{fall: fallLostToken}
	}
	st, now := r.state.Load(), Now()
	set, fall := st.eligible(l, now), fallNoReplica
	set &^= excluded
	if l.kind == kindEventual {
		fresh := st.fresh(set, now-l.maxAge)
		if set != 0 && fresh == 0 {
			fall = fallTooOld
		}
		set = fresh
	}
	why := [...]pick{kindStrong: pickStrong, kindSession: pickAny, kindEventual: pickEventual, kindAny: pickAny}[l.kind]
	wait := false
	if !token.IsEmpty() && set != 0 {
		why = pickSessionKnown
		if has := st.having(set, token); has != 0 {
			set = has
		} else if r.opts.SessionWait < 0 && l.wait <= 0 || l.wait < 0 {
			return choice{fall: fallWaitsFull}
		} else {
			why, wait = pickSessionWaited, true
			set, fall = st.waitable(set, r.opts.MaxWaits, now)
		}
	}
	if set == 0 {
		return choice{fall: fall}
	}
	if r.opts.ReadPrimary && !wait && st.primaryServes(set, now) {
		return choice{asked: true, why: pickShared}
	}
	if t != nil && r.opts.Sticky {
		if n := t.node.Load(); n != nil {
			if i := slices.Index(st.nodes, n); i >= 0 && set&(1<<i) != 0 {
				return choice{node: n, why: pickSticky, wait: wait}
			}
		}
	}
	n, err := r.pick(ctx, l, st, set, now)
	return choice{node: n, why: why, wait: wait, fall: fallNoReplica, err: err}
}

// primaryServes draws whether the primary, as one beside a set of replicas, serves
// a read.
func (s *state) primaryServes(set uint64, now time.Duration) bool {
	p, _ := s.writable(now)
	if p == nil {
		return false
	}
	total := p.weight
	for m := set; m != 0; m &= m - 1 {
		total += s.nodes[bits.TrailingZeros64(m)].weight
	}
	return total > 0 && rand.IntN(total) < p.weight
}

// eligible are the replicas that may serve reads at all.
func (s *state) eligible(l Level, now time.Duration) uint64 {
	set := s.readable
	for m := set; m != 0; m &= m - 1 {
		i := bits.TrailingZeros64(m)
		n := s.nodes[i]
		if n.circuitOpen(now) || i == s.primaryAt || (l.tag != "" && !n.HasTag(l.tag)) {
			set &^= 1 << i
		}
	}
	return set
}

// fresh are those of a set that have everything from before an instant.
func (s *state) fresh(set uint64, since time.Duration) uint64 {
	for m := set; m != 0; m &= m - 1 {
		i := bits.TrailingZeros64(m)
		if !s.servers[i].FreshKnown || s.servers[i].Fresh < since {
			set &^= 1 << i
		}
	}
	return set
}

// having are those of a set that are known to have what a token asks for.
func (s *state) having(set uint64, t Token) uint64 {
	for m := set; m != 0; m &= m - 1 {
		i := bits.TrailingZeros64(m)
		if !s.nodes[i].knows(t, s.servers[i].ServerID) {
			set &^= 1 << i
		}
	}
	return set
}

// waitable are those of a set on which another read may wait, and why there is none.
func (s *state) waitable(set uint64, most int, now time.Duration) (uint64, fallback) {
	why := fallWaitEnded
	for m := set; m != 0; m &= m - 1 {
		i := bits.TrailingZeros64(m)
		full := int(s.nodes[i].waits.Load()) >= most
		if full {
			why = fallWaitsFull
		}
		if full || int64(now) < s.nodes[i].behind.Load() {
			set &^= 1 << i
		}
	}
	return set, why
}

// pick takes one of a set that is not empty; nil where filters leave none.
func (r *Router) pick(ctx context.Context, l Level, st *state, set uint64, now time.Duration) (*Node, error) {
	if bits.OnesCount64(set) > 1 {
		set = r.prefer(st, set)
	}
	if len(r.opts.Filters) > 0 || r.opts.Picker != nil {
		return r.custom(ctx, l, st, set, now)
	}
	return st.nodes[r.byPolicy(st, set, now)], nil
}

// prefer leaves out standbys and servers of later sites where there are others.
func (r *Router) prefer(st *state, set uint64) uint64 {
	var active uint64
	for m := set; m != 0; m &= m - 1 {
		if i := bits.TrailingZeros64(m); st.nodes[i].weight > 0 {
			active |= 1 << i
		}
	}
	if active != 0 {
		set = active
	}
	for _, site := range r.opts.Sites {
		var here uint64
		for m := set; m != 0; m &= m - 1 {
			if i := bits.TrailingZeros64(m); st.nodes[i].site == site {
				here |= 1 << i
			}
		}
		if here != 0 {
			return here
		}
	}
	return set
}

// custom applies the caller's filters and picker.
func (r *Router) custom(ctx context.Context, l Level, st *state, set uint64, now time.Duration) (*Node, error) {
	buf, ok := r.scratch.Get().(*[]*Node)
	if !ok {
		buf = new([]*Node)
	}
	defer r.scratch.Put(buf)
	list := (*buf)[:0]
	for m := set; m != 0; m &= m - 1 {
		list = append(list, st.nodes[bits.TrailingZeros64(m)])
	}
	for _, f := range r.opts.Filters {
		if list = f(ctx, l, list); len(list) == 0 {
			return nil, nil
		}
	}
	if r.opts.Picker != nil {
		n := r.opts.Picker(ctx, l, list)
		if !slices.Contains(list, n) {
			return nil, errPicked
		}
		return n, nil
	}
	var left uint64
	for _, n := range list {
		if i := slices.Index(st.nodes, n); i >= 0 && set&(1<<i) != 0 {
			left |= 1 << i
		}
	}
	if left == 0 {
		return nil, errPicked
	}
	return st.nodes[r.byPolicy(st, left, now)], nil
}

var errPicked = errors.New("the picker or a filter chose a server that was not among those given to it")
