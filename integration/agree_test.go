package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/election"
	"github.com/lockstep-ha/lockstep/internal/testdb"
	"github.com/lockstep-ha/lockstep/monitor"
)

// fast is a timing for tests: settles in 2 s.
const (
	fastInterval = 200 * time.Millisecond
	fastTimeout  = 400 * time.Millisecond
)

// configOf describes a test cluster for a monitor.
func configOf(c *testdb.Cluster, change ...func(*monitor.Config)) monitor.Config {
	cfg := monitor.Config{
		Cluster: "test", User: testdb.MonitorUser, Password: testdb.MonitorPassword,
		Interval: fastInterval, Timeout: fastTimeout, WaitTimeoutFloor: time.Second,
	}
	for i, s := range c.Servers {
		cfg.Servers = append(cfg.Servers, monitor.ServerConfig{Name: fmt.Sprintf("s%d", i+1), Address: s.Addr()})
	}
	for _, f := range change {
		f(&cfg)
	}
	return cfg
}

// running is a monitor that runs until the test ends or stop is called.
type running struct {
	*monitor.Monitor
	stop func()
}

func start(t testing.TB, cfg monitor.Config, opts ...monitor.Option) running {
	t.Helper()
	log := zerolog.New(zerolog.NewTestWriter(t)).With().Str("monitor", cfg.Name).Logger()
	m, err := monitor.New(cfg, append(opts, monitor.WithLogger(log))...)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	var stopped bool
	stop := func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		require.NoError(t, <-done)
	}
	t.Cleanup(stop)
	return running{m, stop}
}

// until waits for a condition on a view, and fails with the last view.
func until(t testing.TB, m running, within time.Duration, what string, ok func(v monitor.View) bool) monitor.View {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	var last monitor.View
	for ctx.Err() == nil {
		if last = m.View(); ok(last) {
			return last
		}
		time.Sleep(2 * time.Millisecond)
	}
	t.Fatalf("not within %v: %s\nrole %s (%s)\nprimary %v (%s)\nfaults %v", within, what, last.Monitor.Role, last.Monitor.Reason, last.Primary, last.Reason, last.Faults)
	return last
}

func offers(name string) func(monitor.View) bool {
	return func(v monitor.View) bool { return v.Primary != nil && v.Primary.Name == name }
}

func TestTwoMonitorsAgree(t *testing.T) {
	c := testdb.NewCluster(t, 3, testdb.ClusterOptions{})
	a := start(t, configOf(c, func(c *monitor.Config) { c.Name = "a" }))
	until(t, a, 5*time.Second, "a offers s1", offers("s1"))
	b := start(t, configOf(c, func(c *monitor.Config) { c.Name = "b" }))
	v := until(t, b, 5*time.Second, "b follows", offers("s1"))
	require.Equal(t, election.Secondary, v.Monitor.Role)
	require.Empty(t, v.Faults)
	until(t, a, 10*time.Second, "a settles", func(v monitor.View) bool { return v.Monitor.Role == election.Primary })
	v = a.View()
	require.Equal(t, 3, v.Monitor.Majority.Held)
	require.Equal(t, []string{"Primary", "Running"}, v.Servers[0].State)
	require.Equal(t, []string{"Replica", "Read-only", "Running"}, v.Servers[1].State)

	a.stop()
	require.Nil(t, a.View().Primary)
	until(t, b, 2*time.Second, "b takes over", func(v monitor.View) bool {
		require.NotNil(t, v.Primary, "b stopped offering the primary: %s", v.Reason)
		return v.Monitor.Role != election.Secondary
	})
}

func contains(s string, parts ...string) bool {
	for _, p := range parts {
		if !strings.Contains(s, p) {
			return false
		}
	}
	return true
}
