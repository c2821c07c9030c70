package api

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/election"
	"github.com/lockstep-ha/lockstep/locks"
	"github.com/lockstep-ha/lockstep/monitor"
	"github.com/lockstep-ha/lockstep/monitor/backend"
	"github.com/lockstep-ha/lockstep/topology"
)

// still is a fleet of one server that never changes.
type still struct{ clock *stopped }

func (f still) Observe(context.Context) ([]topology.Server, []locks.Row) {
	return []topology.Server{{
		Settings: topology.Settings{Name: "s1", Address: "10.0.0.1:3306", Votes: 1},
		Evidence: topology.Answered, EverSeen: true, ReadOnly: topology.No, ReplicationKnown: true, SentAt: f.clock.Now(), SeenAt: f.clock.Now(),
	}}, f.Rows()
}

func (f still) Rows() []locks.Row { return []locks.Row{{Server: "s1", Session: 1, Answered: true}} }

func (still) Do(_ context.Context, a []backend.Action) []backend.Outcome {
	return make([]backend.Outcome, len(a))
}

func (still) Close(context.Context) error { return nil }

// stopped is a clock that a test moves; Sleep waits for the end.
type stopped struct{ now atomic.Int64 }

func (c *stopped) Now() time.Duration { return time.Duration(c.now.Load()) }

func (c *stopped) Sleep(ctx context.Context, _ time.Duration) { <-ctx.Done() }

func (c *stopped) Wake() {}

func get(t *testing.T, h http.Handler, path string) (int, map[string]any) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	require.Equal(t, "application/json", w.Header().Get("Content-Type"))
	require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
	var body map[string]any
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &body))
	return w.Code, body
}

func TestAPI(t *testing.T) {
	clock := &stopped{}
	clock.now.Store(int64(time.Hour))
	m, err := monitor.New(monitor.Config{Cluster: "main", Quorum: election.None, Servers: []monitor.ServerConfig{{Name: "s1", Address: "10.0.0.1:3306"}}},
		monitor.WithClock(clock), monitor.WithFleet(still{clock}))
	require.NoError(t, err)
	h := Handler(func() []*monitor.Monitor { return []*monitor.Monitor{m} })

	code, body := get(t, h, "/v1/clusters/main/primary")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Nil(t, body["primary"])
	require.Equal(t, "the monitor has not looked at the servers yet", body["reason"])
	code, _ = get(t, h, "/readyz")
	require.Equal(t, http.StatusServiceUnavailable, code)
	code, _ = get(t, h, "/healthz")
	require.Equal(t, http.StatusOK, code, "a monitor that has just started is alive")

	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	require.Eventually(t, m.Ready, 5*time.Second, time.Millisecond)

	code, body = get(t, h, "/v1/clusters/main/primary")
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, map[string]any{"name": "s1", "address": "10.0.0.1:3306"}, body["primary"])
	require.InDelta(t, m.Timing().Lease.Milliseconds(), body["valid_for_ms"], 0)
	code, body = get(t, h, "/v1/clusters")
	require.Equal(t, http.StatusOK, code)
	require.Len(t, body["clusters"], 1)
	code, body = get(t, h, "/v1/clusters/main")
	require.Equal(t, http.StatusOK, code)
	self, ok := body["monitor"].(map[string]any)
	require.True(t, ok)
	require.Equal(t, "primary", self["role"])
	code, body = get(t, h, "/v1/clusters/other")
	require.Equal(t, http.StatusNotFound, code)
	require.Contains(t, body["error"], "main")
	code, _ = get(t, h, "/readyz")
	require.Equal(t, http.StatusOK, code)
	code, _ = get(t, h, "/nothing")
	require.Equal(t, http.StatusNotFound, code)

	// Frozen for longer than a lease: nothing is offered; the loop counts as stalled.
	clock.now.Add(int64(m.Timing().WaitTimeout))
	code, body = get(t, h, "/v1/clusters/main/primary")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Contains(t, body["reason"], "expired")
	code, _ = get(t, h, "/healthz")
	require.Equal(t, http.StatusServiceUnavailable, code)
	cancel()
	require.NoError(t, <-done)
}
