package main

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/internal/testdb"
	"github.com/lockstep-ha/lockstep/monitor"
	"github.com/lockstep-ha/lockstep/monitor/api"
	"github.com/lockstep-ha/lockstep/monitor/operation"
)

// TestOperate gives commands to a real monitor of real servers.
func TestOperate(t *testing.T) {
	c := testdb.NewCluster(t, 2, testdb.ClusterOptions{Server: testdb.Options{Operate: true}})
	cfg := monitor.Config{
		Cluster: "main", Name: "m1", User: testdb.MonitorUser, Password: testdb.MonitorPassword,
		Interval: 100 * time.Millisecond, Timeout: 500 * time.Millisecond, WaitTimeoutFloor: time.Second,
		Policy: operation.Policy{ReplicationUser: testdb.ReplUser, ReplicationPassword: testdb.ReplPassword},
	}
	for i, s := range c.Servers {
		cfg.Servers = append(cfg.Servers, monitor.ServerConfig{Name: fmt.Sprintf("s%d", i+1), Address: s.Addr()})
	}
	m, err := monitor.New(cfg)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	defer func() {
		cancel()
		require.NoError(t, <-done)
	}()
	server := httptest.NewServer(api.Handler(func() []*monitor.Monitor { return []*monitor.Monitor{m} }))
	defer server.Close()
	lockstepctl := func(args string) result {
		return ctl(t, append(strings.Fields(args), "--server", server.URL)...)
	}

	r := lockstepctl("call switchover")
	require.Equal(t, exitRefused, r.code, "it has just been started: %+v", r)
	require.Contains(t, r.stderr, "this is not the primary monitor")
	require.Eventually(t, func() bool {
		v := m.View()
		return v.Monitor.Role.String() == "primary" && v.Primary != nil
	}, 20*time.Second, 10*time.Millisecond)

	r = lockstepctl("call switchover --dry-run")
	require.Equal(t, exitOK, r.code, r.stderr)
	require.Contains(t, r.stdout, "switchover from s1 to s2\n")
	require.Equal(t, "s1", m.View().Primary.Name)

	r = lockstepctl("call switchover")
	require.Equal(t, exitOK, r.code, r.stderr)
	t.Log(r.stdout)
	require.Contains(t, r.stdout, "switchover from s1 to s2, operation ")
	require.Contains(t, r.stdout, "\ndone after ")
	require.Eventually(t, func() bool { p := m.View().Primary; return p != nil && p.Name == "s2" }, 5*time.Second, 10*time.Millisecond)

	for args, want := range map[string]string{
		"call switchover s2":      "s2 is the primary already",
		"call switchover s9":      `there is no server "s9"`,
		"call failover --yes":     "  -> use switchover",
		"call rejoin s2":          "s2 is the primary",
		"call rejoin s1":          "s1 replicates from s2 already",
		"call failover --dry-run": "the primary s2 answers",
	} {
		r = lockstepctl(args)
		require.Equal(t, exitRefused, r.code, "%s: %s", args, r.stderr)
		require.Contains(t, r.stderr, want)
	}
	r = lockstepctl("call cancel")
	require.Equal(t, exitError, r.code)
	require.Contains(t, r.stderr, "no operation is under way")

	r = lockstepctl("call reset-replication --dry-run")
	require.Equal(t, exitOK, r.code, r.stderr)
	require.Contains(t, r.stdout, "RESET MASTER")

	c.Servers[0].MustExec(t, "STOP SLAVE", "RESET SLAVE ALL")
	require.Eventually(t, func() bool { return m.View().Servers[0].Source == "" }, 5*time.Second, 10*time.Millisecond)
	r = lockstepctl("call rejoin s1")
	require.Equal(t, exitOK, r.code, r.stderr)
	t.Log(r.stdout)
	require.Contains(t, r.stdout, "rejoin of s1, operation ")

	for args, want := range map[string]string{
		"maintenance set s1":       "maintenance of s1 is on\n",
		"drain set s1":             "drain of s1 is on\n",
		"promotion set s1 neutral": "promotion of s1 is neutral\n",
		"call pause":               "automatic operations are paused\n",
		"call ack":                 "there is no failover to acknowledge\n",
	} {
		r = lockstepctl(args)
		require.Equal(t, want, r.stdout, "%s: %s", args, r.stderr)
	}
	require.Eventually(t, func() bool { return strings.Contains(lockstepctl("list servers").stdout, "Maintenance") }, 5*time.Second, 10*time.Millisecond)
	r = lockstepctl("explain")
	require.Contains(t, r.stdout, "If s2 failed now, there could be no failover: ")
	require.Contains(t, r.stdout, "Server s1 would not take its place: it is in maintenance.")
	require.Contains(t, r.stdout, "Nothing would be done by itself: auto_failover is off.")
	require.Equal(t, exitOK, lockstepctl("maintenance clear s1").code)
	require.Equal(t, exitOK, lockstepctl("drain clear s1").code)
	require.Equal(t, exitOK, lockstepctl("call resume").code)

	r = lockstepctl("history --no-headers")
	require.Equal(t, exitOK, r.code, r.stderr)
	lines := strings.Split(strings.TrimSpace(r.stdout), "\n")
	require.Len(t, lines, 2, r.stdout)
	require.Contains(t, lines[0], "rejoin")
	require.Contains(t, lines[1], "switchover")
	r = lockstepctl("history " + strings.Fields(lines[1])[0])
	require.Equal(t, exitOK, r.code, r.stderr)
	require.Contains(t, r.stdout, "s2 was the primary after ")

	r = lockstepctl("call release-locks --for 1m")
	require.Equal(t, result{exitOK, "the locks are released and not taken again for 1m0s\n", ""}, r)
	require.Eventually(t, func() bool { return !m.View().Monitor.Primary }, 5*time.Second, 10*time.Millisecond)
	require.Equal(t, exitRefused, lockstepctl("call switchover").code)
}
