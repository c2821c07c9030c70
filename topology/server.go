package topology

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-ha/lockstep/topology/gtid"
)

// Flavor is the kind of server.
type Flavor uint8

// Flavors.
const (
	FlavorUnknown Flavor = iota
	MariaDB
	MySQL
)

func (f Flavor) String() string { return [...]string{"unknown", "mariadb", "mysql"}[min(f, 2)] }

// MarshalText writes the flavor as in the configuration.
func (f Flavor) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// Version is a server version.
type Version struct {
	Major, Minor, Patch int
	Text                string
}

// ParseVersion reads VERSION(); what follows the three numbers is kept as text only.
func ParseVersion(s string) (Version, Flavor) {
	v := Version{Text: s}
	num := s
	if i := strings.IndexFunc(s, func(r rune) bool { return r != '.' && (r < '0' || r > '9') }); i >= 0 {
		num = s[:i]
	}
	for i, p := range strings.Split(num, ".") {
		n, err := strconv.Atoi(p)
		if err != nil || i > 2 {
			break
		}
		*[...]*int{&v.Major, &v.Minor, &v.Patch}[i] = n
	}
	if strings.Contains(strings.ToLower(s), "mariadb") {
		return v, MariaDB
	}
	return v, MySQL
}

// AtLeast reports whether the version is major.minor.patch or newer.
func (v Version) AtLeast(major, minor, patch int) bool {
	if v.Major != major {
		return v.Major > major
	}
	if v.Minor != minor {
		return v.Minor > minor
	}
	return v.Patch >= patch
}

// Tri is a fact about a remote server that may be unknown.
type Tri uint8

// Values of Tri.
const (
	Unknown Tri = iota
	No
	Yes
)

// TriOf converts a known fact.
func TriOf(b bool) Tri {
	if b {
		return Yes
	}
	return No
}

func (t Tri) String() string { return [...]string{"unknown", "no", "yes"}[min(t, 2)] }

// Promotion is the configured rule for choosing a server as primary.
type Promotion string

// Promotion rules.
const (
	Prefer  Promotion = "prefer"
	Neutral Promotion = "neutral"
	MustNot Promotion = "must_not"
)

// Evidence is the class of what was learnt when a server was asked.
type Evidence uint8

// Classes of evidence. Only Refused, Closed, TimedOut and WriteFailed speak
// against a server; the others are faults of the way to it or of its settings.
const (
	NotAsked Evidence = iota
	Answered
	Refused            // a new connection was refused
	Closed             // the established connection was closed by the peer
	TimedOut           // no answer within the timeout
	AccessDenied       // wrong account or password, or not allowed from this host
	TooManyConnections // max_connections reached
	TLSFailed          // TLS handshake or certificate
	NameResolution     // the address does not resolve
	ShuttingDown       // shutdown in progress
	WriteFailed        // the write probe failed
	Outdated           // started again, and lacks transactions that a replica has
	ProxyInBetween     // the connection id is not stable
	Unsupported        // a server that Lockstep cannot monitor (Galera, too old)
	OtherFailure       // anything else; its text says what
)

var evidenceNames = [...]string{
	"not asked yet", "answered", "connection refused", "connection closed", "timed out", "access denied",
	"too many connections", "TLS failed", "name does not resolve", "shutting down", "write probe failed",
	"lacks transactions", "proxy in between", "not supported", "failed",
}

func (e Evidence) String() string { return evidenceNames[min(int(e), len(evidenceNames)-1)] }

// MarshalText writes the class as words.
func (e Evidence) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// Down reports whether the class counts towards a failover.
func (e Evidence) Down() bool {
	return e == Refused || e == Closed || e == TimedOut || e.Reachable()
}

// Reachable reports whether the class is that of a primary that answers and yet
// has to be replaced.
func (e Evidence) Reachable() bool { return e == WriteFailed || e == Outdated }

// Settings are what the configuration says of a server.
type Settings struct {
	Name           string
	Address        string // host:port
	PrivateAddress string // host:port by which replicas know it; empty: Address
	Votes          int
	Promotion      Promotion
	Maintenance    bool
	Drain          bool
	Site           string
}

// Disk is a file system of a server's host.
type Disk struct {
	Path              string
	TotalKiB, FreeKiB uint64
}

// FreePercent is the part that is free, in percent.
func (d Disk) FreePercent() float64 { return 100 * float64(d.FreeKiB) / float64(d.TotalKiB) }

// Fault is something wrong with a server that a person can mend.
type Fault struct {
	Code   string // stable, snake_case
	Text   string
	Remedy string
}

func (f Fault) String() string {
	if f.Remedy == "" {
		return f.Text
	}
	return f.Text + ": " + f.Remedy
}

// Replication is one replication connection of a server.
type Replication struct {
	Name           string // connection or channel name, "" is the default one
	Host           string
	Port           int
	SourceServerID uint64 // zero until it connected for the first time
	IO             string // Yes, No, Connecting, Preparing
	SQL            string // Yes, No
	Received       gtid.Position
	SecondsBehind  Tri // Unknown where the server says NULL
	Seconds        uint64
	Delay          uint64 // configured delay in seconds
	UsesGTID       bool
	IOErrno        uint64
	SQLErrno       uint64
	IOError        string
	SQLError       string
	Heartbeats     uint64
	Filtered       bool
}

// Running reports whether both threads run and the source is connected.
func (r Replication) Running() bool { return r.IO == "Yes" && r.SQL == "Yes" }

// Address is the source as the replica knows it.
func (r Replication) Address() string { return net.JoinHostPort(r.Host, strconv.Itoa(r.Port)) }

// SemiSync are the semi-synchronous replication settings of a server.
type SemiSync struct {
	Known         bool
	PrimaryOn     bool
	ReplicaOn     bool
	Timeout       time.Duration
	WaitPoint     string
	WaitNoReplica bool
}

// neverFallsBack is the least timeout that counts as waiting for ever.
const neverFallsBack = 30 * 24 * time.Hour

// Weakness names the setting of a primary by which a commit can be acknowledged
// though no replica has it, "" for none.
func (s SemiSync) Weakness() string {
	switch {
	case !s.Known:
		return "its semi-sync settings are not known"
	case !s.PrimaryOn:
		return "rpl_semi_sync_master_enabled is OFF"
	case s.Timeout < neverFallsBack:
		return fmt.Sprintf("rpl_semi_sync_master_timeout is %v, after which commits are no longer acknowledged by a replica", s.Timeout)
	case !s.WaitNoReplica:
		return "rpl_semi_sync_master_wait_no_slave is OFF"
	case s.WaitPoint != "AFTER_SYNC":
		return "rpl_semi_sync_master_wait_point is " + s.WaitPoint + ", not AFTER_SYNC"
	}
	return ""
}

// Server is what is known of one server from its last completed probe. Fields
// below Evidence keep their last values while the server does not answer, so
// that a person can see them; decisions about a live server look at Evidence first.
//
// Invariant: SentAt <= DoneAt.
type Server struct {
	Settings
	Evidence Evidence
	// Detail is the text of the failure.
	Detail string
	// SentAt is the instant before the probe was sent, DoneAt the one when its
	// outcome was known. SeenAt is the SentAt of the last probe that was answered.
	SentAt, DoneAt, SeenAt time.Duration
	// EverSeen is true once the server has answered.
	EverSeen bool
	// PeerClosed is true after the server closed the established connection of
	// the monitor, until it answers again or fails to answer in time: a server that
	// is silent has not said that it ended.
	PeerClosed bool
	// LockSentAt is the last instant at which something may have been sent on a
	// connection that can hold locks, retransmissions included.
	LockSentAt time.Duration

	Flavor   Flavor
	Version  Version
	ServerID uint64
	// StartedAt is the instant at which the server was started, known to a second.
	StartedAt time.Duration
	// Instance identifies the process: host name, port and data directory as the
	// server reports them.
	Instance string
	// SameAs is the name of an earlier server that is the same process, "" for
	// none: see MarkDuplicates.
	SameAs string
	// PeerIP is the address that the connection really went to.
	PeerIP       string
	ReadOnly     Tri
	ReadOnlyText string

	BinlogPos   gtid.Position
	BinlogState gtid.State
	SlavePos    gtid.Position
	CurrentPos  gtid.Position
	DomainID    uint64
	StrictMode  Tri

	LogBin           Tri
	LogReplicaWrites Tri
	BinlogFormat     string
	SemiSync         SemiSync
	Replication      []Replication
	// ReplicationKnown is false where the replication state could not be read.
	ReplicationKnown bool
	// LowDisk says how little space is left where the server keeps its data, ""
	// where there is enough or that is not known.
	LowDisk string
	Faults  []Fault
}

// Up reports whether the last probe was answered.
func (s Server) Up() bool { return s.Evidence == Answered }

// Writable reports whether the server answered and accepts writes.
func (s Server) Writable() bool { return s.Up() && s.ReadOnly == No }

// Why says in a few words what is wrong with a server that is not up.
func (s Server) Why() string {
	if s.Detail == "" {
		return s.Evidence.String()
	}
	return fmt.Sprintf("%s (%s)", s.Evidence, s.Detail)
}
