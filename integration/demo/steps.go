package main

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"syscall"
	"time"

	"github.com/lockstep-ha/lockstep/monitor"
)

// watch asks /primary every 2 ms and adds up for how long it was not 200.
type watch struct {
	stop chan struct{}
	wg   sync.WaitGroup
	none time.Duration
	n    int
}

func (m *daemon) watch() *watch {
	w := &watch{stop: make(chan struct{})}
	w.wg.Go(func() {
		last := time.Now()
		for {
			select {
			case <-w.stop:
				return
			case <-time.After(2 * time.Millisecond):
			}
			status, err := m.primaryStatus()
			now := time.Now()
			if err != nil || status != http.StatusOK {
				w.none += now.Sub(last)
			}
			last = now
			w.n++
		}
	})
	return w
}

func (w *watch) end() (none time.Duration, polls int) {
	close(w.stop)
	w.wg.Wait()
	return w.none, w.n
}

func (m *daemon) primaryStatus() (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	var answer struct{}
	return m.get(ctx, "/primary", &answer)
}

// takesOver waits until the survivor has the majority, and says how long that
// took and what it was without.
func (d *demo) takesOver(ctx context.Context, s *daemon, within time.Duration, hit func() error) (took time.Duration, without string, err error) {
	w := s.watch()
	at := time.Now()
	if err = hit(); err == nil {
		err = s.until(ctx, within, "takes over", hasMajority)
	}
	took = time.Since(at)
	if err == nil {
		pause(ctx, 500*time.Millisecond)
	}
	none, polls := w.end()
	if err != nil {
		return 0, "", err
	}
	if err := d.load.goesOn(ctx); err != nil {
		return 0, "", err
	}
	d.say("%s took over after %d ms; its /primary named no server for %d ms (%d polls), writes stopped for %s",
		s.name, took.Milliseconds(), none.Milliseconds(), polls, d.load.outage(at))
	return took, fmt.Sprintf("survivor without a primary for %d ms, writes stopped for %s", none.Milliseconds(), d.load.outage(at)), nil
}

func (d *demo) killPrimaryMonitor(ctx context.Context) error {
	p, s, err := d.roles(ctx)
	if err != nil {
		return err
	}
	d.say("SIGKILL to %s, the primary monitor", p.name)
	took, without, err := d.takesOver(ctx, s, 10*time.Second, p.kill)
	if err != nil {
		return err
	}
	d.figure("primary monitor killed", "taken over after %d ms, %s", took.Milliseconds(), without)
	return nil
}

func (d *demo) restartMonitor(ctx context.Context) error {
	for _, m := range d.monitors {
		if m.running() {
			continue
		}
		d.say("starting %s again", m.name)
		if err := m.start(); err != nil {
			return err
		}
		if err := m.until(ctx, 10*time.Second, "is a secondary that offers "+d.primary, follows(d.primary)); err != nil {
			return err
		}
		d.say("it is back, as a secondary, and offers %s", d.primary)
	}
	return nil
}

// follows is true of a secondary monitor that offers a primary.
func follows(server string) func(monitor.View) bool {
	return func(v monitor.View) bool { return offers(server)(v) && !v.Monitor.Primary }
}

func (d *demo) freezePrimaryMonitor(ctx context.Context) error {
	p, s, err := d.roles(ctx)
	if err != nil {
		return err
	}
	v, err := p.view(ctx)
	if err != nil {
		return err
	}
	wait := time.Duration(v.Monitor.Timing.WaitTimeoutMS) * time.Millisecond
	d.say("SIGSTOP to %s, the primary monitor: its locks go when the servers close its idle sessions, after wait_timeout = %v", p.name, wait)
	took, without, err := d.takesOver(ctx, s, wait+10*time.Second, func() error { return p.signal(syscall.SIGSTOP) })
	if err != nil {
		return err
	}
	d.say("SIGCONT to %s", p.name)
	if err := p.signal(syscall.SIGCONT); err != nil {
		return err
	}
	thawed := time.Now()
	first, err := p.view(ctx)
	if err != nil {
		return err
	}
	if first.Monitor.Primary {
		return fmt.Errorf("%s still says that it is the primary monitor after it was thawed", p.name)
	}
	d.say("its first answer: primary monitor: %v, primary: %s (%s)", first.Monitor.Primary, nameOf(first), first.Reason)
	if err := p.until(ctx, 10*time.Second, "follows", follows(d.primary)); err != nil {
		return err
	}
	d.say("it stepped down and follows %s, %d ms after the thaw", s.name, time.Since(thawed).Milliseconds())
	d.figure("primary monitor frozen", "taken over after %.1f s, %s", took.Seconds(), without)
	return d.show(ctx, s, "explain")
}

func nameOf(v monitor.View) string {
	if v.Primary == nil {
		return "none"
	}
	return v.Primary.Name
}
