package mariadb

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/internal/sqlrows"
	"github.com/lockstep-ha/lockstep/topology"
)

func TestReadOnlyWords(t *testing.T) {
	for word, want := range map[string]topology.Tri{
		"0": topology.No, "OFF": topology.No, "off": topology.No,
		"1": topology.Yes, "ON": topology.Yes, "on": topology.Yes, "NO_LOCK": topology.Yes, "NO_LOCK_NO_ADMIN": topology.Yes,
		"a word of a later version": topology.Yes, "2": topology.Yes,
		"": topology.Unknown,
	} {
		require.Equal(t, want, ReadOnly(word), "%q", word)
	}
}

func TestClassify(t *testing.T) {
	for code, want := range map[uint16]topology.Evidence{
		1040: topology.TooManyConnections, 1203: topology.TooManyConnections,
		1044: topology.AccessDenied, 1045: topology.AccessDenied, 1129: topology.AccessDenied, 1130: topology.AccessDenied,
		1698: topology.AccessDenied, 1820: topology.AccessDenied, 4151: topology.AccessDenied,
		1053: topology.ShuttingDown, 1927: topology.Closed,
		0: topology.OtherFailure, 1064: topology.OtherFailure, 1227: topology.OtherFailure, 65535: topology.OtherFailure,
	} {
		require.Equal(t, want, Classify(code), "%d", code)
	}
	require.True(t, MissingPrivilege(1227))
	require.False(t, MissingPrivilege(1045))
}

func TestOnlyAClosedConnectionCountsTowardsFailover(t *testing.T) {
	for code := range uint16(5000) {
		require.Equal(t, code == 1927, Classify(code).Down(), "%d", code)
	}
}

func TestCheckVersion(t *testing.T) {
	for text, ok := range map[string]bool{"10.5.2-MariaDB": true, "11.4.1-MariaDB": true, "10.5.1-MariaDB": false, "10.4.34-MariaDB": false} {
		v, _ := topology.ParseVersion(text)
		if ok {
			require.NoError(t, CheckVersion(v), text)
			continue
		}
		require.ErrorContains(t, CheckVersion(v), text)
		require.ErrorContains(t, CheckVersion(v), "10.5.2")
	}
}

func TestGrants(t *testing.T) {
	for text, want := range map[string]string{"10.5.8-MariaDB": "REPLICATION SLAVE ADMIN", "10.5.9-MariaDB": "SLAVE MONITOR", "12.0.1-MariaDB": "SLAVE MONITOR"} {
		v, _ := topology.ParseVersion(text)
		g := Grants(v)
		require.Equal(t, want, g[0].Privilege, text)
		require.Equal(t, "PROCESS", g[1].Privilege)
	}
}

// result builds a table; values of "NULL" are NULL.
func result(rows ...map[string]string) *sqlrows.Table {
	t := &sqlrows.Table{}
	index := map[string]int{}
	for _, r := range rows {
		for c := range r {
			if _, ok := index[c]; !ok {
				index[c] = len(t.Columns)
				t.Columns = append(t.Columns, c)
			}
		}
	}
	for _, r := range rows {
		row := make([]*string, len(t.Columns))
		for c, v := range r {
			if v != "NULL" {
				row[index[c]] = &v
			}
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

func variableRow() map[string]string {
	return map[string]string{
		"read_only": "OFF", "server_id": "4294967295", "gtid_slave_pos": "", "gtid_current_pos": "0-1-7", "gtid_binlog_pos": "0-1-7",
		"gtid_binlog_state": "0-2-3,0-1-7", "gtid_domain_id": "3", "gtid_strict_mode": "1", "log_bin": "1", "log_slave_updates": "OFF",
		"binlog_format": "ROW", "semi_sync_primary": "ON", "semi_sync_timeout": "10000", "semi_sync_wait_point": "AFTER_SYNC",
		"semi_sync_wait_no_slave": "0", "semi_sync_replica": "0", "instance": "db1:3306 /var/lib/mysql/",
	}
}

func TestParseVariables(t *testing.T) {
	var s topology.Server
	require.NoError(t, ParseVariables(&s, result(variableRow()).Row(0)))
	require.Equal(t, topology.No, s.ReadOnly)
	require.Equal(t, "OFF", s.ReadOnlyText)
	require.Equal(t, uint64(4294967295), s.ServerID)
	require.Equal(t, uint64(3), s.DomainID)
	require.Equal(t, "0-1-7", s.CurrentPos.String())
	require.Equal(t, "0-1-7", s.BinlogPos.String())
	require.True(t, s.SlavePos.IsEmpty())
	require.Equal(t, topology.Yes, s.StrictMode)
	require.Equal(t, topology.Yes, s.LogBin)
	require.Equal(t, topology.No, s.LogReplicaWrites)
	require.Equal(t, topology.SemiSync{Known: true, PrimaryOn: true, Timeout: 10 * time.Second, WaitPoint: "AFTER_SYNC"}, s.SemiSync)
	require.Equal(t, "db1:3306 /var/lib/mysql/", s.Instance)

	row := variableRow()
	row["semi_sync_timeout"] = "18446744073709551615"
	require.NoError(t, ParseVariables(&s, result(row).Row(0)))
	require.Positive(t, s.SemiSync.Timeout, "the largest timeout does not overflow")

	row = variableRow()
	row["read_only"], row["gtid_strict_mode"] = "NULL", "NULL"
	require.NoError(t, ParseVariables(&s, result(row).Row(0)))
	require.Equal(t, topology.Unknown, s.ReadOnly)
	require.Equal(t, topology.Unknown, s.StrictMode)

	for _, column := range []string{"server_id", "gtid_domain_id", "gtid_current_pos", "gtid_slave_pos", "gtid_binlog_pos", "gtid_binlog_state"} {
		row := variableRow()
		row[column] = "x"
		require.ErrorContains(t, ParseVariables(&s, result(row).Row(0)), column)
	}
}

func TestProbeColumns(t *testing.T) {
	cols := ProbeColumns()
	require.Len(t, cols, len(variableRow()))
	all := strings.Join(cols, ", ")
	for column := range variableRow() {
		require.Contains(t, all, " AS "+column)
	}
	require.Less(t, strings.Index(all, "gtid_slave_pos"), strings.Index(all, "gtid_binlog_state"), "applied is read before logged")
}

func TestParseReplication(t *testing.T) {
	row := func(change map[string]string) map[string]string {
		r := map[string]string{
			"Connection_name": "", "Master_Host": "10.0.0.1", "Master_Port": "3306", "Master_Server_Id": "1", "Slave_IO_Running": "Yes",
			"Slave_SQL_Running": "Yes", "Gtid_IO_Pos": "0-1-7", "Using_Gtid": "Slave_Pos", "SQL_Delay": "0", "Last_IO_Errno": "0",
			"Last_SQL_Errno": "0", "Last_IO_Error": "", "Last_SQL_Error": "", "Slave_received_heartbeats": "4", "Seconds_Behind_Master": "2",
			"Replicate_Do_DB": "", "Replicate_Ignore_DB": "",
		}
		for k, v := range change {
			r[k] = v
		}
		return r
	}
	s := topology.Server{Replication: make([]topology.Replication, 3)}
	require.NoError(t, ParseReplication(&s, &sqlrows.Table{}))
	require.True(t, s.ReplicationKnown)
	require.Empty(t, s.Replication)

	require.NoError(t, ParseReplication(&s, result(row(nil), row(map[string]string{
		"Connection_name": "second", "Seconds_Behind_Master": "NULL", "Slave_IO_Running": "Connecting", "Using_Gtid": "No",
		"Replicate_Ignore_DB": "tmp", "Last_IO_Errno": "2003", "Last_IO_Error": "cannot connect", "SQL_Delay": "60",
	}))))
	require.Len(t, s.Replication, 2)
	r := s.Replication[0]
	require.True(t, r.Running())
	require.True(t, r.UsesGTID)
	require.False(t, r.Filtered)
	require.Equal(t, "10.0.0.1:3306", r.Address())
	require.Equal(t, uint64(1), r.SourceServerID)
	require.Equal(t, topology.Yes, r.SecondsBehind)
	require.Equal(t, uint64(2), r.Seconds)
	require.Equal(t, uint64(4), r.Heartbeats)
	require.Equal(t, "0-1-7", r.Received.String())
	r = s.Replication[1]
	require.Equal(t, "second", r.Name)
	require.False(t, r.Running())
	require.False(t, r.UsesGTID)
	require.True(t, r.Filtered)
	require.Equal(t, topology.Unknown, r.SecondsBehind, "NULL is not zero")
	require.Equal(t, uint64(2003), r.IOErrno)
	require.Equal(t, uint64(60), r.Delay)

	require.ErrorContains(t, ParseReplication(&s, result(row(map[string]string{"Connection_name": "bad", "Master_Port": "x"}))), `"bad"`)
	require.ErrorContains(t, ParseReplication(&s, result(row(map[string]string{"Gtid_IO_Pos": "x"}))), "Gtid_IO_Pos")
}
