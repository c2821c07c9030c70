package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/lockstep-ha/lockstep/internal/testdb"
	"github.com/lockstep-ha/lockstep/monitor"
	"github.com/lockstep-ha/lockstep/monitor/operation"
)

// daemon is one lockstepd.
type daemon struct {
	name, config, url, bin, logPath string
	cmd                             *exec.Cmd
	http                            *http.Client
}

func (d *demo) newDaemon(ctx context.Context, name string) (*daemon, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		return nil, err
	}
	m := &daemon{name: name, url: "http://" + addr, bin: filepath.Join(d.dir, "lockstepd"),
		config: filepath.Join(d.dir, name+".toml"), logPath: filepath.Join(d.dir, name+".log"),
		http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}}}
	var b strings.Builder
	fmt.Fprintf(&b, "[http]\nlisten = %q\n\n[cluster.demo]\nmonitor_name = %q\nuser = %q\npassword = %q\n", addr, name, testdb.MonitorUser, testdb.MonitorPassword)
	fmt.Fprintf(&b, "replication_user = %q\nreplication_password = %q\n", testdb.ReplUser, testdb.ReplPassword)
	fmt.Fprintf(&b, "quorum = \"majority_of_all\"\nauto_failover = true\nauto_rejoin = true\n")
	for _, s := range d.cluster.Servers {
		fmt.Fprintf(&b, "\n[[cluster.demo.server]]\nname = %q\naddress = %q\n", s.Name(), s.Addr())
	}
	return m, os.WriteFile(m.config, []byte(b.String()), 0o600)
}

// start runs the daemon until close. It gets a process group of its own, so that
// Ctrl-C does not reach it.
func (m *daemon) start() error {
	log, err := os.OpenFile(m.logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	m.cmd = exec.CommandContext(context.Background(), m.bin, "--config", m.config)
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	m.cmd.Stderr = log
	return m.cmd.Start()
}

func (m *daemon) running() bool {
	return m.cmd != nil && m.cmd.Process != nil && m.cmd.ProcessState == nil
}

func (m *daemon) signal(s syscall.Signal) error { return m.cmd.Process.Signal(s) }

// kill ends the daemon at once.
func (m *daemon) kill() error {
	if err := m.signal(syscall.SIGKILL); err != nil {
		return err
	}
	_ = m.cmd.Wait() // the error is the signal just sent
	return nil
}

// close ends the daemon in order, also a frozen one.
func (m *daemon) close() error {
	if !m.running() {
		return nil
	}
	_ = m.signal(syscall.SIGCONT)
	_ = m.signal(syscall.SIGTERM)
	late := time.AfterFunc(15*time.Second, func() { _ = m.signal(syscall.SIGKILL) })
	defer late.Stop()
	return m.cmd.Wait()
}

func (m *daemon) log() string {
	log, err := os.ReadFile(m.logPath)
	if err != nil {
		return err.Error()
	}
	return string(log)
}

// get asks the daemon and decodes what it answers with 200.
func (m *daemon) get(ctx context.Context, path string, into any) (status int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, m.url+"/v1/clusters/demo"+path, nil)
	if err != nil {
		return 0, err
	}
	resp, err := m.http.Do(req)
	if err != nil {
		return 0, err
	}
	body, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return 0, err
	}
	if resp.StatusCode == http.StatusOK {
		err = json.Unmarshal(body, into)
	}
	return resp.StatusCode, err
}

// must is get for what is to be answered with 200.
func (m *daemon) must(ctx context.Context, path string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	status, err := m.get(ctx, path, into)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("the answer is %d", status)
	}
	return err
}

func (m *daemon) view(ctx context.Context) (v monitor.View, err error) {
	return v, m.must(ctx, "", &v)
}

// last returns the newest operation of a kind that this daemon has run.
func (m *daemon) last(ctx context.Context, kind operation.Kind) (operation.Record, error) {
	var list struct {
		Operations []operation.Record `json:"operations"`
	}
	if err := m.must(ctx, "/operations", &list); err != nil {
		return operation.Record{}, err
	}
	for _, r := range list.Operations {
		if r.Kind == kind {
			return r, nil
		}
	}
	return operation.Record{}, fmt.Errorf("%s has run no %s", m.name, kind)
}

// until polls the view until it is as wanted.
func (m *daemon) until(ctx context.Context, within time.Duration, what string, ok func(monitor.View) bool) error {
	deadline := time.Now().Add(within)
	var last monitor.View
	for time.Now().Before(deadline) && ctx.Err() == nil {
		v, err := m.view(ctx)
		if err == nil && ok(v) {
			return nil
		}
		last = v
		pause(ctx, 10*time.Millisecond)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("%s: %s: not within %v: %s (%s; %s)\nits log:\n%s", m.name, what, within, last.Reason, last.Monitor.Reason, last.Operations.Pending, m.log())
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
