package monitor

import (
	"time"

	"github.com/lockstep-ha/lockstep/election"
	"github.com/lockstep-ha/lockstep/monitor/operation"
)

// View is what is true of a cluster now, until when it may be believed, and why.
// A value returned by Monitor.View is a copy that nobody changes. Its JSON form
// is what the HTTP API serves.
type View struct {
	Cluster string `json:"cluster"`
	// Primary is the server to write to, nil for none. It is nil too once the view
	// has expired.
	Primary *Endpoint `json:"primary"`
	// Reason says why this is the primary, or why there is none.
	Reason string `json:"reason"`
	// ValidForMS is for how long from now the primary may be believed.
	ValidForMS int64        `json:"valid_for_ms"`
	Monitor    MonitorView  `json:"monitor"`
	Servers    []ServerView `json:"servers"`
	// Faults are what a person can mend, by server.
	Faults []FaultView `json:"faults"`
	// Notes are facts worth knowing that nobody has to mend.
	Notes []string `json:"notes"`
	// Operations says what this monitor does and would do about the primary.
	Operations OperationsView `json:"operations"`
	// Tick counts the ticks since the start; TakenAt is the wall clock at its end,
	// TickMS how long it took.
	Tick    uint64    `json:"tick"`
	TakenAt time.Time `json:"taken_at"`
	TickMS  float64   `json:"tick_ms"`

	// deadline is the instant until which the primary may be believed, lease the
	// one of the monitor's role.
	deadline, lease time.Duration
}

// Endpoint is a server as others reach it.
type Endpoint struct {
	Name    string `json:"name"`
	Address string `json:"address"`
}

// MonitorView is the state of this monitor.
type MonitorView struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	// Primary is true when this instance is the primary monitor: it has the
	// majority, settled or not.
	Primary bool          `json:"primary"`
	Role    election.Role `json:"role"`
	Reason  string        `json:"reason"`
	// PrimaryLockHeld is true when this instance holds the primary lock.
	PrimaryLockHeld bool           `json:"primary_lock_held"`
	Passive         bool           `json:"passive"`
	Majority        election.Tally `json:"majority"`
	// LeaseLeftMS is how long the majority may be believed from now.
	LeaseLeftMS int64 `json:"lease_left_ms"`
	// SettlesInMS is how long a settling monitor still waits.
	SettlesInMS int64      `json:"settles_in_ms"`
	Timing      TimingView `json:"timing"`
	settledAt   time.Duration
}

// TimingView is the derived timing in milliseconds.
type TimingView struct {
	IntervalMS      int64 `json:"interval_ms"`
	TimeoutMS       int64 `json:"timeout_ms"`
	WaitTimeoutMS   int64 `json:"wait_timeout_ms"`
	NoticeMS        int64 `json:"notice_ms"`
	LeaseMS         int64 `json:"lease_ms"`
	SettleMS        int64 `json:"settle_ms"`
	Failcount       int   `json:"failcount"`
	SafeFailcount   int   `json:"safe_failcount"`
	FailoverAfterMS int64 `json:"failover_after_ms"`
	FailoverWorstMS int64 `json:"failover_worst_ms"`
}

// ServerView is one server.
type ServerView struct {
	Name    string `json:"name"`
	Address string `json:"address"`
	// State are the labels.
	State []string `json:"state"`
	// Evidence is the class of the last probe's outcome, Detail its error text.
	Evidence string `json:"evidence"`
	Detail   string `json:"detail,omitempty"`
	// LockHeld is true when this instance holds the server lock, false when it
	// does not, null when that is not known.
	LockHeld *bool `json:"lock_held"`
	// LockOwner is who holds the server lock, null for nobody or unknown.
	LockOwner        *OwnerView `json:"lock_owner"`
	PrimaryLockHeld  *bool      `json:"primary_lock_held"`
	PrimaryLockOwner *OwnerView `json:"primary_lock_owner"`

	Flavor      string            `json:"flavor"`
	Version     string            `json:"version"`
	ServerID    uint64            `json:"server_id"`
	ReadOnly    *bool             `json:"read_only"`
	CurrentPos  string            `json:"gtid_current_pos"`
	BinlogPos   string            `json:"gtid_binlog_pos"`
	LagMS       *int64            `json:"lag_ms"`
	LagSource   string            `json:"lag_source,omitempty"`
	Votes       int               `json:"votes"`
	Promotion   string            `json:"promotion"`
	Site        string            `json:"site,omitempty"`
	Replication []ReplicationView `json:"replication"`
	// Source is the member that the server replicates from, "" for none.
	Source string `json:"source"`
	// ProbeAgeMS is how old the last answer is; -1 for never answered.
	ProbeAgeMS int64 `json:"probe_age_ms"`
	seenAt     time.Duration
	everSeen   bool
}

// OwnerView is the holder of a lock.
type OwnerView struct {
	ConnectionID uint64 `json:"connection_id"`
	User         string `json:"user"`
	Host         string `json:"host"`
	Self         bool   `json:"self"`
	Trusted      bool   `json:"trusted"`
	// Kind is "this monitor", "lockstep", "lockstep, other configuration" or
	// "other program"; "" where not known.
	Kind string `json:"kind"`
}

// ReplicationView is one replication connection.
type ReplicationView struct {
	Name          string `json:"connection_name"`
	Source        string `json:"source"`
	SourceID      uint64 `json:"source_server_id"`
	IO            string `json:"io_running"`
	SQL           string `json:"sql_running"`
	Received      string `json:"gtid_io_pos"`
	SecondsBehind *int64 `json:"seconds_behind"`
	IOError       string `json:"io_error,omitempty"`
	SQLError      string `json:"sql_error,omitempty"`
}

// OperationsView says what a monitor does, and would do, on its own.
type OperationsView struct {
	// Running is the operation that moves the primary, nil for none.
	Running *RunningView `json:"running"`
	// Joining are the servers that are being joined to the primary.
	Joining []string `json:"joining"`
	// AutoFailover and AutoRejoin are the settings.
	AutoFailover bool `json:"auto_failover"`
	AutoRejoin   bool `json:"auto_rejoin"`
	// Paused is why automatic operations are off by a person's word, "" if not.
	Paused string `json:"paused,omitempty"`
	// Blocked is why automatic failover is blocked by the last one, "" if not.
	Blocked string `json:"blocked,omitempty"`
	// Failed is true where the primary does not take writes; Pending says what is
	// waited for, or why nothing is done.
	Failed  bool   `json:"primary_failed"`
	Pending string `json:"pending,omitempty"`
	// Next is the server that would become the primary, "" for none, and Why the
	// reason; Rejected are the reasons against the others, by server.
	Next     string            `json:"next"`
	Why      string            `json:"why"`
	Rejected map[string]string `json:"rejected"`
}

// RunningView is an operation under way.
type RunningView struct {
	ID   string         `json:"id"`
	Kind operation.Kind `json:"kind"`
	From string         `json:"from,omitempty"`
	To   string         `json:"to"`
	// Step is the step under way.
	Step string `json:"step"`
}

// FaultView is a fault and the server it is about ("" for the cluster).
type FaultView struct {
	Code   string `json:"code"`
	Server string `json:"server"`
	Text   string `json:"text"`
	Remedy string `json:"remedy,omitempty"`
}

// at returns the view as it is to be believed at an instant.
func (v View) at(now time.Duration) View {
	v.ValidForMS = max(v.deadline-now, 0).Milliseconds()
	v.Monitor.LeaseLeftMS = max(v.lease-now, 0).Milliseconds()
	v.Monitor.SettlesInMS = 0
	if v.Monitor.Role == election.Settling {
		v.Monitor.SettlesInMS = max(v.Monitor.settledAt-now, 0).Milliseconds()
	}
	if v.Primary != nil && now >= v.deadline {
		v.Primary = nil
		v.Reason = "the view has expired: the monitor has not looked at the servers for too long"
	}
	if v.Monitor.Primary && v.Monitor.Majority.Mode != election.None && now >= v.lease {
		v.Monitor.Primary, v.Monitor.Role = false, election.Secondary
		v.Monitor.Reason = "the lease on the locks has expired: the monitor has not looked at the servers for too long"
	}
	servers := make([]ServerView, len(v.Servers))
	for i, s := range v.Servers {
		s.ProbeAgeMS = -1
		if s.everSeen {
			s.ProbeAgeMS = max(now-s.seenAt, 0).Milliseconds()
		}
		servers[i] = s
	}
	v.Servers = servers
	return v
}
