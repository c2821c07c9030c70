package backend

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"os"
	"syscall"

	"github.com/go-sql-driver/mysql"

	"github.com/lockstep-ha/lockstep/locks"
	"github.com/lockstep-ha/lockstep/topology"
	"github.com/lockstep-ha/lockstep/topology/mariadb"
)

// errUnsupported marks servers that cannot be monitored at all.
var errUnsupported = errors.New("not supported")

// classify says what an error tells about a server. established is true where
// the connection had been working before.
func classify(err error, established bool) topology.Evidence {
	var (
		my   *mysql.MySQLError
		dns  *net.DNSError
		cert *tls.CertificateVerificationError
		x1   x509.UnknownAuthorityError
		x2   x509.HostnameError
		x3   x509.CertificateInvalidError
		rec  tls.RecordHeaderError
		aerr tls.AlertError
		nerr net.Error
	)
	switch {
	case errors.Is(err, locks.ErrSessionChanged):
		return topology.ProxyInBetween
	case errors.Is(err, errUnsupported):
		return topology.Unsupported
	case errors.As(err, &my):
		return mariadb.Classify(my.Number)
	case errors.As(err, &dns):
		return topology.NameResolution
	case errors.As(err, &cert), errors.As(err, &x1), errors.As(err, &x2), errors.As(err, &x3), errors.As(err, &rec), errors.As(err, &aerr), errors.Is(err, mysql.ErrNoTLS):
		return topology.TLSFailed
	case errors.Is(err, syscall.ECONNREFUSED):
		return topology.Refused
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &nerr) && nerr.Timeout(),
		errors.Is(err, syscall.ETIMEDOUT), errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return topology.TimedOut
	case errors.Is(err, mysql.ErrInvalidConn), errors.Is(err, driver.ErrBadConn), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, net.ErrClosed):
		return topology.Closed
	}
	if established {
		return topology.Closed
	}
	return topology.OtherFailure
}

// Code is the error code of the server in an error, zero for none.
func Code(err error) uint16 {
	var my *mysql.MySQLError
	if errors.As(err, &my) {
		return my.Number
	}
	return 0
}
