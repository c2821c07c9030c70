package api

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/monitor"
	"github.com/lockstep-ha/lockstep/monitor/operation"
)

func full() *fake {
	f := busy()
	f.view.Servers[0].LockOwner = &monitor.OwnerView{Self: true, Kind: "this monitor"}
	f.view.Servers[1].Replication[0].SecondsBehind = ptr(int64(3))
	f.view.Operations.Rejected["s3"] = "behind"
	at := time.Now().UTC()
	f.ops = []operation.Record{{ID: "x", Kind: operation.Failover, From: "s1", To: "s2", StartedAt: at, TurnedAt: &at, EndedAt: &at, Outcome: operation.Done,
		Overrides: []string{"a"}, Warnings: []string{"b"}, Steps: []operation.StepRecord{{Name: "promote", StartedAt: at}}}}
	f.reply = monitor.Reply{ID: "x", Text: "begun", Plan: &operation.Plan{Kind: operation.Failover, To: "s2", Steps: []operation.Step{{Name: "promote", Server: "s2"}}}}
	return f
}

func description(t *testing.T, h http.Handler) *openapi3.T {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/openapi.json", nil))
	require.Equal(t, http.StatusOK, w.Code)
	doc, err := openapi3.NewLoader().LoadFromData(w.Body.Bytes())
	require.NoError(t, err)
	require.NoError(t, doc.Validate(t.Context()))
	return doc
}

// Every route is described, and nothing that is not there.
func TestOpenAPIHasEveryRoute(t *testing.T) {
	f := full()
	a := newAPI(fakes(f), WithMetrics(newMetrics(fakes(f), "v")))
	doc := description(t, newRouter(a))
	var routes []string
	for _, r := range a.routes() {
		require.Contains(t, descriptions, r.path)
		require.NotEmpty(t, descriptions[r.path].summary, r.path)
		routes = append(routes, r.path)
		path := strings.TrimSuffix(r.path, "{$}")
		item := doc.Paths.Find(path)
		require.NotNil(t, item, path)
		methods := slices.Clone(r.methods)
		if slices.Contains(methods, http.MethodGet) {
			methods = append(methods, http.MethodHead)
		}
		require.ElementsMatch(t, methods, slices.Collect(maps.Keys(item.Operations())), path)
	}
	require.ElementsMatch(t, routes, slices.Collect(maps.Keys(descriptions)))
	require.Equal(t, len(routes), doc.Paths.Len())
}

// What handlers answer is what is described: status, media type and content.
func TestOpenAPIIsTrue(t *testing.T) {
	f := full()
	a := newAPI(fakes(f), WithMetrics(newMetrics(fakes(f), "v")))
	h := newRouter(a)
	doc := description(t, h)
	asked := map[string]bool{}
	ask := func(method, path, target string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond) // ends the stream
		defer cancel()
		r := httptest.NewRequest(method, target, strings.NewReader(`{"action":"failover"}`)).WithContext(ctx)
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		op := doc.Paths.Find(path).GetOperation(method)
		require.NotNil(t, op, path)
		asked[path+" "+strconv.Itoa(w.Code)] = true
		resp := op.Responses.Value(strconv.Itoa(w.Code))
		require.NotNil(t, resp, "%s %s answers %d", method, target, w.Code)
		kind, _, _ := strings.Cut(w.Header().Get("Content-Type"), ";")
		media := resp.Value.Content[kind]
		require.NotNil(t, media, "%s %s answers %s", method, target, kind)
		if kind != "application/json" {
			return
		}
		var body any
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &body))
		require.NoError(t, media.Schema.Value.VisitJSON(body), "%s %s\n%s", method, target, w.Body)
	}
	all := func() {
		for _, r := range a.routes() {
			path := strings.TrimSuffix(r.path, "{$}")
			for _, name := range []string{"shop", "other"} {
				for _, id := range []string{"x", "y"} {
					target := strings.NewReplacer("{name}", name, "{id}", id).Replace(path)
					for _, method := range r.methods {
						ask(method, path, target)
						ask(method, path, target+"?server=s1")
						ask(method, path, target+"?server=s2&cluster="+name)
						ask(method, path, target+"?server=nobody")
					}
				}
			}
		}
	}
	all()
	f.set(func(v *monitor.View) { v.Primary = nil })
	f.err = &operation.RefusedError{Kind: operation.Failover, Refusals: []operation.Refusal{{Code: "c", Text: "t", Remedy: "r", Force: true}}}
	all()
	f.reply.ID, f.err, f.dead = "", nil, true
	f.set(func(v *monitor.View) { v.Operations.Running, v.Tick = nil, 0 })
	all()
	require.True(t, asked["/v1/clusters/{name}/commands 409"] && asked["/v1/clusters/{name}/commands 202"] && asked["/replica 503"] && asked["/replica 404"], asked)
}

// The page for people names every path.
func TestAPIPageNamesEveryPath(t *testing.T) {
	text, err := os.ReadFile("../../docs/api.md")
	require.NoError(t, err)
	for path := range descriptions {
		if !strings.HasPrefix(path, "/page/") {
			require.Contains(t, string(text), strings.TrimSuffix(path, "{$}"))
		}
	}
}
