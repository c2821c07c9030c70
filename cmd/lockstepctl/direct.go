package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockstep-ha/lockstep/internal/config"
	"github.com/lockstep-ha/lockstep/internal/wiring"
	"github.com/lockstep-ha/lockstep/monitor"
)

// direct is the source that needs no daemon: it looks at the servers itself,
// with monitors that take no lock.
type direct struct {
	file    *config.File
	timeout time.Duration
}

func newDirect(path string, timeout time.Duration) (*direct, error) {
	if path == "" {
		return nil, usagef("give --config FILE, the configuration of lockstepd")
	}
	f, err := config.Load(path, os.LookupEnv)
	if err != nil {
		return nil, err
	}
	return &direct{file: f, timeout: timeout}, nil
}

// Clusters looks at every cluster of the configuration.
func (d *direct) Clusters(ctx context.Context) ([]monitor.View, error) {
	views, errs := make([]monitor.View, len(d.file.Clusters)), make([]error, len(d.file.Clusters))
	var wg sync.WaitGroup
	for i, c := range d.file.Clusters {
		wg.Go(func() { views[i], errs[i] = d.look(ctx, c) })
	}
	wg.Wait()
	return views, errors.Join(errs...)
}

// Cluster looks at one cluster.
func (d *direct) Cluster(ctx context.Context, name string) (monitor.View, error) {
	i := slices.IndexFunc(d.file.Clusters, func(c config.Cluster) bool { return c.Name == name })
	if i < 0 {
		return monitor.View{}, fmt.Errorf("no cluster %q in %s: it has %s", name, d.file.Path, strings.Join(configured(d.file), ", "))
	}
	return d.look(ctx, d.file.Clusters[i])
}

func configured(f *config.File) []string {
	names := make([]string, len(f.Clusters))
	for i, c := range f.Clusters {
		names[i] = c.Name
	}
	return names
}

// look runs a passive monitor until it has looked at every server once.
func (d *direct) look(ctx context.Context, c config.Cluster) (monitor.View, error) {
	c.Passive = true
	cfg, err := wiring.Config(c, version)
	if err != nil {
		return monitor.View{}, err
	}
	m, err := monitor.New(cfg)
	if err != nil {
		return monitor.View{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	var view monitor.View
	watch, stop := context.WithCancel(ctx)
	m.Watch(watch, func(v monitor.View) {
		view = v
		if v.Tick > 0 && complete(v) {
			stop()
		}
	})
	stop()
	cancel()
	err = <-done
	view.Monitor.Name, view.Monitor.Reason = "lockstepctl", "looks at the servers directly and takes no lock"
	return view, err
}

func complete(v monitor.View) bool {
	return !slices.ContainsFunc(v.Servers, func(s monitor.ServerView) bool { return s.Evidence == "not asked yet" })
}
