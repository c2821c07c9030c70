package integration

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/locks"
	"github.com/lockstep-ha/lockstep/monitor/routing"
	"github.com/lockstep-ha/lockstep/topology"
)

// mysqld finds the MySQL server that 'internal/setup/setup.sh mysql' gets.
func mysqld(t *testing.T) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	require.NoError(t, err)
	path := filepath.Join(cache, "lockstep", "servers", "mysql", "base", "sbin", "mysqld")
	if _, err := os.Stat(path); err != nil {
		t.Skip("there is no MySQL server; internal/setup/setup.sh mysql gets one")
	}
	return path
}

// mysqlServer starts a MySQL server that listens on a socket only, and returns a way
// to log in as root and its socket.
func mysqlServer(t *testing.T, id int, extra ...string) (db *sql.DB, socket string) {
	t.Helper()
	program, dir := mysqld(t), t.TempDir()
	socket = filepath.Join(dir, "s")
	user := "--user=" + map[bool]string{true: "root", false: ""}[os.Geteuid() == 0]
	out, err := exec.CommandContext(t.Context(), program, "--no-defaults", "--initialize-insecure", "--datadir="+dir+"/data", user).CombinedOutput()
	require.NoError(t, err, "%s", out)
	args := append([]string{"--no-defaults", "--datadir=" + dir + "/data", "--socket=" + socket, "--pid-file=" + dir + "/pid", user, "--mysqlx=OFF", "--secure-file-priv=",
		"--server-id=" + fmt.Sprint(id), "--log-bin=bin", "--gtid-mode=ON", "--enforce-gtid-consistency=ON", "--innodb-buffer-pool-size=16M", "--performance-schema=OFF"}, extra...)
	log, err := os.Create(filepath.Join(dir, "log"))
	require.NoError(t, err)
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = log, log
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = log.Close()
	})
	cfg := mysql.NewConfig()
	cfg.User, cfg.Net, cfg.Addr, cfg.MultiStatements = "root", "unix", socket, true
	connector, err := mysql.NewConnector(cfg)
	require.NoError(t, err)
	db = sql.OpenDB(connector)
	t.Cleanup(func() { _ = db.Close() })
	require.Eventually(t, func() bool { return db.PingContext(t.Context()) == nil }, 60*time.Second, 50*time.Millisecond, "the server does not start: %s", dir)
	return db, socket
}

// unusedPort is a port on which nobody listens at the moment.
func unusedPort(t *testing.T) int {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	_, port := splitAddr(t, l.Addr().String())
	n, err := strconv.Atoi(port)
	require.NoError(t, err)
	return n
}

// fixedView says the same for ever.
type fixedView struct{ servers []routing.Server }

// Watch implements routing.Source.
func (f fixedView) Watch(ctx context.Context, publish func(routing.View)) {
	for ctx.Err() == nil {
		publish(routing.View{Primary: "s1", Until: routing.Now() + time.Minute, Servers: f.servers})
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// TestRoutingMySQL reads its own writes from a replica that has not applied them
// yet, by GTID sets.
func TestRoutingMySQL(t *testing.T) {
	t.Parallel()
	one, socket1 := mysqlServer(t, 1, "--bind-address=127.0.0.1", fmt.Sprintf("--port=%d", unusedPort(t)))
	two, socket2 := mysqlServer(t, 2, "--skip-networking")
	must := func(db *sql.DB, statements ...string) {
		t.Helper()
		for _, s := range statements {
			_, err := db.ExecContext(t.Context(), s)
			require.NoError(t, err, s)
		}
	}
	var port int
	require.NoError(t, one.QueryRowContext(t.Context(), "SELECT @@port").Scan(&port))
	must(one, "CREATE USER repl@'%' IDENTIFIED BY 'r'", "GRANT REPLICATION SLAVE ON *.* TO repl@'%'", "CREATE DATABASE app", "CREATE TABLE app.t (id INT PRIMARY KEY)")
	must(two, fmt.Sprintf("CHANGE REPLICATION SOURCE TO SOURCE_HOST='127.0.0.1', SOURCE_PORT=%d, SOURCE_USER='repl', SOURCE_PASSWORD='r', SOURCE_AUTO_POSITION=1, GET_SOURCE_PUBLIC_KEY=1", port), "START REPLICA")
	require.Eventually(t, func() bool {
		return two.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM app.t").Scan(new(int)) == nil
	}, 30*time.Second, 20*time.Millisecond, "it replicates")

	// A monitor's locks on the primary.
	lock, err := one.Conn(t.Context())
	require.NoError(t, err)
	defer func() { _ = lock.Close() }()
	for _, n := range []string{locks.DefaultServerLock, locks.DefaultPrimaryLock} {
		_, err := lock.ExecContext(t.Context(), "DO GET_LOCK(?,0)", n)
		require.NoError(t, err)
	}
	cfg := mysql.NewConfig()
	cfg.User, cfg.DBName = "root", "app"
	r, err := routing.Open(fixedView{[]routing.Server{
		{Name: "s1", Address: "unix:" + socket1, Flavor: topology.MySQL},
		{Name: "s2", Address: "unix:" + socket2, Flavor: topology.MySQL, Readable: true, FreshKnown: true, Fresh: time.Hour},
	}}, routing.Options{Config: cfg, SessionWait: 5 * time.Second})
	require.NoError(t, err)
	defer func() { require.NoError(t, r.Close()) }()
	all := r.DB(routing.Any)
	require.Eventually(t, func() bool { return all.QueryRowContext(t.Context(), "SELECT 1").Scan(new(int)) == nil }, 10*time.Second, 10*time.Millisecond)

	must(two, "STOP REPLICA SQL_THREAD")
	tracker := routing.NewTracker(routing.Token{})
	_, err = all.ExecContext(routing.WithTracker(t.Context(), tracker), "INSERT INTO t VALUES (1)")
	require.NoError(t, err)
	text := r.FormatToken(tracker.Token())
	require.Contains(t, text, "y:")
	token, err := r.ParseToken(text)
	require.NoError(t, err)
	err = all.QueryRowContext(t.Context(), "SELECT id FROM t").Scan(new(int))
	require.ErrorIs(t, err, sql.ErrNoRows, "the replica has not applied it")
	done := make(chan error, 1)
	go func() {
		done <- all.QueryRowContext(routing.WithToken(t.Context(), token), "SELECT id FROM t").Scan(new(int))
	}()
	select {
	case err := <-done:
		t.Fatalf("not waited for: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	must(two, "START REPLICA SQL_THREAD")
	require.NoError(t, <-done, "its own write")
	require.NotZero(t, picksOf(r, "replica", "session_waited"), "%+v", r.Stats())

	// Without its locks the server is not written to.
	require.NoError(t, lock.Raw(func(any) error { return nil }))
	_, err = lock.ExecContext(t.Context(), "DO RELEASE_ALL_LOCKS()")
	require.NoError(t, err)
	fresh, err := routing.Open(fixedView{[]routing.Server{{Name: "s1", Address: "unix:" + socket1, Flavor: topology.MySQL}}}, routing.Options{Config: cfg})
	require.NoError(t, err)
	defer func() { require.NoError(t, fresh.Close()) }()
	require.Eventually(t, func() bool {
		_, err := fresh.Primary().ExecContext(t.Context(), "INSERT INTO t VALUES (2)")
		return errors.Is(err, routing.ErrPrimaryChanged) || errors.Is(err, routing.ErrNoPrimary)
	}, 5*time.Second, 20*time.Millisecond)
	require.Error(t, one.QueryRowContext(t.Context(), "SELECT id FROM app.t WHERE id=2").Scan(new(int)))
}
