package config

import (
	"slices"
	"time"
)

// kind is the type of a key.
type kind uint8

const (
	kindString kind = iota
	kindSecret      // a string that is never printed
	kindBool
	kindInt
	kindDuration // a string with a unit
	kindEnum     // a string out of choices
	kindStrings  // an array of strings
	kindTable    // [key]
	kindNamed    // [key.NAME], any number of tables by name
	kindList     // [[key]], any number of tables in order
)

// key describes one key of the configuration.
type key struct {
	name string
	kind kind
	// required keys have no default.
	required bool
	// def is the default: string, bool, int64, time.Duration or []string. A key
	// without one is empty unless given.
	def any
	// defDoc is put in the reference in place of def.
	defDoc string
	// unit is put in the reference for numbers that are not durations.
	unit string
	doc  string
	// min and max bound integers (int64) and durations, if not nil.
	min, max any
	// choices are the values of an enum.
	choices []string
	// check looks at a string, or each of an array of strings, and returns what
	// stands for it in the result. Not asked about an empty value that is the
	// default.
	check func(string) (string, *fault)
	// hide keeps a refused value out of messages, since people may put a secret
	// there by mistake.
	hide bool
	// keys are those of a table.
	keys []key
}

var logLevels = []string{"trace", "debug", "info", "warn", "error"}

var tlsModes = []string{TLSDisabled, TLSPreferred, TLSRequired, TLSVerifyCA, TLSVerifyIdentity}

// schema is the whole configuration.
var schema = []key{
	{name: "log_level", kind: kindEnum, def: "info", choices: logLevels,
		doc: "Log messages of this level and above."},
	{name: "log_format", kind: kindEnum, def: "json", choices: []string{"json", "console", "auto"},
		doc: "One JSON object a line, text for people, or text on a terminal and JSON elsewhere."},
	{name: "max_failovers", kind: kindInt, def: int64(0), min: int64(0), max: int64(1000), unit: "clusters",
		doc: "How many clusters of this file may fail over automatically within max_failovers_within; 0 for any number. Where many seem to fail at once it may be their site, or this host."},
	{name: "max_failovers_within", kind: kindDuration, def: 10 * time.Minute, min: time.Second,
		doc: "The time in which max_failovers counts."},
	{name: "http", kind: kindTable, doc: "Where the daemon answers HTTP requests.", keys: httpKeys},
	{name: "agent", kind: kindTable, doc: "Where the daemon answers the agent checks of HAProxy.", keys: agentKeys},
	{name: "hook", kind: kindList, doc: "A command or a webhook that is run at events: see docs/hooks.md.", keys: hookKeys},
	{name: "consul", kind: kindTable, doc: "Where the primary monitor writes the primary in Consul's key-value store: see docs/discovery.md.", keys: consulKeys},
	{name: "etcd", kind: kindTable, doc: "Where the primary monitor writes the primary in etcd: see docs/discovery.md.", keys: etcdKeys},
	{name: "haproxy", kind: kindList, doc: "A server of a HAProxy of this site that is kept leading to the primary: see docs/discovery.md.", keys: haproxyKeys},
	{name: "cluster", kind: kindNamed, doc: "A replication cluster. One or more, each with a name of its own.", keys: clusterKeys},
}

var httpKeys = []key{
	{name: "listen", def: "127.0.0.1:8990", check: checkListen,
		doc: "host:port to listen on for the API, metrics and health checks; empty for none."},
	{name: "allow_remote", kind: kindBool, def: false,
		doc: "Let listen be an address that other hosts reach. Without token_file and client_ca whoever reaches it may read everything; commands are refused there."},
	{name: "token_file",
		doc: "File of tokens, one a line: the role (read or operate), a name, and the token or sha256: and its digest in hexadecimal. Only its owner may read it. Read again on SIGHUP."},
	{name: "tls_cert", doc: "PEM file with the daemon's certificate, for HTTPS; needs tls_key. Read again when it changes."},
	{name: "tls_key", doc: "PEM file with the key of tls_cert."},
	{name: "client_ca",
		doc: "PEM file with authorities: who has a certificate from one may read, and give commands if its organizational unit is operate. Needs tls_cert."},
}

var agentKeys = []key{
	{name: "listen", def: "", check: checkListen,
		doc: "host:port to listen on; empty for none."},
	{name: "allow_remote", kind: kindBool, def: false,
		doc: "Let listen be an address that other hosts reach. They learn which servers may be used, and can change nothing."},
}

var clusterKeys = slices.Concat(monitorKeys, operationKeys, []key{
	{name: "server", kind: kindList, doc: "A server of the cluster. One or more.", keys: serverKeys},
})

var monitorKeys = []key{
	{name: "flavor", kind: kindEnum, def: FlavorAuto, choices: []string{FlavorMariaDB, FlavorMySQL, FlavorAuto},
		doc: "What the servers are; with auto they are asked."},
	{name: "user", required: true, check: checkNotEmpty,
		doc: "Account with which the monitor connects to the servers."},
	{name: "password", kind: kindSecret, doc: passwordDoc},
	{name: "password_file", doc: passwordFileDoc},
	{name: "password_env", check: checkVariable, hide: true, doc: passwordEnvDoc},

	{name: "interval", kind: kindDuration, def: 2 * time.Second, min: 100 * time.Millisecond, max: 10 * time.Minute,
		doc: "Time between two looks at the servers."},
	{name: "timeout", kind: kindDuration, def: 3 * time.Second, min: 100 * time.Millisecond, max: 5 * time.Minute,
		doc: "How long a server may take to answer."},
	{name: "failcount", kind: kindInt, def: int64(0), min: int64(0), max: int64(1000), unit: "intervals",
		doc: "How many looks in a row a primary must fail before it is replaced; 0 for the smallest safe number."},
	{name: "allow_unsafe_failcount", kind: kindBool, def: false,
		doc: "Accept a failcount with which two monitors may act at once."},
	{name: "wait_timeout_floor", kind: kindDuration, def: 5 * time.Second, min: time.Second, max: 8 * time.Hour,
		doc: "Least time after which a server drops the locks of a monitor that has vanished."},
	{name: "lag_limit", kind: kindDuration, def: 10 * time.Second,
		doc: "A replica further behind than this is labelled Lagging; 0s for never."},

	{name: "quorum", kind: kindEnum, def: QuorumMajorityOfAll,
		choices: []string{QuorumNone, QuorumMajorityOfRunning, QuorumMajorityOfAll},
		doc:     "Of which servers a monitor needs more than half the votes in order to act; none if it is the only monitor."},
	{name: "server_lock", def: "maxscale_mariadbmonitor", check: checkLock,
		doc: "Name of the lock that is the vote of a server. All monitors of a cluster need the same."},
	{name: "primary_lock", def: "maxscale_mariadbmonitor_master", check: checkLock,
		doc: "Name of the lock that marks the server to write to. All monitors of a cluster need the same."},
	{name: "trusted_lock_users", kind: kindStrings, def: []string{}, check: checkNotEmpty,
		doc: "Accounts other than user whose locks count as those of a monitor."},
	{name: "passive", kind: kindBool, def: false,
		doc: "Watch only: take no lock and change nothing."},
	{name: "monitor_name", check: checkLabel, defDoc: "the host name",
		doc: "What this monitor calls itself to people and other monitors."},

	{name: "tls", kind: kindEnum, def: TLSDisabled, choices: tlsModes,
		doc: "Whether connections to the servers are encrypted, and what of the server's certificate is verified."},
	{name: "tls_ca", doc: "PEM file with the authorities to trust; the system's if not given."},
	{name: "tls_cert", doc: "PEM file with the monitor's own certificate; needs tls_key."},
	{name: "tls_key", doc: "PEM file with the key of tls_cert."},
	{name: "tls_server_name", check: checkHost, defDoc: "the host of the address",
		doc: "Name that the certificates of the servers must have, with verify-identity."},
}

var serverKeys = []key{
	{name: "name", required: true, check: checkName, doc: "Name of the server, unique in its cluster."},
	{name: "address", required: true, check: checkAddress,
		doc: "host:port where the monitor reaches the server; the port may be left out if it is 3306. IPv6 in brackets. Or unix:/path for a socket."},
	{name: "private_address", check: checkTCPAddress, defDoc: "address",
		doc: "host:port where the replicas reach the server."},
	{name: "votes", kind: kindInt, def: int64(1), min: int64(0), max: int64(1), unit: "votes",
		doc: "0 for a server that does not count towards the majority."},
	{name: "promotion", kind: kindEnum, def: PromotionNeutral, choices: []string{PromotionPrefer, PromotionNeutral, PromotionMustNot},
		doc: "Whether the server is to become primary rather than others, like others, or never."},
	{name: "maintenance", kind: kindBool, def: false,
		doc: "Start with the server in maintenance: it votes, but is neither used nor changed."},
	{name: "drain", kind: kindBool, def: false,
		doc: "Start with the server draining: it gets no new connections."},
	{name: "site", check: checkLabel, doc: "Where the server is; free text."},
	{name: "user", check: checkNotEmpty, defDoc: "that of the cluster", doc: "Account on this server."},
	{name: "password", kind: kindSecret, defDoc: "that of the cluster", doc: passwordDoc},
	{name: "password_file", doc: passwordFileDoc},
	{name: "password_env", check: checkVariable, hide: true, doc: passwordEnvDoc},
	{name: "tls", kind: kindEnum, choices: tlsModes, defDoc: "that of the cluster", doc: "As in the cluster, for this server."},
}

const (
	passwordDoc     = "Password of the account. Give this, password_file or password_env."
	passwordFileDoc = "File that holds nothing but the password and that only its owner may read."
	passwordEnvDoc  = "Environment variable that holds the password."
)
