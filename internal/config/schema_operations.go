package config

import "time"

// operationKeys are the keys of a cluster that say what the monitor may change.
var operationKeys = []key{
	{name: "replication_user", check: checkNotEmpty,
		doc: "Account with which replicas log in to their primary. What makes a server replicate from another needs it."},
	{name: "replication_password", kind: kindSecret,
		doc: "Password of replication_user. Give this, replication_password_file or replication_password_env."},
	{name: "replication_password_file", doc: passwordFileDoc},
	{name: "replication_password_env", check: checkVariable, hide: true, doc: passwordEnvDoc},
	{name: "replication_tls", kind: kindBool, def: false,
		doc: "Make replicas connect to their primary over TLS."},

	{name: "auto_failover", kind: kindBool, def: false,
		doc: "Replace a primary that has failed; needs replication_user."},
	{name: "auto_rejoin", kind: kindBool, def: false,
		doc: "Let servers that come back or stand alone replicate from the primary, and repoint replicas of the wrong source; needs replication_user."},
	{name: "enforce_read_only", kind: kindBool, def: false,
		doc: "Set servers other than the primary read-only."},
	{name: "enforce_writable", kind: kindBool, def: false,
		doc: "Set the primary writable."},

	{name: "dead_primary_delay", kind: kindDuration, min: time.Duration(0), max: 5 * time.Minute, defDoc: "half of interval, at most 1s",
		doc: "How long the evidence that the primary is dead must last before a failover starts; 0s is as if not given."},
	{name: "trust_evidence", kind: kindBool, def: false,
		doc: "With majority_of_all, take refused connections as proof that the primary is dead even where an acknowledged write could be lost if they were forged."},
	{name: "relay_log", kind: kindEnum, def: RelayLogWait, choices: []string{RelayLogWait, RelayLogAbort, RelayLogProceed},
		doc: "What a failover does if its candidate has not applied all that it received: wait for at most failover_timeout, abort, or proceed and lose those writes."},
	{name: "failover_timeout", kind: kindDuration, def: 90 * time.Second, min: time.Second,
		doc: "How long a failover waits until the relay log is applied."},
	{name: "switchover_timeout", kind: kindDuration, def: 10 * time.Second, min: time.Second,
		doc: "How long a switchover may refuse writes."},
	{name: "failover_block", kind: kindDuration, def: time.Hour,
		doc: "How long automatic failover stays off after one; 0s for not at all."},

	{name: "move_events", kind: kindBool, def: true,
		doc: "Move scheduled events with the primary: enable them on the new one, disable them on the former one."},
	{name: "move_semi_sync", kind: kindBool, def: true,
		doc: "Move the primary side of semi-synchronous replication with the primary."},
	{name: "promotion_sql_file",
		doc: "File of statements for a new primary, one a line; lines that are blank or start with # or -- do not count. People see the statements: put no password in."},
	{name: "demotion_sql_file",
		doc: "File of statements for a former primary, like promotion_sql_file."},

	{name: "fence_command", kind: kindStrings, def: []string{}, hide: true,
		doc: "Program, with its absolute path, and arguments. Run before a primary that is not known to be dead is replaced: exit status 0 means that it is off for certain."},
	{name: "fence_on_lost_majority", kind: kindBool, def: false,
		doc: "With majority_of_all, set the published primary read-only and close its client connections when the majority is lost while the primary can still be reached."},
	{name: "state_schema", def: "lockstep", check: checkSchema,
		doc: "Database in which the last failover is noted on the primary, so that failover_block holds for every monitor; empty for none."},
	{name: "write_probe", check: checkTable,
		doc: "Table, as schema.table, into which a heartbeat row is written on the primary; empty for none."},
}
