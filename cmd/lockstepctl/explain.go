package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockstep-ha/lockstep/election"
	"github.com/lockstep-ha/lockstep/monitor"
	"github.com/lockstep-ha/lockstep/topology"
)

// explanation is the JSON form of explain: sentences by subject.
type explanation struct {
	Cluster    string              `json:"cluster"`
	Primary    string              `json:"primary"`
	Monitor    string              `json:"monitor"`
	Operations []string            `json:"operations"`
	Servers    []string            `json:"servers"`
	Faults     []monitor.FaultView `json:"faults"`
	Notes      []string            `json:"notes"`
}

func explainCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "explain [CLUSTER]", Short: "Say in sentences what is so and why", Args: argsBetween(0, 1), ValidArgsFunction: a.completeClusters,
		RunE: a.runE(func(ctx context.Context, args []string) (answer, error) {
			v, err := a.pick(ctx, clusterArg(args))
			if err != nil {
				return answer{}, err
			}
			e := explain(v)
			if a.direct {
				e.Notes = append(e.Notes, "operations under way, a pause and a block of automatic failover are not seen with --direct")
			}
			return answer{data: e, text: func(p *page) { writeExplanation(p, e) }}, nil
		}),
	}
}

func explain(v monitor.View) explanation {
	e := explanation{Cluster: v.Cluster, Primary: explainPrimary(v), Monitor: explainMonitor(v.Monitor), Operations: explainOperations(v),
		Servers: []string{}, Faults: []monitor.FaultView{}, Notes: []string{}}
	for _, s := range v.Servers {
		if text := explainServer(s); text != "" {
			e.Servers = append(e.Servers, text)
		}
	}
	e.Faults = append(e.Faults, v.Faults...)
	e.Notes = append(e.Notes, v.Notes...)
	return e
}

func explainPrimary(v monitor.View) string {
	if v.Primary == nil {
		return sentence("Cluster %s has no primary: %s", v.Cluster, or(v.Reason, "the monitor gives no reason"))
	}
	return sentence("The primary of cluster %s is %s (%s): %s", v.Cluster, v.Primary.Name, v.Primary.Address, or(v.Reason, "the monitor gives no reason")) +
		fmt.Sprintf(" This may be believed for %s.", ms(v.ValidForMS))
}

func explainMonitor(m monitor.MonitorView) string {
	does := map[election.Role]string{
		election.Primary:   "the primary monitor, which acts",
		election.Settling:  "settling, and does not act yet",
		election.Secondary: "a secondary monitor, which only watches",
	}[m.Role]
	text := sentence("Monitor %s is %s: %s", or(m.Name, "(no name)"), does, or(m.Reason, "it gives no reason"))
	if m.Role == election.Settling {
		text += fmt.Sprintf(" It settles in %s.", ms(m.SettlesInMS))
	}
	if m.Role != election.Secondary && m.Majority.Mode != election.None {
		text += fmt.Sprintf(" Its lease lasts another %s.", ms(m.LeaseLeftMS))
	}
	return text
}

// explainServer says what is not well with a server, "" for nothing.
func explainServer(s monitor.ServerView) string {
	var why []string
	if s.Evidence != topology.Answered.String() {
		text := "the last probe says: " + or(s.Evidence, "nothing")
		if s.Detail != "" {
			text += " (" + clean(s.Detail) + ")"
		}
		if s.ProbeAgeMS >= 0 {
			text += fmt.Sprintf(", its last answer is %s old", ms(s.ProbeAgeMS))
		} else {
			text += ", it has never answered"
		}
		why = append(why, text)
	}
	if slices.Contains(s.State, topology.LabelLagging) {
		why = append(why, "its lag is "+lagText(s))
	}
	if slices.Contains(s.State, topology.LabelMaintenance) {
		why = append(why, "it is in maintenance")
	}
	if slices.Contains(s.State, topology.LabelDrained) {
		why = append(why, "it is being drained")
	}
	if up(s) {
		why = append(why, explainReplication(s.Replication)...)
	}
	if len(why) == 0 && up(s) {
		return ""
	}
	if len(why) == 0 {
		why = append(why, "it is not running")
	}
	state := strings.Join(s.State, ", ")
	return sentence("Server %s (%s) is not well [%s]: %s", s.Name, s.Address, or(state, "unknown"), strings.Join(why, "; "))
}

func explainReplication(list []monitor.ReplicationView) []string {
	var why []string
	for _, r := range list {
		text := fmt.Sprintf("replication from %s has IO %s, SQL %s", r.Source, or(r.IO, "unknown"), or(r.SQL, "unknown"))
		if r.IO == "Yes" && r.SQL == "Yes" {
			continue
		}
		for _, e := range []string{r.IOError, r.SQLError} {
			if e != "" {
				text += ": " + clean(e)
			}
		}
		why = append(why, text)
	}
	return why
}

func writeExplanation(p *page, e explanation) {
	p.line("%s", e.Primary)
	p.line("%s", e.Monitor)
	for _, o := range e.Operations {
		p.line("%s", o)
	}
	if len(e.Servers) == 0 && len(e.Faults) == 0 {
		p.line("All servers are well.")
	}
	for _, s := range e.Servers {
		p.line("%s", s)
	}
	for _, f := range e.Faults {
		p.line("%s", p.paint(red, "Fault")+": "+sentence("%s", f.Text))
		if f.Remedy != "" {
			p.line("  -> %s", clean(f.Remedy))
		}
	}
	for _, n := range e.Notes {
		p.line("%s", sentence("Note: %s", n))
	}
}

// sentence ends with one full stop.
func sentence(format string, args ...any) string {
	s := strings.TrimSpace(clean(fmt.Sprintf(format, args...)))
	return strings.TrimRight(s, ".;") + "."
}
