package routing

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/lockstep-ha/lockstep/topology/gtid"
)

// apply takes over a new view.
func (r *Router) apply(v View) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed.Load() {
		return
	}
	old := r.state.Load()
	now := Now()
	r.viewed.Store(int64(now))
	next := &state{primaryAt: -1, reason: v.Reason, last: old.last}
	slices.SortFunc(v.Servers, func(a, b Server) int { return cmp.Compare(a.Name, b.Name) })
	kept := map[string]*Node{}
	for _, s := range v.Servers {
		if kept[s.Name] != nil || len(next.nodes) == maxServers {
			continue // a view with one server twice, or more than can be chosen from
		}
		key := s.Address + "|" + s.Site
		n := r.nodes[s.Name]
		if n == nil || n.key != key {
			made, err := r.newNode(s, key)
			if err != nil {
				next.reason = err.Error()
				continue
			}
			n = made
		}
		kept[s.Name] = n
		r.note(n, s, old, next, now)
	}
	if v.Primary != "" && next.primaryAt < 0 && next.reason == v.Reason {
		next.reason = fmt.Sprintf("the view names %s as the primary, but does not list it", v.Primary)
	}
	if i := slices.IndexFunc(next.servers, func(s Server) bool { return s.Name == v.Primary }); v.Primary != "" && i >= 0 && now < v.Until {
		next.primaryAt, next.until, next.last = i, v.Until, next.nodes[i]
	}
	gone := r.nodes
	r.nodes = kept
	r.swap(old, next, now)
	r.firstOnce.Do(func() { close(r.first) })
	for name, n := range gone {
		if kept[name] != n {
			n.close()
		}
	}
	for _, n := range next.nodes {
		n.reads.prune()
		n.writes.prune()
	}
}

// note puts a server into the next state.
func (r *Router) note(n *Node, s Server, old, next *state, now time.Duration) {
	i := len(next.nodes)
	next.nodes, next.servers = append(next.nodes, n), append(next.servers, s)
	was := slices.Index(old.nodes, n)
	if s.Readable {
		next.readable |= 1 << i
		if was >= 0 && old.readable&(1<<was) == 0 {
			n.backAt.Store(int64(now))
		}
	}
	if s.Position.IsEmpty() {
		if !s.Readable {
			n.known.Store(nil)
		}
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if p := n.known.Load(); s.Readable && p != nil && was >= 0 && old.readable&(1<<was) != 0 {
		merged := later(*p, s.Position)
		n.known.Store(&merged)
		return
	}
	n.known.Store(positionOf(s))
}

func positionOf(s Server) *gtid.Position {
	p := s.Position
	return &p
}

// swap makes next the state, and ends the connections to a primary that is none
// any more. r.mu is held.
func (r *Router) swap(old, next *state, now time.Duration) {
	r.state.Store(next)
	r.expiry.Stop()
	if next.primaryAt >= 0 {
		r.expiry.Reset(next.until - now)
	}
	if old.last != nil && next.last != old.last {
		old.last.writes.revoke(r.opts.HardCut)
		r.stats.changes.Add(1)
	}
	before, after := nameAt(old), nameAt(next)
	if before != after && next.primaryAt >= 0 {
		next.last.suspect.Store(false)
	}
	r.moved.signal()
	if before != after && r.opts.OnChange != nil {
		select {
		case r.changes <- struct{}{}:
		default: // it is told of the newest anyway
		}
	}
}

func nameAt(s *state) change {
	if s.primaryAt < 0 {
		return change{reason: s.reason}
	}
	n := s.nodes[s.primaryAt]
	return change{name: n.name, address: n.address}
}

// report calls OnChange.
func (r *Router) report(ctx context.Context) {
	var last change
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.changes:
		}
		if now := nameAt(r.state.Load()); now != last {
			last = now
			r.opts.OnChange(now.name, now.address, now.reason)
		}
	}
}

// expire takes the primary away when the view has run out.
func (r *Router) expire() {
	r.mu.Lock()
	defer r.mu.Unlock()
	old, now := r.state.Load(), Now()
	if r.closed.Load() || old.primaryAt < 0 {
		return
	}
	if now < old.until {
		r.expiry.Reset(old.until - now)
		return
	}
	next := *old
	next.primaryAt, next.reason = -1, expiredReason
	r.stats.expired.Add(1)
	r.swap(old, &next, now)
}
