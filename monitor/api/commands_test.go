package api

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/election"
	"github.com/lockstep-ha/lockstep/locks"
	"github.com/lockstep-ha/lockstep/monitor"
	"github.com/lockstep-ha/lockstep/monitor/backend"
	"github.com/lockstep-ha/lockstep/monitor/operation"
	"github.com/lockstep-ha/lockstep/topology"
)

// moving is a clock that goes on and can be woken.
type moving struct {
	began time.Time
	wake  chan struct{}
}

func newMoving() *moving { return &moving{time.Now().Add(-time.Hour), make(chan struct{}, 1)} }

func (c *moving) Now() time.Duration { return time.Since(c.began) }

func (c *moving) Sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-c.wake:
	case <-time.After(min(d, 10*time.Millisecond)):
	}
}

func (c *moving) Wake() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// obedient is a fleet of one writable server that carries out everything. While
// silent is set it answers no statement and is not looked at again.
type obedient struct {
	clock  *moving
	silent atomic.Bool
	seen   atomic.Int64
}

func (f *obedient) Observe(context.Context) ([]topology.Server, []locks.Row) {
	if !f.silent.Load() {
		f.seen.Store(int64(f.clock.Now()))
	}
	at := time.Duration(f.seen.Load())
	return []topology.Server{{
		Settings: topology.Settings{Name: "s1", Address: "10.0.0.1:3306", Votes: 1}, Flavor: topology.MariaDB, LogBin: topology.Yes,
		Evidence: topology.Answered, EverSeen: true, ReadOnly: topology.No, ReplicationKnown: true, SentAt: at, DoneAt: at, SeenAt: at,
	}}, f.Rows()
}

func (f *obedient) Rows() []locks.Row {
	return []locks.Row{{Server: "s1", Session: 1, Answered: true}}
}

func (f *obedient) Do(_ context.Context, actions []backend.Action) []backend.Outcome {
	out := make([]backend.Outcome, len(actions))
	for i, a := range actions {
		out[i] = backend.Outcome{Action: a, Result: backend.Done}
		if f.silent.Load() {
			out[i].Result, out[i].Err = backend.ResultUnknown, context.DeadlineExceeded
		}
	}
	return out
}

func (*obedient) Close(context.Context) error { return nil }

// serving is a monitor behind a handler.
type serving struct {
	*monitor.Monitor
	fleet *obedient
	h     http.Handler
	stop  func()
}

// newMonitor makes a monitor of one server that does not run.
func newMonitor(t *testing.T, change func(*monitor.Config)) serving {
	t.Helper()
	clock := newMoving()
	f := &obedient{clock: clock}
	cfg := monitor.Config{Cluster: "main", Name: "m1", Quorum: election.None, Interval: 100 * time.Millisecond, Timeout: 100 * time.Millisecond,
		Servers: []monitor.ServerConfig{{Name: "s1", Address: "10.0.0.1:3306"}},
		Policy:  operation.Policy{ReplicationUser: "repl", ReplicationPassword: "hidden"}}
	if change != nil {
		change(&cfg)
	}
	m, err := monitor.New(cfg, monitor.WithClock(clock), monitor.WithFleet(f))
	require.NoError(t, err)
	return serving{Monitor: m, fleet: f, h: Handler(func() []*monitor.Monitor { return []*monitor.Monitor{m} })}
}

// serve runs one until the test ends or stop is called.
func serve(t *testing.T, change func(*monitor.Config)) serving {
	t.Helper()
	s := newMonitor(t, change)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stopped := false
	s.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		require.NoError(t, <-done)
	}
	t.Cleanup(s.stop)
	require.Eventually(t, s.Ready, 5*time.Second, time.Millisecond)
	return s
}

func (s serving) send(ctx context.Context, cluster, contentType, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodPost, "/v1/clusters/"+cluster+"/commands", strings.NewReader(body)).WithContext(ctx)
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	s.h.ServeHTTP(w, r)
	return w
}

// read decodes an answer and refuses fields that it should not have.
func read[T any](t *testing.T, w *httptest.ResponseRecorder, status int) T {
	t.Helper()
	require.Equal(t, status, w.Code, w.Body.String())
	require.Equal(t, "application/json", w.Header().Get("Content-Type"))
	require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
	var out T
	dec := json.NewDecoder(bytes.NewReader(w.Body.Bytes()))
	dec.DisallowUnknownFields()
	require.NoError(t, dec.Decode(&out), w.Body.String())
	return out
}

func (s serving) ok(t *testing.T, status int, body string) monitor.Reply {
	t.Helper()
	return read[monitor.Reply](t, s.send(t.Context(), "main", "application/json", body), status)
}

func (s serving) problem(t *testing.T, status int, code, body string) Problem {
	t.Helper()
	p := read[Problem](t, s.send(t.Context(), "main", "application/json", body), status)
	require.Equal(t, code, p.Code, p.Error)
	require.NotEmpty(t, p.Error)
	return p
}

func (s serving) get(path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	s.h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w
}

func (s serving) list(t *testing.T) []operation.Record {
	t.Helper()
	w := s.get("/v1/clusters/main/operations")
	require.NotContains(t, w.Body.String(), "null", "an empty list is []")
	return read[map[string][]operation.Record](t, w, http.StatusOK)["operations"]
}

// ended waits for the end of an operation. Right after the command the operation
// may not be visible yet.
func (s serving) ended(t *testing.T, path string) operation.Record {
	t.Helper()
	var rec operation.Record
	require.Eventually(t, func() bool {
		w := s.get(path)
		if w.Code == http.StatusNotFound {
			return false
		}
		rec = read[operation.Record](t, w, http.StatusOK)
		return rec.EndedAt != nil
	}, 5*time.Second, time.Millisecond)
	return rec
}

func TestOperation(t *testing.T) {
	s := serve(t, nil)
	require.Empty(t, s.list(t))

	dry := s.ok(t, http.StatusOK, `{"action":"reset-replication","dry_run":true}`)
	require.Empty(t, dry.ID)
	require.Equal(t, operation.ResetReplication, dry.Plan.Kind)
	require.Contains(t, dry.Text, "RESET MASTER")
	require.Empty(t, s.list(t), "a dry run is no operation")

	var ids []string
	for _, body := range []string{`{"action":"reset-replication"}`, `{"action":"reset-replication","server":"s1","value":"","force":true}`} {
		w := s.send(t.Context(), "main", "application/json; charset=utf-8", body)
		reply := read[monitor.Reply](t, w, http.StatusAccepted)
		require.NotEmpty(t, reply.ID)
		require.Equal(t, "s1", reply.Plan.To)
		require.Equal(t, "started", reply.Text)
		require.NotContains(t, w.Body.String(), "hidden")
		path := w.Header().Get("Location")
		require.Equal(t, "/v1/clusters/main/operations/"+reply.ID, path)
		rec := s.ended(t, path)
		require.Equal(t, operation.Done, rec.Outcome, "%+v", rec)
		require.Equal(t, reply.ID, rec.ID)
		require.NotNil(t, rec.TurnedAt)
		require.NotEmpty(t, rec.Steps)
		require.False(t, rec.Automatic)
		ids = append(ids, reply.ID)
	}
	list := s.list(t)
	require.Len(t, list, 2)
	require.Equal(t, []string{ids[1], ids[0]}, []string{list[0].ID, list[1].ID}, "the newest first")

	p := read[Problem](t, s.get("/v1/clusters/main/operations/nosuch"), http.StatusNotFound)
	require.Contains(t, p.Error, "the history of each monitor is its own")
	for _, path := range []string{"/v1/clusters/other/operations", "/v1/clusters/other/operations/" + ids[0]} {
		p = read[Problem](t, s.get(path), http.StatusNotFound)
		require.Contains(t, p.Error, `no cluster "other"`)
	}
}

// While an operation moves the primary no other starts, and it can be cancelled.
func TestBusyAndCancel(t *testing.T) {
	s := serve(t, nil)
	s.problem(t, http.StatusBadRequest, "invalid", `{"action":"cancel"}`)
	s.fleet.silent.Store(true)
	started := s.ok(t, http.StatusAccepted, `{"action":"reset-replication"}`)
	p := s.problem(t, http.StatusConflict, "busy", `{"action":"switchover"}`)
	require.Contains(t, p.Error, started.ID)
	require.Eventually(t, func() bool { v := s.View().Operations.Running; return v != nil && v.ID == started.ID }, 5*time.Second, time.Millisecond)
	reply := s.ok(t, http.StatusAccepted, `{"action":"cancel"}`)
	require.Equal(t, started.ID, reply.ID)
	rec := s.ended(t, "/v1/clusters/main/operations/"+started.ID)
	require.Equal(t, operation.Cancelled, rec.Outcome)
}

func TestRefusals(t *testing.T) {
	s := serve(t, nil)
	for body, code := range map[string]string{
		`{"action":"switchover"}`:                           "no_candidate",
		`{"action":"switchover","dry_run":true}`:            "no_candidate",
		`{"action":"switchover","server":"s1"}`:             "is_primary",
		`{"action":"switchover","server":"s9"}`:             "no_such_server",
		`{"action":"failover"}`:                             "primary_up",
		`{"action":"failover","force":true}`:                "primary_up",
		`{"action":"rejoin","server":"s1"}`:                 "is_primary",
		`{"action":"reset-replication","server":"s9"}`:      "no_such_server",
		`{"action":"rejoin","server":"s9","dry_run":false}`: "no_such_server",
	} {
		p := s.problem(t, http.StatusConflict, "refused", body)
		require.NotEmpty(t, p.Refusals)
		var codes []string
		for _, r := range p.Refusals {
			require.NotEmpty(t, r.Text)
			codes = append(codes, r.Code)
		}
		require.Contains(t, codes, code, body)
	}
	require.Empty(t, s.list(t))
}

func TestSettings(t *testing.T) {
	s := serve(t, nil)
	for _, body := range []string{
		`{"action":"ack"}`, `{"action":"pause"}`,
		`{"action":"maintenance","server":"s1","value":"on","force":true}`, `{"action":"maintenance","server":"s1","value":"off"}`, `{"action":"maintenance","server":"s1"}`,
		`{"action":"drain","server":"s1","value":"on"}`, `{"action":"drain","server":"s1","value":"off"}`,
		`{"action":"promotion","server":"s1","value":"must_not"}`, `{"action":"promotion","server":"s1","value":""}`,
	} {
		reply := s.ok(t, http.StatusOK, body)
		require.Empty(t, reply.ID)
		require.NotEmpty(t, reply.Text)
	}
	require.Eventually(t, func() bool { return s.View().Operations.Paused != "" }, 5*time.Second, time.Millisecond)
	s.ok(t, http.StatusOK, `{"action":"resume"}`)
	require.Eventually(t, func() bool { return s.View().Operations.Paused == "" }, 5*time.Second, time.Millisecond)

	for _, body := range []string{
		`{"action":"maintenance","server":"s1","value":"yes"}`, `{"action":"drain","server":"s1","value":"1"}`,
		`{"action":"promotion","server":"s1","value":"never"}`, `{"action":"maintenance","server":"s9","value":"on"}`, `{"action":"drain","value":"on"}`,
	} {
		s.problem(t, http.StatusBadRequest, "invalid", body)
	}
	refused := s.problem(t, http.StatusConflict, "refused", `{"action":"maintenance","server":"s1","value":"on"}`)
	require.True(t, refused.Refusals[0].Force, "the primary, which force puts into maintenance")
	s.problem(t, http.StatusBadRequest, "invalid", `{"action":"pause","dry_run":true}`)
}

func TestBadCommands(t *testing.T) {
	s := serve(t, nil)
	for _, body := range []string{
		``, `{`, `[]`, `"pause"`, `{"action":7}`, `{"action":"pause","serverr":"s1"}`, `{}`, `{"action":"dance"}`,
		`{"action":"pause","value":"` + strings.Repeat("x", maxBody) + `"}`,
	} {
		s.problem(t, http.StatusBadRequest, "invalid", body)
	}
	for _, contentType := range []string{"", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/jsonp", "application/json; charset"} {
		p := read[Problem](t, s.send(t.Context(), "main", contentType, `{"action":"pause"}`), http.StatusUnsupportedMediaType)
		require.Equal(t, "invalid", p.Code)
	}
	p := read[Problem](t, s.send(t.Context(), "other", "application/json", `{"action":"pause"}`), http.StatusNotFound)
	require.Contains(t, p.Error, "this daemon monitors main")
	require.Equal(t, http.StatusMethodNotAllowed, s.get("/v1/clusters/main/commands").Code)
	require.Empty(t, s.View().Operations.Paused)
}

func TestReleaseLocks(t *testing.T) {
	for _, change := range []func(*monitor.Config){nil, passive} {
		s := serve(t, change)
		for value, text := range map[string]string{"": "1m0s", "10s": "10s", "1h": "1h0m0s"} {
			reply := s.ok(t, http.StatusOK, `{"action":"release-locks","value":"`+value+`"}`)
			require.Equal(t, "the locks are released and not taken again for "+text, reply.Text)
		}
		for _, value := range []string{"x", "0s", "-1s", "1h1s", "60"} {
			s.problem(t, http.StatusBadRequest, "invalid", `{"action":"release-locks","value":"`+value+`"}`)
		}
	}
}

// passive makes a monitor that never is the primary one.
func passive(c *monitor.Config) { c.Quorum, c.Passive = election.MajorityOfAll, true }

func TestNotPrimaryMonitor(t *testing.T) {
	s := serve(t, passive)
	for _, action := range []string{"failover", "switchover", "reset-replication", "cancel", "ack", "pause", "resume", "dance"} {
		p := s.problem(t, http.StatusConflict, "not_primary_monitor", `{"action":"`+action+`"}`)
		require.Contains(t, p.Error, "no other monitor is seen to hold a lock")
	}
}

// One command waits at a time, as long as its client does.
func TestWaitingCommand(t *testing.T) {
	s := newMonitor(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	answers := make(chan *httptest.ResponseRecorder, 2)
	for range 2 {
		go func() { answers <- s.send(ctx, "main", "application/json", `{"action":"pause"}`) }()
	}
	require.Equal(t, "busy", read[Problem](t, <-answers, http.StatusConflict).Code)
	cancel()
	require.Equal(t, "failed", read[Problem](t, <-answers, http.StatusInternalServerError).Code)
}

func TestStopped(t *testing.T) {
	s := serve(t, nil)
	s.stop()
	s.problem(t, http.StatusServiceUnavailable, "stopped", `{"action":"pause"}`)
	require.Empty(t, s.list(t))
}
