package main

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"

	"github.com/rs/zerolog"

	"github.com/lockstep-ha/lockstep/internal/config"
	"github.com/lockstep-ha/lockstep/internal/wiring"
	"github.com/lockstep-ha/lockstep/monitor"
	"github.com/lockstep-ha/lockstep/monitor/publish"
)

// newMonitor makes a monitor from its part of the configuration.
func newMonitor(c config.Cluster, opts ...monitor.Option) (*monitor.Monitor, error) {
	cfg, err := wiring.Config(c, version)
	if err != nil {
		return nil, err
	}
	return monitor.New(cfg, opts...)
}

// group runs one monitor a cluster and follows changes of the configuration.
type group struct {
	ctx  context.Context
	log  zerolog.Logger
	fail chan error
	// brake bounds the automatic failovers of all clusters.
	brake monitor.Brake
	// tell is called with every event.
	tell func(publish.Event)
	// publish publishes the primary of a monitor until the context ends.
	publish func(context.Context, *monitor.Monitor)

	mu  sync.Mutex
	run []*member
}

type member struct {
	cfg    config.Cluster
	mon    *monitor.Monitor
	cancel context.CancelFunc
	done   chan struct{}
	told   chan struct{} // closed when its last event was told
}

func newGroup(ctx context.Context, log zerolog.Logger) *group {
	return &group{ctx: ctx, log: log, fail: make(chan error, 1), tell: func(publish.Event) {}, publish: func(context.Context, *monitor.Monitor) {}}
}

// monitors lists the monitors that run.
func (g *group) monitors() []*monitor.Monitor {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make([]*monitor.Monitor, len(g.run))
	for i, m := range g.run {
		out[i] = m.mon
	}
	return out
}

// apply makes the running monitors match clusters. All are made before any
// running one is touched, so that an error changes nothing.
func (g *group) apply(clusters []config.Cluster) error {
	fresh := make([]*monitor.Monitor, len(clusters))
	problems := make([]error, len(clusters))
	for i, c := range clusters {
		fresh[i], problems[i] = newMonitor(c, monitor.WithLogger(g.log), monitor.WithBrake(&g.brake))
	}
	if err := errors.Join(problems...); err != nil {
		return err
	}
	g.mu.Lock()
	before := slices.Clone(g.run)
	g.mu.Unlock()
	kept := make([]*member, len(clusters))
	for i, c := range clusters {
		j := slices.IndexFunc(before, func(m *member) bool { return m.cfg.Name == c.Name })
		if j >= 0 && g.adjust(before[j], c) {
			kept[i] = before[j]
			kept[i].cfg = c
			before = slices.Delete(before, j, j+1)
		}
	}
	for _, old := range before {
		old.stop()
	}
	run := make([]*member, len(clusters))
	for i, c := range clusters {
		if run[i] = kept[i]; run[i] == nil {
			run[i] = g.start(c, fresh[i])
		}
	}
	g.mu.Lock()
	g.run = run
	g.mu.Unlock()
	return nil
}

// adjust applies a change to a running monitor if that needs no new connection.
func (g *group) adjust(m *member, c config.Cluster) bool {
	if reflect.DeepEqual(m.cfg, c) {
		return true
	}
	sameTLS := slices.EqualFunc(m.cfg.Servers, c.Servers, func(a, b config.Server) bool { return a.TLS == b.TLS })
	if !sameTLS {
		return false
	}
	cfg, err := wiring.Config(c, version)
	if err != nil {
		return false
	}
	err = m.mon.Reconfigure(cfg)
	if err != nil {
		g.log.Warn().Str("event", "restarting_monitor").Str("cluster", c.Name).Str("reason", err.Error()).Msg("its locks are released and taken again")
	}
	return err == nil
}

func (g *group) start(c config.Cluster, m *monitor.Monitor) *member {
	ctx, cancel := context.WithCancel(g.ctx)
	out := &member{cfg: c, mon: m, cancel: cancel, done: make(chan struct{}), told: make(chan struct{})}
	following, ended := context.WithCancel(context.WithoutCancel(g.ctx))
	go func() {
		defer close(out.told)
		var wg sync.WaitGroup
		wg.Go(func() { g.publish(following, m) })
		publish.Follow(following, m, g.log, g.tell)
		wg.Wait()
	}()
	go func() {
		defer close(out.done)
		defer ended()
		if err := m.Run(ctx); err != nil {
			select {
			case g.fail <- fmt.Errorf("cluster %s: %w", c.Name, err):
			default:
			}
		}
	}()
	return out
}

func (m *member) stop() {
	m.cancel()
	<-m.done
	<-m.told
}

// wait waits for all monitors to have released their locks, and for their last
// events.
func (g *group) wait() {
	g.mu.Lock()
	run := g.run
	g.mu.Unlock()
	for _, m := range run {
		<-m.done
		<-m.told
	}
}
