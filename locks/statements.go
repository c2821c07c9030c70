package locks

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lockstep-ha/lockstep/internal/sqlrows"
)

// Querier runs statements on the dedicated connection of one server. It never
// reconnects by itself: an error means that the session may be gone.
type Querier interface {
	// Query sends query, which may hold several statements, in one round trip and
	// returns their result sets. On an error it returns those that came before it.
	Query(ctx context.Context, query string) ([]sqlrows.Table, error)
}

// ErrSessionChanged reports that CONNECTION_ID() changed under one connection,
// or differs from the id that the server greeted with: a multiplexing proxy or
// pooler is in between, and a lock taken through it means nothing.
var ErrSessionChanged = errors.New("the connection id changed under one connection: there is a proxy or pooler between the monitor and the server; connect to the server itself")

// ErrWaitTimeout reports that a session did not accept its wait_timeout.
var ErrWaitTimeout = errors.New("the server did not accept the session wait_timeout")

// Column names of ProbeColumns.
const (
	colSession = "l_session"
	colServer  = "l_server"
	colPrimary = "l_primary"
	colMarker  = "l_marker"
	colConfig  = "l_config"
)

// ProbeColumns are the columns of a SELECT that show the holders of all locks
// and the id of the session that asks.
func (n Names) ProbeColumns() []string {
	return []string{
		"CONNECTION_ID() AS " + colSession,
		"IS_USED_LOCK(" + literal(n.Server) + ") AS " + colServer,
		"IS_USED_LOCK(" + literal(n.Primary) + ") AS " + colPrimary,
		"IS_USED_LOCK(" + literal(n.Marker) + ") AS " + colMarker,
		"IS_USED_LOCK(" + literal(n.Config) + ") AS " + colConfig,
	}
}

// ParseRow reads what ProbeColumns asked for. session is the id that the
// connection has; an answer from another one gives ErrSessionChanged.
func ParseRow(server string, session uint64, row sqlrows.Row) (Row, error) {
	id, ok, err := row.Uint(colSession)
	if err != nil || !ok {
		return Row{}, fmt.Errorf("read connection id: no usable value (%w)", errors.Join(err, errors.ErrUnsupported))
	}
	if id != session {
		return Row{}, ErrSessionChanged
	}
	out := Row{Server: server, Session: session, Answered: true}
	owner := map[string]uint64{}
	for _, c := range []string{colServer, colPrimary, colMarker, colConfig} {
		n, _, err := row.Uint(c)
		if err != nil {
			return Row{}, fmt.Errorf("read lock holder: %w", err)
		}
		owner[c] = n
	}
	out.ServerLock = lockOf(owner[colServer], session)
	out.PrimaryLock = lockOf(owner[colPrimary], session)
	if out.ServerLock.State == Other {
		switch owner[colServer] {
		case owner[colConfig]:
			out.Peer = PeerAgrees
		case owner[colMarker]:
			out.Peer = PeerDisagrees
		default:
			out.Peer = PeerNoLockstep
		}
	}
	return out, nil
}

func lockOf(owner, session uint64) Lock {
	switch owner {
	case 0:
		return Lock{State: Free}
	case session:
		return Lock{State: Self, Holder: Holder{ConnectionID: owner}}
	}
	return Lock{State: Other, Holder: Holder{ConnectionID: owner}}
}

// SetWaitTimeout is the statement that bounds the life of a session's locks.
func SetWaitTimeout(w time.Duration) string {
	return fmt.Sprintf("SET SESSION wait_timeout=%d", int64(ceil(w, time.Second)/time.Second))
}

// TakeServerLock takes the server lock of a server, without waiting, together
// with the marker and the configuration lock. The session's wait_timeout is set
// in the same statement and read back, so that no lock can outlive its holder
// by more. It reports whether the lock is now held.
func TakeServerLock(ctx context.Context, q Querier, n Names, session uint64, w time.Duration) (bool, error) {
	return take(ctx, q, session, w, n.Server, n.Marker, n.Config)
}

// TakePrimaryLock takes the primary lock of a server in the same way.
func TakePrimaryLock(ctx context.Context, q Querier, n Names, session uint64, w time.Duration) (bool, error) {
	return take(ctx, q, session, w, n.Primary)
}

// TakeStatement is what TakeServerLock sends. It leaves 1 in the session variable
// @lockstep_got where the lock was got.
func TakeStatement(n Names, w time.Duration) string {
	return takeStatement(w, n.Server, n.Marker, n.Config)
}

func takeStatement(w time.Duration, name string, beside ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s;SELECT @lockstep_got:=GET_LOCK(%s,0) AS got, CONNECTION_ID() AS session, @@session.wait_timeout AS wait_timeout",
		SetWaitTimeout(w), literal(name))
	for _, extra := range beside {
		fmt.Fprintf(&b, ";SELECT IF(@lockstep_got=1,GET_LOCK(%s,0),NULL)", literal(extra))
	}
	return b.String()
}

func take(ctx context.Context, q Querier, session uint64, w time.Duration, name string, beside ...string) (bool, error) {
	tables, err := q.Query(ctx, takeStatement(w, name, beside...))
	if err != nil {
		return false, fmt.Errorf("take lock %s: %w", name, err)
	}
	var row sqlrows.Row
	for i := range tables {
		if len(tables[i].Columns) == 3 {
			row = tables[i].Row(0)
		}
	}
	if id, _, err := row.Uint("session"); err != nil || id != session {
		return false, fmt.Errorf("take lock %s: %w", name, ErrSessionChanged)
	}
	if got, _, err := row.Uint("wait_timeout"); err != nil || got != uint64(ceil(w, time.Second)/time.Second) {
		return false, fmt.Errorf("take lock %s: %w: asked for %v, it is %d s", name, ErrWaitTimeout, w, got)
	}
	switch v, ok := row.Value("got"); {
	case !ok:
		return false, fmt.Errorf("take lock %s: the server answered NULL: the statement was killed or the server is out of memory", name)
	default:
		return v == "1", nil
	}
}

// ReleaseAll is the statement that releases every lock of a session, the
// primary lock before the votes.
func (n Names) ReleaseAll() string {
	return fmt.Sprintf("DO RELEASE_LOCK(%s);DO RELEASE_LOCK(%s), RELEASE_LOCK(%s), RELEASE_LOCK(%s)",
		literal(n.Primary), literal(n.Config), literal(n.Marker), literal(n.Server))
}

// ReleasePrimary is the statement that releases the primary lock of a session.
func (n Names) ReleasePrimary() string { return "DO RELEASE_LOCK(" + literal(n.Primary) + ")" }

// VerifyStatement shows, as column held, whether the session that asks holds the
// server lock.
func (n Names) VerifyStatement() string {
	return "SELECT IS_USED_LOCK(" + literal(n.Server) + ")<=>CONNECTION_ID() AS held"
}

// GuardStatement fails unless the server lock is held by a session: sent before
// others in one round trip, it keeps them from being carried out.
func (n Names) GuardStatement(session uint64) string {
	return fmt.Sprintf("SELECT IF(IS_USED_LOCK(%s)<=>%d, 1, (SELECT 1 UNION SELECT 2)) AS held", literal(n.Server), session)
}
