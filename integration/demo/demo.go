package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/lockstep-ha/lockstep/election"
	"github.com/lockstep-ha/lockstep/internal/testdb"
	"github.com/lockstep-ha/lockstep/monitor"
)

// demo is all that the demonstration has started.
type demo struct {
	began    time.Time
	cancel   context.CancelFunc
	dir      string
	cluster  *testdb.Cluster
	monitors []*daemon
	load     *load
	// primary is the name of the primary server.
	primary string
	figures [][2]string
}

// print writes to the standard output, and ends the demo if nobody reads it.
func (d *demo) print(format string, args ...any) {
	if _, err := fmt.Printf(format, args...); err != nil {
		d.cancel()
	}
}

func (d *demo) say(format string, args ...any) {
	d.print("[%5.1f s] %s\n", time.Since(d.began).Seconds(), fmt.Sprintf(format, args...))
}

// figure adds a line to the summary.
func (d *demo) figure(what, format string, args ...any) {
	d.figures = append(d.figures, [2]string{what + ":", fmt.Sprintf(format, args...)})
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
	d.say("starting three MariaDB servers: s1 is the primary, s2 and s3 are semi-synchronous replicas with GTID")
	c, err := testdb.StartCluster(ctx, 3, testdb.ClusterOptions{Server: testdb.Options{Operate: true, ExtraArgs: testdb.SemiSyncArgs()}})
	if err != nil {
		return err
	}
	d.cluster, d.primary = c, c.Primary().Name()
	if err := c.EnableSemiSync(ctx); err != nil {
		return err
	}
	if err := c.Primary().Exec(ctx, testdb.WriterTable("")); err != nil {
		return err
	}
	if err := c.WaitSync(ctx); err != nil {
		return err
	}
	version, err := c.Primary().QueryString(ctx, "SELECT VERSION()")
	if err != nil {
		return err
	}
	d.say("they run: MariaDB %s at %s, %s, %s", version, c.Servers[0].Addr(), c.Servers[1].Addr(), c.Servers[2].Addr())
	return nil
}

func (d *demo) startMonitors(ctx context.Context) error {
	d.say("starting two lockstepd with default timing (interval 2 s, timeout 3 s), auto_failover and auto_rejoin")
	for _, site := range []string{"site-a", "site-b"} {
		m, err := d.newDaemon(ctx, site)
		if err != nil {
			return err
		}
		d.monitors = append(d.monitors, m)
		if err := m.start(); err != nil {
			return err
		}
	}
	for _, m := range d.monitors {
		if err := m.until(ctx, 10*time.Second, "offers "+d.primary, offers(d.primary)); err != nil {
			return err
		}
	}
	p, s, err := d.roles(ctx)
	if err != nil {
		return err
	}
	d.say("both offer %s as the primary; %s is the primary monitor, %s the secondary", d.primary, p.name, s.name)
	v, err := p.view(ctx)
	if err != nil {
		return err
	}
	d.say("waiting until %s has settled: it changes nothing for %v after it became the primary monitor", p.name, time.Duration(v.Monitor.Timing.SettleMS)*time.Millisecond)
	if err := p.until(ctx, 20*time.Second, "settles", settled); err != nil {
		return err
	}
	return d.show(ctx, p, "list", "servers")
}

func offers(server string) func(monitor.View) bool {
	return func(v monitor.View) bool { return v.Primary != nil && v.Primary.Name == server }
}

func hasMajority(v monitor.View) bool { return v.Monitor.Primary }

func settled(v monitor.View) bool { return v.Monitor.Role == election.Primary }

// server returns a server by its name.
func (d *demo) server(name string) (*testdb.Server, error) {
	for _, s := range d.cluster.Servers {
		if s.Name() == name {
			return s, nil
		}
	}
	return nil, fmt.Errorf("there is no server %q", name)
}

// roles returns the primary monitor and the secondary.
func (d *demo) roles(ctx context.Context) (primary, secondary *daemon, err error) {
	for _, m := range d.monitors {
		v, err := m.view(ctx)
		switch {
		case err != nil:
			return nil, nil, fmt.Errorf("%s: %w", m.name, err)
		case v.Monitor.Primary && primary == nil:
			primary = m
		case !v.Monitor.Primary && secondary == nil:
			secondary = m
		}
	}
	if primary == nil || secondary == nil {
		return nil, nil, errors.New("there is not one primary and one secondary monitor")
	}
	return primary, secondary, nil
}

// show runs lockstepctl and prints what it says; it must succeed.
func (d *demo) show(ctx context.Context, m *daemon, args ...string) error {
	return d.showSome(ctx, m, func(string) bool { return true }, args...)
}

// showSome is show for the lines that are wanted.
func (d *demo) showSome(ctx context.Context, m *daemon, wanted func(line string) bool, args ...string) error {
	args = append([]string{"--server", m.url}, args...)
	d.print("\n    $ lockstepctl %s\n", strings.Join(args, " "))
	out, err := exec.CommandContext(ctx, filepath.Join(d.dir, "lockstepctl"), args...).CombinedOutput()
	text := strings.TrimSpace(string(out))
	for line := range strings.Lines(text) {
		if line = strings.TrimRight(line, " \n"); err != nil || wanted(line) {
			d.print("    %s\n", line)
		}
	}
	d.print("\n")
	if err != nil {
		return fmt.Errorf("lockstepctl %s: %w\nthe log of %s:\n%s", strings.Join(args, " "), err, m.name, m.log())
	}
	return nil
}

func (d *demo) summary(context.Context) error {
	d.say("summary")
	for _, f := range d.figures {
		d.print("    %-26s %s\n", f[0], f[1])
	}
	return nil
}

func (d *demo) explore() {
	d.print("\nLeft running; Ctrl-C ends it all. To explore:\n")
	for _, m := range d.monitors {
		d.print("  %s/lockstepctl --server %s explain    # %s, pid %d, log %s\n", d.dir, m.url, m.name, m.cmd.Process.Pid, m.logPath)
	}
	for _, s := range d.cluster.Servers {
		if s.Socket() == "" {
			d.print("  mariadb -h %s -P %d -u %s -p%s    # %s\n", s.Host(), s.Port(), testdb.AppUser, testdb.AppPassword, s.Name())
			continue
		}
		d.print("  mariadb -u root -S %s    # %s\n", s.Socket(), s.Name())
	}
}

func (d *demo) close() error {
	var problems []error
	if d.load != nil {
		d.load.close()
	}
	for _, m := range d.monitors {
		if err := m.close(); err != nil {
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
