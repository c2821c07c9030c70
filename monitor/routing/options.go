package routing

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/lockstep-ha/lockstep/locks"
)

// Policy is how one of several replicas that may serve a read is chosen.
type Policy string

// Policies. Weights count in all but RoundRobin and Random; a server with weight
// zero is a standby for all of them.
const (
	// LeastOutstanding takes the one with the fewest connections in use for its
	// weight. It is the default.
	LeastOutstanding Policy = "least_outstanding"
	// Weighted draws one, by weight.
	Weighted Policy = "weighted"
	// RoundRobin takes them in turn, by name.
	RoundRobin Policy = "round_robin"
	// Random draws one.
	Random Policy = "random"
)

var policies = []Policy{LeastOutstanding, Weighted, RoundRobin, Random}

// ParsePolicy reads the name of a policy.
func ParsePolicy(s string) (Policy, error) {
	if p := Policy(s); slices.Contains(policies, p) {
		return p, nil
	}
	return "", fmt.Errorf("policy is %q: it must be one of %v", s, policies)
}

// Defaults of Options.
const (
	DefaultSessionWait  = 500 * time.Millisecond
	DefaultDialTimeout  = 3 * time.Second
	DefaultSlowStart    = 10 * time.Second
	DefaultCircuitAfter = 3
	DefaultCircuitWait  = time.Second
	DefaultMaxIdle      = 32
	DefaultMaxIdleTime  = 5 * time.Minute
	DefaultMaxHeld      = 1000
	DefaultMaxWaits     = 100
	DefaultRetries      = 10

	maxWeight      = 65535
	maxServers     = 64
	maxHoldWrites  = time.Hour
	maxCircuitWait = 30 * time.Second
)

// Options say how a router connects and chooses. Only DSN or Config must be given.
type Options struct {
	// DSN is a data source name of go-sql-driver/mysql without an address:
	// "app:secret@/shop?parseTime=true". Config is the same in another form; give
	// one of them.
	DSN    string
	Config *mysql.Config
	// Servers are settings of single servers by name. A name that the view does not
	// know stands for nothing, until it does.
	Servers map[string]ServerOptions

	// Policy is how a replica is chosen; LeastOutstanding when empty.
	Policy Policy
	// Sites are preferred in this order: where a replica of an earlier site may serve
	// a read, no other does.
	Sites []string
	// Filters narrow the choice, each given what the one before left. One that
	// leaves nothing sends the read to the primary.
	Filters []Filter
	// Picker replaces Policy.
	Picker Picker
	// ReadPrimary lets the primary serve reads of every level, as one of the
	// replicas.
	ReadPrimary bool
	// PrimaryOnly sends every read to the primary.
	PrimaryOnly bool
	// NoFallback fails a read with ErrNoReplica where no replica may serve it,
	// instead of sending it to the primary.
	NoFallback bool
	// Sticky keeps a Tracker on the replica that served it first, as long as that one
	// may serve its reads.
	Sticky bool

	// SessionWait is how long a replica is waited for to reach a token before the
	// primary is read from. Longer: less load on the primary; zero for the default,
	// negative for not at all.
	SessionWait time.Duration
	// MaxWaits is how many reads may wait on one replica at a time; more go to the
	// primary. Zero for the default.
	MaxWaits int
	// TokenKey signs the tokens of FormatToken, so that ParseToken refuses others.
	TokenKey []byte

	// HoldWrites is how long what needs the primary waits for one, instead of failing
	// at once. Longer: failovers are not seen, and requests pile up. At most an hour.
	HoldWrites time.Duration
	// MaxHeld is how many may wait at a time; more fail at once. Zero for the default.
	MaxHeld int
	// HardCut closes the sockets of connections that are in use on a server that has
	// ceased to be the primary. Without it their next statement fails.
	HardCut bool
	// ServerLock and PrimaryLock are the lock names; the monitor's defaults when empty.
	ServerLock, PrimaryLock string
	// NoLockCheck leaves the locks of a server unasked when a connection for writes is
	// opened: for clusters with quorum = none, which have none.
	NoLockCheck bool

	// DialTimeout bounds connecting, login and the first statement; zero for the
	// default.
	DialTimeout time.Duration
	// MaxIdle is how many unused connections are kept per server and role, and
	// MaxIdleTime for how long; MaxLifetime is the age at which a connection is
	// replaced, zero for never. Zero MaxIdle and MaxIdleTime are the defaults,
	// negative ones mean none and for ever.
	MaxIdle                  int
	MaxIdleTime, MaxLifetime time.Duration
	// SlowStart is the time in which a replica that has come back gets from a tenth
	// to all of its share; zero for the default, negative for at once.
	SlowStart time.Duration
	// CircuitAfter is how many failures in a row take a replica out of the choice,
	// and CircuitWait for how long at first; that doubles up to 30 s. Zero for the
	// defaults.
	CircuitAfter int
	CircuitWait  time.Duration

	// Retries is how often Retry and Write begin again at most, and RetryCodes are
	// further server error codes for which they do, beside 1205 and 1213. Zero for
	// the default, negative for never.
	Retries    int
	RetryCodes []uint16

	// OnChange is called, one at a time, after the primary has changed; name and
	// address are "" for none, and reason says why. Changes that come faster than it
	// returns are merged.
	OnChange func(name, address, reason string)
}

// ServerOptions are settings of one server.
type ServerOptions struct {
	// Address is where this program reaches the server, if not at the address in the
	// view.
	Address string
	// Site overrides that of the view.
	Site string
	// Weight is the share of reads, 1 to 65535; 0 with Standby set.
	Weight int
	// Standby takes reads only when no server with a weight may.
	Standby bool
	// Tags are what Level.Tagged asks for.
	Tags []string
	// TLS replaces that of the DSN.
	TLS *tls.Config
	// User and Password replace those of the DSN when User is not empty.
	User, Password string
}

// Filter narrows the nodes that may serve a read. It may reorder and cut in, but
// not add to it, and must not keep it.
type Filter func(ctx context.Context, l Level, in []*Node) []*Node

// Picker chooses one of at least one node. One that is not in the list is an error.
type Picker func(ctx context.Context, l Level, in []*Node) *Node

// withDefaults fills in and checks; all problems are returned at once.
func (o Options) withDefaults() (Options, *mysql.Config, locks.Names, error) {
	var problems []error
	bad := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	cfg := o.baseConfig(bad)
	o.Policy = cmp.Or(o.Policy, LeastOutstanding)
	if _, err := ParsePolicy(string(o.Policy)); err != nil {
		bad("%w", err)
	}
	o.SessionWait = cmp.Or(o.SessionWait, DefaultSessionWait)
	o.DialTimeout = cmp.Or(o.DialTimeout, DefaultDialTimeout)
	o.SlowStart = cmp.Or(o.SlowStart, DefaultSlowStart)
	o.CircuitAfter = cmp.Or(o.CircuitAfter, DefaultCircuitAfter)
	o.CircuitWait = cmp.Or(o.CircuitWait, DefaultCircuitWait)
	o.MaxIdle = cmp.Or(o.MaxIdle, DefaultMaxIdle)
	o.MaxIdleTime = cmp.Or(o.MaxIdleTime, DefaultMaxIdleTime)
	o.MaxHeld = cmp.Or(o.MaxHeld, DefaultMaxHeld)
	o.MaxWaits = cmp.Or(o.MaxWaits, DefaultMaxWaits)
	o.Retries = cmp.Or(o.Retries, DefaultRetries)
	switch {
	case o.HoldWrites < 0 || o.HoldWrites > maxHoldWrites:
		bad("HoldWrites is %v: it must be from 0 to %v", o.HoldWrites, maxHoldWrites)
	case o.DialTimeout < 0:
		bad("DialTimeout is %v: it must be more than zero", o.DialTimeout)
	case o.CircuitAfter < 0 || o.CircuitWait < 0 || o.MaxHeld < 0 || o.MaxWaits < 0:
		bad("CircuitAfter, CircuitWait, MaxHeld and MaxWaits must not be negative")
	case o.MaxLifetime < 0:
		bad("MaxLifetime is %v: it must not be negative", o.MaxLifetime)
	case o.PrimaryOnly && o.NoFallback:
		bad("PrimaryOnly and NoFallback exclude each other")
	}
	for _, name := range slices.Sorted(maps.Keys(o.Servers)) {
		s := o.Servers[name]
		switch {
		case s.Standby && s.Weight != 0:
			bad("server %s: weight is %d, but it is a standby: leave out one of the two", name, s.Weight)
		case s.Weight < 0 || s.Weight > maxWeight:
			bad("server %s: weight is %d: it must be from 1 to %d, or set Standby", name, s.Weight, maxWeight)
		}
		if err := checkAddress(s.Address); s.Address != "" && err != nil {
			bad("server %s: %w", name, err)
		}
	}
	names, err := locks.NewNames(o.ServerLock, o.PrimaryLock, locks.Agreement{})
	problems = append(problems, err)
	return o, cfg, names, errors.Join(problems...)
}

// baseConfig returns the settings that all connections have in common.
func (o Options) baseConfig(bad func(string, ...any)) *mysql.Config {
	var cfg *mysql.Config
	switch {
	case o.Config != nil && o.DSN != "":
		bad("both DSN and Config are given: leave out one")
		return nil
	case o.Config != nil:
		cfg = o.Config.Clone()
	case o.DSN != "":
		var err error
		if cfg, err = mysql.ParseDSN(o.DSN); err != nil {
			bad("DSN: %w", err)
			return nil
		}
	default:
		bad("neither DSN nor Config is given: give the account and database to connect with, like \"app:secret@/shop\"")
		return nil
	}
	if cfg.RejectReadOnly {
		bad("rejectReadOnly hides the server's error and sends the statement again: leave it out, the router does better")
	}
	if cfg.DialFunc != nil {
		bad("DialFunc is set: the router needs it for itself")
	}
	if cfg.Logger == nil || o.Config == nil {
		cfg.Logger = &mysql.NopLogger{} // every failure is returned or counted
	}
	return cfg
}

// checkAddress accepts host:port and unix:/path.
func checkAddress(address string) error {
	if strings.HasPrefix(address, unixPrefix+"/") {
		return nil
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "" || port == "" {
		return fmt.Errorf("address %q is not host:port", address)
	}
	return nil
}

const unixPrefix = "unix:"
