package api

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/monitor"
)

// haproxyConfig has a writer that checks over HTTP and a reader with an agent.
const haproxyConfig = `
global
  stats socket %[1]s mode 600 level admin
defaults
  mode tcp
  timeout connect 1s
  timeout client 5s
  timeout server 5s
  timeout check 1s
backend writer
  option httpchk
  http-check connect addr 127.0.0.1 port %[2]s
  http-check send meth GET uri-lf /read-write?server=%%[srv_name]
  http-check expect status 200
  server s1 127.0.0.1:1 check inter 100ms fall 1 rise 1
  server s2 127.0.0.1:1 check inter 100ms fall 1 rise 1
backend other
  option httpchk OPTIONS /read-write?server=s2
  server s2 127.0.0.1:2 check inter 100ms fall 1 rise 1 addr 127.0.0.1 port %[2]s
backend reader
  server s2 127.0.0.1:3 agent-check agent-addr 127.0.0.1 agent-port %[3]s agent-inter 100ms agent-send "shop/s2\n"
`

// TestHAProxy lets the real program ask.
func TestHAProxy(t *testing.T) {
	path, err := exec.LookPath("haproxy")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("haproxy is not installed: apt-get install haproxy")
		}
		t.Skip("SKIPPED: haproxy is not installed (apt-get install haproxy)")
	}
	f := shop()
	a := newAPI(fakes(f))
	server := listenAndServe(t, a)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- serveAgent(ctx, l, a) }()
	t.Cleanup(func() { cancel(); require.NoError(t, <-done) })

	dir := t.TempDir()
	socket, config := filepath.Join(dir, "s"), filepath.Join(dir, "haproxy.cfg")
	port := func(a net.Addr) string {
		_, p, err := net.SplitHostPort(a.String())
		require.NoError(t, err)
		return p
	}
	text := fmt.Sprintf(haproxyConfig, socket, port(server.Listener.Addr()), port(l.Addr()))
	require.NoError(t, os.WriteFile(config, []byte(text), 0o600))
	cmd := exec.Command(path, "-db", "-f", config)
	var log strings.Builder
	cmd.Stdout, cmd.Stderr = &log, &log
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	// state returns "UP" or the like of backend/server, and what the agent has set.
	state := func(server string) string {
		c, err := net.Dial("unix", socket)
		if err != nil {
			return err.Error()
		}
		defer func() { _ = c.Close() }()
		_, _ = c.Write([]byte("show stat\n"))
		var out strings.Builder
		buf := make([]byte, 4096)
		for {
			n, err := c.Read(buf)
			out.Write(buf[:n])
			if err != nil {
				break
			}
		}
		for _, line := range strings.Split(out.String(), "\n") {
			if f := strings.Split(line, ","); len(f) > 17 && f[0]+"/"+f[1] == server {
				return f[17]
			}
		}
		return out.String()
	}
	becomes := func(server, want string) {
		t.Helper()
		require.Eventually(t, func() bool { return strings.HasPrefix(state(server), want) }, 10*time.Second, 20*time.Millisecond,
			"%s is %s, not %s", server, state(server), want)
	}
	becomes("writer/s1", "UP")
	becomes("writer/s2", "DOWN")
	becomes("other/s2", "DOWN")
	becomes("reader/s2", "no check") // what HAProxy calls up with an agent alone
	f.set(func(v *monitor.View) { v.Primary = &monitor.Endpoint{Name: "s2"} })
	becomes("writer/s1", "DOWN")
	becomes("writer/s2", "UP")
	becomes("other/s2", "UP")
	f.set(func(v *monitor.View) { v.Primary = nil })
	becomes("other/s2", "DOWN")
	becomes("reader/s2", "DOWN")
	f.set(func(v *monitor.View) {
		v.Primary, v.Servers[1].State = &monitor.Endpoint{Name: "s1"}, []string{"Replica", "Drained", "Running"}
	})
	becomes("reader/s2", "DRAIN")
	f.set(func(v *monitor.View) { v.Servers[1].State = []string{"Replica", "Maintenance", "Running"} })
	becomes("reader/s2", "MAINT")
	f.set(func(v *monitor.View) { v.Servers[1].State = []string{"Replica", "Running"} })
	becomes("reader/s2", "no check") // what HAProxy calls up with an agent alone
	server.CloseClientConnections()
	server.Close()
	becomes("writer/s1", "DOWN")
}
