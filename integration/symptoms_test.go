package integration

import (
	"context"
	"database/sql"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/election"
	"github.com/lockstep-ha/lockstep/internal/testdb"
	"github.com/lockstep-ha/lockstep/monitor"
	"github.com/lockstep-ha/lockstep/monitor/operation"
)

// preferring sets the promotion rule of a server to prefer.
func preferring(server int) func(*monitor.Config) {
	return func(cfg *monitor.Config) { cfg.Servers[server].Promotion = "prefer" }
}

// unhurried waits longer for answers than other tests do, for a busy machine.
func unhurried(cfg *monitor.Config) { cfg.Timeout = time.Second }

// done gives a command and waits until the operation has succeeded.
func done(t *testing.T, m running, c monitor.Command) operation.Record {
	t.Helper()
	rec := endOf(t, m, accepted(t, m, c).ID, 15*time.Second)
	require.Equal(t, operation.Done, rec.Outcome, "%+v", rec)
	return rec
}

// TestFailoverPassesOverStuckReplica has a replica receive everything and apply
// nothing, while both of its threads run: the other one is promoted at once.
func TestFailoverPassesOverStuckReplica(t *testing.T) {
	c := semiSync(t, 3)
	p, s2, s3 := c.Servers[0], c.Servers[1], c.Servers[2]
	p.MustExec(t, "CREATE TABLE app.t (id INT PRIMARY KEY)")
	require.NoError(t, c.WaitSync(t.Context()))
	m := leader(t, configOf(c, operating, unhurried, preferring(1)))
	holds := mustConnect(t, s2, testdb.RootUser)
	holds.run("LOCK TABLES app.t WRITE")
	p.MustExec(t, "INSERT INTO app.t VALUES (1)", "INSERT INTO app.t VALUES (2)")
	pos := p.MustQuery(t, "SELECT @@gtid_binlog_pos")
	require.NoError(t, c.WaitSync(t.Context(), s3))
	until(t, m, 5*time.Second, "both have received it, and s2 has not applied it", func(v monitor.View) bool {
		return mustStatus(t, s2)["Gtid_IO_Pos"] == pos && serverOf(t, v, "s3").BinlogPos == pos
	})
	status := mustStatus(t, s2)
	require.Equal(t, "Yes Yes", status["Slave_IO_Running"]+" "+status["Slave_SQL_Running"])
	require.NotEqual(t, pos, s2.MustQuery(t, "SELECT @@gtid_slave_pos"))

	require.NoError(t, p.Kill())
	killed := time.Now()
	until(t, m, 10*time.Second, "s3 is offered", func(v monitor.View) bool {
		require.False(t, offers("s2")(v))
		return offers("s3")(v)
	})
	t.Logf("s3 is offered after %v", time.Since(killed).Round(time.Millisecond))
	holds.close()
	s3.MustExec(t, "INSERT INTO app.t VALUES (3)")
	require.NoError(t, p.Restart(t.Context()))
	oneTopology(t, m, c, "s3")
	for _, s := range c.Servers {
		require.Equal(t, "3", s.MustQuery(t, "SELECT COUNT(*) FROM app.t"))
	}
}

// TestTwoServers has one replica, which is promoted when the primary dies, and back.
func TestTwoServers(t *testing.T) {
	c := operated(t, 2, nil)
	c.Primary().MustExec(t, "CREATE TABLE app.t (id INT AUTO_INCREMENT PRIMARY KEY)")
	require.NoError(t, c.WaitSync(t.Context()))
	m := leader(t, configOf(c, operating, unhurried, quorum(election.MajorityOfRunning), policy(func(p *operation.Policy) { p.FailoverBlock = -1 })))
	for _, x := range []struct{ from, to string }{{"s1", "s2"}, {"s2", "s1"}} {
		from, to := byName(t, c, x.from), byName(t, c, x.to)
		require.NoError(t, from.Kill())
		killed := time.Now()
		until(t, m, 15*time.Second, x.to+" is offered", offers(x.to))
		t.Logf("%s is offered after %v", x.to, time.Since(killed).Round(time.Millisecond))
		to.MustExec(t, "INSERT INTO app.t VALUES ()")
		require.NoError(t, from.Restart(t.Context()))
		oneTopology(t, m, c, x.to)
	}
	require.Equal(t, "2", c.Primary().MustQuery(t, "SELECT COUNT(*) FROM app.t"))
}

// TestCommitHangsAtCrash kills a primary while a commit waits for an acknowledgement
// that no replica gives. The row was never acknowledged: when the server comes back,
// either it has dropped it and is joined, or it is left alone and the row named.
func TestCommitHangsAtCrash(t *testing.T) {
	for name, joins := range map[string]bool{"SLAVE": true, "MASTER": false} {
		t.Run(name, func(t *testing.T) {
			c := semiSync(t, 3)
			p := c.Primary()
			p.MustExec(t, "CREATE TABLE app.t (id INT PRIMARY KEY)", "INSERT INTO app.t VALUES (1)")
			require.NoError(t, c.WaitSync(t.Context()))
			before := p.MustQuery(t, "SELECT @@gtid_binlog_pos")
			m := leader(t, configOf(c, operating, unhurried))
			for _, s := range c.Replicas() {
				s.MustExec(t, "STOP SLAVE IO_THREAD")
			}
			writes := mustConnect(t, p, testdb.AppUser)
			ended := make(chan error, 1)
			go func() {
				_, err := writes.conn.ExecContext(context.WithoutCancel(t.Context()), "INSERT INTO app.t VALUES (2)")
				ended <- err
			}()
			until(t, m, 5*time.Second, "the commit waits", func(monitor.View) bool {
				return p.MustQuery(t, "SELECT variable_value FROM information_schema.global_status WHERE variable_name='Rpl_semi_sync_master_wait_sessions'") == "1"
			})
			tail := p.MustQuery(t, "SELECT @@gtid_binlog_pos")
			require.NotEqual(t, before, tail)
			require.NoError(t, p.Kill())
			require.Error(t, <-ended)
			for _, s := range c.Replicas() {
				s.MustExec(t, "START SLAVE IO_THREAD")
			}
			v := until(t, m, 15*time.Second, "another primary", otherThan("s1"))
			next := byName(t, c, v.Primary.Name)
			next.MustExec(t, "INSERT INTO app.t VALUES (3)")

			require.NoError(t, p.Restart(t.Context(), "--init-rpl-role="+name))
			if joins {
				oneTopology(t, m, c, v.Primary.Name)
				for _, s := range c.Servers {
					require.Equal(t, "1,3", s.MustQuery(t, "SELECT GROUP_CONCAT(id ORDER BY id) FROM app.t"))
				}
				return
			}
			v = until(t, m, 10*time.Second, "it is not joined", func(v monitor.View) bool {
				readOnlyIfSeen(t, v, "s1")
				return hasFault("not_joined", "s1")(v)
			})
			f, _ := faultOf(v, "not_joined", "s1")
			require.Contains(t, f.Text, tail)
			require.Contains(t, f.Remedy, "mariadb-binlog")
			ticksLater(t, m, 5, func(v monitor.View) { readOnlyIfSeen(t, v, "s1") })
			require.True(t, alone(t, p))
			require.Equal(t, "1,3", next.MustQuery(t, "SELECT GROUP_CONCAT(id ORDER BY id) FROM app.t"))
		})
	}
}

// TestSwitchoverToRelay switches over to a server that another replica is attached to.
func TestSwitchoverToRelay(t *testing.T) {
	c := semiSync(t, 3)
	s2, s3 := c.Servers[1], c.Servers[2]
	c.Primary().MustExec(t, "CREATE TABLE app.t (id INT PRIMARY KEY)")
	require.NoError(t, c.WaitSync(t.Context()))
	require.NoError(t, c.Replicate(t.Context(), s2, s3))
	m := leader(t, configOf(c, operating, unhurried))
	until(t, m, 5*time.Second, "s3 replicates from s2", replicates("s3", "s2"))
	w := writing(t, c, m)

	rec := done(t, m, to("s2"))
	require.Less(t, rec.EndedAt.Sub(rec.StartedAt), operation.DefaultSwitchoverTimeout)
	require.Empty(t, rec.Warnings)
	require.NoError(t, w.WaitAcked(t.Context(), 50))
	oneTopology(t, m, c, "s2")
	w.Stop()
	inSync(t, c, "s2")
	nothingLost(t, w, c.Servers...)
}

// TestFailoverToRelay kills the primary of such a chain: the server that was
// attached to the relay acknowledges what the new primary commits.
func TestFailoverToRelay(t *testing.T) {
	c := semiSync(t, 3)
	s2, s3 := c.Servers[1], c.Servers[2]
	require.NoError(t, c.Replicate(t.Context(), s2, s3))
	m := leader(t, configOf(c, operating, unhurried))
	until(t, m, 5*time.Second, "s3 replicates from s2", replicates("s3", "s2"))
	w := writing(t, c, m)
	require.NoError(t, c.Primary().Kill())
	until(t, m, 15*time.Second, "s2 is offered", offers("s2"))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	require.NoError(t, w.WaitAcked(ctx, 50))
	require.NoError(t, c.Primary().Restart(t.Context()))
	until(t, m, 15*time.Second, "s1 is joined", replicates("s1", "s2"))
	w.Stop()
	inSync(t, c, "s2")
	nothingLost(t, w, c.Servers...)
}

// fullHouse is a port that leads to an address; once it is shut, what is connected goes
// on, and new connections are accepted and get no answer.
func fullHouse(t *testing.T, target string) (addr string, shut *atomic.Bool) {
	t.Helper()
	var lc net.ListenConfig
	in, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	shut = new(atomic.Bool)
	inner := newLink(t)
	behind := inner.to(t, target)
	var waiting []net.Conn
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := in.Accept()
			if err != nil {
				return
			}
			waiting = append(waiting, c)
			if shut.Load() {
				continue
			}
			out, err := net.Dial("tcp", behind)
			if err != nil {
				continue
			}
			waiting = append(waiting, out)
			wg.Go(func() { _, _ = io.Copy(out, c) })
			wg.Go(func() { _, _ = io.Copy(c, out); _ = c.Close() })
		}
	})
	t.Cleanup(func() {
		_ = in.Close()
		for _, c := range waiting {
			_ = c.Close()
		}
		wg.Wait()
	})
	return in.Addr().String(), shut
}

// TestPromotionTakesLong switches over to a semi-synchronous replica that cannot connect
// to the primary any more: it takes seconds to stop its replication. However that ends,
// one of the two takes writes afterwards.
func TestPromotionTakesLong(t *testing.T) {
	for _, x := range []struct{ name, seconds string }{{"a little", "2"}, {"more than its limit", "5"}} {
		t.Run(x.name, func(t *testing.T) {
			c := semiSync(t, 3)
			p, s2 := c.Servers[0], c.Servers[1]
			private, shut := fullHouse(t, p.Addr())
			host, port := splitAddr(t, private)
			s2.MustExec(t, "SET GLOBAL rpl_semi_sync_slave_kill_conn_timeout="+x.seconds)
			for _, s := range c.Replicas() {
				s.MustExec(t, "STOP SLAVE", "CHANGE MASTER TO MASTER_HOST='"+host+"', MASTER_PORT="+port, "START SLAVE")
				require.NoError(t, s.WaitReplicating(t.Context()))
			}
			p.MustExec(t, "CREATE TABLE app.t (id INT PRIMARY KEY)")
			require.NoError(t, c.WaitSync(t.Context()))
			m := leader(t, configOf(c, operating, unhurried, func(cfg *monitor.Config) { cfg.Servers[0].PrivateAddress = private }))
			shut.Store(true)
			began := time.Now()
			rec := endOf(t, m, accepted(t, m, to("s2")).ID, 60*time.Second)
			t.Logf("%s after %v: %s", rec.Outcome, rec.EndedAt.Sub(rec.StartedAt).Round(time.Millisecond), rec.Detail)
			shut.Store(false)
			v := until(t, m, 20*time.Second, "one of them is offered", func(v monitor.View) bool { return offers("s1")(v) || offers("s2")(v) })
			t.Logf("%s is offered %v after the command", v.Primary.Name, time.Since(began).Round(time.Millisecond))
			byName(t, c, v.Primary.Name).MustExec(t, "INSERT INTO app.t VALUES (1)")
			oneTopology(t, m, c, v.Primary.Name)
		})
	}
}

// crowd is some clients that connect again as soon as their connection ends.
type crowd struct {
	connects, ended atomic.Int64
	cancel          context.CancelFunc
	wg              sync.WaitGroup
}

// gather starts the clients; each sends a statement over and over.
func gather(t *testing.T, s *testdb.Server, user, statement string, clients int) *crowd {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	x := &crowd{cancel: cancel}
	for range clients {
		x.wg.Go(func() {
			for ctx.Err() == nil {
				x.session(ctx, s, user, statement)
			}
		})
	}
	t.Cleanup(x.stop)
	return x
}

func (x *crowd) session(ctx context.Context, s *testdb.Server, user, statement string) {
	db, err := sql.Open("mysql", s.DSN(user))
	if err != nil {
		return
	}
	defer func() { _ = db.Close() }()
	conn, err := db.Conn(ctx)
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	x.connects.Add(1)
	for {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			x.ended.Add(1)
			return
		}
	}
}

func (x *crowd) stop() {
	x.cancel()
	x.wg.Wait()
}

// TestReconnectingClients switches over while clients of an account that may write to
// a read-only server connect to the old primary faster than they can be ended. What
// the others were told that is written is not lost, and nobody waits for long.
func TestReconnectingClients(t *testing.T) {
	const limit = 5 * time.Second
	for name, statement := range map[string]string{
		"read":  "SELECT SLEEP(0.01)",
		"write": "INSERT INTO app.privileged VALUES ()",
	} {
		t.Run(name, func(t *testing.T) {
			admin := account("admin", "READ_ONLY ADMIN ON *.*", "SELECT, INSERT ON app.*")
			c := testdb.NewCluster(t, 3, testdb.ClusterOptions{Server: testdb.Options{Operate: true, Accounts: []testdb.Account{admin}}})
			for _, s := range c.Servers {
				s.MustExec(t, "SET SESSION sql_log_bin=0", "GRANT SELECT ON mysql.* TO "+testdb.MonitorUser+"@'%'", "SET SESSION sql_log_bin=1")
			}
			p := c.Primary()
			p.MustExec(t, "CREATE TABLE app.privileged (id INT AUTO_INCREMENT PRIMARY KEY)")
			m := leader(t, configOf(c, byHand, unhurried, policy(func(p *operation.Policy) { p.SwitchoverTimeout = limit })))
			w := writing(t, c, m)
			all := gather(t, p, "admin", statement, 3)
			until(t, m, 5*time.Second, "all are connected", func(monitor.View) bool { return all.connects.Load() >= 3 })

			rec := endOf(t, m, accepted(t, m, to("s2")).ID, 45*time.Second)
			// What the privileged clients have written last may be lost, and then the
			// replicas cannot follow; the new primary does not wait for that.
			primary, ended := "s1", rec.EndedAt
			if rec.TurnedAt != nil {
				primary, ended = "s2", rec.TurnedAt
			}
			took := ended.Sub(rec.StartedAt)
			t.Logf("%s, %s after %v; %d connects, %d ended; %s; %d warnings", rec.Outcome, primary, took.Round(time.Millisecond), all.connects.Load(), all.ended.Load(), rec.Detail, len(rec.Warnings))
			// Some statements may be under way when the time is over.
			require.Less(t, took, limit+4*time.Second)
			if name == "read" {
				require.Equal(t, operation.Done, rec.Outcome, "%+v", rec)
			}
			until(t, m, 5*time.Second, primary+" is offered", offers(primary))
			require.NoError(t, w.WaitAcked(t.Context(), 50))
			w.Stop()
			all.stop()
			nothingLost(t, w, byName(t, c, primary))
			if name == "read" {
				oneTopology(t, m, c, primary)
				nothingLost(t, w, c.Servers...)
			}
		})
	}
}

// TestSwitchoverWithoutOneReplica switches over while one of two replicas is away and
// every commit needs an acknowledgement.
func TestSwitchoverWithoutOneReplica(t *testing.T) {
	for name, away := range map[string]func(*testing.T, *testdb.Server){
		"down":         func(t *testing.T, s *testdb.Server) { require.NoError(t, s.Stop(t.Context())) },
		"frozen":       func(t *testing.T, s *testdb.Server) { require.NoError(t, s.Freeze()) },
		"not replying": func(t *testing.T, s *testdb.Server) { s.MustExec(t, "STOP SLAVE") },
	} {
		t.Run(name, func(t *testing.T) {
			c := semiSync(t, 3)
			m := leader(t, configOf(c, operating, unhurried))
			w := writing(t, c, m)
			away(t, c.Servers[2])
			require.NoError(t, w.WaitAcked(t.Context(), 50))
			until(t, m, 10*time.Second, "it is seen", func(v monitor.View) bool { return !replicates("s3", "s1")(v) })
			rec := endOf(t, m, accepted(t, m, to("s2")).ID, 60*time.Second)
			t.Logf("%s after %v: %s %v", rec.Outcome, rec.EndedAt.Sub(rec.StartedAt).Round(time.Millisecond), rec.Detail, rec.Warnings)
			require.Equal(t, operation.Done, rec.Outcome, "%+v", rec)
			until(t, m, 5*time.Second, "s1 follows", replicates("s1", "s2"))
			require.NoError(t, w.WaitAcked(t.Context(), 50))
			report := w.Stop()
			require.Len(t, report.Outages, 1)
			require.Less(t, report.Outages[0].Duration(), operation.DefaultSwitchoverTimeout)

			require.NoError(t, c.Servers[2].Thaw())
			if name == "down" {
				require.NoError(t, c.Servers[2].Restart(t.Context()))
			}
			if name == "not replying" {
				c.Servers[2].MustExec(t, "START SLAVE")
			}
			oneTopology(t, m, c, "s2")
			nothingLost(t, w, c.Servers...)
		})
	}
}

// purgeOld leaves each server with the newest of its binary logs only.
func purgeOld(t *testing.T, servers ...*testdb.Server) {
	t.Helper()
	for _, s := range servers {
		s.MustExec(t, "FLUSH BINARY LOGS")
		require.Eventually(t, func() bool {
			var files []struct {
				Name string `db:"Log_name"`
				Size int    `db:"File_size"`
			}
			require.NoError(t, s.Root().SelectContext(t.Context(), &files, "SHOW BINARY LOGS"))
			if len(files) == 1 {
				return true
			}
			s.MustExec(t, "PURGE BINARY LOGS TO '"+files[len(files)-1].Name+"'")
			return false
		}, 10*time.Second, 10*time.Millisecond, "the binary logs of %s are not purged", s.Name())
	}
}

// TestPurgedHistory moves the primary between two servers that were replicas long ago,
// and whose binary logs since then are purged everywhere.
func TestPurgedHistory(t *testing.T) {
	c := semiSync(t, 3)
	c.Primary().MustExec(t, "CREATE TABLE app.t (id INT AUTO_INCREMENT PRIMARY KEY)")
	require.NoError(t, c.WaitSync(t.Context()))
	m := leader(t, configOf(c, operating, unhurried))
	rows := 0
	grow := func(name string) {
		for range 20 {
			byName(t, c, name).MustExec(t, "INSERT INTO app.t VALUES ()")
			rows++
		}
		inSync(t, c, name)
		purgeOld(t, c.Servers...)
	}
	grow("s1")
	for range 2 {
		for _, x := range []string{"s2", "s1"} {
			rec := done(t, m, to(x))
			require.Empty(t, rec.Warnings)
			oneTopology(t, m, c, x)
			grow(x)
		}
	}
	// A crash and a return over the same.
	require.NoError(t, c.Primary().Kill())
	v := until(t, m, 15*time.Second, "another primary", otherThan("s1"))
	byName(t, c, v.Primary.Name).MustExec(t, "INSERT INTO app.t VALUES ()")
	require.NoError(t, c.Primary().Restart(t.Context()))
	oneTopology(t, m, c, v.Primary.Name)
	for _, s := range c.Servers {
		require.Equal(t, strconv.Itoa(rows+1), s.MustQuery(t, "SELECT COUNT(*) FROM app.t"), s.Name())
	}
}

// overTLS checks that all servers but the primary replicate over TLS.
func overTLS(t *testing.T, c *testdb.Cluster, primary string) {
	t.Helper()
	for i, s := range c.Servers {
		if serverName(i) != primary {
			require.Equal(t, "Yes", mustStatus(t, s)["Master_SSL_Allowed"], "%s, while %s is the primary", serverName(i), primary)
		}
	}
}

// TestReplicationStaysOverTLS has a replication account that is let in over TLS only.
func TestReplicationStaysOverTLS(t *testing.T) {
	ca := newAuthority(t)
	c := operated(t, 3, func(_ int, o *testdb.Options) {
		o.ExtraArgs = append(testdb.SemiSyncArgs(), ca.issue(t, "127.0.0.1", time.Now().Add(time.Hour))...)
	})
	for _, s := range c.Servers {
		s.MustExec(t, "SET SESSION sql_log_bin=0", "ALTER USER "+testdb.ReplUser+"@'%' REQUIRE SSL", "SET SESSION sql_log_bin=1")
	}
	for _, s := range c.Replicas() {
		s.MustExec(t, "STOP SLAVE", "CHANGE MASTER TO MASTER_SSL=1", "START SLAVE")
		require.NoError(t, s.WaitReplicating(t.Context()))
	}
	require.NoError(t, c.EnableSemiSync(t.Context()))
	c.Primary().MustExec(t, "CREATE TABLE app.t (id INT AUTO_INCREMENT PRIMARY KEY)")
	require.NoError(t, c.WaitSync(t.Context()))
	m := leader(t, configOf(c, operating, unhurried, policy(func(p *operation.Policy) { p.ReplicationTLS = true })))

	done(t, m, to("s2"))
	oneTopology(t, m, c, "s2")
	overTLS(t, c, "s2")
	require.NoError(t, c.Servers[1].Kill())
	v := until(t, m, 15*time.Second, "another primary", otherThan("s2"))
	next := v.Primary.Name
	byName(t, c, next).MustExec(t, "INSERT INTO app.t VALUES ()")
	require.NoError(t, c.Servers[1].Restart(t.Context()))
	oneTopology(t, m, c, next)
	overTLS(t, c, next)
	// One whose replication was taken away altogether.
	c.Servers[1].MustExec(t, "STOP SLAVE", "RESET SLAVE ALL")
	until(t, m, 10*time.Second, "it is joined again", func(monitor.View) bool { return mustStatus(t, c.Servers[1])["Slave_IO_Running"] == "Yes" })
	oneTopology(t, m, c, next)
	overTLS(t, c, next)
}

// TestReadOnlyPrimary has a person set the primary read-only, and then move it: with
// the monitor that has offered it, with one that takes over, and when it dies.
func TestReadOnlyPrimary(t *testing.T) {
	c := operated(t, 3, nil)
	m := leader(t, configOf(c, byHand, unhurried, policy(trusted)))
	second := start(t, configOf(c, byHand, unhurried, policy(trusted), named("second")))
	until(t, second, 5*time.Second, "follows", offers("s1"))
	readOnly := func(m running, server string) {
		byName(t, c, server).MustExec(t, "SET GLOBAL read_only=1")
		until(t, m, 5*time.Second, "nothing is offered", func(v monitor.View) bool { return v.Primary == nil && contains(v.Reason, "read-only") })
	}
	readOnly(m, "s1")
	done(t, m, to("s2"))
	oneTopology(t, m, c, "s2")
	until(t, second, 5*time.Second, "follows", offers("s2"))

	readOnly(m, "s2")
	m.stop()
	until(t, second, 10*time.Second, "it may act", func(v monitor.View) bool { return v.Monitor.Role == election.Primary })
	done(t, second, to("s3"))
	oneTopology(t, second, c, "s3")

	readOnly(second, "s3")
	require.NoError(t, c.Servers[2].Kill())
	failover := monitor.Command{Action: monitor.ActFailover, Server: "s1"}
	until(t, second, 15*time.Second, "it may be replaced", func(monitor.View) bool {
		dry := failover
		dry.DryRun = true
		_, err := second.Command(t.Context(), dry)
		return err == nil
	})
	done(t, second, failover)
	until(t, second, 5*time.Second, "s1 is offered", offers("s1"))
	until(t, second, 5*time.Second, "s2 follows", replicates("s2", "s1"))
}

// TestAllReadOnlyAtStart starts a monitor while no server is writable: which one all
// others replicate from is plain, so a person can move the primary away from it.
func TestAllReadOnlyAtStart(t *testing.T) {
	c := operated(t, 3, nil)
	c.Primary().MustExec(t, "SET GLOBAL read_only=1")
	m := start(t, configOf(c, byHand, unhurried))
	v := until(t, m, 10*time.Second, "it may act", func(v monitor.View) bool { return v.Monitor.Role == election.Primary })
	require.Nil(t, v.Primary)
	require.Contains(t, v.Reason, "s1 cannot take writes: read-only")
	done(t, m, to("s2"))
	oneTopology(t, m, c, "s2")
}
