package mariadb

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-ha/lockstep/topology"
)

// Masked stands for a secret in statements that people see.
const Masked = "********"

// literal makes a string of SQL for sessions with sql_mode = ”.
func literal(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `''`, "\x00", `\0`).Replace(s) + "'"
}

// bounded makes a statement give up after wait instead of standing in the way of
// others: SET GLOBAL read_only blocks new writes while it waits for running ones.
func bounded(wait time.Duration, statement string) string {
	seconds := max(int(wait/time.Second), 1)
	return fmt.Sprintf("SET STATEMENT lock_wait_timeout=%d, max_statement_time=%s FOR %s", seconds,
		strconv.FormatFloat(max(wait, time.Millisecond).Seconds(), 'f', -1, 64), statement)
}

// SetReadOnly keeps ordinary accounts from writing. It waits for running commits
// no longer than wait; then it fails with code 1205 or 1969.
func SetReadOnly(wait time.Duration) string { return bounded(wait, "SET GLOBAL read_only=1") }

// SetWritable lets ordinary accounts write.
func SetWritable() string { return "SET GLOBAL read_only=0" }

// StopReceiving stops the IO thread of one replication connection. What it has
// received stays, and the SQL thread goes on.
func StopReceiving(connection string) string {
	return "STOP SLAVE " + literal(connection) + " IO_THREAD"
}

// StartReceiving starts it again.
func StartReceiving(connection string) string {
	return "START SLAVE " + literal(connection) + " IO_THREAD"
}

// StartApplying starts the SQL thread of one replication connection.
func StartApplying(connection string) string {
	return "START SLAVE " + literal(connection) + " SQL_THREAD"
}

// StopReplica stops both threads of one replication connection, which makes the
// server throw away relay log that it has not applied.
func StopReplica(connection string) string { return "STOP SLAVE " + literal(connection) }

// StartReplica starts both threads.
func StartReplica(connection string) string { return "START SLAVE " + literal(connection) }

// ForgetSource removes one replication connection, which must be stopped.
func ForgetSource(connection string) string { return "RESET SLAVE " + literal(connection) + " ALL" }

// Source is where a replication connection leads.
type Source struct {
	Connection     string
	Address        string // host:port
	User, Password string
	TLS            bool
	// Demote is set for a server with transactions of its own: they become part of
	// the position from which it replicates.
	Demote bool
}

// ChangeSource sets where a stopped replication connection leads. From 10.10 on
// MASTER_DEMOTE_TO_SLAVE takes over what the server itself has written; before,
// current_pos does. Delay, heartbeat and what else the connection has are kept.
// The second result is the same with the password masked.
func ChangeSource(v topology.Version, s Source) (statement, masked string, err error) {
	host, port, err := net.SplitHostPort(s.Address)
	if err != nil {
		return "", "", fmt.Errorf("address %q of the primary: %w", s.Address, err)
	}
	ssl := 0
	if s.TLS {
		ssl = 1
	}
	position := "slave_pos"
	if s.Demote {
		if v.AtLeast(10, 10, 0) {
			position = "slave_pos, MASTER_DEMOTE_TO_SLAVE=1"
		} else {
			position = "current_pos"
		}
	}
	text := func(password string) string {
		return fmt.Sprintf("CHANGE MASTER %s TO MASTER_HOST=%s, MASTER_PORT=%s, MASTER_USER=%s, MASTER_PASSWORD=%s, MASTER_SSL=%d, MASTER_CONNECT_RETRY=1, MASTER_USE_GTID=%s",
			literal(s.Connection), literal(host), port, literal(s.User), literal(password), ssl, position)
	}
	return text(s.Password), text(Masked), nil
}

// Sides of semi-synchronous replication.
const (
	SemiSyncPrimaryOn  = "SET GLOBAL rpl_semi_sync_master_enabled=1"
	SemiSyncPrimaryOff = "SET GLOBAL rpl_semi_sync_master_enabled=0"
	SemiSyncReplicaOn  = "SET GLOBAL rpl_semi_sync_slave_enabled=1"
)

// SemiSyncOffLingers reports whether SemiSyncPrimaryOff may take seconds on a server
// that had replicas a moment ago: it waits for the thread that receives their
// acknowledgements. Measured: 1 to 3 s on 10.5.23, a millisecond on 10.11.18.
func SemiSyncOffLingers(v topology.Version) bool { return !v.AtLeast(10, 11, 0) }

// HurryStop makes a semi-sync replica spend no more than a second on ending its
// own connection at a source that does not answer, when its IO thread is stopped;
// StopHurry puts the setting back.
const (
	HurryStop = "SET @lockstep_kill=@@global.rpl_semi_sync_slave_kill_conn_timeout;SET GLOBAL rpl_semi_sync_slave_kill_conn_timeout=1"
	StopHurry = "SET GLOBAL rpl_semi_sync_slave_kill_conn_timeout=@lockstep_kill"
)

// SemiSyncLike gives a server the settings of the primary side that another has,
// as they were seen there.
func SemiSyncLike(s topology.SemiSync) []string {
	out := []string{fmt.Sprintf("SET GLOBAL rpl_semi_sync_master_timeout=%d", s.Timeout.Milliseconds())}
	if s.WaitPoint == "AFTER_SYNC" || s.WaitPoint == "AFTER_COMMIT" {
		out = append(out, "SET GLOBAL rpl_semi_sync_master_wait_point="+s.WaitPoint)
	}
	on := 0
	if s.WaitNoReplica {
		on = 1
	}
	return append(out, fmt.Sprintf("SET GLOBAL rpl_semi_sync_master_wait_no_slave=%d", on), SemiSyncPrimaryOn)
}

// ClientSessions lists the connections of clients. Monitors (the account that
// asks, and those named), replication, and commits that wait for a semi-sync
// acknowledgement are left out: killing one of the latter commits its row on this
// server only.
func ClientSessions(except []string) string {
	users := []string{"'system user'", "'event_scheduler'", "SUBSTRING_INDEX(USER(),'@',1)"}
	for _, u := range except {
		users = append(users, literal(u))
	}
	return "SELECT ID, USER, HOST FROM information_schema.PROCESSLIST WHERE ID<>CONNECTION_ID()" +
		" AND USER NOT IN (" + strings.Join(users, ",") + ")" +
		" AND COMMAND NOT LIKE 'Binlog Dump%' AND COMMAND NOT IN ('Slave_IO','Slave_SQL','Slave_worker','Daemon','Killed')" +
		" AND COALESCE(STATE,'') NOT LIKE '%semi-sync%'"
}

// PrivilegedSessions lists those of the ClientSessions whose accounts may write to
// a read-only server, as far as the account that asks may see privileges.
func PrivilegedSessions(except []string) string {
	return ClientSessions(except) + " AND " + privileged
}

// BlockedSessions lists those of the ClientSessions that wait to commit, see
// BlockCommits, and the PrivilegedSessions, which would be next.
func BlockedSessions(except []string) string {
	return ClientSessions(except) + " AND (STATE LIKE 'Waiting for backup lock%' OR " + privileged + ")"
}

// privileged is true of the accounts that may write to a read-only server, as far as
// the account that asks may see privileges.
const privileged = "USER IN (SELECT SUBSTRING_INDEX(SUBSTRING(GRANTEE,2),'''@''',1) FROM information_schema.USER_PRIVILEGES WHERE PRIVILEGE_TYPE IN ('SUPER','READ ONLY ADMIN','READ_ONLY ADMIN'))"

// BlockCommits keeps everybody from committing, whatever privileges they have, until
// UnblockCommits or the end of the session. It waits for running commits no longer
// than wait; then it fails with code 1205, and has to be taken back all the same.
func BlockCommits(wait time.Duration) []string {
	return []string{
		fmt.Sprintf("SET SESSION lock_wait_timeout=%d", max(int(wait/time.Second), 1)), "BACKUP STAGE START", "BACKUP STAGE BLOCK_COMMIT",
	}
}

// UnblockCommits ends BlockCommits in the session that began it; where there is none
// code ErrNotBlocked is the answer.
const UnblockCommits = "SET SESSION lock_wait_timeout=DEFAULT;BACKUP STAGE END"

// ErrNotBlocked is the error code of UnblockCommits where nothing is blocked.
const ErrNotBlocked = 4146

// Kill ends a connection. A connection that has ended meanwhile gives code 1094.
func Kill(id uint64) string { return fmt.Sprintf("KILL SOFT CONNECTION %d", id) }

// WaitingCommits shows how many commits wait for a semi-sync acknowledgement.
const WaitingCommits = "SHOW GLOBAL STATUS LIKE 'Rpl_semi_sync_master_wait_sessions'"

// WriteProbe writes the one row of a heartbeat table, on this server alone: a row
// that a stalled server commits after it was replaced must not keep it from
// joining again. The server itself ends it after limit.
func WriteProbe(schema, table string, limit time.Duration) string {
	return "SET SESSION sql_log_bin=0;" + bounded(limit, "INSERT INTO `"+schema+"`.`"+table+"` (id, at) VALUES (1, UTC_TIMESTAMP(6)) ON DUPLICATE KEY UPDATE at=VALUES(at)")
}

// OldestBinlog shows the binary log files, the oldest first; BinlogStart the
// position at the start of one.
const OldestBinlog = "SHOW BINARY LOGS"

// BinlogStart shows the position at the start of a binary log file as column pos.
func BinlogStart(file string) string {
	return "SELECT BINLOG_GTID_POS(" + literal(file) + ",4) AS pos"
}

// FenceIfHeld sets a server read-only if the session variable @lockstep_got is 1:
// it follows the statement that takes the server lock, in the same round trip.
func FenceIfHeld(wait time.Duration) string {
	return bounded(wait, "SET GLOBAL read_only=IF(@lockstep_got=1,1,@@global.read_only)")
}
