package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockstep-ha/lockstep/election"
	"github.com/lockstep-ha/lockstep/monitor"
)

// monitorAnswer is the JSON form of show monitor: the monitor of the view, the
// cluster and the locks.
type monitorAnswer struct {
	Cluster string `json:"cluster"`
	monitor.MonitorView
	// Operation moves the primary, Joining are being joined to it.
	Operation *monitor.RunningView `json:"operation"`
	Joining   []string             `json:"joining"`
	Servers   []lockLine           `json:"servers"`
}

// lockLine are the locks of one server.
type lockLine struct {
	Name             string             `json:"name"`
	LockHeld         *bool              `json:"lock_held"`
	LockOwner        *monitor.OwnerView `json:"lock_owner"`
	PrimaryLockHeld  *bool              `json:"primary_lock_held"`
	PrimaryLockOwner *monitor.OwnerView `json:"primary_lock_owner"`
}

func showMonitorCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "monitor [CLUSTER]", Short: "Show the monitor, its majority, timing and locks", Args: argsBetween(0, 1),
		ValidArgsFunction: a.completeClusters,
		RunE: a.runE(func(ctx context.Context, args []string) (answer, error) {
			v, err := a.pick(ctx, clusterArg(args))
			if err != nil {
				return answer{}, err
			}
			m := monitorAnswer{Cluster: v.Cluster, MonitorView: v.Monitor, Operation: v.Operations.Running,
				Joining: append([]string{}, v.Operations.Joining...), Servers: []lockLine{}}
			for _, s := range v.Servers {
				m.Servers = append(m.Servers, lockLine{s.Name, s.LockHeld, s.LockOwner, s.PrimaryLockHeld, s.PrimaryLockOwner})
			}
			return answer{data: m, text: func(p *page) { showMonitor(p, m) }}, nil
		}),
	}
}

func showMonitor(p *page, m monitorAnswer) {
	lease, settles := "-", "-"
	if m.Role != election.Secondary && m.Majority.Mode != election.None {
		lease = ms(m.LeaseLeftMS)
	}
	if m.Role == election.Settling {
		settles = ms(m.SettlesInMS)
	}
	rows := [][]string{
		{"Cluster", clean(m.Cluster)},
		{"Monitor", or(m.Name, "-")},
		{"Version", or(m.Version, "-")},
		{"Primary", fmt.Sprint(m.Primary)},
		{"Role", p.paint(roleColour(m.Role), m.Role.String())},
		{"Reason", or(m.Reason, "-")},
		{"Passive", fmt.Sprint(m.Passive)},
		{"Primary lock held", fmt.Sprint(m.PrimaryLockHeld)},
		{"Majority", majority(m.Majority)},
		{"Lease left", lease},
		{"Settles in", settles},
		{"Operation", operationDetail(m.Operation)},
		{"Joining", or(strings.Join(m.Joining, ", "), "-")},
	}
	for _, r := range timingRows(m.Timing) {
		rows = append(rows, r[:2])
	}
	p.table(nil, rows)
	p.line("")
	var locks [][]string
	for _, s := range m.Servers {
		locks = append(locks, []string{clean(s.Name), nullable(s.LockHeld), ownerOrNull(s.LockOwner), nullable(s.PrimaryLockHeld), ownerOrNull(s.PrimaryLockOwner)})
	}
	p.table([]string{"Server", "lock_held", "lock_owner", "primary_lock_held", "primary_lock_owner"}, locks)
}

// serverAnswer is the JSON form of show server.
type serverAnswer struct {
	Cluster string `json:"cluster"`
	monitor.ServerView
	Faults []monitor.FaultView `json:"faults"`
}

func showServerCommand(a *app) *cobra.Command {
	var cmd *cobra.Command
	cmd = &cobra.Command{
		Use: "server NAME", Short: "Show a server, its replication and its faults", Args: argsBetween(1, 1),
		ValidArgsFunction: a.completeServers,
		RunE: a.runE(func(ctx context.Context, args []string) (answer, error) {
			v, err := a.pick(ctx, clusterFlag(cmd))
			if err != nil {
				return answer{}, err
			}
			s, err := findServer(v, args[0])
			if err != nil {
				return answer{}, err
			}
			return answer{data: s, text: func(p *page) { showServer(p, s) }}, nil
		}),
	}
	a.addClusterFlag(cmd)
	return cmd
}

func findServer(v monitor.View, name string) (serverAnswer, error) {
	var names []string
	for _, s := range v.Servers {
		if s.Name != name {
			names = append(names, s.Name)
			continue
		}
		out := serverAnswer{Cluster: v.Cluster, ServerView: s, Faults: []monitor.FaultView{}}
		for _, f := range v.Faults {
			if f.Server == name {
				out.Faults = append(out.Faults, f)
			}
		}
		return out, nil
	}
	return serverAnswer{}, fmt.Errorf("cluster %s has no server %q: it has %s", v.Cluster, name, strings.Join(names, ", "))
}

func showServer(p *page, s serverAnswer) {
	age := "never"
	if s.ProbeAgeMS >= 0 {
		age = ms(s.ProbeAgeMS) + " ago"
	}
	id := "-"
	if s.ServerID != 0 {
		id = fmt.Sprint(s.ServerID)
	}
	lag := lagText(s.ServerView)
	if s.LagMS != nil && s.LagSource != "" {
		lag += " (" + clean(s.LagSource) + ")"
	}
	p.table(nil, [][]string{
		{"Cluster", clean(s.Cluster)},
		{"Server", clean(s.Name)},
		{"Address", clean(s.Address)},
		{"State", p.state(s.State)},
		{"Last probe", or(s.Evidence, "-")},
		{"Detail", or(s.Detail, "-")},
		{"Last answer", age},
		{"Locked by", lockDetail(s.LockHeld, s.LockOwner)},
		{"Primary lock", lockDetail(s.PrimaryLockHeld, s.PrimaryLockOwner)},
		{"Flavor", or(s.Flavor, "-")},
		{"Version", or(s.Version, "-")},
		{"Server id", id},
		{"Read-only", yesNo(s.ReadOnly)},
		{"gtid_current_pos", or(s.CurrentPos, "-")},
		{"gtid_binlog_pos", or(s.BinlogPos, "-")},
		{"Lag", lag},
		{"Source", or(s.Source, "-")},
		{"Votes", fmt.Sprint(s.Votes)},
		{"Promotion", or(s.Promotion, "-")},
		{"Site", or(s.Site, "-")},
	})
	if len(s.Replication) > 0 {
		p.line("")
		p.line("Replication:")
		showReplication(p, s.Replication)
	}
	p.line("")
	if len(s.Faults) == 0 {
		p.line("Faults: none")
		return
	}
	p.line("Faults:")
	showFaults(p, s.Faults)
}

// lockDetail is the holder with the connection and the kind of program.
func lockDetail(held *bool, o *monitor.OwnerView) string {
	if held == nil || o == nil {
		return holder(held, o)
	}
	if *held {
		return "this monitor: " + ownerText(o)
	}
	if o.Kind != "" {
		return ownerText(o) + ", " + clean(o.Kind)
	}
	return ownerText(o)
}

func showReplication(p *page, list []monitor.ReplicationView) {
	var rows [][]string
	for _, r := range list {
		behind := "unknown"
		if r.SecondsBehind != nil {
			behind = fmt.Sprintf("%ds", *r.SecondsBehind)
		}
		rows = append(rows, []string{or(r.Name, "(default)"), or(r.Source, "-"), fmt.Sprint(r.SourceID), or(r.IO, "-"), or(r.SQL, "-"), behind, or(r.Received, "-")})
	}
	p.table([]string{"Connection", "Source", "Source id", "IO", "SQL", "Behind", "gtid_io_pos"}, rows)
	for _, r := range list {
		if r.IOError != "" {
			p.line("%s: IO error: %s", or(r.Name, "(default)"), clean(r.IOError))
		}
		if r.SQLError != "" {
			p.line("%s: SQL error: %s", or(r.Name, "(default)"), clean(r.SQLError))
		}
	}
}

func showFaults(p *page, faults []monitor.FaultView) {
	for _, f := range faults {
		p.line("- %s: %s", p.paint(red, clean(f.Code)), clean(f.Text))
		if f.Remedy != "" {
			p.line("  -> %s", clean(f.Remedy))
		}
	}
}
