package mariadb

import "github.com/lockstep-ha/lockstep/topology"

// Error codes of MariaDB and MySQL that mean something to a monitor.
const (
	errTooManyConnections     = 1040
	errDBAccessDenied         = 1044
	errAccessDenied           = 1045
	errServerShutdown         = 1053
	errHostBlocked            = 1129
	errHostNotPrivileged      = 1130
	errTooManyUserConnections = 1203
	errAccessDeniedNoPassword = 1698
	errAccountLocked          = 4151
	errPasswordExpired        = 1820
	errConnectionKilled       = 1927
	errSpecificAccessDenied   = 1227
	errNoSuchThread           = 1094
	errLockWaitTimeout        = 1205
	errStatementTimeout       = 1969
	errDiskFull               = 1021
	errWriteFile              = 1026
	errFromStorage            = 1030
	errTableFull              = 1114
	errReadOnlyStorage        = 1036
)

// Classify maps an error code to its class of evidence.
func Classify(code uint16) topology.Evidence {
	switch code {
	case errTooManyConnections, errTooManyUserConnections:
		return topology.TooManyConnections
	case errDBAccessDenied, errAccessDenied, errHostBlocked, errHostNotPrivileged, errAccessDeniedNoPassword, errAccountLocked, errPasswordExpired:
		return topology.AccessDenied
	case errServerShutdown:
		return topology.ShuttingDown
	case errConnectionKilled:
		return topology.Closed
	}
	return topology.OtherFailure
}

// MissingPrivilege reports whether the code means that a statement needs a
// privilege that the account lacks.
func MissingPrivilege(code uint16) bool { return code == errSpecificAccessDenied }

// GaveUpWaiting reports whether the code means that a statement ran into the
// bound on how long it may wait for others.
func GaveUpWaiting(code uint16) bool {
	return code == errLockWaitTimeout || code == errStatementTimeout
}

// NoSuchConnection reports whether the code means that a connection to be killed
// had ended already.
func NoSuchConnection(code uint16) bool { return code == errNoSuchThread }

// StorageFailed reports whether the code means that the server could not write:
// its disk is full, or its file system fails or is read-only.
func StorageFailed(code uint16) bool {
	switch code {
	case errDiskFull, errWriteFile, errFromStorage, errTableFull, errReadOnlyStorage:
		return true
	}
	return false
}
