// Package api is what a daemon says about its monitors: the HTTP API, checks for
// load balancers, the stream of views, and HAProxy's agent check. Handlers touch
// no server of the clusters: they read views, and hand commands to the monitor.
//
// What it says about the primary is what the view says. Where the view offers none,
// or has expired, every check fails.
package api

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/lockstep-ha/lockstep/monitor"
	"github.com/lockstep-ha/lockstep/monitor/operation"
)

// Monitors returns the monitors of the daemon, by cluster name. The set may
// change when the configuration is read again.
type Monitors func() []*monitor.Monitor

// source is a monitor as handlers see it.
type source interface {
	Cluster() string
	View() monitor.View
	Watch(ctx context.Context, fn func(monitor.View))
	Command(ctx context.Context, cmd monitor.Command) (monitor.Reply, error)
	ReleaseLocks(d time.Duration)
	Operations() []operation.Record
	Operation(id string) (operation.Record, bool)
	Live() bool
	Ready() bool
}

var _ source = (*monitor.Monitor)(nil)

// sources hides the type of the monitors.
func sources(list Monitors) func() []source {
	return func() []source {
		var out []source
		for _, m := range list() {
			out = append(out, m)
		}
		return out
	}
}

// Limits of the server.
const (
	readTimeout = 5 * time.Second
	idleTimeout = 60 * time.Second
	maxHeader   = 16 << 10
)

// NewServer returns an HTTP server for the handler with limits on what a client
// may cost. Its Shutdown ends the streams of a handler that Handler has made.
func NewServer(h http.Handler) *http.Server {
	s := &http.Server{Handler: h, ReadTimeout: readTimeout, ReadHeaderTimeout: readTimeout, WriteTimeout: readTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader}
	if r, ok := h.(*router); ok {
		s.RegisterOnShutdown(r.api.close)
		s.ErrorLog = log.New(r.api.log.With().Str("event", "http").Logger(), "", 0)
	}
	return s
}

// Handler returns the routes.
func Handler(list Monitors, opts ...Option) http.Handler {
	return newRouter(newAPI(sources(list), opts...))
}

type api struct {
	metrics *Metrics
	auth    *Auth
	log     zerolog.Logger
	list    func() []source
	streams chan struct{} // a slot a stream
	closing chan struct{}
	close   func()
}

func newAPI(list func() []source, opts ...Option) *api {
	closing := make(chan struct{})
	a := &api{auth: &Auth{}, log: zerolog.Nop(), list: list, streams: make(chan struct{}, maxStreams), closing: closing, close: sync.OnceFunc(func() { close(closing) })}
	return a.with(opts)
}

// route is one path and what answers there.
type route struct {
	// methods are those that are answered; GET stands for HEAD too.
	methods []string
	path    string
	// need is the role that a client must have.
	need   Role
	handle http.HandlerFunc
}

var (
	reads = []string{http.MethodGet}
	// checks are asked for by load balancers in one of three ways.
	checks = []string{http.MethodGet, http.MethodOptions}
	posts  = []string{http.MethodPost}
)

func (a *api) routes() []route {
	out := []route{
		{reads, "/v1/clusters", RoleRead, a.clusters},
		{reads, "/v1/clusters/{name}", RoleRead, a.cluster},
		{checks, "/v1/clusters/{name}/primary", RoleRead, a.primary},
		{reads, "/v1/clusters/{name}/events", RoleRead, a.events},
		{posts, "/v1/clusters/{name}/commands", RoleOperate, a.command},
		{reads, "/v1/clusters/{name}/operations", RoleRead, a.operations},
		{reads, "/v1/clusters/{name}/operations/{id}", RoleRead, a.operation},
		{reads, "/v1/openapi.json", RoleNone, a.openAPI},
		{reads, "/{$}", RoleNone, page("index.html")},
		{reads, "/page/app.js", RoleNone, page("app.js")},
		{reads, "/page/style.css", RoleNone, page("style.css")},
		{checks, "/primary", RoleNone, a.check(checkPrimary)},
		{checks, "/read-write", RoleNone, a.check(checkReadWrite)},
		{checks, "/replica", RoleNone, a.check(checkReplica)},
		{checks, "/read-only", RoleNone, a.check(checkReadOnly)},
		{checks, "/health", RoleNone, a.check(checkHealth)},
		{checks, "/healthz", RoleNone, a.healthz},
		{checks, "/readyz", RoleNone, a.readyz},
	}
	if a.metrics != nil {
		out = append(out, route{reads, "/metrics", RoleRead, a.metrics.handler().ServeHTTP})
	}
	return out
}

// router is the handler of all routes.
type router struct {
	*http.ServeMux
	api *api
}

func newRouter(a *api) *router {
	mux := http.NewServeMux()
	for _, r := range a.routes() {
		for _, m := range r.methods {
			mux.HandleFunc(m+" "+r.path, a.count(r.path, a.guard(r.need, r.handle)))
		}
		allow := strings.Replace(strings.Join(r.methods, ", "), "GET", "GET, HEAD", 1)
		mux.HandleFunc(r.path, a.count(r.path, func(w http.ResponseWriter, req *http.Request) {
			w.Header().Set("Allow", allow)
			problem(w, http.StatusMethodNotAllowed, fmt.Sprintf("%s is not for %s: use %s", req.URL.Path, req.Method, allow))
		}))
	}
	mux.HandleFunc("/", a.count("other", func(w http.ResponseWriter, r *http.Request) {
		problem(w, http.StatusNotFound, "no such path: "+r.URL.Path+"; see /v1/clusters")
	}))
	return &router{mux, a}
}

func (a *api) find(w http.ResponseWriter, r *http.Request) source {
	name := r.PathValue("name")
	for _, m := range a.list() {
		if m.Cluster() == name {
			return m
		}
	}
	problem(w, http.StatusNotFound, fmt.Sprintf("no cluster %q here: this daemon monitors %s", name, strings.Join(a.names(), ", ")))
	return nil
}

func (a *api) names() []string {
	var out []string
	for _, m := range a.list() {
		out = append(out, m.Cluster())
	}
	return out
}

func (a *api) clusters(w http.ResponseWriter, _ *http.Request) {
	views := []monitor.View{}
	for _, m := range a.list() {
		views = append(views, m.View())
	}
	answer(w, http.StatusOK, map[string]any{"clusters": views})
}

func (a *api) cluster(w http.ResponseWriter, r *http.Request) {
	if m := a.find(w, r); m != nil {
		answer(w, http.StatusOK, m.View())
	}
}

func (a *api) primary(w http.ResponseWriter, r *http.Request) {
	m := a.find(w, r)
	if m == nil {
		return
	}
	v := m.View()
	if v.Primary == nil {
		answer(w, http.StatusServiceUnavailable, map[string]any{"primary": nil, "reason": v.Reason})
		return
	}
	answer(w, http.StatusOK, map[string]any{"primary": v.Primary, "valid_for_ms": v.ValidForMS})
}

// healthz says whether the loops go on. It does not depend on the databases: a
// monitor must not be restarted because they are down.
func (a *api) healthz(w http.ResponseWriter, _ *http.Request) {
	a.all(w, "stalled", func(m source) bool { return !m.Ready() || m.Live() })
}

// readyz says whether every cluster has been looked at once.
func (a *api) readyz(w http.ResponseWriter, _ *http.Request) {
	a.all(w, "not_ready", source.Ready)
}

func (a *api) all(w http.ResponseWriter, key string, ok func(source) bool) {
	bad := []string{}
	for _, m := range a.list() {
		if !ok(m) {
			bad = append(bad, m.Cluster())
		}
	}
	status := http.StatusOK
	if len(bad) > 0 {
		status = http.StatusServiceUnavailable
	}
	answer(w, status, map[string]any{"ok": len(bad) == 0, key: bad})
}

func problem(w http.ResponseWriter, status int, text string) {
	code := "invalid"
	switch status {
	case http.StatusNotFound:
		code = "not_found"
	case http.StatusServiceUnavailable:
		code = "busy"
	case http.StatusInternalServerError:
		code = "failed"
	}
	answer(w, status, Problem{Error: text, Code: code})
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	// The client is gone if this fails; there is nobody left to tell.
	_ = enc.Encode(body)
}
