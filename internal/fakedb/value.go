package fakedb

import (
	"strconv"
	"strings"
)

// kind is the type of a column.
type kind uint8

const (
	kindString kind = iota
	kindInt
	kindUint
	kindBig
	kindUbig
	kindDouble
)

func (k kind) number() bool { return k != kindString }

// The type, flags and character set that a column definition has.
func (k kind) typ() byte { return [...]byte{0xfd, 0x03, 0x03, 0x08, 0x08, 0x05}[k] }

func (k kind) flags() uint16 {
	if k == kindUint || k == kindUbig {
		return 1 << 5
	}
	return 0
}

func (k kind) charset() byte {
	if k.number() {
		return 63 // binary
	}
	return charset
}

// value is a value of SQL. Numbers are in n, other values in s.
type value struct {
	kind kind
	null bool
	n    int64
	s    string
}

func null(k kind) value        { return value{kind: k, null: true} }
func str(s string) value       { return value{s: s} }
func integer(n int64) value    { return value{kind: kindInt, n: n} }
func unsigned(n int64) value   { return value{kind: kindUbig, n: n} }
func connection(n int64) value { return value{kind: kindUint, n: n} }

func truth(b bool) value {
	if b {
		return integer(1)
	}
	return integer(0)
}

func (v value) text() string {
	if v.kind.number() && v.kind != kindDouble {
		return strconv.FormatInt(v.n, 10)
	}
	return v.s
}

// num reads a string as MariaDB does, as far as whole numbers go.
func (v value) num() int64 {
	if v.kind.number() && v.kind != kindDouble {
		return v.n
	}
	s := v.s
	if i := strings.IndexFunc(s, func(r rune) bool { return r < '0' || r > '9' }); i >= 0 {
		s = s[:i]
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func equal(a, b value) value {
	switch {
	case a.null || b.null:
		return null(kindInt)
	case a.kind.number() || b.kind.number():
		return truth(a.num() == b.num())
	}
	return truth(fold(a.s) == fold(b.s))
}

// fold makes names comparable that differ in case only.
func fold(s string) string { return strings.ToLower(s) }

// variable is a global variable; a flag is 0 and 1 in SELECT, OFF and ON in SHOW.
type variable struct {
	value value
	flag  bool
}

func defaults() map[string]variable {
	flag := func(n int64) variable { return variable{value: value{kind: kindBig, n: n}, flag: true} }
	text := func(s string) variable { return variable{value: str(s)} }
	number := func(n int64) variable { return variable{value: unsigned(n)} }
	return map[string]variable{
		"autocommit": flag(1), "binlog_format": text("ROW"), "datadir": text("/var/lib/mysql/"),
		"gtid_binlog_pos": text(""), "gtid_binlog_state": text(""), "gtid_current_pos": text(""), "gtid_slave_pos": text(""),
		"gtid_domain_id": number(0), "gtid_strict_mode": flag(1), "hostname": text("fakedb"),
		"log_bin": flag(1), "log_slave_updates": flag(1), "max_allowed_packet": number(maxPacket), "read_only": flag(0),
		"rpl_semi_sync_master_enabled": flag(0), "rpl_semi_sync_master_timeout": number(10000),
		"rpl_semi_sync_master_wait_no_slave": flag(1), "rpl_semi_sync_master_wait_point": text("AFTER_COMMIT"),
		"rpl_semi_sync_slave_enabled": flag(0), "sql_mode": text("STRICT_TRANS_TABLES"), "wait_timeout": number(28800),
		"wsrep_on": flag(0),
	}
}

type column struct {
	name string
	kind kind
}

// table is a result set.
type table struct {
	columns []column
	rows    [][]value
}

// slaveColumns are the columns of SHOW ALL SLAVES STATUS with their values on a
// replica that is well; numbers have the kind of the value.
var slaveColumns = []struct {
	name  string
	value value
}{
	{"Connection_name", str("")}, {"Slave_SQL_State", str("Slave has read all relay log; waiting for more updates")},
	{"Slave_IO_State", str("Waiting for master to send event")}, {"Master_Host", str("")}, {"Master_User", str("repl")},
	{"Master_Port", connection(3306)}, {"Connect_Retry", connection(1)}, {"Master_Log_File", str("binlog.000001")},
	{"Read_Master_Log_Pos", unsigned(325)}, {"Relay_Log_File", str("relay.000002")}, {"Relay_Log_Pos", unsigned(621)},
	{"Relay_Master_Log_File", str("binlog.000001")}, {"Slave_IO_Running", str("Yes")}, {"Slave_SQL_Running", str("Yes")},
	{"Replicate_Do_DB", str("")}, {"Replicate_Ignore_DB", str("")}, {"Replicate_Do_Table", str("")},
	{"Replicate_Ignore_Table", str("")}, {"Replicate_Wild_Do_Table", str("")}, {"Replicate_Wild_Ignore_Table", str("")},
	{"Last_Errno", connection(0)}, {"Last_Error", str("")}, {"Skip_Counter", connection(0)}, {"Exec_Master_Log_Pos", unsigned(325)},
	{"Relay_Log_Space", unsigned(920)}, {"Until_Condition", str("None")}, {"Until_Log_File", str("")}, {"Until_Log_Pos", unsigned(0)},
	{"Master_SSL_Allowed", str("No")}, {"Master_SSL_CA_File", str("")}, {"Master_SSL_CA_Path", str("")}, {"Master_SSL_Cert", str("")},
	{"Master_SSL_Cipher", str("")}, {"Master_SSL_Key", str("")}, {"Seconds_Behind_Master", unsigned(0)},
	{"Master_SSL_Verify_Server_Cert", str("No")}, {"Last_IO_Errno", connection(0)}, {"Last_IO_Error", str("")},
	{"Last_SQL_Errno", connection(0)}, {"Last_SQL_Error", str("")}, {"Replicate_Ignore_Server_Ids", str("")},
	{"Master_Server_Id", connection(0)}, {"Master_SSL_Crl", str("")}, {"Master_SSL_Crlpath", str("")}, {"Using_Gtid", str("Slave_Pos")},
	{"Gtid_IO_Pos", str("")}, {"Replicate_Do_Domain_Ids", str("")}, {"Replicate_Ignore_Domain_Ids", str("")},
	{"Parallel_Mode", str("optimistic")}, {"SQL_Delay", connection(0)}, {"SQL_Remaining_Delay", null(kindUint)},
	{"Slave_SQL_Running_State", str("Slave has read all relay log; waiting for more updates")}, {"Slave_DDL_Groups", unsigned(0)},
	{"Slave_Non_Transactional_Groups", unsigned(0)}, {"Slave_Transactional_Groups", unsigned(0)}, {"Replicate_Rewrite_DB", str("")},
	{"Retried_transactions", connection(0)}, {"Max_relay_log_size", unsigned(1 << 30)}, {"Executed_log_entries", connection(7)},
	{"Slave_received_heartbeats", connection(0)}, {"Slave_heartbeat_period", value{kind: kindDouble, s: "1.000"}}, {"Gtid_Slave_Pos", str("")},
}

// slaves is the result of SHOW ALL SLAVES STATUS. s.mu is held.
func (s *Server) slaves() *table {
	t := &table{columns: make([]column, len(slaveColumns))}
	for i, c := range slaveColumns {
		t.columns[i] = column{c.name, c.value.kind}
	}
	or := func(s, other string) value {
		if s == "" {
			s = other
		}
		return str(s)
	}
	for _, r := range s.replication {
		row := make([]value, len(slaveColumns))
		for i, c := range slaveColumns {
			v := c.value
			switch c.name {
			case "Connection_name":
				v = str(r.Name)
			case "Master_Host":
				v = str(r.Host)
			case "Master_Port":
				v.n = int64(r.Port)
			case "Master_Server_Id":
				v.n = int64(r.ServerID)
			case "Slave_IO_Running":
				v = or(r.IO, "Yes")
			case "Slave_SQL_Running":
				v = or(r.SQL, "Yes")
			case "Gtid_IO_Pos":
				v = str(r.IOPos)
			case "Gtid_Slave_Pos":
				v = s.vars["gtid_slave_pos"].value
			case "Seconds_Behind_Master":
				v.n, v.null = int64(max(r.Behind, 0)), r.Behind < 0
			}
			if text, ok := r.Columns[c.name]; ok {
				v = str(text)
				v.kind = c.value.kind
				v.n = str(text).num()
			}
			row[i] = v
		}
		t.rows = append(t.rows, row)
	}
	return t
}
