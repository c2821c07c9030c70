package monitor

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-ha/lockstep/election"
	"github.com/lockstep-ha/lockstep/locks"
	"github.com/lockstep-ha/lockstep/monitor/backend"
	"github.com/lockstep-ha/lockstep/monitor/operation"
	"github.com/lockstep-ha/lockstep/topology"
)

// Defaults of Config.
const (
	DefaultInterval = 2 * time.Second
	DefaultTimeout  = 3 * time.Second
	DefaultLagLimit = 10 * time.Second
)

// Config describes one cluster and how to monitor it. All monitors of a cluster
// must have the same servers, votes, Quorum, Interval, Timeout and Failcount.
type Config struct {
	// Cluster is its name; "main" when empty.
	Cluster string
	// Name of this monitor in views; the host name when empty.
	Name string
	// Version of the program, for views.
	Version string
	Servers []ServerConfig
	// Flavor is what the servers must be; the zero value asks them.
	Flavor topology.Flavor
	// User and Password are the account on servers that give none of their own.
	User, Password string
	// TLS for all servers; nil for connections in the clear. TLSOptional accepts a
	// server without TLS.
	TLS         *tls.Config
	TLSOptional bool
	// Quorum is how many locks make a primary monitor; the zero value is
	// majority_of_all.
	Quorum election.Mode
	// Interval is the time from tick to tick. Shorter: failures are noticed
	// sooner, at one round trip per server and tick.
	Interval time.Duration
	// Timeout bounds each connect and query. Longer: fewer false alarms, and
	// locks of vanished monitors stay longer (see locks.Derive).
	Timeout time.Duration
	// Failcount is the number of ticks before a failover and of settling; zero is
	// the smallest safe one.
	Failcount            int
	AllowUnsafeFailcount bool
	WaitTimeoutFloor     time.Duration
	// ServerLock and PrimaryLock are the lock names; MaxScale's when empty.
	ServerLock, PrimaryLock string
	// TrustedLockUsers are accounts whose locks count beside the monitor's own.
	TrustedLockUsers []string
	// Passive monitors watch and take no locks.
	Passive bool
	// LagLimit is the lag above which a replica is labelled Lagging; negative for
	// never.
	LagLimit time.Duration
	// Policy is what the monitor may change on the servers; its zero value lets it
	// change nothing on its own.
	Policy operation.Policy
}

// ServerConfig is one server of a cluster.
type ServerConfig struct {
	Name string
	// Address is host:port; PrivateAddress the one that replicas use, when it
	// differs.
	Address, PrivateAddress string
	// NoVote takes the server's vote away; it can still be the primary.
	NoVote      bool
	Promotion   topology.Promotion
	Maintenance bool
	Drain       bool
	Site        string
	// User and Password override those of the cluster when User is not empty.
	User, Password string
	// TLS overrides that of the cluster when it is not nil.
	TLS         *tls.Config
	TLSOptional bool
}

// derived is what New computes from a Config.
type derived struct {
	cfg     Config
	timing  locks.Timing
	names   locks.Names
	servers []backend.Server
}

// derive fills in defaults and returns all problems at once.
func derive(c Config) (derived, error) {
	c.Cluster = cmp.Or(c.Cluster, "main")
	c.Interval = cmp.Or(c.Interval, DefaultInterval)
	c.Timeout = cmp.Or(c.Timeout, DefaultTimeout)
	c.LagLimit = cmp.Or(c.LagLimit, DefaultLagLimit)
	if c.Name == "" {
		// A host without a name is told apart by nothing; the name is for people only.
		c.Name, _ = os.Hostname()
	}
	c.Policy = c.Policy.WithDefaults(c.Interval)
	c.Policy.KeepConnections = append(slices.Clone(c.Policy.KeepConnections), c.TrustedLockUsers...)
	d := derived{cfg: c}
	var problems []error
	var err error
	d.timing, err = locks.Derive(locks.Settings{Interval: c.Interval, Timeout: c.Timeout, Failcount: c.Failcount,
		AllowUnsafe: c.AllowUnsafeFailcount, Floor: c.WaitTimeoutFloor})
	problems = append(problems, err)
	if len(c.Servers) == 0 {
		problems = append(problems, errors.New("no servers: give at least one"))
	}
	voters, votes := map[string]int{}, 0
	names, addresses := map[string]bool{}, map[string]string{}
	for _, s := range c.Servers {
		if s.Name == "" {
			problems = append(problems, fmt.Errorf("server %s has no name", s.Address))
		}
		if names[s.Name] {
			problems = append(problems, fmt.Errorf("two servers have the name %q", s.Name))
		}
		names[s.Name] = true
		if _, _, err := net.SplitHostPort(s.Address); err != nil && !strings.HasPrefix(s.Address, "unix:/") {
			problems = append(problems, fmt.Errorf("server %s: address %q is not host:port: %w", s.Name, s.Address, err))
		}
		if other, ok := addresses[s.Address]; ok {
			problems = append(problems, fmt.Errorf("servers %s and %s have the same address %s", other, s.Name, s.Address))
		}
		addresses[s.Address] = s.Name
		b := backend.Server{
			Settings: topology.Settings{Name: s.Name, Address: s.Address, PrivateAddress: s.PrivateAddress, Votes: 1,
				Promotion: cmp.Or(s.Promotion, topology.Neutral), Maintenance: s.Maintenance, Drain: s.Drain, Site: s.Site},
			User: c.User, Password: c.Password, Flavor: c.Flavor, TLSOptional: c.TLSOptional,
		}
		if s.NoVote {
			b.Votes = 0
		}
		if s.User != "" {
			b.User, b.Password = s.User, s.Password
		}
		b.TLS = c.TLS
		if s.TLS != nil {
			b.TLS, b.TLSOptional = s.TLS, s.TLSOptional
		}
		if b.TLS != nil {
			b.TLS = b.TLS.Clone()
			if host, _, err := net.SplitHostPort(s.Address); err == nil && b.TLS.ServerName == "" {
				b.TLS.ServerName = host
			}
		}
		voters[s.Name] = b.Votes
		votes += b.Votes
		d.servers = append(d.servers, b)
	}
	if votes == 0 && c.Quorum != election.None && len(c.Servers) > 0 {
		problems = append(problems, errors.New("no server has a vote: at least one must"))
	}
	slices.SortFunc(d.servers, func(a, b backend.Server) int { return cmp.Compare(a.Name, b.Name) })
	d.names, err = locks.NewNames(c.ServerLock, c.PrimaryLock, locks.Agreement{Mode: c.Quorum.String(), Voters: voters, Timing: d.timing})
	problems = append(problems, err)
	if err := errors.Join(problems...); err != nil {
		return d, fmt.Errorf("cluster %s: %w", c.Cluster, err)
	}
	return d, nil
}
