// Package publish tells others what happens to a cluster: it derives events from
// the views of a monitor, and gives them to hooks (commands and webhooks); it writes
// the primary to service discovery (Consul, etcd) and to HAProxy.
//
// Nothing here holds up a monitor: views are read when they are wanted, queues are
// bounded, and what cannot be delivered is counted and logged. What is published is
// what the view says; where it offers no primary, none is published.
package publish

import (
	"slices"
	"time"

	"github.com/lockstep-ha/lockstep/monitor"
)

// Names of events. Those of operations are the kind, with _started, _done or _failed.
const (
	PrimaryFound       = "primary_found"     // a primary is offered where none was, the same as before or the first
	PrimaryChanged     = "primary_changed"   // another server than before is offered
	PrimaryLost        = "primary_lost"      // no primary is offered any more
	PrimaryFailed      = "primary_failed"    // the primary takes no writes, and that counts towards a failover
	PrimaryRecovered   = "primary_recovered" // it takes writes again, or another one does
	MajorityGained     = "majority_gained"
	MajorityLost       = "majority_lost"
	MonitorSettled     = "monitor_settled" // the primary monitor may operate
	ServerUp           = "server_up"
	ServerDown         = "server_down"
	ReplicaLagging     = "replica_lagging"
	ReplicaCaughtUp    = "replica_caught_up"
	ReplicationStopped = "replication_stopped"
	ReplicationRuns    = "replication_runs"
	MaintenanceSet     = "maintenance_set"
	MaintenanceCleared = "maintenance_cleared"
	DrainSet           = "drain_set"
	DrainCleared       = "drain_cleared"
	FaultRaised        = "fault_raised"
	FaultCleared       = "fault_cleared"
	Paused             = "paused" // automatic operations are off by a person's word
	Resumed            = "resumed"
	FailoverBlocked    = "failover_blocked" // the last failover blocks another one
	FailoverUnblocked  = "failover_unblocked"
)

// Names returns all names of events, sorted.
func Names() []string {
	out := []string{PrimaryFound, PrimaryChanged, PrimaryLost, PrimaryFailed, PrimaryRecovered, MajorityGained, MajorityLost, MonitorSettled,
		ServerUp, ServerDown, ReplicaLagging, ReplicaCaughtUp, ReplicationStopped, ReplicationRuns, MaintenanceSet, MaintenanceCleared,
		DrainSet, DrainCleared, FaultRaised, FaultCleared, Paused, Resumed, FailoverBlocked, FailoverUnblocked}
	for _, kind := range []string{"failover", "switchover", "rejoin", "reset_replication"} {
		out = append(out, kind+"_started", kind+"_done", kind+"_failed")
	}
	slices.Sort(out)
	return out
}

// Event is something that has happened to a cluster, as one monitor sees it. Its
// JSON form is what hooks get.
type Event struct {
	// ID is unique; a webhook that is sent again has the same.
	ID string `json:"id"`
	// Name is one of Names.
	Name    string    `json:"event"`
	Cluster string    `json:"cluster"`
	Time    time.Time `json:"time"`
	// Monitor is the name of the monitor that tells; PrimaryMonitor is true where it
	// is the primary monitor.
	Monitor        string `json:"monitor"`
	PrimaryMonitor bool   `json:"primary_monitor"`
	// Server is the server that the event is about, "" for the cluster.
	Server        string `json:"server"`
	ServerAddress string `json:"server_address"`
	// From and To are the former and the new primary, or what an operation moves.
	From        string `json:"from"`
	FromAddress string `json:"from_address"`
	To          string `json:"to"`
	ToAddress   string `json:"to_address"`
	// Operation is the id of an operation, Outcome how it ended.
	Operation string `json:"operation,omitempty"`
	Outcome   string `json:"outcome,omitempty"`
	// Code is that of a fault.
	Code   string `json:"code,omitempty"`
	Reason string `json:"reason"`
	// Primary is the primary that is offered after the event, nil for none.
	Primary *monitor.Endpoint `json:"primary"`
	// Missed is how many events before this one were dropped, since the hook was too
	// slow for them.
	Missed int `json:"missed"`
}
