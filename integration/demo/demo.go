package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
)

// demo is all that the demonstration has started.
type demo struct {
	began    time.Time
	dir      string
	cluster  *testdb.Cluster
	monitors []*daemon
	figures  []string
}

// daemon is one lockstepd.
type daemon struct {
	name, config, url, bin, logPath string
	cmd                             *exec.Cmd
}

func (d *demo) say(format string, args ...any) {
	fmt.Printf("[%5.1f s] %s\n", time.Since(d.began).Seconds(), fmt.Sprintf(format, args...))
}

func (d *demo) build(ctx context.Context) error {
	var err error
	if d.dir, err = os.MkdirTemp("", "lockstep-demo-"); err != nil {
		return err
	}
	d.say("building lockstepd and lockstepctl")
	out, err := exec.CommandContext(ctx, "go", "build", "-o", d.dir+"/", "./cmd/lockstepd", "./cmd/lockstepctl").CombinedOutput()
	if err != nil {
		return fmt.Errorf("build: %w\n%s", err, out)
	}
	return nil
}

func (d *demo) startServers(ctx context.Context) error {
	d.say("starting three MariaDB servers: s1 is the primary, s2 and s3 replicate from it by GTID")
	c, err := testdb.StartCluster(ctx, 3, testdb.ClusterOptions{})
	if err != nil {
		return err
	}
	d.cluster = c
	version, err := c.Servers[0].QueryString(ctx, "SELECT VERSION()")
	if err != nil {
		return err
	}
	if err := c.Servers[0].Exec(ctx, "CREATE TABLE app.demo (id INT PRIMARY KEY)", "INSERT INTO app.demo VALUES (1)"); err != nil {
		return err
	}
	if err := c.WaitSync(ctx); err != nil {
		return err
	}
	d.say("they run: MariaDB %s at %s, %s, %s", version, c.Servers[0].Addr(), c.Servers[1].Addr(), c.Servers[2].Addr())
	return nil
}

func (d *demo) startMonitors(ctx context.Context) error {
	d.say("starting two lockstepd with default timing (interval 2 s, timeout 3 s), one a site")
	for _, site := range []string{"site-a", "site-b"} {
		m, err := d.newDaemon(site)
		if err != nil {
			return err
		}
		d.monitors = append(d.monitors, m)
		if err := m.start(); err != nil {
			return err
		}
	}
	for _, m := range d.monitors {
		if err := m.until(ctx, 10*time.Second, "offers s1", offersS1); err != nil {
			return err
		}
	}
	p, s := d.roles(ctx)
	if p == nil || s == nil {
		return errors.New("no monitor, or more than one, is the primary monitor")
	}
	d.say("both offer s1 as the primary; %s is the primary monitor, %s the secondary", p.name, s.name)
	d.show(p, "list", "servers")
	d.show(s, "show", "monitor")
	return nil
}

func offersS1(v monitor.View) bool { return v.Primary != nil && v.Primary.Name == "s1" }

func (d *demo) newDaemon(name string) (*daemon, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		return nil, err
	}
	m := &daemon{name: name, url: "http://" + addr, bin: filepath.Join(d.dir, "lockstepd"),
		config: filepath.Join(d.dir, name+".toml"), logPath: filepath.Join(d.dir, name+".log")}
	var b strings.Builder
	fmt.Fprintf(&b, "[http]\nlisten = %q\n\n[cluster.demo]\nmonitor_name = %q\nuser = %q\npassword = %q\nquorum = \"majority_of_all\"\n", addr, name, testdb.MonitorUser, testdb.MonitorPassword)
	for i, s := range d.cluster.Servers {
		fmt.Fprintf(&b, "\n[[cluster.demo.server]]\nname = \"s%d\"\naddress = %q\n", i+1, s.Addr())
	}
	return m, os.WriteFile(m.config, []byte(b.String()), 0o600)
}

// start runs the daemon; it dies with this process.
func (m *daemon) start() error {
	log, err := os.OpenFile(m.logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	m.cmd = exec.CommandContext(context.Background(), m.bin, "--config", m.config)
	m.cmd.Stderr = log
	return m.cmd.Start()
}

func (m *daemon) signal(s syscall.Signal) error { return m.cmd.Process.Signal(s) }

// view asks the daemon for its view.
func (m *daemon) view(ctx context.Context) (monitor.View, error) {
	var v monitor.View
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, m.url+"/v1/clusters/demo", nil)
	if err != nil {
		return v, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return v, err
	}
	defer func() { _ = resp.Body.Close() }()
	return v, json.NewDecoder(resp.Body).Decode(&v)
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
		time.Sleep(10 * time.Millisecond)
	}
	log, _ := os.ReadFile(m.logPath)
	return fmt.Errorf("%s: not within %v: %s (%s; %s)\nits log:\n%s", m.name, within, what, last.Reason, last.Monitor.Reason, log)
}

// roles returns the primary monitor and the secondary; nil unless there is one of each.
func (d *demo) roles(ctx context.Context) (primary, secondary *daemon) {
	for _, m := range d.monitors {
		v, err := m.view(ctx)
		switch {
		case err != nil:
			return nil, nil
		case v.Monitor.Primary && primary == nil:
			primary = m
		case !v.Monitor.Primary && secondary == nil:
			secondary = m
		}
	}
	return primary, secondary
}

// show prints what lockstepctl says.
func (d *demo) show(m *daemon, args ...string) {
	fmt.Printf("\n    $ lockstepctl --server %s %s\n", m.url, strings.Join(args, " "))
	out, err := exec.CommandContext(context.Background(), filepath.Join(d.dir, "lockstepctl"), append([]string{"--server", m.url}, args...)...).CombinedOutput()
	for line := range strings.Lines(string(out)) {
		fmt.Print("    ", line)
	}
	if err != nil {
		fmt.Printf("    (%v)\n", err)
	}
	fmt.Println()
}

func (d *demo) explore() {
	fmt.Printf("\nLeft running; Ctrl-C ends it all. To explore:\n")
	for _, m := range d.monitors {
		fmt.Printf("  %s/lockstepctl --server %s explain    # %s, pid %d, log %s\n", d.dir, m.url, m.name, m.cmd.Process.Pid, m.logPath)
	}
	for i, s := range d.cluster.Servers {
		fmt.Printf("  mariadb -u root -S %s    # s%d\n", s.Socket(), i+1)
	}
}

func (d *demo) close() error {
	var problems []error
	for _, m := range d.monitors {
		if m.cmd == nil || m.cmd.ProcessState != nil {
			continue
		}
		_ = m.signal(syscall.SIGCONT)
		_ = m.signal(syscall.SIGTERM)
		if err := m.cmd.Wait(); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", m.name, err))
		}
	}
	if d.cluster != nil {
		problems = append(problems, d.cluster.Close())
	}
	if d.dir != "" {
		problems = append(problems, os.RemoveAll(d.dir))
	}
	return errors.Join(problems...)
}
