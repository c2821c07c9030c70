package gtid

// ProblemKind says why a server cannot, or must not, be made to replicate from
// another one.
type ProblemKind uint8

const (
	// DivergedHistory: the replica has a MariaDB GTID that is not in the
	// upstream's binlog, though the upstream's sequence numbers in that domain
	// have reached or passed it. Waiting does not help.
	DivergedHistory ProblemKind = iota + 1
	// NotInBinlog: the replica has a MariaDB GTID that is not in the upstream's
	// binlog and whose sequence number is higher than any there. Either the
	// upstream is only behind, or the replica has written on its own.
	NotInBinlog
	// Purged: the upstream has dropped binlogs that the replica still needs.
	// The replica has to be seeded anew.
	Purged
	// MoreThanSource: the replica has MySQL transactions under the source's own
	// UUID that the source lacks.
	MoreThanSource
	// UpstreamEmpty: the replica has transactions, and the upstream's binlog
	// knows nothing of them nor of anything before them, as after its logs were
	// reset. The server accepts such a replica without a word.
	UpstreamEmpty
	// NotLogged: the upstream has applied transactions that its binlog does not
	// have (log_slave_updates off, or data loaded from a backup), so that a
	// replica that lacks them would never get them. The server accepts such a
	// replica without a word.
	NotLogged
)

// String returns the kind as a short word for logs.
func (k ProblemKind) String() string {
	switch k {
	case DivergedHistory:
		return "diverged"
	case NotInBinlog:
		return "not in binlog"
	case Purged:
		return "purged"
	case MoreThanSource:
		return "more than source"
	case UpstreamEmpty:
		return "upstream empty"
	case NotLogged:
		return "not logged"
	default:
		return "unknown"
	}
}

// RefusedByServer reports whether the upstream server itself refuses the
// connection for this kind. The other kinds are refusals of this package alone:
// replication would start, and data be missing.
func (k ProblemKind) RefusedByServer() bool {
	switch k {
	case DivergedHistory, NotInBinlog, Purged, MoreThanSource:
		return true
	default:
		return false
	}
}
