package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/internal/testdb"
)

// safeBuffer collects the log of a daemon.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// TestServe runs the daemon as systemd does: it says when it is ready, feeds the
// watchdog, reads its configuration again at SIGHUP, and says that it stops.
func TestServe(t *testing.T) {
	c := testdb.NewCluster(t, 1, testdb.ClusterOptions{})
	dir := t.TempDir()
	socket := filepath.Join(dir, "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	t.Setenv("NOTIFY_SOCKET", socket)
	t.Setenv("WATCHDOG_USEC", "300000")
	expect := func(state string) {
		t.Helper()
		buf := make([]byte, 512)
		require.NoError(t, l.SetReadDeadline(time.Now().Add(10*time.Second)))
		for {
			n, err := l.Read(buf)
			require.NoError(t, err, "waiting for %s", state)
			if strings.HasPrefix(string(buf[:n]), state) {
				return
			}
		}
	}
	var lc net.ListenConfig
	probe, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := probe.Addr().String()
	require.NoError(t, probe.Close())
	path := filepath.Join(dir, "lockstep.toml")
	text := strings.Replace(configText(c, ""), `listen = ""`, `listen = "`+addr+`"`, 1)
	told := filepath.Join(dir, "told")
	hook := filepath.Join(dir, "hook")
	require.NoError(t, os.WriteFile(hook, []byte("#!/bin/sh\necho $LOCKSTEP_EVENT $LOCKSTEP_PRIMARY_NAME >>"+told+"\n"), 0o700))
	text = "[[hook]]\nname = \"h\"\ncommand = [\"" + hook + "\"]\nevents = [\"primary_found\", \"primary_lost\"]\n" + text
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))

	ctx, cancel := context.WithCancel(t.Context())
	log := &safeBuffer{}
	done := make(chan int, 1)
	go func() { done <- run(ctx, []string{"--config", path}, os.Stdout, log) }()
	expect("READY=1")
	expect("WATCHDOG=1")
	primary := func() (int, map[string]any) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+"/v1/clusters/main/primary", nil)
		require.NoError(t, err)
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer func() { require.NoError(t, resp.Body.Close()) }()
		var body map[string]any
		require.NoError(t, json.NewDecoder(resp.Body).Decode(&body))
		return resp.StatusCode, body
	}
	require.Eventually(t, func() bool { code, _ := primary(); return code == http.StatusOK }, 10*time.Second, 10*time.Millisecond)

	require.NoError(t, os.WriteFile(path, []byte(text+"\nnonsense = 1\n"), 0o600))
	require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGHUP))
	expect("RELOADING=1")
	expect("READY=1")
	require.Contains(t, log.String(), "reload_failed")
	code, _ := primary()
	require.Equal(t, http.StatusOK, code, "an error leaves everything as it was")

	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGHUP))
	expect("RELOADING=1")
	expect("READY=1")
	require.Contains(t, log.String(), `"event":"reloaded"`)

	cancel()
	expect("STOPPING=1")
	require.Equal(t, exitOK, <-done, log.String())
	require.NotContains(t, log.String(), testdb.MonitorPassword)
	events, err := os.ReadFile(told)
	require.NoError(t, err)
	require.Equal(t, "primary_found s1\nprimary_lost\n", string(events))
}
