package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/election"
	"github.com/lockstep-ha/lockstep/monitor"
)

func TestExplainOperations(t *testing.T) {
	for name, c := range map[string]struct {
		change func(v *monitor.View)
		says   []string
	}{
		"primary": {func(v *monitor.View) {}, []string{"If s1 failed now, s2 would take its place: it has the most.", "Automatic failover is on."}},
		"off": {func(v *monitor.View) { v.Operations.AutoFailover, v.Operations.Paused = false, "paused" },
			[]string{"If s1 failed now, s2 would take its place: it has the most.", "Nothing would be done by itself: auto_failover is off."}},
		"paused": {func(v *monitor.View) {
			v.Operations.Paused, v.Operations.Blocked = "automatic operations are paused: resume them", "blocked"
		}, []string{"If s1 failed now, s2 would take its place: it has the most.", "Nothing would be done by itself: automatic operations are paused: resume them."}},
		"passive": {func(v *monitor.View) { v.Monitor.Passive, v.Monitor.Role = true, election.Secondary },
			[]string{"If s1 failed now, s2 would take its place: it has the most.", "Nothing would be done by itself: this monitor is passive."}},
		"secondary": {func(v *monitor.View) { v.Monitor.Role = election.Secondary },
			[]string{"If s1 failed now, s2 would take its place: it has the most.", "Automatic failover is on, for when this is the primary monitor."}},
		"none": {func(v *monitor.View) { v.Operations.Next, v.Operations.Why = "", "no server can take the place of s1" },
			[]string{"If s1 failed now, there could be no failover: no server can take the place of s1.", "Automatic failover is on."}},
		"failed": {func(v *monitor.View) {
			v.Primary, v.Operations.Failed, v.Operations.Pending = nil, true, "the last attempt failed; the next is in 2s"
			v.Operations.Next, v.Operations.Why = "", "no server can take the place of s1"
			v.Operations.Rejected = map[string]string{"s9": "gone", "s3": "it is in maintenance", "s2": "it is\ndelayed"}
		}, []string{"The primary has failed: the last attempt failed; the next is in 2s.", "There can be no failover: no server can take the place of s1.",
			"Server s2 would not take its place: it is delayed.", "Server s3 would not take its place: it is in maintenance.",
			"Server s9 would not take its place: gone.", "Automatic failover is on."}},
		"expired":        {func(v *monitor.View) { v.Primary = nil }, []string{"If the primary failed now, s2 would take its place: it has the most.", "Automatic failover is on."}},
		"not looked yet": {func(v *monitor.View) { v.Operations = monitor.OperationsView{} }, []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			v := shop(t)
			v.Operations = monitor.OperationsView{AutoFailover: true, Next: "s2", Why: "it has the most"}
			c.change(&v)
			require.Equal(t, c.says, explainOperations(v))
		})
	}
}
