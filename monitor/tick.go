package monitor

import (
	"context"
	"time"

	"github.com/lockstep-ha/lockstep/election"
	"github.com/lockstep-ha/lockstep/locks"
	"github.com/lockstep-ha/lockstep/monitor/backend"
	"github.com/lockstep-ha/lockstep/topology"
)

// maxRounds bounds the recounts of one tick: attempt, release, recount.
const maxRounds = 4

// tick is one cycle: probe, elect, locks, topology, publish, view. It returns
// after what time the next should begin when an interval is too long; zero for
// an interval.
func (m *Monitor) tick(ctx context.Context, fleet Fleet) (again time.Duration) {
	began := m.clock.Now()
	m.adopt(fleet)
	servers, rows := fleet.Observe(ctx)
	m.forgetStale(m.clock.Now())
	m.settings(servers)
	m.lookAtDisks(ctx, fleet, servers)
	m.stalled(servers)
	m.outdated(servers)
	m.releaseDuplicates(ctx, fleet, servers, rows)
	rows = ownRows(servers, rows)
	if ctx.Err() != nil {
		return 0
	}
	now := m.clock.Now()
	rows, d := m.settleLocks(ctx, fleet, servers, rows)
	s := scene{now: m.clock.Now(), servers: servers, rows: rows, graph: topology.NewGraph(servers), timing: m.d.timing, d: d}
	s.noted, s.before = m.shared.primary, m.before
	m.before = servers
	s.old = m.absences.look(servers, rows, s.now, m.d.timing)
	o, mem := decideOffer(s, m.mem)
	s.rows, o = m.carryOut(ctx, fleet, s, o, m.mem)
	if o.name == "" {
		mem.offered = ""
	}
	m.mem = mem
	m.probeWrites(ctx, fleet, s)
	m.assess(s)
	m.fenceCommand(ctx, s)
	m.ticks++
	m.lastTick = m.clock.Now()
	v := m.build(s, o, began, now)
	m.publish(v)
	m.logChanges(v)
	m.ticked.Store(int64(m.clock.Now()))
	return soonest(soonest(d.Again, o.again), m.operate(ctx, fleet, s))
}

// forgetStale drops what a monitor that stood still for longer than a lease
// remembers: it owns nothing until it has looked again.
func (m *Monitor) forgetStale(now time.Duration) {
	if m.lastTick == 0 || now-m.lastTick < m.d.timing.Lease {
		return
	}
	m.log.Warn().Str("event", "stood_still").Dur("for", now-m.lastTick).Msg("the monitor stood still for longer than its leases; it starts from what it sees now")
	m.mem, m.before = memory{}, nil
	m.state = election.State{}
	m.holders, m.absences = holders{}, absences{}
}

// settleLocks runs the election and carries out its lock actions, counting again
// after each round.
func (m *Monitor) settleLocks(ctx context.Context, fleet Fleet, servers []topology.Server, rows []locks.Row) ([]locks.Row, election.Decision) {
	cfg := election.Config{Mode: m.d.cfg.Quorum, Timing: m.d.timing, Passive: m.d.cfg.Passive, QuickSettle: m.d.cfg.Policy.DeadPrimaryDelay}
	vacated := m.holders.look(servers, rows, m.d.timing)
	m.mu.Lock()
	refuse := m.refuseUntil
	m.mu.Unlock()
	var d election.Decision
	for range maxRounds {
		obs := election.Observation{Now: m.clock.Now(), RefuseUntil: refuse, Vacated: vacated}
		for i, s := range servers {
			obs.Servers = append(obs.Servers, election.Server{Name: s.Name, Votes: s.Votes, Row: rows[i]})
		}
		before := m.state.Role
		m.state, d = election.Step(cfg, m.state, obs, m.rng)
		if before != election.Secondary && d.Role == election.Secondary {
			// The view goes first: to release can take as long as a timeout.
			m.retract(d.Reason)
		}
		switch {
		case d.Release:
			fleet.Do(ctx, releases(servers))
		case len(d.Take) > 0 && d.FirstDecides:
			first := fleet.Do(ctx, takes(d.Take[:1]))
			if first[0].Result == backend.Done {
				fleet.Do(ctx, takes(d.Take[1:]))
			}
		case len(d.Take) > 0:
			fleet.Do(ctx, takes(d.Take))
		default:
			return rows, d
		}
		rows = ownRows(servers, fleet.Rows())
		if d.Release && d.Again == 0 {
			return rows, d
		}
	}
	return rows, d
}

// retract takes back what the view offers, at once.
func (m *Monitor) retract(reason string) {
	v := *m.view.Load()
	v.Primary, v.deadline, v.lease = nil, 0, 0
	v.Reason = "the majority was lost"
	v.Monitor.Primary, v.Monitor.Role, v.Monitor.Reason = false, election.Secondary, reason
	m.publish(&v)
}

func takes(names []string) []backend.Action {
	out := make([]backend.Action, len(names))
	for i, n := range names {
		out[i] = backend.Action{Server: n, Kind: backend.TakeServerLock}
	}
	return out
}

func releases(servers []topology.Server) []backend.Action {
	out := make([]backend.Action, len(servers))
	for i, s := range servers {
		out[i] = backend.Action{Server: s.Name, Kind: backend.ReleaseAll}
	}
	return out
}

// carryOut moves the primary lock: first release, then take. A server that is
// offered for the first time is offered only if its lock was got.
func (m *Monitor) carryOut(ctx context.Context, fleet Fleet, s scene, o offer, before memory) ([]locks.Row, offer) {
	if len(o.unpublish) == 0 && o.publish == "" {
		return s.rows, o
	}
	var actions []backend.Action
	for _, n := range o.unpublish {
		actions = append(actions, backend.Action{Server: n, Kind: backend.ReleasePrimaryLock})
	}
	for _, out := range fleet.Do(ctx, actions) {
		if out.Result != backend.Done {
			o.publish = "" // at most one server carries it
			if o.name != before.offered {
				o.name, o.reason, o.again = "", o.reason+"; the lock on another server could not be released", contestPause
			}
			m.log.Warn().Str("event", "release_failed").Str("server", out.Action.Server).AnErr("error", out.Err).Msg("the primary lock could not be released; nothing is published")
		}
	}
	if o.publish != "" {
		out := fleet.Do(ctx, []backend.Action{{Server: o.publish, Kind: backend.TakePrimaryLock}})[0]
		if out.Result != backend.Done && o.publish != before.offered {
			o.name, o.reason = "", o.reason+"; its primary lock could not be taken"
			o.again = contestPause
		}
	}
	return ownRows(s.servers, fleet.Rows()), o
}

// releaseDuplicates gives up what was taken through an entry before it turned
// out to be another entry's server.
func (m *Monitor) releaseDuplicates(ctx context.Context, fleet Fleet, servers []topology.Server, rows []locks.Row) {
	var actions []backend.Action
	for i, s := range servers {
		if s.SameAs != "" && (rows[i].ServerLock.State == locks.Self || rows[i].PrimaryLock.State == locks.Self) {
			actions = append(actions, backend.Action{Server: s.Name, Kind: backend.ReleaseAll})
		}
	}
	if len(actions) > 0 {
		fleet.Do(ctx, actions)
	}
}

// ownRows blanks the rows of servers that are listed twice: their locks are
// those of the entry that counts.
func ownRows(servers []topology.Server, rows []locks.Row) []locks.Row {
	for i, s := range servers {
		if s.SameAs != "" {
			rows[i] = locks.Row{Server: s.Name, SentAt: rows[i].SentAt, DoneAt: rows[i].DoneAt}
		}
	}
	return rows
}

// contestPause is how soon to look again after the primary lock was not got.
const contestPause = 20 * time.Millisecond

func soonest(a, b time.Duration) time.Duration {
	switch {
	case a == 0:
		return b
	case b == 0:
		return a
	}
	return min(a, b)
}
