package api

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lockstep-ha/lockstep/election"
	"github.com/lockstep-ha/lockstep/monitor"
	"github.com/lockstep-ha/lockstep/topology"
)

const gauge, counter = prometheus.GaugeValue, prometheus.CounterValue

// families are all metrics that are read off views.
var families = slices.Concat([]family{
	{name: "lockstep_build_info", help: "1, with the version of the program and of Go.", kind: gauge, labels: []string{"version", "go_version"}},
}, monitorFamilies, operationFamilies, serverFamilies)

var monitorFamilies = []family{
	{name: "lockstep_cluster_info", help: "1, with the name of the monitor and the quorum mode.", kind: gauge, labels: []string{"monitor", "quorum"},
		cluster: func(v *monitor.View, _ bool) []sample {
			return one(1, v.Monitor.Name, v.Monitor.Majority.Mode.String())
		}},
	{name: "lockstep_primary_known", help: "1 if a primary is offered, 0 if not.", kind: gauge,
		cluster: func(v *monitor.View, _ bool) []sample { return yesNo(v.Primary != nil) }},
	{name: "lockstep_primary_valid_seconds", help: "How long the primary that is offered may still be believed; 0 for none.", kind: gauge,
		cluster: func(v *monitor.View, _ bool) []sample {
			if v.Primary == nil {
				return one(0)
			}
			return millis(v.ValidForMS)
		}},
	{name: "lockstep_primary_failed", help: "1 if the primary does not take writes and that counts towards a failover.", kind: gauge,
		cluster: func(v *monitor.View, _ bool) []sample { return yesNo(v.Operations.Failed) }},
	{name: "lockstep_monitor_live", help: "1 if the monitor has looked at the servers within wait_timeout; if 0 its locks run out.", kind: gauge,
		cluster: func(_ *monitor.View, live bool) []sample { return yesNo(live) }},
	{name: "lockstep_monitor_primary", help: "1 if this is the primary monitor, settled or not.", kind: gauge,
		cluster: func(v *monitor.View, _ bool) []sample { return yesNo(v.Monitor.Primary) }},
	{name: "lockstep_monitor_role", help: "1 for the role that the monitor has, 0 for the others.", kind: gauge, labels: []string{"role"},
		cluster: func(v *monitor.View, _ bool) (out []sample) {
			for _, r := range []election.Role{election.Secondary, election.Settling, election.Primary} {
				out = append(out, yesNo(v.Monitor.Role == r, r.String())...)
			}
			return out
		}},
	{name: "lockstep_monitor_passive", help: "1 if the monitor only watches.", kind: gauge,
		cluster: func(v *monitor.View, _ bool) []sample { return yesNo(v.Monitor.Passive) }},
	{name: "lockstep_monitor_lease_seconds", help: "How long the majority of the locks may still be believed; 0 without one.", kind: gauge,
		cluster: func(v *monitor.View, _ bool) []sample { return millis(v.Monitor.LeaseLeftMS) }},
	{name: "lockstep_monitor_interval_seconds", help: "The setting interval.", kind: gauge,
		cluster: func(v *monitor.View, _ bool) []sample { return millis(v.Monitor.Timing.IntervalMS) }},
	{name: "lockstep_monitor_wait_timeout_seconds", help: "After how long a server drops the locks of a monitor that has vanished.", kind: gauge,
		cluster: func(v *monitor.View, _ bool) []sample { return millis(v.Monitor.Timing.WaitTimeoutMS) }},
	{name: "lockstep_monitor_failover_after_seconds", help: "After how long at least an unreachable primary is replaced.", kind: gauge,
		cluster: func(v *monitor.View, _ bool) []sample { return millis(v.Monitor.Timing.FailoverAfterMS) }},
	{name: "lockstep_ticks_total", help: "How often the monitor has looked at all servers.", kind: counter,
		cluster: func(v *monitor.View, _ bool) []sample { return one(float64(v.Tick)) }},
	{name: "lockstep_last_tick_duration_seconds", help: "How long the last look at all servers took, with what followed from it.", kind: gauge,
		cluster: func(v *monitor.View, _ bool) []sample { return one(v.TickMS / 1000) }},
	{name: "lockstep_last_tick_timestamp_seconds", help: "When the last look ended, in seconds since 1970.", kind: gauge,
		cluster: func(v *monitor.View, _ bool) []sample { return one(float64(v.TakenAt.UnixMilli()) / 1000) }},
	{name: "lockstep_votes_held", help: "Votes, which are server locks, that this monitor holds.", kind: gauge,
		cluster: func(v *monitor.View, _ bool) []sample { return one(float64(v.Monitor.Majority.Held)) }},
	{name: "lockstep_votes_needed", help: "Votes that make a majority.", kind: gauge,
		cluster: func(v *monitor.View, _ bool) []sample { return one(float64(v.Monitor.Majority.Needed)) }},
	{name: "lockstep_votes_running", help: "Votes of the servers that answer.", kind: gauge,
		cluster: func(v *monitor.View, _ bool) []sample { return one(float64(v.Monitor.Majority.Running)) }},
	{name: "lockstep_votes_configured", help: "Votes of all configured servers.", kind: gauge,
		cluster: func(v *monitor.View, _ bool) []sample { return one(float64(v.Monitor.Majority.Total)) }},
	{name: "lockstep_faults", help: "Faults that a person can mend, by code.", kind: gauge, labels: []string{"code"},
		cluster: func(v *monitor.View, _ bool) (out []sample) {
			count := map[string]int{}
			for _, f := range v.Faults {
				count[f.Code]++
			}
			for code, n := range count {
				out = append(out, one(float64(n), code)...)
			}
			return out
		}},
}

var operationFamilies = []family{
	{name: "lockstep_operation_running", help: "1 with the kind of the operation that moves the primary; nothing while there is none.", kind: gauge, labels: []string{"kind"},
		cluster: func(v *monitor.View, _ bool) []sample {
			if v.Operations.Running == nil {
				return nil
			}
			return one(1, string(v.Operations.Running.Kind))
		}},
	{name: "lockstep_servers_joining", help: "Servers that are being joined to the primary.", kind: gauge,
		cluster: func(v *monitor.View, _ bool) []sample { return one(float64(len(v.Operations.Joining))) }},
	{name: "lockstep_auto_failover_enabled", help: "The setting auto_failover.", kind: gauge,
		cluster: func(v *monitor.View, _ bool) []sample { return yesNo(v.Operations.AutoFailover) }},
	{name: "lockstep_auto_rejoin_enabled", help: "The setting auto_rejoin.", kind: gauge,
		cluster: func(v *monitor.View, _ bool) []sample { return yesNo(v.Operations.AutoRejoin) }},
	{name: "lockstep_automatic_operations_paused", help: "1 if automatic operations are off by a person's word.", kind: gauge,
		cluster: func(v *monitor.View, _ bool) []sample { return yesNo(v.Operations.Paused != "") }},
	{name: "lockstep_failover_blocked", help: "1 if the last failover blocks another automatic one.", kind: gauge,
		cluster: func(v *monitor.View, _ bool) []sample { return yesNo(v.Operations.Blocked != "") }},
	{name: "lockstep_failover_candidate_known", help: "1 if there is a server that could become the primary.", kind: gauge,
		cluster: func(v *monitor.View, _ bool) []sample { return yesNo(v.Operations.Next != "") }},
}

// labels of servers, each a value of lockstep_server_state.
var serverLabels = []string{topology.LabelPrimary, topology.LabelReplica, topology.LabelRelay, topology.LabelLagging, topology.LabelReadOnly,
	topology.LabelAuthError, topology.LabelMaintenance, topology.LabelDrained, topology.LabelRunning, topology.LabelDown}

var serverFamilies = []family{
	{name: "lockstep_server_info", help: "1, with what the server is.", kind: gauge, labels: []string{"address", "flavor", "version", "site"},
		server: func(_ *monitor.View, s *monitor.ServerView) []sample {
			return one(1, s.Address, s.Flavor, s.Version, s.Site)
		}},
	{name: "lockstep_server_up", help: "1 if the server answers.", kind: gauge,
		server: func(v *monitor.View, s *monitor.ServerView) []sample {
			return yesNo(slices.Contains(s.State, topology.LabelRunning) && fresh(*v, s))
		}},
	{name: "lockstep_server_primary", help: "1 for the primary that is offered, 0 for the others.", kind: gauge,
		server: func(v *monitor.View, s *monitor.ServerView) []sample {
			return yesNo(v.Primary != nil && v.Primary.Name == s.Name)
		}},
	{name: "lockstep_server_state", help: "1 for each label that the server has, 0 for the others.", kind: gauge, labels: []string{"state"},
		server: func(_ *monitor.View, s *monitor.ServerView) (out []sample) {
			for _, l := range serverLabels {
				out = append(out, yesNo(slices.Contains(s.State, l), l)...)
			}
			return out
		}},
	{name: "lockstep_server_probe_age_seconds", help: "Age of the last answer; nothing if there never was one.", kind: gauge,
		server: func(_ *monitor.View, s *monitor.ServerView) []sample {
			if s.ProbeAgeMS < 0 {
				return nil
			}
			return millis(s.ProbeAgeMS)
		}},
	{name: "lockstep_server_replication_lag_seconds", help: "How far a replica is behind the primary; nothing where that is not known.", kind: gauge,
		server: func(_ *monitor.View, s *monitor.ServerView) []sample {
			if s.LagMS == nil {
				return nil
			}
			return millis(*s.LagMS)
		}},
	{name: "lockstep_server_replication_running", help: "1 if a replication thread runs, 0 if not.", kind: gauge, labels: []string{"connection", "thread"},
		server: func(_ *monitor.View, s *monitor.ServerView) (out []sample) {
			seen := map[string]bool{}
			for _, r := range s.Replication {
				if !seen[r.Name] {
					out = append(out, yesNo(r.IO == "Yes", r.Name, "io")...)
					out = append(out, yesNo(r.SQL == "Yes", r.Name, "sql")...)
				}
				seen[r.Name] = true
			}
			return out
		}},
	{name: "lockstep_server_read_only", help: "1 if the server is read-only; nothing where that is not known.", kind: gauge,
		server: func(_ *monitor.View, s *monitor.ServerView) []sample { return known(s.ReadOnly) }},
	{name: "lockstep_server_lock_held", help: "1 if this monitor holds the server lock; nothing where that is not known.", kind: gauge,
		server: func(_ *monitor.View, s *monitor.ServerView) []sample { return known(s.LockHeld) }},
	{name: "lockstep_server_primary_lock_held", help: "1 if this monitor holds the primary lock on the server; nothing where that is not known.", kind: gauge,
		server: func(_ *monitor.View, s *monitor.ServerView) []sample { return known(s.PrimaryLockHeld) }},
	{name: "lockstep_server_votes", help: "The setting votes.", kind: gauge,
		server: func(_ *monitor.View, s *monitor.ServerView) []sample { return one(float64(s.Votes)) }},
}
