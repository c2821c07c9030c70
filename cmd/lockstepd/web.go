package main

import (
	"context"
	"net"
	"net/http"
	"sync"

	"github.com/rs/zerolog"

	"github.com/lockstep-ha/lockstep/internal/config"
	"github.com/lockstep-ha/lockstep/internal/wiring"
	"github.com/lockstep-ha/lockstep/monitor"
	"github.com/lockstep-ha/lockstep/monitor/api"
	"github.com/lockstep-ha/lockstep/monitor/publish"
)

// web is what the daemon tells others: over HTTP, and by its hooks.
type web struct {
	hooks   *publish.Hooks
	server  *http.Server
	auth    *api.Auth
	metrics api.Option
	// closeStores ends the connections to service discovery.
	closeStores func() error
}

func newWeb(f *config.File, g *group, log zerolog.Logger) (*web, error) {
	counters := publish.NewCounters()
	metrics := api.NewMetrics(g.monitors, version)
	metrics.Registerer().MustRegister(counters)
	w := &web{hooks: publish.NewHooks(log, counters), auth: api.NewAuth(tokens(f), f.HTTP.ClientCA != ""), metrics: api.WithMetrics(metrics)}
	w.hooks.Set(wiring.Hooks(f))
	g.tell = w.hooks.Offer
	stores, closeStores, err := wiring.Stores(f)
	if err != nil {
		return nil, err
	}
	w.closeStores = closeStores
	g.publish = func(ctx context.Context, m *monitor.Monitor) {
		var wg sync.WaitGroup
		for _, s := range stores {
			wg.Go(func() { publish.Register(ctx, m, s, log, counters) })
		}
		for _, h := range wiring.HAProxies(f, m.Cluster()) {
			wg.Go(func() { publish.Drive(ctx, m, h, log, counters) })
		}
		wg.Wait()
	}
	w.server = api.NewServer(api.Handler(g.monitors, w.metrics, api.WithAuth(w.auth), api.WithLogger(log)))
	if f.HTTP.Cert == "" {
		return w, nil
	}
	w.server.TLSConfig, err = api.TLSConfig(api.TLSFiles{Cert: f.HTTP.Cert, Key: f.HTTP.Key, ClientCA: f.HTTP.ClientCA}, log)
	return w, err
}

func (w *web) serve(l net.Listener) error {
	if w.server.TLSConfig != nil {
		return w.server.ServeTLS(l, "", "")
	}
	return w.server.Serve(l)
}

func tokens(f *config.File) []api.Token {
	var out []api.Token
	for _, t := range f.HTTP.Tokens {
		role := api.RoleRead
		if t.Role == config.RoleOperate {
			role = api.RoleOperate
		}
		out = append(out, api.Token{Name: t.Name, Role: role, Digest: t.Digest})
	}
	return out
}
