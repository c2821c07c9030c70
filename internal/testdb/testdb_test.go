package testdb

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"
)

func TestStart(t *testing.T) {
	t.Parallel()
	s := New(t, Options{ServerID: 4242, Operate: true, MaxConnections: 33})

	require.True(t, s.Running())
	require.Positive(t, s.Pid())
	require.Equal(t, "s4242", s.Name())
	for query, want := range map[string]string{
		"SELECT @@server_id":                    "4242",
		"SELECT @@port":                         strconv.Itoa(s.Port()),
		"SELECT @@max_connections":              "33",
		"SELECT @@gtid_strict_mode":             "1",
		"SELECT @@log_slave_updates":            "1",
		"SELECT @@binlog_format":                "ROW",
		"SELECT @@performance_schema":           "0",
		"SELECT @@rpl_semi_sync_master_enabled": "0",
		"SELECT @@rpl_semi_sync_slave_enabled":  "0",
		"SELECT @@gtid_binlog_pos":              "", // the accounts are not in the log
	} {
		require.Equal(t, want, s.MustQuery(t, query), query)
	}
	if s.Backend() == BackendProcess {
		require.FileExists(t, s.Log())
		require.Equal(t, "127.0.0.1", s.MustQuery(t, "SELECT @@bind_address"))
		require.Equal(t, s.Socket(), s.MustQuery(t, "SELECT @@socket"))
	}
	require.NotEmpty(t, s.LogTail(5))
}

// userConn connects as a user, over TCP.
func userConn(t *testing.T, s *Server, user string) *sqlx.DB {
	t.Helper()
	db, err := sqlx.ConnectContext(t.Context(), "mysql", s.DSN(user))
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func TestAccounts(t *testing.T) {
	t.Parallel()
	s := New(t, Options{Accounts: []Account{{User: "it's", Password: `q\'`, Grants: []string{"SELECT ON app.*"}}}})
	ctx := t.Context()

	app := userConn(t, s, AppUser)
	for _, statement := range []string{
		"CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)", "UPDATE t SET id = 2", "DELETE FROM t",
	} {
		_, err := app.ExecContext(ctx, statement)
		require.NoError(t, err, statement)
	}
	_, err := app.ExecContext(ctx, "DROP TABLE t")
	require.Error(t, err)

	monitor := userConn(t, s, MonitorUser)
	for _, statement := range []string{"SHOW ALL SLAVES STATUS", "SHOW BINLOG STATUS", "SHOW PROCESSLIST"} {
		_, err := monitor.ExecContext(ctx, statement)
		require.NoError(t, err, statement)
	}
	for _, statement := range []string{"STOP SLAVE", "SET GLOBAL read_only = 1", "FLUSH TABLES"} {
		_, err := monitor.ExecContext(ctx, statement)
		require.Error(t, err, statement)
	}
	require.Equal(t, "0", s.MustQuery(t, "SELECT COUNT(*) FROM app.t"))

	userConn(t, s, ReplUser)
	userConn(t, s, "it's")
	require.Panics(t, func() { s.DSN("nobody") })
}

func TestKillAndRestart(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := New(t, Options{})
	port, pid := s.Port(), s.Pid()
	s.MustExec(t, "CREATE TABLE app.t (id INT PRIMARY KEY) ENGINE=InnoDB", "INSERT INTO app.t VALUES (1), (2)")

	// What was committed outlives the process.
	require.NoError(t, s.Kill())
	require.False(t, s.Running())
	require.Zero(t, s.Pid())
	_, err := s.QueryString(ctx, "SELECT 1")
	require.Error(t, err)
	require.ErrorIs(t, s.Freeze(), errNotRunning)
	require.NoError(t, s.Kill())
	require.NoError(t, s.Stop(ctx))

	require.NoError(t, s.Restart(ctx, "--read-only=1"))
	require.Equal(t, port, s.Port())
	require.NotEqual(t, pid, s.Pid())
	require.Equal(t, "2", s.MustQuery(t, "SELECT COUNT(*) FROM app.t"))
	require.Equal(t, "1", s.MustQuery(t, "SELECT @@read_only"))

	// A running one is stopped first, and the arguments hold for one run.
	require.NoError(t, s.Restart(ctx))
	require.Equal(t, "0", s.MustQuery(t, "SELECT @@read_only"))

	require.NoError(t, s.Stop(ctx))
	require.False(t, s.Running())
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
	require.Error(t, s.Restart(ctx))
}

func TestFreeze(t *testing.T) {
	t.Parallel()
	s := New(t, Options{})
	query := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		_, err := s.QueryString(ctx, "SELECT 1")
		return err
	}
	require.NoError(t, query())
	require.NoError(t, s.Freeze())
	require.Error(t, query())
	require.True(t, s.Running())
	require.NoError(t, s.Thaw())
	require.Equal(t, "1", s.MustQuery(t, "SELECT 1"))

	// A frozen one can be stopped all the same.
	require.NoError(t, s.Freeze())
	require.NoError(t, s.Stop(t.Context()))
	require.NoError(t, s.Restart(t.Context()))
	require.NoError(t, s.Freeze())
	require.NoError(t, s.Kill())
}

func TestCluster(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := NewCluster(t, 3, ClusterOptions{
		FirstID: 101,
		Each: func(i int, o *Options) {
			if i == 2 {
				o.ExtraArgs = append(o.ExtraArgs, "--max-connections=44")
			}
		},
	})
	s1, s2, s3 := c.Servers[0], c.Servers[1], c.Servers[2]
	require.Equal(t, "103", s3.MustQuery(t, "SELECT @@server_id"))
	require.Equal(t, "44", s3.MustQuery(t, "SELECT @@max_connections"))
	require.Equal(t, "0", s1.MustQuery(t, "SELECT @@read_only"))
	require.Equal(t, "1", s2.MustQuery(t, "SELECT @@read_only"))

	s1.MustExec(t, "CREATE TABLE app.t (id INT PRIMARY KEY)", "INSERT INTO app.t VALUES (1)")
	require.NoError(t, c.WaitSync(ctx))
	require.Equal(t, "1", s3.MustQuery(t, "SELECT COUNT(*) FROM app.t"))

	// The source's address is the one the test knows it by.
	status, err := s2.ReplicaStatus(ctx)
	require.NoError(t, err)
	require.Equal(t, s1.Addr(), status["Master_Host"]+":"+status["Master_Port"])
	require.Equal(t, "Slave_Pos", status["Using_Gtid"])

	// The primary dies; s3 follows s2 from where it was.
	require.NoError(t, s1.Kill())
	s2.MustExec(t, "STOP SLAVE", "RESET SLAVE ALL", "SET GLOBAL read_only = 0")
	require.NoError(t, c.Replicate(ctx, s2, s3))
	s2.MustExec(t, "INSERT INTO app.t VALUES (2)")
	require.NoError(t, s3.WaitGTID(ctx, s2.MustQuery(t, "SELECT @@gtid_binlog_pos")))
	require.Equal(t, "2", s3.MustQuery(t, "SELECT COUNT(*) FROM app.t"))

	// And the old primary comes back as a replica.
	require.NoError(t, s1.Restart(ctx))
	s1.MustExec(t, "SET GLOBAL gtid_slave_pos = @@gtid_binlog_pos")
	require.NoError(t, c.Replicate(ctx, s2, s1))
	require.NoError(t, s1.WaitGTID(ctx, s2.MustQuery(t, "SELECT @@gtid_binlog_pos")))
	require.Equal(t, "2", s1.MustQuery(t, "SELECT COUNT(*) FROM app.t"))
}

func TestStartFails(t *testing.T) {
	t.Parallel()
	if New(t, Options{}).Backend() != BackendProcess {
		t.Skip("the messages are those of a process")
	}
	_, err := Start(t.Context(), Options{ExtraArgs: []string{"--no-such-option"}})
	require.ErrorContains(t, err, "unknown option '--no-such-option'") // from the log

	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "precious"), nil, 0o600))
	_, err = Start(t.Context(), Options{Dir: dir})
	require.ErrorContains(t, err, "is not empty")
	require.FileExists(t, filepath.Join(dir, "precious"))

	_, err = StartCluster(t.Context(), 0, ClusterOptions{})
	require.Error(t, err)
}

func TestDir(t *testing.T) {
	t.Parallel()
	// The directory's path is too long for a socket.
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 30))
	s := New(t, Options{Dir: dir})
	if s.Backend() != BackendProcess {
		t.Skip("a container has no directory")
	}
	require.DirExists(t, dir)
	require.LessOrEqual(t, len(s.Socket()), maxSocketPath)
	sock := filepath.Dir(s.Socket())
	require.DirExists(t, sock)
	require.NoError(t, s.Close())
	require.NoDirExists(t, dir)
	require.NoDirExists(t, sock)
}
