package config

import "time"

// File is a configuration that was read and checked.
type File struct {
	// Path is the file as named to Load or Parse.
	Path string
	// LogLevel is trace, debug, info, warn or error.
	LogLevel string
	// LogFormat is json, console or auto.
	LogFormat string
	// MaxFailovers is 0 for any number.
	MaxFailovers       int
	MaxFailoversWithin time.Duration
	HTTP               HTTP
	Agent              Agent
	// Hooks are in the order of the file.
	Hooks   []Hook
	Consul  Consul
	Etcd    Etcd
	HAProxy []HAProxy
	// Clusters has at least one element and is sorted by name.
	Clusters []Cluster
	// Warnings are what the file may say but probably should not, sorted by line.
	Warnings []Problem
}

// HTTP says where the daemon answers requests.
type HTTP struct {
	// Listen is host:port, or empty for no listener at all.
	Listen string
	// AllowRemote is set if Listen may be reached from other hosts.
	AllowRemote bool
	// Tokens let clients in; none if there is no token file.
	Tokens []Token
	// Cert, Key and ClientCA are names of PEM files, or empty.
	Cert, Key, ClientCA string
}

// Agent says where the daemon answers HAProxy's agent checks.
type Agent struct {
	// Listen is host:port, or empty for no listener at all.
	Listen string
}

// Values of Cluster.Flavor.
const (
	FlavorAuto    = "auto"
	FlavorMariaDB = "mariadb"
	FlavorMySQL   = "mysql"
)

// Values of Cluster.Quorum.
const (
	QuorumNone              = "none"
	QuorumMajorityOfRunning = "majority_of_running"
	QuorumMajorityOfAll     = "majority_of_all"
)

// Values of TLS.Mode.
const (
	TLSDisabled       = "disabled"
	TLSPreferred      = "preferred"
	TLSRequired       = "required"
	TLSVerifyCA       = "verify-ca"
	TLSVerifyIdentity = "verify-identity"
)

// Values of Operations.RelayLog.
const (
	RelayLogWait    = "wait"
	RelayLogAbort   = "abort"
	RelayLogProceed = "proceed"
)

// Values of Server.Promotion.
const (
	PromotionPrefer  = "prefer"
	PromotionNeutral = "neutral"
	PromotionMustNot = "must_not"
)

// Cluster is one replication cluster.
type Cluster struct {
	Name string
	// Flavor is one of the Flavor constants.
	Flavor   string
	User     string
	Password Secret
	// Interval is the time between two looks at the servers.
	Interval time.Duration
	// Timeout bounds each exchange with a server.
	Timeout time.Duration
	// Failcount is a number of ticks; 0 stands for the smallest safe one.
	Failcount            int
	AllowUnsafeFailcount bool
	// WaitTimeoutFloor is the least wait_timeout of a lock connection.
	WaitTimeoutFloor time.Duration
	// Quorum is one of the Quorum constants.
	Quorum           string
	ServerLock       string
	PrimaryLock      string
	TrustedLockUsers []string
	Passive          bool
	// LagLimit is 0 if no server is to be called lagging.
	LagLimit time.Duration
	// MonitorName is never empty: it defaults to the host name.
	MonitorName string
	TLS         TLS
	Operations  Operations
	// Servers has at least one element and is in the order of the file.
	Servers []Server
}

// Operations is what the monitor of a cluster may change, and how.
type Operations struct {
	// ReplicationUser is empty if there is no such account.
	ReplicationUser     string
	ReplicationPassword Secret
	ReplicationTLS      bool
	AutoFailover        bool
	AutoRejoin          bool
	EnforceReadOnly     bool
	EnforceWritable     bool
	// DeadPrimaryDelay is 0 for the default, which depends on the interval.
	DeadPrimaryDelay time.Duration
	TrustEvidence    bool
	// RelayLog is one of the RelayLog constants.
	RelayLog          string
	FailoverTimeout   time.Duration
	SwitchoverTimeout time.Duration
	// FailoverBlock is 0 if a failover blocks no other.
	FailoverBlock time.Duration
	MoveEvents    bool
	MoveSemiSync  bool
	// PromotionSQL and DemotionSQL are the statements of the files.
	PromotionSQL, DemotionSQL []string
	// FenceCommand is the program and its arguments, or empty. It does not print,
	// since an argument may be a password.
	FenceCommand        []Secret
	FenceOnLostMajority bool
	// StateSchema is empty for none.
	StateSchema string
	// WriteProbe is schema.table, or empty for none.
	WriteProbe string
	// KeepConnections are accounts whose connections operations never end.
	KeepConnections []string
	// MinFreeDisk is in percent, 0 for not looking at disks.
	MinFreeDisk                         int
	DrainOnLowDisk, SwitchoverOnLowDisk bool
}

// Server is one server of a cluster. User, Password and TLS are those in force:
// its own where it has any, else its cluster's.
type Server struct {
	Name string
	// Address is host:port with the host in lower case and the port always
	// given, or unix:/path.
	Address string
	// PrivateAddress is host:port by which replicas reach the server, or empty
	// if that is Address.
	PrivateAddress string
	// Votes is 0 or 1.
	Votes int
	// Promotion is one of the Promotion constants.
	Promotion   string
	Maintenance bool
	Drain       bool
	Site        string
	User        string
	Password    Secret
	TLS         TLS
}

// TLS says how connections to a server are protected.
type TLS struct {
	// Mode is one of the TLS constants.
	Mode string
	// CA, Cert and Key are paths of PEM files, or empty. Without CA the system's
	// roots are meant.
	CA, Cert, Key string
	// ServerName is the name to look for in the certificate, or empty for the
	// host of the address.
	ServerName string
}
