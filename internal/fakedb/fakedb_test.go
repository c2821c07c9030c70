package fakedb_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/election"
	"github.com/lockstep-ha/lockstep/internal/fakedb"
	"github.com/lockstep-ha/lockstep/internal/testdb"
	"github.com/lockstep-ha/lockstep/locks"
	"github.com/lockstep-ha/lockstep/monitor"
	"github.com/lockstep-ha/lockstep/topology/mariadb"
)

// client is one connection. Its connection resets on abort.
type client struct {
	t   *testing.T
	c   *sql.Conn
	db  *sql.DB
	net *net.TCPConn
}

func dial(t *testing.T, addr string) *client {
	t.Helper()
	c := &client{t: t}
	cfg := mysql.NewConfig()
	cfg.User, cfg.Passwd, cfg.Net, cfg.Addr = testdb.MonitorUser, testdb.MonitorPassword, "tcp", addr
	cfg.MultiStatements, cfg.Logger = true, &mysql.NopLogger{}
	cfg.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		var d net.Dialer
		conn, err := d.DialContext(ctx, network, addr)
		if tcp, ok := conn.(*net.TCPConn); ok {
			c.net = tcp
		}
		return conn, err
	}
	connector, err := mysql.NewConnector(cfg)
	require.NoError(t, err)
	c.db = sql.OpenDB(connector)
	c.c, err = c.db.Conn(t.Context())
	require.NoError(t, err)
	t.Cleanup(c.close)
	return c
}

func (c *client) close() {
	_ = c.c.Close() // it may have been closed by the test or the server
	_ = c.db.Close()
}

// query returns each result set as a line for the column names and one a row;
// NULL is NULL.
func (c *client) query(query string) ([]string, error) {
	return c.queryContext(c.t.Context(), query)
}

func (c *client) queryContext(ctx context.Context, query string) (out []string, err error) {
	rows, err := c.c.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for {
		columns, err := rows.Columns()
		if err != nil {
			return out, err
		}
		if len(columns) > 0 {
			out = append(out, strings.Join(columns, " "))
		}
		values, into := make([]sql.NullString, len(columns)), make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		for rows.Next() {
			if err := rows.Scan(into...); err != nil {
				return out, err
			}
			var texts []string
			for _, v := range values {
				if !v.Valid {
					v.String = "NULL"
				}
				texts = append(texts, v.String)
			}
			out = append(out, strings.Join(texts, " "))
		}
		if !rows.NextResultSet() {
			return out, rows.Err()
		}
	}
}

// get is the last line of an answer.
func (c *client) get(query string) string {
	c.t.Helper()
	lines, err := c.query(query)
	require.NoError(c.t, err)
	require.NotEmpty(c.t, lines)
	return lines[len(lines)-1]
}

func (c *client) do(query string) {
	c.t.Helper()
	_, err := c.query(query)
	require.NoError(c.t, err)
}

func (c *client) id() string { return c.get("SELECT CONNECTION_ID()") }

// number is the code of the error that the server gives, 0 for another error.
func (c *client) number(query string) uint16 {
	c.t.Helper()
	_, err := c.query(query)
	require.Error(c.t, err)
	var my *mysql.MySQLError
	if errors.As(err, &my) {
		return my.Number
	}
	return 0
}

func (c *client) eventually(query, want string, within time.Duration) {
	c.t.Helper()
	require.Eventually(c.t, func() bool { return c.get(query) == want }, within, 5*time.Millisecond, "%s: not %s", query, want)
}

// facts hold for the fake and for a real server.
var facts = []struct {
	name string
	test func(t *testing.T, addr string)
}{
	{"locks", func(t *testing.T, addr string) {
		a, b := dial(t, addr), dial(t, addr)
		require.Equal(t, "NULL 1", a.get("SELECT IS_USED_LOCK('f1'), IS_FREE_LOCK('f1')"))
		require.Equal(t, "NULL", a.get("SELECT RELEASE_LOCK('f1')"))
		require.Equal(t, "1", a.get("SELECT GET_LOCK('f1',0)"))
		require.Equal(t, "0", b.get("SELECT GET_LOCK('f1',0)"))
		require.Equal(t, "0", b.get("SELECT RELEASE_LOCK('f1')"))
		require.Equal(t, a.id()+" 0", b.get("SELECT IS_USED_LOCK('f1'), IS_FREE_LOCK('f1')"))
		require.Equal(t, "1", a.get("SELECT RELEASE_LOCK('f1')"))
		require.Equal(t, "1", b.get("SELECT GET_LOCK('f1',0)"))
	}},
	{"locks are counted", func(t *testing.T, addr string) {
		a, b := dial(t, addr), dial(t, addr)
		require.Equal(t, "1", a.get("SELECT GET_LOCK('f2',0)"))
		require.Equal(t, "1", a.get("SELECT GET_LOCK('f2',0)"))
		require.Equal(t, "1", a.get("SELECT RELEASE_LOCK('f2')"))
		require.Equal(t, "0", b.get("SELECT GET_LOCK('f2',0)"))
		a.do("DO RELEASE_LOCK('f2')")
		require.Equal(t, "1", b.get("SELECT GET_LOCK('f2',0)"))
		require.Equal(t, "0", a.get("SELECT RELEASE_LOCK('f2')"))
		require.Equal(t, "1", b.get("SELECT GET_LOCK('f2b',0)"))
		require.Equal(t, "2", b.get("SELECT RELEASE_ALL_LOCKS()"))
		require.Equal(t, "1 1", a.get("SELECT IS_FREE_LOCK('f2'), IS_FREE_LOCK('f2b')"))
	}},
	{"lock names differ by case", func(t *testing.T, addr string) {
		// MySQL folds them; MariaDB does not.
		a, b := dial(t, addr), dial(t, addr)
		require.Equal(t, "1", a.get("SELECT GET_LOCK('f3_Name',0)"))
		require.Equal(t, "NULL", b.get("SELECT IS_USED_LOCK('F3_NAME')"))
		require.Equal(t, "1", b.get("SELECT GET_LOCK('F3_nAME',0)"))
		require.Equal(t, a.id()+" "+b.id(), b.get("SELECT IS_USED_LOCK('f3_Name'), IS_USED_LOCK('F3_nAME')"))
	}},
	{"waiting for a lock", func(t *testing.T, addr string) {
		a, b := dial(t, addr), dial(t, addr)
		require.Equal(t, "1", a.get("SELECT GET_LOCK('f4',0)"))
		start := time.Now()
		require.Equal(t, "0", b.get("SELECT GET_LOCK('f4',1)"))
		require.InDelta(t, 1, time.Since(start).Seconds(), 0.5)
		got := make(chan string, 1)
		go func() {
			lines, err := b.query("SELECT GET_LOCK('f4',20)")
			got <- fmt.Sprint(lines[1:], err)
		}()
		time.Sleep(50 * time.Millisecond)
		require.Empty(t, got)
		a.do("DO RELEASE_LOCK('f4')")
		require.Equal(t, "[1] <nil>", <-got)
	}},
	{"a session that quits frees its locks", func(t *testing.T, addr string) {
		a, b := dial(t, addr), dial(t, addr)
		a.do("SELECT GET_LOCK('f5',0)")
		a.close()
		b.eventually("SELECT IS_USED_LOCK('f5')", "NULL", 5*time.Second)
	}},
	{"a connection that is reset frees its locks", func(t *testing.T, addr string) {
		a, b := dial(t, addr), dial(t, addr)
		a.do("SELECT GET_LOCK('f6',0)")
		require.NoError(t, a.net.SetLinger(0))
		require.NoError(t, a.net.Close())
		b.eventually("SELECT IS_USED_LOCK('f6')", "NULL", 5*time.Second)
	}},
	{"wait_timeout", func(t *testing.T, addr string) {
		idle, busy, b := dial(t, addr), dial(t, addr), dial(t, addr)
		require.Equal(t, "2", idle.get("SET SESSION wait_timeout=2;SELECT @@session.wait_timeout"))
		busy.do("SET SESSION wait_timeout=2")
		idle.do("SELECT GET_LOCK('f7',0)")
		busy.do("SELECT GET_LOCK('f7b',0)")
		since := time.Now()
		for b.get("SELECT IS_USED_LOCK('f7')") != "NULL" {
			busy.do("DO 1")
			require.Less(t, time.Since(since), 10*time.Second)
			time.Sleep(20 * time.Millisecond)
		}
		require.InDelta(t, 2, time.Since(since).Seconds(), 0.7)
		require.Equal(t, busy.id(), b.get("SELECT IS_USED_LOCK('f7b')"))
		_, err := idle.query("SELECT 1")
		require.Error(t, err)
	}},
	{"wait_timeout is for the session, at least a second", func(t *testing.T, addr string) {
		a, b := dial(t, addr), dial(t, addr)
		require.Equal(t, "28800", a.get("SELECT @@wait_timeout"))
		require.Equal(t, "1", a.get("SET SESSION sql_mode='',SESSION wait_timeout=0;SELECT @@session.wait_timeout"))
		require.Equal(t, "28800 28800", b.get("SELECT @@session.wait_timeout, @@global.wait_timeout"))
	}},
	{"taking a lock in several statements", func(t *testing.T, addr string) {
		a, b := dial(t, addr), dial(t, addr)
		const take = "SET SESSION wait_timeout=7;SELECT @lockstep_got:=GET_LOCK('f8',0) AS got, CONNECTION_ID() AS session, @@session.wait_timeout AS wait_timeout" +
			";SELECT IF(@lockstep_got=1,GET_LOCK('f8b',0),NULL) AS x;SELECT IF(@lockstep_got=1,GET_LOCK('f8c',0),NULL) AS x"
		lines, err := a.query(take)
		require.NoError(t, err)
		require.Equal(t, []string{"got session wait_timeout", "1 " + a.id() + " 7", "x", "1", "x", "1"}, lines)
		lines, err = b.query(take)
		require.NoError(t, err)
		require.Equal(t, []string{"got session wait_timeout", "0 " + b.id() + " 7", "x", "NULL", "x", "NULL"}, lines)
		require.Equal(t, a.id()+" "+a.id(), b.get("SELECT IS_USED_LOCK('f8b'), IS_USED_LOCK('f8c')"))
		a.do("DO RELEASE_LOCK('f8');DO RELEASE_LOCK('f8c'), RELEASE_LOCK('f8b')")
		require.Equal(t, "1 1 1", b.get("SELECT IS_FREE_LOCK('f8'), IS_FREE_LOCK('f8b'), IS_FREE_LOCK('f8c')"))
	}},
	{"an error in the midst of several statements", func(t *testing.T, addr string) {
		a := dial(t, addr)
		lines, err := a.query("SELECT 5 AS a;SELECT GET_LOCK('f9',0) AS b;SELECT @@no_such;DO RELEASE_LOCK('f9')")
		var my *mysql.MySQLError
		require.ErrorAs(t, err, &my)
		require.Equal(t, uint16(1193), my.Number)
		require.Equal(t, []string{"a", "5", "b", "1"}, lines)
		require.Equal(t, a.id(), a.get("SELECT IS_USED_LOCK('f9')"))
		require.Equal(t, uint16(1064), a.number("SELECT 1;;;NONSENSE 3"))
		require.Equal(t, uint16(1305), a.number("SELECT NO_SUCH_FUNCTION(1)"))
		require.Equal(t, uint16(1582), a.number("SELECT GET_LOCK('f9')"))
		require.Equal(t, uint16(1054), a.number("SELECT no_such"))
		require.Equal(t, "1", a.get("SELECT 1"))
	}},
	{"KILL", func(t *testing.T, addr string) {
		a, b := dial(t, addr), dial(t, addr)
		id := a.id()
		a.do("SELECT GET_LOCK('f10',0)")
		b.do("KILL " + id)
		b.eventually("SELECT IS_USED_LOCK('f10')", "NULL", 5*time.Second)
		_, err := a.query("SELECT 1")
		require.Error(t, err)
		require.Equal(t, uint16(1094), b.number("KILL "+id))
		require.Equal(t, uint16(1927), b.number("KILL "+b.id()))
		_, err = b.query("SELECT 1")
		require.Error(t, err)
	}},
	{"KILL of one that waits for a lock", func(t *testing.T, addr string) {
		a, b := dial(t, addr), dial(t, addr)
		a.do("SELECT GET_LOCK('f11',0)")
		id := b.id()
		failed := make(chan error, 1)
		go func() {
			_, err := b.query("SELECT GET_LOCK('f11',20)")
			failed <- err
		}()
		time.Sleep(50 * time.Millisecond)
		a.do("KILL " + id)
		require.Error(t, <-failed)
		require.Equal(t, a.id(), a.get("SELECT IS_USED_LOCK('f11')"))
	}},
	{"the process list", func(t *testing.T, addr string) {
		a, b := dial(t, addr), dial(t, addr)
		local := b.net.LocalAddr().String()
		lines, err := a.query("SELECT ID, USER, HOST FROM information_schema.PROCESSLIST WHERE ID IN (" + b.id() + ",999999)")
		require.NoError(t, err)
		require.Equal(t, "ID USER HOST", lines[0])
		require.Len(t, lines, 2)
		require.Regexp(t, "^"+b.id()+" "+testdb.MonitorUser+" ", lines[1])
		if _, port, err := net.SplitHostPort(local); err == nil && strings.Contains(lines[1], "127.0.0.1") {
			require.Contains(t, lines[1], ":"+port)
		}
	}},
	{"the start of a session", func(t *testing.T, addr string) {
		a := dial(t, addr)
		lines, err := a.query("SET SESSION wait_timeout=9;SET SESSION sql_mode=''" +
			";SELECT CONNECTION_ID() AS id, VERSION() AS version, @@session.wait_timeout AS wait_timeout, @@session.sql_mode AS mode" +
			";SHOW GLOBAL VARIABLES LIKE 'wsrep_on';SHOW GRANTS;SHOW GLOBAL STATUS LIKE 'uptim_'")
		require.NoError(t, err)
		require.Equal(t, "id version wait_timeout mode", lines[0])
		require.Regexp(t, "^"+a.id()+` \d+\.\d+\.\d+-MariaDB\S* 9 $`, lines[1])
		require.Equal(t, "Variable_name Value", lines[2])
		require.Equal(t, "wsrep_on OFF", lines[3])
		require.Regexp(t, "^Grants for "+testdb.MonitorUser+"@", lines[4])
		require.Regexp(t, "^GRANT .*PROCESS.* ON \\*\\.\\* TO `"+testdb.MonitorUser+"`@", lines[5])
		require.Equal(t, "Variable_name Value", lines[len(lines)-2])
		require.Regexp(t, `^Uptime \d+$`, lines[len(lines)-1])
	}},
	{"the probe", func(t *testing.T, addr string) {
		a := dial(t, addr)
		names, err := locks.NewNames("f13", "f13_p", locks.Agreement{})
		require.NoError(t, err)
		columns := append(names.ProbeColumns(), mariadb.ProbeColumns()...)
		lines, err := a.query("SELECT " + strings.Join(columns, ",") + ";" + mariadb.ReplicationStatement)
		require.NoError(t, err)
		require.Len(t, lines, 3)
		require.Regexp(t, "^"+a.id()+" NULL NULL NULL NULL [01] [0-9]+ ", lines[1])
		require.NotContains(t, lines[1][len(a.id()+" NULL NULL NULL NULL "):], "NULL")
		require.Regexp(t, "^Connection_name .* Master_Host .* Slave_IO_Running Slave_SQL_Running .* Using_Gtid Gtid_IO_Pos ", lines[2])
	}},
}

func TestFake(t *testing.T) {
	t.Parallel()
	s := fakedb.New(t, fakedb.Options{})
	runFacts(t, s.Addr())
}

func TestRealServer(t *testing.T) {
	t.Parallel()
	s := testdb.New(t, testdb.Options{})
	runFacts(t, s.Addr())
}

func runFacts(t *testing.T, addr string) {
	t.Helper()
	for _, f := range facts {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			f.test(t, addr)
		})
	}
}

func TestReplicationColumns(t *testing.T) {
	t.Parallel()
	c := testdb.NewCluster(t, 2, testdb.ClusterOptions{})
	genuine := dial(t, c.Servers[1].Addr())
	fake := dial(t, fakedb.New(t, fakedb.Options{Replication: []fakedb.Replication{{Host: "h"}}}).Addr())
	types := func(c *client) map[string]string {
		rows, err := c.c.QueryContext(t.Context(), mariadb.ReplicationStatement)
		require.NoError(t, err)
		defer func() { require.NoError(t, rows.Close()) }()
		columns, err := rows.ColumnTypes()
		require.NoError(t, err)
		require.True(t, rows.Next())
		require.NoError(t, rows.Err())
		out := map[string]string{}
		for _, c := range columns {
			out[c.Name()] = c.DatabaseTypeName()
		}
		return out
	}
	want := types(genuine)
	for name, typ := range types(fake) {
		if got, ok := want[name]; ok { // versions differ in the columns that they have
			require.Equal(t, got, typ, name)
		}
	}
	for _, name := range []string{"Connection_name", "Master_Host", "Master_Port", "Master_Server_Id", "Slave_IO_Running", "Slave_SQL_Running",
		"Gtid_IO_Pos", "Using_Gtid", "SQL_Delay", "Seconds_Behind_Master", "Slave_received_heartbeats"} {
		require.Contains(t, want, name)
		require.Contains(t, types(fake), name)
	}
}

func TestSettings(t *testing.T) {
	t.Parallel()
	s := fakedb.New(t, fakedb.Options{ServerID: 7, ReadOnly: true, GTID: "0-1-5"})
	a := dial(t, s.Addr())
	require.Equal(t, "1 7 0-1-5 0-1-5", a.get("SELECT @@global.read_only, @@global.server_id, @@global.gtid_slave_pos, @@global.gtid_binlog_state"))
	s.SetReadOnly(false)
	s.SetGTID("0-1-6,1-2-3")
	s.SetVariable("log_bin", "0")
	require.Equal(t, "0 0-1-6,1-2-3 0", a.get("SELECT @@global.read_only, @@global.gtid_binlog_pos, @@global.log_bin"))
	require.Equal(t, "read_only ON", a.get("SET GLOBAL read_only=ON;SHOW GLOBAL VARIABLES LIKE 'read_onl_'"))
	s.SetVariable("read_only", "NO_LOCK_NO_ADMIN")
	require.Equal(t, "NO_LOCK_NO_ADMIN", a.get("SELECT @@global.read_only"))

	lines, err := a.query(mariadb.ReplicationStatement)
	require.NoError(t, err)
	require.Len(t, lines, 1)
	s.SetReplication(
		fakedb.Replication{Host: "10.0.0.1", Port: 3307, ServerID: 3, IO: "Connecting", IOPos: "0-1-6", Behind: -1},
		fakedb.Replication{Name: "second", Host: "10.0.0.2", SQL: "No", Behind: 4, Columns: map[string]string{"Last_SQL_Errno": "1062"}})
	rows, err := a.c.QueryContext(t.Context(), mariadb.ReplicationStatement)
	require.NoError(t, err)
	defer func() { require.NoError(t, rows.Close()) }()
	columns, err := rows.Columns()
	require.NoError(t, err)
	var got []map[string]sql.NullString
	for rows.Next() {
		values, into := make([]sql.NullString, len(columns)), make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		require.NoError(t, rows.Scan(into...))
		row := map[string]sql.NullString{}
		for i, c := range columns {
			row[c] = values[i]
		}
		got = append(got, row)
	}
	require.NoError(t, rows.Err())
	require.Len(t, got, 2)
	require.Equal(t, "10.0.0.1 3307 3 Connecting Yes 0-1-6", fmt.Sprint(got[0]["Master_Host"].String, " ", got[0]["Master_Port"].String, " ",
		got[0]["Master_Server_Id"].String, " ", got[0]["Slave_IO_Running"].String, " ", got[0]["Slave_SQL_Running"].String, " ", got[0]["Gtid_IO_Pos"].String))
	require.False(t, got[0]["Seconds_Behind_Master"].Valid)
	require.Equal(t, "second", got[1]["Connection_name"].String)
	require.Equal(t, "4", got[1]["Seconds_Behind_Master"].String)
	require.Equal(t, "1062", got[1]["Last_SQL_Errno"].String)
}

func TestGrants(t *testing.T) {
	t.Parallel()
	s := fakedb.New(t, fakedb.Options{})
	s.SetGrants()
	a := dial(t, s.Addr())
	require.Equal(t, "GRANT USAGE ON *.* TO `monitor`@`%`", a.get("SHOW GRANTS"))
	require.Equal(t, uint16(1227), a.number(mariadb.ReplicationStatement))
	s.SetGrants(fakedb.DefaultGrants()...)
	a.do(mariadb.ReplicationStatement)
}

func TestStopAndStart(t *testing.T) {
	t.Parallel()
	s := fakedb.New(t, fakedb.Options{ReadOnly: true})
	a := dial(t, s.Addr())
	a.do("SELECT GET_LOCK('x',0)")
	require.NotZero(t, s.Owner("x"))
	require.Error(t, s.Start(), "it runs")
	s.Stop()
	require.Zero(t, s.Owner("x"))
	require.Zero(t, s.Sessions())
	_, err := a.query("SELECT 1")
	require.Error(t, err)
	_, err = net.Dial("tcp", s.Addr())
	require.ErrorContains(t, err, "refused")
	require.NoError(t, s.Start())
	require.Equal(t, "NULL 1", dial(t, s.Addr()).get("SELECT IS_USED_LOCK('x'), @@global.read_only"))
}

func TestFreeze(t *testing.T) {
	t.Parallel()
	s := fakedb.New(t, fakedb.Options{})
	a, b := dial(t, s.Addr()), dial(t, s.Addr())
	a.do("SET SESSION wait_timeout=1;SELECT GET_LOCK('x',0)")
	s.Freeze()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := b.queryContext(ctx, "SELECT 1")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	// A new connection is accepted and not greeted.
	conn, err := net.Dial("tcp", s.Addr())
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(1200*time.Millisecond)))
	_, err = conn.Read(make([]byte, 1))
	require.ErrorContains(t, err, "timeout")
	require.NotZero(t, s.Owner("x"), "no session ends while the server is frozen")
	s.Thaw()
	require.Eventually(t, func() bool { return s.Owner("x") == 0 }, time.Second, time.Millisecond)
	c := dial(t, s.Addr())
	require.Equal(t, "1", c.get("SELECT GET_LOCK('x',0)"))
	s.Freeze()
	s.Stop()
	require.Zero(t, s.Sessions())
}

// TestMonitor fails when a monitor asks what the fake does not know.
func TestMonitor(t *testing.T) {
	t.Parallel()
	primary := fakedb.New(t, fakedb.Options{ServerID: 1, GTID: "0-1-5"})
	replica := fakedb.New(t, fakedb.Options{ServerID: 2, GTID: "0-1-5", ReadOnly: true,
		Replication: []fakedb.Replication{{Host: "127.0.0.1", Port: primary.Port(), ServerID: 1, IOPos: "0-1-5"}}})
	cfg := monitor.Config{User: testdb.MonitorUser, Interval: 100 * time.Millisecond, Timeout: 100 * time.Millisecond}
	for i, s := range []*fakedb.Server{primary, replica} {
		cfg.Servers = append(cfg.Servers, monitor.ServerConfig{Name: fmt.Sprintf("s%d", i+1), Address: s.Addr()})
	}
	m, err := monitor.New(cfg)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	require.Eventually(t, func() bool {
		v := m.View()
		return v.Monitor.Role == election.Primary && v.Monitor.PrimaryLockHeld
	}, 20*time.Second, 10*time.Millisecond)
	v := m.View()
	require.Empty(t, v.Faults)
	require.Equal(t, "s1", v.Primary.Name)
	require.Equal(t, []string{"Replica", "Read-only", "Running"}, v.Servers[1].State)
	require.NotZero(t, primary.Owner(locks.DefaultPrimaryLock))
	cancel()
	require.NoError(t, <-done)
	require.Zero(t, primary.Owner(locks.DefaultServerLock))
}
