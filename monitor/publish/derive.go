package publish

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-ha/lockstep/election"
	"github.com/lockstep-ha/lockstep/monitor"
	"github.com/lockstep-ha/lockstep/monitor/operation"
	"github.com/lockstep-ha/lockstep/topology"
)

// Deriver finds the events between successive views of one monitor. Its zero value
// begins with a cluster of which nothing is known. It is for one goroutine.
type Deriver struct {
	begun bool
	last  monitor.View
	// primary is the server that was offered last.
	primary string
	// stopped are the servers that have replicated and do not.
	stopped map[string]bool
	ops     map[string]string // outcome by id
	seq     int
	run     string
}

// Next returns what has happened since the view before. Views before the first tick
// say nothing.
func (d *Deriver) Next(v monitor.View, ops []operation.Record) []Event {
	if !d.begun && v.Tick == 0 {
		return nil
	}
	if !d.begun {
		d.begun, d.ops, d.stopped = true, map[string]string{}, map[string]bool{}
		d.run = time.Now().UTC().Format("20060102T150405.000")
		d.last = monitor.View{Servers: v.Servers} // as found: no news
	}
	b := batch{d: d, v: v}
	b.monitor()
	b.operations(ops, true)
	b.offered()
	b.operations(ops, false)
	if v.Tick > 0 { // the view of a monitor that stops says nothing of servers
		b.servers()
		b.automatic()
		b.faults()
		d.last = v
	} else {
		d.last.Primary, d.last.Monitor = v.Primary, v.Monitor
	}
	return b.out
}

// batch collects the events of one view.
type batch struct {
	d   *Deriver
	v   monitor.View
	out []Event
}

func (b *batch) add(name string, set func(e *Event)) {
	b.d.seq++
	e := Event{
		ID:   fmt.Sprintf("%s-%s-%s-%d", b.v.Monitor.Name, b.v.Cluster, b.d.run, b.d.seq),
		Name: name, Cluster: b.v.Cluster, Time: time.Now().UTC(), Monitor: b.v.Monitor.Name, PrimaryMonitor: b.v.Monitor.Primary, Primary: b.v.Primary,
	}
	set(&e)
	e.ServerAddress, e.FromAddress, e.ToAddress = b.address(e.Server), b.address(e.From), b.address(e.To)
	b.out = append(b.out, e)
}

func (b *batch) address(name string) string {
	for _, s := range b.v.Servers {
		if s.Name == name && name != "" {
			return s.Address
		}
	}
	return ""
}

func (b *batch) reason(name, text string) { b.add(name, func(e *Event) { e.Reason = text }) }

func (b *batch) monitor() {
	was, is := b.d.last.Monitor, b.v.Monitor
	switch {
	case is.Primary && !was.Primary:
		b.reason(MajorityGained, is.Reason)
	case !is.Primary && was.Primary:
		b.reason(MajorityLost, is.Reason)
	}
	if is.Role == election.Primary && was.Role != election.Primary {
		b.reason(MonitorSettled, is.Reason)
	}
}

func (b *batch) offered() {
	d := b.d
	was, is := d.last.Primary, b.v.Primary
	change := func(name, from, to string) {
		b.add(name, func(e *Event) {
			e.From, e.To, e.Reason = from, to, b.v.Reason
			if e.Server = to; to == "" {
				e.Server = from
			}
		})
	}
	switch {
	case is == nil && was != nil:
		change(PrimaryLost, was.Name, "")
	case is != nil && d.primary != "" && d.primary != is.Name:
		change(PrimaryChanged, d.primary, is.Name)
	case is != nil && was == nil:
		change(PrimaryFound, "", is.Name)
	}
	if is != nil {
		d.primary = is.Name
	}
}

// operations compares the history: the beginnings first, then, after what has become
// of the primary, the ends.
func (b *batch) operations(ops []operation.Record, beginnings bool) {
	for _, r := range slices.Backward(ops) { // the oldest first
		name := strings.ReplaceAll(string(r.Kind), "-", "_")
		tell := func(suffix, reason string) {
			b.add(name+suffix, func(e *Event) {
				e.Operation, e.From, e.To, e.Server, e.Reason = r.ID, r.From, r.To, r.To, reason
				if suffix != "_started" {
					e.Outcome = r.Outcome
				}
			})
		}
		before, known := b.d.ops[r.ID]
		switch {
		case beginnings && !known:
			b.d.ops[r.ID] = operation.Running
			tell("_started", r.Reason)
		case !beginnings && before == operation.Running && r.Outcome != operation.Running:
			b.d.ops[r.ID] = r.Outcome
			if r.Outcome == operation.Done {
				tell("_done", r.Detail)
			} else {
				tell("_failed", r.Detail)
			}
		}
	}
	for id := range b.d.ops {
		if !slices.ContainsFunc(ops, func(r operation.Record) bool { return r.ID == id }) {
			delete(b.d.ops, id) // the history is bounded
		}
	}
}

func (b *batch) servers() {
	for _, s := range b.v.Servers {
		i := slices.IndexFunc(b.d.last.Servers, func(o monitor.ServerView) bool { return o.Name == s.Name })
		if i < 0 {
			continue
		}
		was := b.d.last.Servers[i]
		tell := func(name string, reason string) {
			b.add(name, func(e *Event) { e.Server, e.Reason = s.Name, reason })
		}
		label := func(l, on, off, reason string) {
			before, now := slices.Contains(was.State, l), slices.Contains(s.State, l)
			switch {
			case now && !before:
				tell(on, reason)
			case before && !now && off != "":
				tell(off, reason)
			}
		}
		label(topology.LabelDown, ServerDown, "", s.Detail)
		if slices.Contains(s.State, topology.LabelRunning) && slices.Contains(was.State, topology.LabelDown) {
			tell(ServerUp, "")
		}
		lag := ""
		if s.LagMS != nil {
			lag = fmt.Sprintf("%v behind", time.Duration(*s.LagMS)*time.Millisecond)
		}
		label(topology.LabelLagging, ReplicaLagging, ReplicaCaughtUp, lag)
		label(topology.LabelMaintenance, MaintenanceSet, MaintenanceCleared, "")
		label(topology.LabelDrained, DrainSet, DrainCleared, "")
		b.replication(s, was, tell)
	}
}

// replication tells when a server that answers stops to replicate, and when it
// replicates again.
func (b *batch) replication(s, was monitor.ServerView, tell func(name, reason string)) {
	has := func(v monitor.ServerView, l string) bool { return slices.Contains(v.State, l) }
	stopped := b.d.stopped
	switch {
	case has(s, topology.LabelReplica) && stopped[s.Name]:
		delete(stopped, s.Name)
		tell(ReplicationRuns, "")
	case has(s, topology.LabelPrimary):
		delete(stopped, s.Name)
	case has(was, topology.LabelReplica) && !has(s, topology.LabelReplica) && has(s, topology.LabelRunning):
		stopped[s.Name] = true
		why := "replication does not run"
		for _, r := range s.Replication {
			if text := r.SQLError + r.IOError; text != "" {
				why = text
			}
		}
		tell(ReplicationStopped, why)
	}
}

func (b *batch) automatic() {
	was, is := b.d.last.Operations, b.v.Operations
	flip := func(before, now bool, on, off, reason string) {
		switch {
		case now && !before:
			b.reason(on, reason)
		case before && !now:
			b.reason(off, "")
		}
	}
	flip(was.Failed, is.Failed, PrimaryFailed, PrimaryRecovered, is.Pending)
	flip(was.Paused != "", is.Paused != "", Paused, Resumed, is.Paused)
	flip(was.Blocked != "", is.Blocked != "", FailoverBlocked, FailoverUnblocked, is.Blocked)
}

func (b *batch) faults() {
	type key struct{ code, server string }
	find := func(list []monitor.FaultView, k key) bool {
		return slices.ContainsFunc(list, func(f monitor.FaultView) bool { return key{f.Code, f.Server} == k })
	}
	tell := func(name string, list, other []monitor.FaultView) {
		seen := map[key]bool{}
		for _, f := range list {
			k := key{f.Code, f.Server}
			if seen[k] || find(other, k) {
				continue
			}
			seen[k] = true
			b.add(name, func(e *Event) { e.Code, e.Server, e.Reason = f.Code, f.Server, f.Text })
		}
	}
	tell(FaultRaised, b.v.Faults, b.d.last.Faults)
	tell(FaultCleared, b.d.last.Faults, b.v.Faults)
}
