package monitor

import (
	"fmt"
	"slices"
	"time"

	"github.com/lockstep-ha/lockstep/election"
	"github.com/lockstep-ha/lockstep/locks"
	"github.com/lockstep-ha/lockstep/topology"
)

// blank is the view of a monitor that knows nothing, for one reason.
func (m *Monitor) blank(reason string) *View {
	v := &View{Cluster: m.d.cfg.Cluster, Operations: OperationsView{AutoFailover: m.d.cfg.Policy.AutoFailover, AutoRejoin: m.d.cfg.Policy.AutoRejoin, Joining: []string{}, Rejected: map[string]string{}}, Reason: reason, Monitor: m.self(), TakenAt: time.Now().UTC(), Faults: []FaultView{}, Notes: []string{}}
	v.Monitor.Reason = reason
	for _, s := range m.d.servers {
		v.Servers = append(v.Servers, ServerView{Name: s.Name, Address: s.Address, State: []string{}, Evidence: topology.NotAsked.String(),
			Votes: s.Votes, Promotion: string(s.Promotion), Site: s.Site, Replication: []ReplicationView{}})
	}
	return v
}

func (m *Monitor) self() MonitorView {
	t := m.d.timing
	return MonitorView{
		Name: m.d.cfg.Name, Version: m.d.cfg.Version, Passive: m.d.cfg.Passive,
		Majority: election.Tally{Mode: m.d.cfg.Quorum},
		Timing: TimingView{
			IntervalMS: t.Interval.Milliseconds(), TimeoutMS: t.Timeout.Milliseconds(), WaitTimeoutMS: t.WaitTimeout.Milliseconds(),
			NoticeMS: t.Notice.Milliseconds(), LeaseMS: t.Lease.Milliseconds(), SettleMS: t.Settle.Milliseconds(),
			Failcount: t.Failcount, SafeFailcount: t.SafeFailcount,
			FailoverAfterMS: t.FailoverAfter().Milliseconds(), FailoverWorstMS: t.FailoverWorst().Milliseconds(),
		},
	}
}

// build makes the view of a tick. took is the instant at which the answers were in.
func (m *Monitor) build(s scene, o offer, began, took time.Duration) *View {
	primary := indexOf(s.servers, o.name)
	now := m.clock.Now()
	v := &View{
		Cluster: m.d.cfg.Cluster, Reason: o.reason, Monitor: m.self(), Tick: m.ticks, TakenAt: time.Now().UTC(),
		TickMS: float64((now - began).Microseconds()) / 1000, Faults: []FaultView{}, Notes: []string{},
		deadline: o.deadline, lease: s.d.Lease,
	}
	v.Monitor.Role, v.Monitor.Reason, v.Monitor.Majority = s.d.Role, s.d.Reason, s.d.Tally
	v.Monitor.Primary = s.d.Role != election.Secondary
	v.Monitor.settledAt = s.d.SettledAt
	if primary >= 0 {
		sv := s.servers[primary]
		v.Primary = &Endpoint{Name: sv.Name, Address: sv.Address}
		m.lag.Note(sv.Name, sv.BinlogPos, sv.SentAt)
		v.Notes = append(v.Notes, guarantees(sv, m.d.cfg.Quorum)...)
	}
	faults := topology.ClusterFaults(s.servers, s.graph, primary)
	if len(m.running()) > 0 {
		for i := range faults {
			faults[i] = slices.DeleteFunc(faults[i], func(f topology.Fault) bool { return f.Code == topology.CodeNotReplicating })
		}
	}
	for i, sv := range s.servers {
		lag := topology.Lag{}
		if i != primary && len(sv.Replication) > 0 {
			lag = m.lag.Measure(sv, took)
		}
		v.Servers = append(v.Servers, m.serverView(s, i, primary, lag))
		for _, f := range append(sv.Faults, faults[i]...) {
			v.Faults = append(v.Faults, FaultView{Code: f.Code, Server: sv.Name, Text: f.Text, Remedy: f.Remedy})
		}
		v.addPeer(s.rows[i], sv.Name)
		v.Monitor.PrimaryLockHeld = v.Monitor.PrimaryLockHeld || s.rows[i].PrimaryLock.State == locks.Self
	}
	v.Faults = append(v.Faults, m.operationFaults()...)
	v.Operations = m.operationsView(s)
	if m.d.timing.Unsafe() {
		v.Notes = append(v.Notes, fmt.Sprintf("failcount %d is below the smallest safe one, %d (allow_unsafe_failcount is set)", m.d.timing.Failcount, m.d.timing.SafeFailcount))
	}
	return v
}

// addPeer reports a holder of the server lock that runs with other settings, or
// that is no Lockstep monitor.
func (v *View) addPeer(r locks.Row, server string) {
	if !r.ServerLock.Holder.Trusted {
		return
	}
	switch r.Peer {
	case locks.PeerDisagrees:
		v.Faults = append(v.Faults, FaultView{Code: "other_configuration", Server: server,
			Text:   fmt.Sprintf("server %s: the server lock is held by a Lockstep monitor with other settings (%s)", server, r.ServerLock.Holder),
			Remedy: "give all monitors of the cluster the same servers, votes, quorum, interval, timeout and failcount"})
	case locks.PeerNoLockstep:
		v.Notes = append(v.Notes, fmt.Sprintf("server %s: the server lock is held by a program other than Lockstep (%s)", server, r.ServerLock.Holder))
	case locks.PeerUnknown, locks.PeerAgrees:
	}
}

// guarantees says which setting of the primary lets an acknowledged write get
// lost, where the quorum mode could otherwise rule that out.
func guarantees(s topology.Server, mode election.Mode) []string {
	if mode != election.MajorityOfAll || !s.SemiSync.Known {
		return nil
	}
	if weak := s.SemiSync.Weakness(); weak != "" {
		return []string{"a failover can lose acknowledged writes: on " + s.Name + " " + weak}
	}
	return nil
}

func (m *Monitor) serverView(s scene, i, primary int, lag topology.Lag) ServerView {
	sv, r := s.servers[i], s.rows[i]
	v := ServerView{
		Name: sv.Name, Address: sv.Address, Evidence: sv.Evidence.String(), Detail: sv.Detail,
		State:    topology.Labels(s.servers, s.graph, i, primary, lag, m.d.cfg.LagLimit),
		LockHeld: held(r.ServerLock), LockOwner: owner(r.ServerLock, r.Peer),
		PrimaryLockHeld: held(r.PrimaryLock), PrimaryLockOwner: owner(r.PrimaryLock, locks.PeerUnknown),
		Votes: sv.Votes, Promotion: string(sv.Promotion), Site: sv.Site, Replication: []ReplicationView{},
		seenAt: sv.SeenAt, everSeen: sv.EverSeen,
	}
	if src := s.graph.Sources(i); len(src) > 0 {
		v.Source = s.servers[src[0]].Name
	}
	if !sv.EverSeen {
		return v
	}
	v.Flavor, v.Version, v.ServerID = sv.Flavor.String(), sv.Version.Text, sv.ServerID
	v.CurrentPos, v.BinlogPos = sv.CurrentPos.String(), sv.BinlogPos.String()
	if sv.Up() && sv.ReadOnly != topology.Unknown {
		ro := sv.ReadOnly == topology.Yes
		v.ReadOnly = &ro
	}
	if lag.Known {
		ms := lag.Behind.Milliseconds()
		v.LagMS, v.LagSource = &ms, lag.Source
	}
	for _, c := range sv.Replication {
		rv := ReplicationView{Name: c.Name, Source: c.Address(), SourceID: c.SourceServerID, IO: c.IO, SQL: c.SQL,
			Received: c.Received.String(), IOError: c.IOError, SQLError: c.SQLError}
		if c.SecondsBehind == topology.Yes {
			n := int64(min(c.Seconds, 1<<62))
			rv.SecondsBehind = &n
		}
		v.Replication = append(v.Replication, rv)
	}
	return v
}

func held(l locks.Lock) *bool {
	if l.State == locks.Unknown {
		return nil
	}
	h := l.State == locks.Self
	return &h
}

func owner(l locks.Lock, p locks.Peer) *OwnerView {
	if l.State != locks.Self && l.State != locks.Other {
		return nil
	}
	h := l.Holder
	o := &OwnerView{ConnectionID: h.ConnectionID, User: h.User, Host: h.Host, Self: l.State == locks.Self, Trusted: h.Trusted}
	switch {
	case o.Self:
		o.Kind = "this monitor"
	case p == locks.PeerAgrees:
		o.Kind = "lockstep"
	case p == locks.PeerDisagrees:
		o.Kind = "lockstep, other configuration"
	case p == locks.PeerNoLockstep:
		o.Kind = "other program"
	}
	return o
}

// operationsView says what the monitor does on its own.
func (m *Monitor) operationsView(s scene) OperationsView {
	p := m.d.cfg.Policy
	v := OperationsView{AutoFailover: p.AutoFailover, AutoRejoin: p.AutoRejoin, Joining: []string{}, Rejected: map[string]string{},
		Paused: m.shared.paused, Blocked: m.blocked(s.now), Failed: m.ops.verdict.Failed}
	if r := m.ops.current; r != nil {
		v.Running = &RunningView{ID: r.Record.ID, Kind: r.Plan.Kind, From: r.Plan.From, To: r.Plan.To}
		if n := len(r.Record.Steps); n > 0 {
			v.Running.Step = r.Record.Steps[n-1].Server + ": " + r.Record.Steps[n-1].Name
		}
	}
	for _, sv := range s.servers {
		if m.ops.joins[sv.Name] != nil {
			v.Joining = append(v.Joining, sv.Name)
		}
	}
	if v.Failed {
		v.Pending = m.ops.notYet
		if v.Pending == "" {
			v.Pending = m.ops.verdict.Reason
		}
	}
	primary := indexOf(s.servers, m.mem.chosen)
	if primary < 0 {
		v.Why = "no server is the primary"
		return v
	}
	ranking := topology.RankCandidates(s.servers, s.graph, primary)
	v.Next, v.Why = ranking.Best, ranking.Reason
	for _, c := range ranking.Candidates {
		if c.Rejected != "" {
			v.Rejected[c.Server] = c.Rejected
		}
	}
	return v
}
