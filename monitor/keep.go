package monitor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-ha/lockstep/monitor/operation"
	"github.com/lockstep-ha/lockstep/topology"
	"github.com/lockstep-ha/lockstep/topology/gtid"
	"github.com/lockstep-ha/lockstep/topology/mariadb"
)

// fenceWait bounds how long SET GLOBAL read_only may wait on a server that is to
// be fenced.
const fenceWait = time.Second

// fences reports whether servers beside the primary are set read-only.
func (m *Monitor) fences() bool {
	return m.d.cfg.Policy.AutoRejoin || m.d.cfg.Policy.EnforceReadOnly
}

// fenceReturning has the servers that do not answer set read-only in the first
// round trip of their next connection, for as long as this monitor may act.
func (m *Monitor) fenceReturning(fleet Fleet, s scene, act bool) {
	f, ok := fleet.(interface {
		Fence(names []string, until time.Duration)
	})
	if !ok {
		return
	}
	var names []string
	if primary := indexOf(s.servers, m.mem.chosen); act && m.fences() && primary >= 0 && s.servers[primary].Writable() {
		for i, sv := range s.servers {
			if i != primary && !sv.Up() && sv.EverSeen && !sv.Maintenance && sv.SameAs == "" {
				names = append(names, sv.Name)
			}
		}
	}
	f.Fence(names, s.d.Lease)
}

// enforce sets read_only as the policy says: on every server beside the primary,
// and off on the primary.
func (m *Monitor) enforce(ctx context.Context, h *hands) {
	primary := indexOf(h.s.servers, m.mem.chosen)
	if primary < 0 || !h.s.servers[primary].Up() {
		return
	}
	p := h.s.servers[primary]
	if mv := m.shared.moving; mv.From != "" && !mv.Ended && m.ops.current == nil && p.Writable() {
		m.noteMove(operation.Plan{From: mv.From, To: mv.To}, true) // there is a primary: nothing is left to mend
	}
	for name := range m.ops.writable {
		if i := indexOf(h.s.servers, name); i < 0 || !h.s.servers[i].Writable() {
			delete(m.ops.writable, name)
		}
	}
	var calls []operation.Call
	if (m.d.cfg.Policy.EnforceWritable || m.d.cfg.Policy.FenceOnLostMajority || m.interrupted(p.Name)) && p.ReadOnly == topology.Yes && len(h.s.graph.Follows(primary)) == 0 && !m.anotherWritable(h.s, primary) && topology.Overtaken(h.s.servers, primary) == "" {
		calls = append(calls, operation.Call{Server: p.Name, SQL: mariadb.SetWritable(), Limit: m.timing.Timeout})
	}
	if link := m.leftover(h, primary); link != nil {
		calls = append(calls, operation.Call{Server: p.Name, SQL: mariadb.ForgetSource(link.Name), Limit: m.timing.Timeout})
	}
	if m.fences() {
		below := h.s.graph.Below(primary, false)
		for i, sv := range h.s.servers {
			if p.ReadOnly != topology.No && !slices.Contains(below, i) && !topology.HasAll(h.s.servers, primary, i) {
				continue // which of the two is to be the primary is for a person to say
			}
			if i == primary || !sv.Writable() || sv.Maintenance || sv.SameAs != "" || m.ops.joins[sv.Name] != nil || h.Now() < m.ops.fenceAt[sv.Name] {
				continue
			}
			calls = append(calls, operation.Call{Server: sv.Name, SQL: mariadb.SetReadOnly(fenceWait), Limit: fenceWait + m.timing.Timeout, Wait: fenceWait, Patience: m.timing.Interval / 4})
		}
	}
	m.enforceSemiSync(ctx, h, primary)
	if len(calls) == 0 {
		return
	}
	if err := h.Verify(ctx); err != nil {
		return
	}
	for i, a := range h.Execute(ctx, calls) {
		name, on := calls[i].Server, calls[i].Server == p.Name
		if strings.HasPrefix(calls[i].SQL, "RESET SLAVE") {
			m.ops.fenceAt[name] = h.Now() + m.timing.Settle
			m.log.Warn().Str("event", "leftover_removed").Str("server", name).AnErr("error", a.Err).Msg("a stopped replication connection to a replica of the primary was removed from it")
			continue
		}
		m.ops.fenceAt[name] = h.Now() + m.timing.Interval
		if a.Err == nil {
			delete(m.ops.writable, name)
			m.log.Warn().Str("event", "read_only_enforced").Str("server", name).Bool("writable", on).Msg("read_only was set as the policy says")
			continue
		}
		// Others wait behind a read_only that waits: the next try is far away.
		m.ops.fenceAt[name] = h.Now() + m.timing.Settle
		if !on {
			m.ops.writable[name] = fmt.Sprintf("%s could not be set read-only: %v%s", name, a.Err, m.waiting(ctx, h, name))
		}
		m.log.Warn().Str("event", "read_only_failed").Str("server", name).Bool("writable", on).AnErr("error", a.Err).Msg("read_only could not be set")
	}
}

// enforceSemiSync turns the primary side of semi-synchronous replication off on
// replicas: with it on, as my.cnf may have it after a restart, what a replica
// applies waits for an acknowledgement that nobody gives. On a read-only server
// that replicates from the primary no client's commit waits for one.
func (m *Monitor) enforceSemiSync(ctx context.Context, h *hands, primary int) {
	if !m.fences() || m.d.cfg.Policy.LeaveSemiSync {
		return
	}
	var calls []operation.Call
	for _, i := range h.s.graph.Below(primary, true) {
		sv := h.s.servers[i]
		if sv.Up() && sv.ReadOnly == topology.Yes && sv.SemiSync.PrimaryOn && !sv.Maintenance && m.ops.joins[sv.Name] == nil && len(h.s.graph.Below(i, true)) == 0 && h.Now() >= m.ops.fenceAt[sv.Name] {
			calls = append(calls, operation.Call{Server: sv.Name, SQL: mariadb.SemiSyncPrimaryOff, Limit: m.timing.Timeout, Patience: m.timing.Interval / 4})
		}
	}
	if len(calls) == 0 || h.Verify(ctx) != nil {
		return
	}
	for i, a := range h.Execute(ctx, calls) {
		m.ops.fenceAt[calls[i].Server] = h.Now() + m.timing.Settle
		m.log.Warn().Str("event", "semi_sync_enforced").Str("server", calls[i].Server).AnErr("error", a.Err).
			Msg("the primary side of semi-sync was turned off on a replica")
	}
}

// waiting says how many commits on a server wait for an acknowledgement: while
// they do, read_only cannot be set, and nothing else can be committed either.
func (m *Monitor) waiting(ctx context.Context, h *hands, name string) string {
	a := h.Execute(ctx, []operation.Call{{Server: name, SQL: mariadb.WaitingCommits, Limit: m.timing.Timeout, Reads: true}})[0]
	if a.Err != nil || len(a.Tables) == 0 {
		return ""
	}
	if n := a.Tables[0].Row(0).String("Value"); n != "" && n != "0" {
		return fmt.Sprintf("; %s commits wait there for a semi-sync acknowledgement that will not come, and while they do nothing else is committed; they are not ended, since that would commit them there alone", n)
	}
	return ""
}

// leftover is a stopped connection of the primary to a server that replicates from
// it, nil for none: a promotion that was cut short leaves it, and the primary would
// replicate in a ring when it is started anew.
func (m *Monitor) leftover(h *hands, primary int) *topology.Replication {
	p := h.s.servers[primary]
	if !m.d.cfg.Policy.AutoRejoin || !p.Writable() || m.ops.current != nil || h.Now() < m.ops.fenceAt[p.Name] {
		return nil
	}
	for _, i := range h.s.graph.Below(primary, true) {
		link := topology.LinkTo(h.s.servers, h.s.graph, i, primary)
		if link != nil && link.IO == "No" && link.SQL == "No" && gtid.Backlog(link.Received, p.SlavePos) == 0 {
			return link
		}
	}
	return nil
}

func (m *Monitor) anotherWritable(s scene, primary int) bool {
	for i, sv := range s.servers {
		if i != primary && sv.Writable() {
			return true
		}
	}
	return false
}

// rejoin starts what brings stray servers to the primary, where that is wanted.
func (m *Monitor) rejoin(ctx context.Context, h *hands) (again time.Duration) {
	if !m.d.cfg.Policy.AutoRejoin || m.shared.paused != "" {
		clear(m.ops.refused)
		return 0
	}
	c := m.sight(h.s)
	if c.Primary < 0 || !c.Servers[c.Primary].Writable() || (m.ops.current != nil && !m.ops.current.Ended()) {
		return 0
	}
	for i, sv := range c.Servers {
		reason, lasting := operation.Stray(c, i)
		if reason == "" {
			delete(m.ops.strayAt, sv.Name)
			if m.ops.joins[sv.Name] == nil {
				delete(m.ops.refused, sv.Name)
			}
			continue
		}
		if m.ops.strayAt[sv.Name] == 0 {
			m.ops.strayAt[sv.Name] = max(h.Now(), 1)
		}
		if lasting && h.Now()-m.ops.strayAt[sv.Name] < m.timing.Settle {
			continue
		}
		if m.ops.joins[sv.Name] != nil || h.Now() < m.ops.joinAt[sv.Name] {
			continue
		}
		r := operation.Request{Kind: operation.Rejoin, To: sv.Name, Automatic: true}
		plan, err := m.planRejoin(ctx, h, r)
		var refused *operation.RefusedError
		switch {
		case errors.As(err, &refused) && refused.Refusals[0].Code == "too_early":
			again = soonest(again, minGap)
		case errors.As(err, &refused):
			m.ops.refused[sv.Name] = refused.Refusals[0]
			m.ops.joinAt[sv.Name] = h.Now() + m.timing.Settle
		case err != nil:
			m.ops.joinAt[sv.Name] = h.Now() + m.timing.Settle
		default:
			m.ops.joins[sv.Name] = m.start(h, plan, r)
			again = minGap
		}
	}
	return again
}

// planRejoin plans with the server as the tick before saw it and the primary as
// this one did, so that nothing that the primary logged in between looks errant.
func (m *Monitor) planRejoin(ctx context.Context, h *hands, r operation.Request) (operation.Plan, error) {
	c := m.sight(h.s)
	i := c.Index(r.To)
	if i >= 0 && c.Primary >= 0 && i != c.Primary {
		if len(m.ops.before) == len(c.Servers) && m.ops.before[i].Up() && c.Servers[i].Up() {
			c.Servers = slices.Clone(c.Servers)
			c.Servers[i] = m.ops.before[i]
			c.Servers[i].Settings = h.s.servers[i].Settings
			c.Graph = topology.NewGraph(c.Servers)
		}
	}
	plan, err := operation.PlanRejoin(c, m.d.cfg.Policy, r, m.history(ctx, h, c))
	m.nameErrant(ctx, h, c, r.To, err)
	return plan, err
}

// history asks the primary for the start of its oldest binary log.
func (m *Monitor) history(ctx context.Context, h *hands, c operation.Cluster) operation.History {
	if c.Primary < 0 || !c.Servers[c.Primary].Up() {
		return operation.History{}
	}
	ask := func(sql string) (operation.Answer, bool) {
		a := h.Execute(ctx, []operation.Call{{Server: c.Servers[c.Primary].Name, SQL: sql, Limit: m.timing.Timeout, Reads: true}})[0]
		return a, a.Err == nil && len(a.Tables) > 0 && len(a.Tables[0].Rows) > 0
	}
	logs, ok := ask(mariadb.OldestBinlog)
	if !ok {
		return operation.History{}
	}
	file := logs.Tables[0].Row(0).String("Log_name")
	start, ok := ask(mariadb.BinlogStart(file))
	if !ok {
		return operation.History{}
	}
	pos, err := gtid.ParsePosition(start.Tables[0].Row(0).String("pos"))
	return operation.History{Oldest: pos, Known: err == nil}
}

// operationFaults are what operations could not or must not do, by server.
func (m *Monitor) operationFaults() []FaultView {
	var out []FaultView
	for _, s := range m.d.servers {
		if r, ok := m.ops.refused[s.Name]; ok {
			out = append(out, FaultView{Code: "not_joined", Server: s.Name, Text: r.Text, Remedy: r.Remedy})
		}
		if text, ok := m.ops.writable[s.Name]; ok {
			out = append(out, FaultView{Code: "not_read_only", Server: s.Name, Text: text, Remedy: "stop the server; it can be joined again when it has started anew"})
		}
	}
	out = append(out, m.writeProbeFault()...)
	out = append(out, m.diskFaults()...)
	if m.shared.problem != "" {
		out = append(out, FaultView{Code: "state_not_kept", Text: m.shared.problem,
			Remedy: fmt.Sprintf("grant the monitor BINLOG ADMIN and READ_ONLY ADMIN, and CREATE, SELECT, INSERT, UPDATE ON `%s`.*, or set state_schema = \"\"", m.d.cfg.Policy.StateSchema)})
	}
	return out
}
