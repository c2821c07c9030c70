package testdb

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// waitStatus waits until a status variable has a value.
func waitStatus(t *testing.T, s *Server, name, want string) {
	t.Helper()
	require.Eventually(t, func() bool {
		value, err := s.globalStatus(t.Context(), name)
		return err == nil && value == want
	}, patience, time.Millisecond, name)
}

func newSemiSyncCluster(t *testing.T) *Cluster {
	t.Helper()
	c := NewCluster(t, 3, ClusterOptions{Server: Options{ExtraArgs: SemiSyncArgs()}})
	c.Primary().MustExec(t, WriterTable(""))
	require.NoError(t, c.EnableSemiSync(t.Context()))
	return c
}

func TestSemiSync(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := newSemiSyncCluster(t)
	s1, s2, s3 := c.Servers[0], c.Servers[1], c.Servers[2]
	for query, want := range map[string]string{
		"SELECT @@rpl_semi_sync_master_timeout":       "18446744073709551615",
		"SELECT @@rpl_semi_sync_master_wait_point":    "AFTER_SYNC",
		"SELECT @@rpl_semi_sync_master_wait_no_slave": "1",
	} {
		require.Equal(t, want, s1.MustQuery(t, query), query)
		require.Equal(t, want, s2.MustQuery(t, query), query)
	}
	require.Equal(t, "1", s1.MustQuery(t, "SELECT @@rpl_semi_sync_master_enabled"))
	require.Equal(t, "0", s2.MustQuery(t, "SELECT @@rpl_semi_sync_master_enabled"))

	const insert = "INSERT INTO app.writes (id) VALUES "
	s1.MustExec(t, insert+"(1)")
	require.Equal(t, "1", s1.MustQuery(t, "SELECT variable_value FROM information_schema.global_status "+
		"WHERE variable_name = 'Rpl_semi_sync_master_yes_tx'"))

	// A commit waits as long as there is no replica.
	s2.MustExec(t, "STOP SLAVE IO_THREAD")
	s3.MustExec(t, "STOP SLAVE IO_THREAD")
	waitStatus(t, s1, "Rpl_semi_sync_master_clients", "0")
	committed := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		committed <- s1.Exec(ctx, insert+"(2)")
	}()
	waitStatus(t, s1, "Rpl_semi_sync_master_wait_sessions", "1")
	select {
	case err := <-committed:
		require.FailNow(t, "the commit did not wait", "%v", err)
	default:
	}
	require.Equal(t, "1", s1.MustQuery(t, "SELECT COUNT(*) FROM app.writes"), "nobody sees it before a replica has it")

	s2.MustExec(t, "START SLAVE IO_THREAD")
	require.NoError(t, <-committed)
	require.Equal(t, "2", s1.MustQuery(t, "SELECT COUNT(*) FROM app.writes"))
	require.NoError(t, c.WaitSync(ctx, s2))
	require.Equal(t, "2", s2.MustQuery(t, "SELECT COUNT(*) FROM app.writes"))
	require.Equal(t, "0", s1.MustQuery(t, "SELECT variable_value FROM information_schema.global_status "+
		"WHERE variable_name = 'Rpl_semi_sync_master_no_tx'"), "it never fell back")

	// Switching on what is on is fine.
	s3.MustExec(t, "START SLAVE IO_THREAD")
	require.NoError(t, c.EnableSemiSync(ctx))
	s1.MustExec(t, insert+"(3)")
}

// TestSemiSyncUnknown lets the writer give up on commits that wait for a replica
// and are made when one is back.
func TestSemiSyncUnknown(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := newSemiSyncCluster(t)
	s1, s2, s3 := c.Servers[0], c.Servers[1], c.Servers[2]
	w := StartWriter(ctx, always(s1.Addr()), WriterOptions{Timeout: 2 * time.Second, Log: t.Logf})
	t.Cleanup(func() { w.Stop() })
	waitAcked(t, w, 5)
	s2.MustExec(t, "STOP SLAVE IO_THREAD")
	s3.MustExec(t, "STOP SLAVE IO_THREAD")
	require.Eventually(t, func() bool { return w.Snapshot().Unknown > 0 }, patience, time.Millisecond)
	s3.MustExec(t, "START SLAVE IO_THREAD")
	waitAcked(t, w, 5)
	r := w.Stop()
	require.NotEmpty(t, r.Outages)
	require.GreaterOrEqual(t, r.Longest, 2*time.Second)
	require.Eventually(t, func() bool {
		_, _, extra, err := w.Check(ctx, s1)
		return err == nil && extra > 0
	}, patience, 10*time.Millisecond)
	require.Positive(t, requireComplete(t, w, s1))
	require.NoError(t, c.WaitSync(ctx, s3))
	require.Positive(t, requireComplete(t, w, s3))
}

func TestEnableSemiSyncFails(t *testing.T) {
	t.Parallel()
	c := NewCluster(t, 2, ClusterOptions{})
	require.ErrorContains(t, c.EnableSemiSync(t.Context()), "server s2 is no semi-synchronous replica")
	require.Equal(t, "0", c.Primary().MustQuery(t, "SELECT @@rpl_semi_sync_master_enabled"))
}
