package integration

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/internal/testdb"
	"github.com/lockstep-ha/lockstep/topology/mariadb"
)

// TestBlockedCommits holds what a switchover relies on: while commits are blocked not
// even an account that read_only does not stop moves the position, and what waits
// then and is ended is not committed later.
func TestBlockedCommits(t *testing.T) {
	t.Parallel()
	s := testdb.New(t, testdb.Options{Operate: true, Accounts: []testdb.Account{account("admin", "READ_ONLY ADMIN ON *.*", "SELECT, INSERT ON app.*")}})
	s.MustExec(t, "CREATE TABLE app.t (id INT PRIMARY KEY)", "SET GLOBAL read_only=1")
	m := connectMulti(t, s, testdb.MonitorUser)
	insert := func(id string) chan error {
		admin := mustConnect(t, s, "admin")
		done := make(chan error, 1)
		go func() {
			defer admin.close()
			_, err := admin.conn.ExecContext(t.Context(), "INSERT INTO app.t VALUES ("+id+")")
			done <- err
		}()
		return done
	}
	require.NoError(t, <-insert("1"), "read_only does not stop it")
	before := s.MustQuery(t, "SELECT @@gtid_binlog_pos")
	block := mariadb.BlockCommits(time.Second)
	m.exec(block...)

	killed, left := insert("2"), insert("3")
	waiting := func() []uint64 {
		var ids []uint64
		list := m.mustTable(mariadb.BlockedSessions(nil))
		for i := range list.Rows {
			id, _, err := list.Row(i).Uint("ID")
			require.NoError(t, err)
			ids = append(ids, id)
		}
		return ids
	}
	require.Eventually(t, func() bool { return len(waiting()) == 2 }, 10*time.Second, 5*time.Millisecond)
	for _, id := range waiting() {
		if s.MustQuery(t, "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE ID="+strconv.FormatUint(id, 10)+" AND INFO LIKE '%(2)'") == "1" {
			m.exec(mariadb.Kill(id))
		}
	}
	require.Error(t, <-killed)
	require.Equal(t, before, s.MustQuery(t, "SELECT @@gtid_binlog_pos"))
	m.exec(mariadb.UnblockCommits)
	require.NoError(t, <-left, "it has only waited")
	require.Equal(t, "1,3", s.MustQuery(t, "SELECT GROUP_CONCAT(id ORDER BY id) FROM app.t"))
	require.Equal(t, s.MustQuery(t, "SELECT @@global.lock_wait_timeout"), m.mustTable("SELECT @@session.lock_wait_timeout AS w").Row(0).String("w"))

	// The end of the session ends the block.
	m.exec(block...)
	left = insert("4")
	require.Eventually(t, func() bool { return len(waiting()) == 1 }, 10*time.Second, 5*time.Millisecond)
	m.close()
	require.NoError(t, <-left)
}
