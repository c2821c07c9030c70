package main

import (
	"maps"
	"slices"

	"github.com/lockstep-ha/lockstep/election"
	"github.com/lockstep-ha/lockstep/monitor"
)

// explainOperations says what is under way, and what would happen if the primary
// failed. It is empty for a monitor that has not looked at the servers yet.
func explainOperations(v monitor.View) []string {
	o := v.Operations
	out := []string{}
	if r := o.Running; r != nil {
		out = append(out, sentence("Operation %s is under way: %s", r.ID, operationStep(r)))
	}
	for _, name := range o.Joining {
		out = append(out, sentence("Server %s is being joined to the primary", name))
	}
	if o.Next == "" && o.Why == "" {
		return out
	}
	if o.Failed {
		out = append(out, sentence("The primary has failed: %s", or(o.Pending, "the monitor gives no reason")))
	}
	out = append(out, explainNext(v))
	for _, name := range rejectedOrder(v) {
		out = append(out, sentence("Server %s would not take its place: %s", name, o.Rejected[name]))
	}
	return append(out, explainAutomatic(v))
}

// explainNext says who would become the primary.
func explainNext(v monitor.View) string {
	o := v.Operations
	who := "the primary"
	if v.Primary != nil {
		who = v.Primary.Name
	}
	switch {
	case o.Failed && o.Next != "":
		return sentence("Server %s is the one to take its place: %s", o.Next, o.Why)
	case o.Failed:
		return sentence("There can be no failover: %s", o.Why)
	case o.Next != "":
		return sentence("If %s failed now, %s would take its place: %s", who, o.Next, o.Why)
	case v.Primary == nil && len(o.Rejected) == 0:
		return sentence("There could be no failover: %s", o.Why)
	}
	return sentence("If %s failed now, there could be no failover: %s", who, o.Why)
}

// rejectedOrder are the servers that would not be promoted, as they are listed.
func rejectedOrder(v monitor.View) []string {
	var out []string
	for _, s := range v.Servers {
		if _, ok := v.Operations.Rejected[s.Name]; ok {
			out = append(out, s.Name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(v.Operations.Rejected)) {
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// explainAutomatic says whether the monitor would fail over by itself.
func explainAutomatic(v monitor.View) string {
	o := v.Operations
	const nothing = "Nothing would be done by itself: "
	switch {
	case !o.AutoFailover:
		return sentence(nothing + "auto_failover is off")
	case v.Monitor.Passive:
		return sentence(nothing + "this monitor is passive")
	case o.Paused != "":
		return sentence(nothing+"%s", o.Paused)
	case o.Blocked != "":
		return sentence(nothing+"%s", o.Blocked)
	case v.Monitor.Role != election.Primary:
		return "Automatic failover is on, for when this is the primary monitor."
	}
	return "Automatic failover is on."
}
