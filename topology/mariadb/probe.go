// Package mariadb is the MariaDB dialect: which statements show the state of a
// server, how their results are read, and what its error codes mean. It sends
// nothing itself.
package mariadb

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-ha/lockstep/internal/sqlrows"
	"github.com/lockstep-ha/lockstep/topology"
	"github.com/lockstep-ha/lockstep/topology/gtid"
)

// MinVersion is the oldest version with the privileges and variables relied on.
var minVersion = [3]int{10, 5, 2}

// ReplicationStatement shows all replication connections. It needs SLAVE MONITOR.
const ReplicationStatement = "SHOW ALL SLAVES STATUS"

// variables are read in every probe, as columns of one SELECT. gtid_slave_pos
// comes before gtid_binlog_state so that a server that applies events never
// seems to have applied what it has not logged.
var variables = []struct{ column, expression string }{
	{"read_only", "@@global.read_only"},
	{"server_id", "@@global.server_id"},
	{"gtid_slave_pos", "@@global.gtid_slave_pos"},
	{"gtid_current_pos", "@@global.gtid_current_pos"},
	{"gtid_binlog_pos", "@@global.gtid_binlog_pos"},
	{"gtid_binlog_state", "@@global.gtid_binlog_state"},
	{"gtid_domain_id", "@@global.gtid_domain_id"},
	{"gtid_strict_mode", "@@global.gtid_strict_mode"},
	{"log_bin", "@@global.log_bin"},
	{"log_slave_updates", "@@global.log_slave_updates"},
	{"binlog_format", "@@global.binlog_format"},
	{"semi_sync_primary", "@@global.rpl_semi_sync_master_enabled"},
	{"semi_sync_timeout", "@@global.rpl_semi_sync_master_timeout"},
	{"semi_sync_wait_point", "@@global.rpl_semi_sync_master_wait_point"},
	{"semi_sync_wait_no_slave", "@@global.rpl_semi_sync_master_wait_no_slave"},
	{"semi_sync_replica", "@@global.rpl_semi_sync_slave_enabled"},
	{"instance", "CONCAT(@@hostname,':',@@port,' ',@@datadir)"},
}

// ProbeColumns are the columns of a SELECT that show the state of a server.
func ProbeColumns() []string {
	out := make([]string, len(variables))
	for i, v := range variables {
		out[i] = v.expression + " AS " + v.column
	}
	return out
}

// CheckVersion returns an error for servers that are too old.
func CheckVersion(v topology.Version) error {
	if !v.AtLeast(minVersion[0], minVersion[1], minVersion[2]) {
		return fmt.Errorf("MariaDB %s is not supported: %d.%d.%d is the oldest version that is", v.Text, minVersion[0], minVersion[1], minVersion[2])
	}
	return nil
}

// ReadOnly reads the value of @@read_only: 0 and OFF mean writable; from MariaDB
// 12.0 there are several words for read-only, and what is not known counts as
// read-only.
func ReadOnly(v string) topology.Tri {
	switch strings.ToUpper(v) {
	case "":
		return topology.Unknown
	case "0", "OFF":
		return topology.No
	}
	return topology.Yes
}

// ParseVariables reads what ProbeColumns asked for into s.
func ParseVariables(s *topology.Server, row sqlrows.Row) error {
	p := parser{row: row}
	s.ReadOnlyText = row.String("read_only")
	s.ReadOnly = ReadOnly(s.ReadOnlyText)
	s.ServerID = p.number("server_id")
	s.DomainID = p.number("gtid_domain_id")
	s.SlavePos = p.position("gtid_slave_pos")
	s.CurrentPos = p.position("gtid_current_pos")
	s.BinlogPos = p.position("gtid_binlog_pos")
	state, err := gtid.ParseState(row.String("gtid_binlog_state"))
	p.note("gtid_binlog_state", err)
	s.BinlogState = state
	s.StrictMode = p.flag("gtid_strict_mode")
	s.LogBin = p.flag("log_bin")
	s.LogReplicaWrites = p.flag("log_slave_updates")
	s.BinlogFormat = row.String("binlog_format")
	s.Instance = row.String("instance")
	s.SemiSync = topology.SemiSync{
		Known:         true,
		PrimaryOn:     p.flag("semi_sync_primary") == topology.Yes,
		ReplicaOn:     p.flag("semi_sync_replica") == topology.Yes,
		Timeout:       time.Duration(min(p.number("semi_sync_timeout"), 1<<40)) * time.Millisecond,
		WaitPoint:     row.String("semi_sync_wait_point"),
		WaitNoReplica: p.flag("semi_sync_wait_no_slave") == topology.Yes,
	}
	return p.err
}

// ParseReplication reads the result of ReplicationStatement into s.
func ParseReplication(s *topology.Server, t *sqlrows.Table) error {
	s.ReplicationKnown = true
	s.Replication = nil
	for i := range t.Rows {
		row := t.Row(i)
		p := parser{row: row}
		r := topology.Replication{
			Name:           row.String("Connection_name"),
			Host:           row.String("Master_Host"),
			Port:           int(min(p.number("Master_Port"), 65535)),
			SourceServerID: p.number("Master_Server_Id"),
			IO:             row.String("Slave_IO_Running"),
			SQL:            row.String("Slave_SQL_Running"),
			Received:       p.position("Gtid_IO_Pos"),
			UsesGTID:       row.String("Using_Gtid") != "No",
			Delay:          p.number("SQL_Delay"),
			IOErrno:        p.number("Last_IO_Errno"),
			SQLErrno:       p.number("Last_SQL_Errno"),
			IOError:        row.String("Last_IO_Error"),
			SQLError:       row.String("Last_SQL_Error"),
			Heartbeats:     p.number("Slave_received_heartbeats"),
		}
		if _, ok := row.Value("Seconds_Behind_Master"); ok {
			r.SecondsBehind, r.Seconds = topology.Yes, p.number("Seconds_Behind_Master")
		}
		for _, c := range []string{"Replicate_Do_DB", "Replicate_Ignore_DB", "Replicate_Do_Table", "Replicate_Ignore_Table", "Replicate_Wild_Do_Table", "Replicate_Wild_Ignore_Table"} {
			r.Filtered = r.Filtered || row.String(c) != ""
		}
		if p.err != nil {
			return fmt.Errorf("replication connection %q: %w", r.Name, p.err)
		}
		s.Replication = append(s.Replication, r)
	}
	return nil
}

type parser struct {
	row sqlrows.Row
	err error
}

func (p *parser) note(column string, err error) {
	if err != nil && p.err == nil {
		p.err = fmt.Errorf("%s: %w", column, err)
	}
}

func (p *parser) number(column string) uint64 {
	v, ok := p.row.Value(column)
	if !ok || v == "" {
		return 0
	}
	n, err := strconv.ParseUint(v, 10, 64)
	p.note(column, err)
	return n
}

func (p *parser) position(column string) gtid.Position {
	pos, err := gtid.ParsePosition(p.row.String(column))
	p.note(column, err)
	return pos
}

func (p *parser) flag(column string) topology.Tri {
	switch strings.ToUpper(p.row.String(column)) {
	case "1", "ON":
		return topology.Yes
	case "0", "OFF":
		return topology.No
	}
	return topology.Unknown
}
