package monitor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockstep-ha/lockstep/election"
	"github.com/lockstep-ha/lockstep/locks"
	"github.com/lockstep-ha/lockstep/monitor/backend"
	"github.com/lockstep-ha/lockstep/monitor/operation"
)

var errMajorityLost = errors.New("the majority of the locks is not ours any more")

// hands is the fleet as an operation uses it, in one tick of a primary monitor.
type hands struct {
	m     *Monitor
	fleet Fleet
	s     scene
	// sessions are the connections on which the server locks were verified last.
	sessions map[string]uint64
	// until is the end of the lease that the last verification gave.
	until time.Duration
}

var _ operation.Servers = (*hands)(nil)

// Now implements operation.Servers.
func (h *hands) Now() time.Duration { return h.m.clock.Now() }

// Wall implements operation.Servers.
func (h *hands) Wall() time.Time { return time.Now().UTC() }

// Verify asks all servers that answered in this tick whether this monitor's
// connection holds the server lock, in one parallel round trip, and counts votes.
func (h *hands) Verify(ctx context.Context) error {
	if h.s.d.Tally.Mode == election.None {
		h.until = h.m.clock.Now() + h.m.timing.Lease
		return nil
	}
	var ask []backend.Action
	for i, s := range h.s.servers {
		if h.s.rows[i].Answered && s.SameAs == "" && h.s.rows[i].ServerLock.State == locks.Self {
			ask = append(ask, backend.Action{Server: s.Name, Kind: backend.Verify, Patience: h.m.timing.Timeout / 2})
		}
	}
	h.sessions = map[string]uint64{}
	held, first := 0, time.Duration(0)
	for _, o := range h.fleet.Do(ctx, ask) {
		if o.Result != backend.Done || o.Session != h.s.rows[indexOf(h.s.servers, o.Action.Server)].Session {
			continue // a new session begins a new tenure
		}
		h.sessions[o.Action.Server] = o.Session
		held += h.s.servers[indexOf(h.s.servers, o.Action.Server)].Votes
		if first == 0 || o.SentAt < first {
			first = o.SentAt
		}
	}
	if ctx.Err() != nil {
		return errors.New("the monitor is stopping")
	}
	if held < h.s.d.Tally.Needed {
		return fmt.Errorf("%w: %d of %d needed votes were confirmed", errMajorityLost, held, h.s.d.Tally.Needed)
	}
	h.until = first + h.m.timing.Lease
	h.m.prolong(h.until)
	return nil
}

// Execute makes calls, each that changes something only within the lease that
// was verified and on the connection on which it was.
func (h *hands) Execute(ctx context.Context, calls []operation.Call) []operation.Answer {
	out := make([]operation.Answer, len(calls))
	var actions []backend.Action
	var at []int
	for i, c := range calls {
		a := backend.Action{Server: c.Server, Kind: backend.Execute, SQL: c.SQL, Limit: min(c.Limit, h.m.timing.Timeout+c.Wait), Session: h.sessions[c.Server]}
		switch {
		case c.Reads:
			a.Kind = backend.Ask
		case h.m.clock.Now() >= h.until:
			out[i] = operation.Answer{Known: true, Err: fmt.Errorf("%w: the lease ended before the statement could be sent (%w)", errMajorityLost, operation.ErrNotSent)}
			continue
		case h.s.d.Tally.Mode == election.None:
			a.Kind = backend.Ask // there are no locks; nobody else acts
		case a.Session == 0:
			out[i] = operation.Answer{Known: true, Err: fmt.Errorf("server %s: %w (%w)", c.Server, backend.ErrNotHeld, operation.ErrNotSent)}
			continue
		}
		if c.Aside && !c.Reads {
			a.Kind, a.Limit = backend.Aside, c.Limit
		}
		a.Patience = cmp.Or(c.Patience, a.Limit)
		actions, at = append(actions, a), append(at, i)
	}
	if len(actions) == 0 {
		return out
	}
	for k, o := range h.fleet.Do(ctx, actions) {
		if errors.Is(o.Err, backend.ErrNotHeld) {
			o.Err = fmt.Errorf("%w (%w)", o.Err, operation.ErrNotSent)
		}
		out[at[k]] = operation.Answer{Known: o.Result != backend.ResultUnknown, Tables: o.Tables, Err: o.Err, Code: backend.Code(o.Err)}
	}
	return out
}

// prolong lets the role of this monitor be believed for longer: its locks have just
// been seen to be held by the same sessions. What the view says of the servers is
// as old as it was.
func (m *Monitor) prolong(until time.Duration) {
	old := m.view.Load()
	if v := *old; v.Monitor.Role != election.Secondary && v.lease < until {
		v.lease = until
		m.view.CompareAndSwap(old, &v) // somebody may have retracted it
	}
}

// sight is what operations know of the servers in this tick.
func (m *Monitor) sight(s scene) operation.Cluster {
	c := operation.Cluster{Now: s.now, Servers: s.servers, Graph: s.graph, Primary: indexOf(s.servers, m.mem.chosen), Had: m.ops.detector.Had()}
	for i, sv := range s.servers {
		if r := s.rows[i]; r.ServerLock.State == locks.Other && r.ServerLock.Holder.Former {
			c.Lingering = append(c.Lingering, sv.Name)
		}
		if m.ops.former[sv.Name] || sv.Name == m.shared.failover.From {
			c.Former = append(c.Former, sv.Name)
		}
	}
	return c
}

// primaryMonitor says where the primary monitor is, as far as locks tell.
func primaryMonitor(s scene) string {
	for i, r := range s.rows {
		if r.Published() {
			return fmt.Sprintf("the primary monitor is the one at %s (it holds the primary lock on %s)", r.PrimaryLock.Holder.Host, s.servers[i].Name)
		}
	}
	for i, r := range s.rows {
		if r.ServerLock.State == locks.Other && r.ServerLock.Holder.Host != "" {
			return fmt.Sprintf("the server lock on %s is held from %s", s.servers[i].Name, r.ServerLock.Holder.Host)
		}
	}
	return "no other monitor is seen to hold a lock"
}
