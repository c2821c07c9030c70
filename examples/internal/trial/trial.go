// Package trial starts what the examples need: servers, and a monitor that leads.
package trial

import (
	"context"
	"testing"
	"time"

	"github.com/lockstep-ha/lockstep/internal/testdb"
	"github.com/lockstep-ha/lockstep/monitor"
	"github.com/lockstep-ha/lockstep/monitor/operation"
)

// DSN is how an example logs in.
const DSN = testdb.AppUser + ":" + testdb.AppPassword + "@/" + testdb.AppDatabase

// Start starts three servers and a monitor, and ends them with the test. The
// statements are run on the primary.
func Start(t testing.TB, statements ...string) (*testdb.Cluster, *monitor.Monitor) {
	t.Helper()
	c := testdb.NewCluster(t, 3, testdb.ClusterOptions{Server: testdb.Options{Operate: true}})
	cfg := monitor.Config{User: testdb.MonitorUser, Password: testdb.MonitorPassword, Interval: 200 * time.Millisecond, Timeout: 400 * time.Millisecond,
		WaitTimeoutFloor: time.Second, Policy: operation.Policy{ReplicationUser: testdb.ReplUser, ReplicationPassword: testdb.ReplPassword, StateSchema: "-"}}
	for _, s := range c.Servers {
		cfg.Servers = append(cfg.Servers, monitor.ServerConfig{Name: s.Name(), Address: s.Addr()})
	}
	m, err := monitor.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	c.Primary().MustExec(t, statements...)
	if err := c.WaitSync(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c, m
}

// Switchover makes another server the primary, once the monitor may.
func Switchover(t testing.TB, m *monitor.Monitor, to string) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		_, err := m.Command(t.Context(), monitor.Command{Action: monitor.ActSwitchover, Server: to})
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	for time.Now().Before(deadline) {
		if p, _, ok := m.Primary(); ok && p.Name == to {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("%s did not become the primary", to)
}
