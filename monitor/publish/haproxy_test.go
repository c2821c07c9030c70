package publish

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/monitor"
)

// hello serves a line that tells who it is, and then holds the connection.
func hello(t *testing.T, name string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.WriteString(c, name+"\n")
				_, _ = io.Copy(io.Discard, c)
				_ = c.Close()
			}()
		}
	}()
	return l.Addr().String()
}

// TestHAProxy drives the real program.
func TestHAProxy(t *testing.T) {
	path := needs(t, "haproxy", "haproxy")
	dir := t.TempDir()
	socket, config, port := filepath.Join(dir, "s"), filepath.Join(dir, "haproxy.cfg"), freePort(t)
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, `
global
  stats socket %s mode 600 level admin
defaults
  mode tcp
  timeout connect 1s
  timeout client 60s
  timeout server 60s
frontend in
  bind 127.0.0.1:%s
  default_backend writer
backend writer
  server primary 127.0.0.1:1 disabled
`, socket, port), 0o600))
	start := func() (stop func()) {
		cmd := exec.Command(path, "-db", "-f", config)
		require.NoError(t, cmd.Start())
		return func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }
	}
	stop := start()
	defer func() { stop() }()
	one, two := hello(t, "one"), hello(t, "two")
	// ask returns who answers behind HAProxy, "" for nobody, and the connection.
	ask := func() (string, net.Conn) {
		c, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err != nil {
			return "", nil
		}
		require.NoError(t, c.SetReadDeadline(time.Now().Add(5*time.Second)))
		line, _ := bufio.NewReader(c).ReadString('\n')
		return line, c
	}
	becomes := func(want string) {
		t.Helper()
		require.Eventually(t, func() bool {
			got, c := ask()
			if c != nil {
				_ = c.Close()
			}
			return got == want
		}, 10*time.Second, 20*time.Millisecond)
	}
	src := newChanging(leader("m1"))
	src.view.Monitor.Timing.IntervalMS = 100
	src.view.Primary.Address = one
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		Drive(ctx, src, HAProxy{Socket: "unix:" + socket, Server: "writer/primary"}, zerolog.Nop(), NewCounters())
	}()
	becomes("one\n")
	got, session := ask()
	require.Equal(t, "one\n", got)
	defer func() { _ = session.Close() }()

	// Another primary: the sessions with the former one are cut.
	src.set(func(v *monitor.View) { v.Primary = &monitor.Endpoint{Name: "s2", Address: two} })
	becomes("two\n")
	require.NoError(t, session.SetReadDeadline(time.Now().Add(5*time.Second)))
	_, err := session.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	src.set(func(v *monitor.View) { v.Primary = nil })
	becomes("")
	src.set(func(v *monitor.View) { v.Primary = &monitor.Endpoint{Name: "s1", Address: one} })
	becomes("one\n")

	// A reload of HAProxy loses what was set.
	stop()
	stop = start()
	becomes("one\n")
	cancel()
	<-done
	becomes("")
	_, err = HAProxy{Socket: "unix:" + socket, Server: "writer/other"}.set(t.Context(), one)
	require.ErrorContains(t, err, "HAProxy has no server writer/other")
	_, err = HAProxy{Socket: "unix:" + socket, Server: "writer/primary"}.set(t.Context(), "unix:/run/mysqld.sock")
	require.ErrorContains(t, err, "no address that HAProxy could use")
	_, err = HAProxy{Socket: "127.0.0.1:" + freePort(t), Server: "writer/primary"}.set(t.Context(), one)
	require.ErrorContains(t, err, "connection refused")
}
