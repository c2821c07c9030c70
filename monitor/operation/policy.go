package operation

import "time"

// RelayLog says what a failover does with relay log that the candidate has
// received and not applied.
type RelayLog string

// Relay log policies.
const (
	RelayLogWait    RelayLog = "wait"    // wait until it is applied, at most FailoverTimeout
	RelayLogAbort   RelayLog = "abort"   // do not fail over
	RelayLogProceed RelayLog = "proceed" // promote without it: acknowledged writes are lost
)

// Defaults of Policy.
const (
	DefaultFailoverTimeout   = 90 * time.Second
	DefaultSwitchoverTimeout = 10 * time.Second
	DefaultFailoverBlock     = time.Hour
	DefaultStateSchema       = "lockstep"
	maxDeadPrimaryDelay      = time.Second
)

// Policy is what the operator lets operations do. The zero value does nothing on
// its own; commands work as soon as ReplicationUser is given.
type Policy struct {
	// ReplicationUser and ReplicationPassword are the account with which replicas
	// log in to their primary; ReplicationTLS makes them do so over TLS.
	ReplicationUser, ReplicationPassword string
	ReplicationTLS                       bool

	// AutoFailover replaces a primary that has failed.
	AutoFailover bool
	// AutoRejoin joins servers that come back or stand alone, and repoints
	// replicas of the wrong source.
	AutoRejoin bool
	// EnforceReadOnly sets servers other than the primary read-only.
	EnforceReadOnly bool
	// EnforceWritable sets the primary writable.
	EnforceWritable bool

	// DeadPrimaryDelay is for how long the evidence that the primary is dead must
	// last before a failover starts; zero for half an interval, at most 1 s.
	DeadPrimaryDelay time.Duration
	// TrustEvidence takes refused connections as proof of death even where, in
	// majority_of_all, an acknowledged write could be lost if they were forged.
	TrustEvidence bool
	// RelayLog is RelayLogWait when empty.
	RelayLog RelayLog
	// FailoverTimeout bounds the wait for relay log, SwitchoverTimeout the time
	// for which a switchover may refuse writes; defaults when zero.
	FailoverTimeout, SwitchoverTimeout time.Duration
	// FailoverBlock is how long automatic failover stays off after one; the
	// default when zero, negative for never.
	FailoverBlock time.Duration

	// LeaveEvents and LeaveSemiSync keep operations from moving scheduled events
	// and the primary side of semi-synchronous replication with the primary.
	LeaveEvents, LeaveSemiSync bool
	// PromotionSQL are statements for a new primary, DemotionSQL for a former one.
	PromotionSQL, DemotionSQL []string

	// FenceCommand is run before a primary that is not known dead is replaced: exit
	// status 0 means that it is off for certain.
	FenceCommand []string
	// FenceOnLostMajority sets the published primary read-only and closes its
	// client connections when the majority is lost while it can still be reached.
	FenceOnLostMajority bool
	// StateSchema is the database, on each server and not replicated, in which the
	// primary monitor keeps what all have to know, such as the last failover; "-" for
	// none.
	StateSchema string
	// KeepConnections are accounts whose connections a switchover never ends; those
	// of monitors are among them.
	KeepConnections []string
	// MinFreeDisk is the free space of a server's disk, in percent, below which it is
	// promoted after others only; zero for not looking at disks. DrainOnLowDisk gives
	// such a replica no new connections, SwitchoverOnLowDisk moves the primary away.
	MinFreeDisk                         int
	DrainOnLowDisk, SwitchoverOnLowDisk bool
	// WriteProbe is a table (schema.name) into which a heartbeat row is written on
	// the primary; empty for no write probe.
	WriteProbe string
}

// WithDefaults fills in what is not set, for a monitor interval.
func (p Policy) WithDefaults(interval time.Duration) Policy {
	if p.DeadPrimaryDelay == 0 {
		p.DeadPrimaryDelay = min(interval/2, maxDeadPrimaryDelay)
	}
	if p.RelayLog == "" {
		p.RelayLog = RelayLogWait
	}
	if p.FailoverTimeout == 0 {
		p.FailoverTimeout = DefaultFailoverTimeout
	}
	if p.SwitchoverTimeout == 0 {
		p.SwitchoverTimeout = DefaultSwitchoverTimeout
	}
	if p.FailoverBlock == 0 {
		p.FailoverBlock = DefaultFailoverBlock
	}
	if p.StateSchema == "" {
		p.StateSchema = DefaultStateSchema
	}
	return p
}
