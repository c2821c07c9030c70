package main

import (
	"context"
	"errors"
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
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, m.url+"/v1/clusters/demo/primary", nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

func hasMajority(v monitor.View) bool { return v.Monitor.Primary }

func (d *demo) killPrimaryMonitor(ctx context.Context) error {
	p, s := d.roles(ctx)
	if p == nil || s == nil {
		return errors.New("there is not one primary and one secondary monitor")
	}
	w := s.watch()
	at := time.Now()
	d.say("SIGKILL to %s, the primary monitor", p.name)
	if err := p.signal(syscall.SIGKILL); err != nil {
		return err
	}
	_ = p.cmd.Wait() // the error is the signal just sent
	err := s.until(ctx, 10*time.Second, "takes over", hasMajority)
	took := time.Since(at)
	time.Sleep(500 * time.Millisecond)
	none, polls := w.end()
	if err != nil {
		return err
	}
	d.say("%s took over after %d ms; its /primary was without an answer for %d ms (%d polls)", s.name, took.Milliseconds(), none.Milliseconds(), polls)
	d.figures = append(d.figures, fmt.Sprintf("primary monitor killed: taken over after %d ms, survivor without a primary for %d ms", took.Milliseconds(), none.Milliseconds()))
	return nil
}

func (d *demo) comeBack(ctx context.Context) error {
	for _, m := range d.monitors {
		if m.cmd.ProcessState == nil {
			continue
		}
		d.say("starting %s again", m.name)
		if err := m.start(); err != nil {
			return err
		}
		if err := m.until(ctx, 10*time.Second, "is a secondary that offers s1", func(v monitor.View) bool { return offersS1(v) && !v.Monitor.Primary }); err != nil {
			return err
		}
		d.say("it is back, as a secondary, and offers s1")
		d.show(m, "show", "monitor")
	}
	return nil
}

func (d *demo) freezePrimaryMonitor(ctx context.Context) error {
	p, s := d.roles(ctx)
	if p == nil || s == nil {
		return errors.New("there is not one primary and one secondary monitor")
	}
	v, err := p.view(ctx)
	if err != nil {
		return err
	}
	wait := time.Duration(v.Monitor.Timing.WaitTimeoutMS) * time.Millisecond
	w := s.watch()
	at := time.Now()
	d.say("SIGSTOP to %s, the primary monitor: its locks go when the servers close its idle sessions, after wait_timeout = %v", p.name, wait)
	if err := p.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	err = s.until(ctx, wait+10*time.Second, "takes over", hasMajority)
	took := time.Since(at)
	time.Sleep(500 * time.Millisecond)
	none, polls := w.end()
	if err != nil {
		return err
	}
	d.say("%s took over after %.1f s; its /primary was without an answer for %d ms (%d polls)", s.name, took.Seconds(), none.Milliseconds(), polls)
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
	if err := p.until(ctx, 10*time.Second, "follows", func(v monitor.View) bool { return offersS1(v) && !v.Monitor.Primary }); err != nil {
		return err
	}
	d.say("it stepped down and follows %s, %d ms after the thaw", s.name, time.Since(thawed).Milliseconds())
	d.show(s, "explain")
	d.figures = append(d.figures, fmt.Sprintf("primary monitor frozen: taken over after %.1f s, survivor without a primary for %d ms", took.Seconds(), none.Milliseconds()))
	return nil
}

func nameOf(v monitor.View) string {
	if v.Primary == nil {
		return "none"
	}
	return v.Primary.Name
}

func (d *demo) summary(context.Context) error {
	d.say("summary")
	for _, f := range d.figures {
		fmt.Println("    " + f)
	}
	return nil
}
