package routing

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"

	"github.com/go-sql-driver/mysql"
)

var (
	// ErrNoPrimary reports that there is no server to write to now, or none came
	// within Options.HoldWrites.
	ErrNoPrimary = errors.New("no primary")
	// ErrPrimaryChanged reports that a statement or transaction met a server that is
	// not the primary any more, or whose connection was lost. Begin the transaction
	// again on a new connection, unless the error is ErrOutcomeUnknown too.
	ErrPrimaryChanged = errors.New("the primary has changed or was lost")
	// ErrOutcomeUnknown reports that a commit, or a statement outside a transaction,
	// was sent and not answered: it may have been carried out or not.
	ErrOutcomeUnknown = errors.New("it is not known whether it was carried out")
	// ErrNotPrimary reports that a server which the view names as the primary does
	// not hold its primary lock, or is read-only.
	ErrNotPrimary = errors.New("the server is not the primary")
	// ErrNoReplica reports that no server may serve a read: Options.NoFallback is
	// set, or there is no primary to fall back to.
	ErrNoReplica = errors.New("no server for this read")
	// ErrClosed reports that the router was closed.
	ErrClosed = errors.New("the router is closed")
)

// changedError is an error of a connection to a server that was the primary.
type changedError struct {
	server  string
	why     string
	unknown bool
	err     error
}

func (e *changedError) Error() string {
	s := fmt.Sprintf("server %s: %v: %s", e.server, ErrPrimaryChanged, e.why)
	if e.unknown {
		s += "; " + ErrOutcomeUnknown.Error()
	}
	return s
}

// Is matches the sentinels.
func (e *changedError) Is(target error) bool {
	return target == ErrPrimaryChanged || (e.unknown && target == ErrOutcomeUnknown)
}

// Unwrap gives the driver's error, but never driver.ErrBadConn, which would make
// database/sql send the statement again.
func (e *changedError) Unwrap() error {
	if errors.Is(e.err, driver.ErrBadConn) {
		return nil
	}
	return e.err
}

// failure is what an error says about the connection that gave it.
type failure uint8

const (
	failNone     failure = iota // the server's own answer, or the caller's context
	failUnsent                  // the connection was dead before anything was sent
	failLost                    // the connection broke; what was sent may have arrived
	failReadOnly                // the server did nothing, since it is read-only
)

// Error codes of servers.
const (
	codeShutdown          = 1053
	codeForcedClose       = 1080
	codeLockWait          = 1205
	codeDeadlock          = 1213
	codeOptionPrevents    = 1290
	codeReadOnlyMode      = 1836
	codeKilled            = 1927
	codeDisconnectTimeout = 4031
)

func classify(err error) failure {
	if err == nil {
		return failNone
	}
	var my *mysql.MySQLError
	if errors.As(err, &my) {
		switch my.Number {
		case codeReadOnlyMode:
			return failReadOnly
		case codeOptionPrevents:
			// The code is also that of --secure-file-priv and others.
			if text := strings.ToLower(my.Message); strings.Contains(text, "read-only") || strings.Contains(text, "read_only") {
				return failReadOnly
			}
		case codeKilled, codeShutdown, codeForcedClose, codeDisconnectTimeout:
			return failLost
		}
		return failNone
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return failNone
	}
	if errors.Is(err, driver.ErrBadConn) {
		return failUnsent
	}
	var ne net.Error
	if errors.Is(err, mysql.ErrInvalidConn) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, net.ErrClosed) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.As(err, &ne) {
		return failLost
	}
	return failNone
}

// codeOf returns the server's error code, 0 where there is none.
func codeOf(err error) uint16 {
	var my *mysql.MySQLError
	if errors.As(err, &my) {
		return my.Number
	}
	return 0
}
