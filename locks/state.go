package locks

import (
	"fmt"
	"time"
)

// State is what is known of one lock on one server.
type State uint8

// States of a lock.
const (
	Unknown State = iota // the server did not answer, or its answer is not believed
	Free                 // nobody holds it
	Self                 // this monitor's own connection holds it
	Other                // another connection holds it
)

var stateNames = [...]string{"unknown", "free", "self", "other"}

func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// MarshalText writes the state as a word.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Holder is who holds a lock, as the process list names it.
type Holder struct {
	// ConnectionID on that server; zero where not known.
	ConnectionID uint64
	// User and Host are empty until the process list was read, or where the
	// PROCESS privilege is missing and the holder is another account.
	User string
	Host string
	// Checked is true once the process list was asked about this connection.
	Checked bool
	// Former is true for a connection that this monitor had before and that the
	// server has not ended yet. Its locks are nobody's word.
	Former bool
	// Trusted is true for this monitor's own account and for the accounts that
	// the configuration lists. A holder that is not trusted is never followed.
	Trusted bool
}

// String gives user@host and the connection id.
func (h Holder) String() string {
	switch {
	case h.ConnectionID == 0:
		return "an unknown connection"
	case h.Former:
		return fmt.Sprintf("a former connection of this monitor, %d", h.ConnectionID)
	case h.User == "":
		return fmt.Sprintf("connection %d", h.ConnectionID)
	}
	return fmt.Sprintf("%s@%s, connection %d", h.User, h.Host, h.ConnectionID)
}

// Lock is the state of one lock and who holds it.
type Lock struct {
	State  State
	Holder Holder
}

// Peer tells what kind of monitor the holder of a server lock is.
type Peer uint8

// Kinds of holders of a server lock.
const (
	PeerUnknown    Peer = iota // not held by another, or not known
	PeerAgrees                 // a Lockstep monitor with the same configuration
	PeerDisagrees              // a Lockstep monitor with another configuration
	PeerNoLockstep             // another program: a MaxScale, or a person
)

// Row is the state of all locks on one server as one answer showed them.
//
// Invariant: SentAt <= DoneAt. A row whose Session is zero proves nothing.
type Row struct {
	Server string
	// Session is the connection id of the lock connection. Another session
	// starts from nothing.
	Session uint64
	// SentAt is the instant before the query left, DoneAt the one when the answer
	// was read. Rights are derived from SentAt only.
	SentAt, DoneAt time.Duration
	// Answered is false while the last completed query failed: then every lock
	// is Unknown.
	Answered bool
	// ServerLock is the vote, PrimaryLock the publication.
	ServerLock, PrimaryLock Lock
	// Peer tells about the other holder of the server lock.
	Peer Peer
	// Idle is how long the connection of another holder of the server lock had
	// been without a statement, as the server said in this answer; negative where
	// not known.
	Idle time.Duration
}

// Forged reports whether a lock is known to be held by an account that is not
// trusted. A holder whose account cannot be seen may be a monitor: it counts as
// any other holder, and is not followed.
func (l Lock) Forged() bool {
	return l.State == Other && l.Holder.Checked && !l.Holder.Trusted && l.Holder.User != ""
}

// Published reports whether the row shows a primary lock that belongs to another
// monitor in the right way: server lock and primary lock are held by the same
// known connection, of a trusted account, which is not this monitor's own.
func (r Row) Published() bool {
	s, p := r.ServerLock, r.PrimaryLock
	return r.Answered && s.State == Other && p.State == Other &&
		p.Holder.ConnectionID != 0 && p.Holder.ConnectionID == s.Holder.ConnectionID &&
		s.Holder.Trusted && p.Holder.Trusted && !p.Holder.Former
}

// Tenure is how long the server lock of one server has been held without a
// break by one session. The zero value means that it is not held.
type Tenure struct {
	Session uint64
	// Since is the instant at which the first answer that showed it was read.
	Since time.Duration
	// SentAt is the instant before the last query that proved it was sent.
	SentAt time.Duration
}

// Held reports whether the lock is believed held at an instant: the lease that
// began at SentAt has not run out.
func (t Tenure) Held(now time.Duration, lease time.Duration) bool {
	return t.Session != 0 && now < t.SentAt+lease
}

// Extend carries a tenure over to the newest row of its server.
func (t Tenure) Extend(r Row) Tenure {
	if !r.Answered || r.Session == 0 || r.ServerLock.State != Self {
		return Tenure{}
	}
	if t.Session == r.Session {
		t.SentAt = max(t.SentAt, r.SentAt)
		return t
	}
	return Tenure{Session: r.Session, Since: r.DoneAt, SentAt: r.SentAt}
}
