// Package api serves the views of a daemon's monitors over HTTP, and takes
// commands for them. Handlers touch no server of the clusters: they read views,
// and hand commands to the monitor.
package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/lockstep-ha/lockstep/monitor"
)

// Monitors returns the monitors of the daemon, by cluster name. The set may
// change when the configuration is read again.
type Monitors func() []*monitor.Monitor

// Limits of the server.
const (
	readTimeout = 5 * time.Second
	idleTimeout = 60 * time.Second
	maxHeader   = 16 << 10
)

// NewServer returns an HTTP server for the handler with limits on what a client
// may cost.
func NewServer(h http.Handler) *http.Server {
	return &http.Server{Handler: h, ReadTimeout: readTimeout, ReadHeaderTimeout: readTimeout, WriteTimeout: readTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader}
}

// Handler returns the routes.
func Handler(list Monitors) http.Handler {
	a := api{list}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/clusters", a.clusters)
	mux.HandleFunc("GET /v1/clusters/{name}", a.cluster)
	mux.HandleFunc("GET /v1/clusters/{name}/primary", a.primary)
	mux.HandleFunc("POST /v1/clusters/{name}/commands", a.command)
	mux.HandleFunc("GET /v1/clusters/{name}/operations", a.operations)
	mux.HandleFunc("GET /v1/clusters/{name}/operations/{id}", a.operation)
	mux.HandleFunc("GET /healthz", a.healthz)
	mux.HandleFunc("GET /readyz", a.readyz)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		problem(w, http.StatusNotFound, "no such path: "+r.URL.Path+"; see /v1/clusters")
	})
	return mux
}

type api struct{ list Monitors }

func (a api) find(w http.ResponseWriter, r *http.Request) *monitor.Monitor {
	name := r.PathValue("name")
	var known []string
	for _, m := range a.list() {
		if m.Cluster() == name {
			return m
		}
		known = append(known, m.Cluster())
	}
	problem(w, http.StatusNotFound, fmt.Sprintf("no cluster %q here: this daemon monitors %s", name, strings.Join(known, ", ")))
	return nil
}

func (a api) clusters(w http.ResponseWriter, _ *http.Request) {
	views := []monitor.View{}
	for _, m := range a.list() {
		views = append(views, m.View())
	}
	answer(w, http.StatusOK, map[string]any{"clusters": views})
}

func (a api) cluster(w http.ResponseWriter, r *http.Request) {
	if m := a.find(w, r); m != nil {
		answer(w, http.StatusOK, m.View())
	}
}

func (a api) primary(w http.ResponseWriter, r *http.Request) {
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
func (a api) healthz(w http.ResponseWriter, _ *http.Request) {
	a.check(w, "stalled", func(m *monitor.Monitor) bool { return !m.Ready() || m.Live() })
}

// readyz says whether every cluster has been looked at once.
func (a api) readyz(w http.ResponseWriter, _ *http.Request) {
	a.check(w, "not_ready", (*monitor.Monitor).Ready)
}

func (a api) check(w http.ResponseWriter, key string, ok func(*monitor.Monitor) bool) {
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
	answer(w, status, map[string]string{"error": text})
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
