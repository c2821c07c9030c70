package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/lockstep-ha/lockstep/monitor"
	"github.com/lockstep-ha/lockstep/monitor/operation"
)

// moved waits until the primary monitor offers another primary and has ended the
// operation that made it so, which must be done, and until writes go on.
func (d *demo) moved(ctx context.Context, m *daemon, kind operation.Kind) error {
	old := d.primary
	var next string
	err := m.until(ctx, 20*time.Second, "offers another primary than "+old, func(v monitor.View) bool {
		if v.Primary == nil || v.Primary.Name == old {
			return false
		}
		next = v.Primary.Name
		return true
	})
	if err != nil {
		return err
	}
	d.primary = next
	if err := d.load.goesOn(ctx); err != nil {
		return fmt.Errorf("%w\nthe log of %s:\n%s", err, m.name, m.log())
	}
	if err := m.until(ctx, 10*time.Second, "ends the "+string(kind), func(v monitor.View) bool { return v.Operations.Running == nil }); err != nil {
		return err
	}
	rec, err := m.last(ctx, kind)
	if err != nil {
		return err
	}
	if rec.Outcome != operation.Done || rec.To != next {
		return fmt.Errorf("the %s to %s: %s (%s)\nthe log of %s:\n%s", kind, rec.To, rec.Outcome, rec.Detail, m.name, m.log())
	}
	return nil
}

func (d *demo) killPrimaryServer(ctx context.Context) error {
	p, _, err := d.roles(ctx)
	if err != nil {
		return err
	}
	old := d.primary
	server, err := d.server(old)
	if err != nil {
		return err
	}
	at := time.Now()
	d.say("SIGKILL to %s, the primary server; that it is dead must be seen for dead_primary_delay, 1 s by default", old)
	if err := server.Kill(); err != nil {
		return err
	}
	if err := d.moved(ctx, p, operation.Failover); err != nil {
		return err
	}
	outage := d.load.outage(at)
	d.say("%s is the primary; nothing could be written for %s", d.primary, outage)
	d.figure("primary server killed", "%s took its place, nothing could be written for %s", d.primary, outage)
	return d.show(ctx, p, "history")
}

// rejoin starts all servers that do not run.
func (d *demo) rejoin(ctx context.Context) error {
	p, _, err := d.roles(ctx)
	if err != nil {
		return err
	}
	for _, s := range d.cluster.Servers {
		if s.Running() {
			continue
		}
		at := time.Now()
		d.say("starting %s again", s.Name())
		if err := s.Restart(ctx); err != nil {
			return err
		}
		up := time.Since(at)
		if err := p.until(ctx, 30*time.Second, "joins "+s.Name(), replicates(s.Name(), d.primary)); err != nil {
			return err
		}
		d.say("%s accepts connections after %d ms and replicates from %s, read-only, after %d ms", s.Name(), up.Milliseconds(), d.primary, time.Since(at).Milliseconds())
		d.figure(s.Name()+" started again", "a replica of %s after %d ms", d.primary, time.Since(at).Milliseconds())
	}
	return nil
}

func replicates(server, source string) func(monitor.View) bool {
	return func(v monitor.View) bool {
		for _, s := range v.Servers {
			if s.Name == server {
				return s.Source == source && len(s.Replication) == 1 && s.Replication[0].IO == "Yes" && s.Replication[0].SQL == "Yes" && s.ReadOnly != nil && *s.ReadOnly
			}
		}
		return false
	}
}

// acknowledge ends the block of automatic failover that a failover begins.
func (d *demo) acknowledge(ctx context.Context) error {
	p, _, err := d.roles(ctx)
	if err != nil {
		return err
	}
	v, err := p.view(ctx)
	if err != nil {
		return err
	}
	if v.Operations.Blocked == "" {
		return fmt.Errorf("%s does not block automatic failover after one", p.name)
	}
	d.say("automatic failover is blocked for failover_block, 1 hour by default, or until a person acknowledges the last one")
	if err := d.show(ctx, p, "call", "ack"); err != nil {
		return err
	}
	return p.until(ctx, 5*time.Second, "no longer blocks automatic failover", func(v monitor.View) bool { return v.Operations.Blocked == "" })
}

func (d *demo) switchover(ctx context.Context) error {
	p, _, err := d.roles(ctx)
	if err != nil {
		return err
	}
	v, err := p.view(ctx)
	if err != nil {
		return err
	}
	to := v.Operations.Next
	if to == "" {
		return fmt.Errorf("%s has no server for a switchover: %s", p.name, v.Operations.Why)
	}
	d.say("the plan of a switchover to %s; its statements and what undoes them are left out here", to)
	if err := d.showSome(ctx, p, isStep, "call", "switchover", to, "--dry-run"); err != nil {
		return err
	}
	d.say("the switchover")
	at := time.Now()
	if err := d.show(ctx, p, "call", "switchover", to); err != nil {
		return err
	}
	old := d.primary
	if err := d.moved(ctx, p, operation.Switchover); err != nil {
		return err
	}
	if err := p.until(ctx, 10*time.Second, "makes "+old+" a replica", replicates(old, d.primary)); err != nil {
		return err
	}
	outage := d.load.outage(at)
	d.say("%s is the primary and %s a replica of it; nothing could be written for %s", d.primary, old, outage)
	d.figure("switchover", "from %s to %s, nothing could be written for %s", old, d.primary, outage)
	return nil
}

// isStep is true of the lines of a plan that are not details of a step, which are
// indented more.
func isStep(line string) bool { return !strings.HasPrefix(line, "     ") }
