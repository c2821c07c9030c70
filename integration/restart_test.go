package integration

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/internal/testdb"
	"github.com/lockstep-ha/lockstep/monitor"
)

// TestRestartedPrimaryBehindItsReplicas starts the primary again without a
// transaction that its replicas have: it must not be offered.
func TestRestartedPrimaryBehindItsReplicas(t *testing.T) {
	c := testdb.NewCluster(t, 3, testdb.ClusterOptions{})
	c.Primary().MustExec(t, "CREATE TABLE app.t (id INT PRIMARY KEY)", "INSERT INTO app.t VALUES (1)")
	require.NoError(t, c.WaitSync(t.Context()))
	m := start(t, configOf(c))
	until(t, m, 10*time.Second, "s1 is offered", offers("s1"))
	time.Sleep(3 * time.Second) // the uptime of a server is known to a second

	require.NoError(t, c.Primary().Kill())
	until(t, m, 10*time.Second, "nothing is offered", func(v monitor.View) bool { return v.Primary == nil })
	// What a crash without sync_binlog does, done by hand: the replicas have more.
	for _, s := range c.Replicas() {
		s.MustExec(t, "STOP SLAVE", "SET SESSION gtid_domain_id=0, server_id=1, gtid_seq_no=1000", "INSERT INTO app.t VALUES (2)")
	}
	require.NoError(t, c.Primary().Restart(t.Context()))
	until(t, m, 10*time.Second, "the refusal is stated", func(v monitor.View) bool {
		require.Nil(t, v.Primary, "a primary that lost transactions was offered")
		return contains(v.Reason, "s1", "lacks transactions", "s2 has transactions that it lacks (0-1-1000")
	})
}

// TestRestartedPrimaryThatLostNothing is offered again.
func TestRestartedPrimaryThatLostNothing(t *testing.T) {
	c := testdb.NewCluster(t, 3, testdb.ClusterOptions{})
	c.Primary().MustExec(t, "CREATE TABLE app.t (id INT PRIMARY KEY)")
	require.NoError(t, c.WaitSync(t.Context()))
	m := start(t, configOf(c))
	until(t, m, 10*time.Second, "s1 is offered", offers("s1"))
	time.Sleep(3 * time.Second)
	require.NoError(t, c.Primary().Stop(t.Context()))
	until(t, m, 10*time.Second, "nothing is offered", func(v monitor.View) bool { return v.Primary == nil })
	require.NoError(t, c.Primary().Restart(t.Context()))
	until(t, m, 10*time.Second, "s1 is offered again", offers("s1"))
}
