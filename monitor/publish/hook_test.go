package publish

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/monitor"
)

// buffer collects a log.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *buffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *buffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// script writes a program for the shell.
func script(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "hook")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o700))
	return path
}

// run gives events to one hook and waits until it is done with them.
func run(t *testing.T, h Hook, events ...Event) (*Hooks, string) {
	t.Helper()
	log := &buffer{}
	hooks := NewHooks(zerolog.New(log), nil)
	hooks.backoff = time.Millisecond
	hooks.Set([]Hook{h})
	for _, e := range events {
		hooks.Offer(e)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	require.NoError(t, hooks.Close(ctx))
	return hooks, log.String()
}

func event(n int) Event {
	return Event{ID: strconv.Itoa(n), Name: PrimaryChanged, Cluster: "shop", Time: time.Unix(1, 0).UTC(), Monitor: "m1", PrimaryMonitor: true, Server: "s2",
		From: "s1", To: "s2", ToAddress: "10.0.0.2:3306", Reason: "it's $(so) \"here\"\x00\n", Primary: &monitor.Endpoint{Name: "s2", Address: "10.0.0.2:3306"}}
}

func TestCommand(t *testing.T) {
	t.Setenv("LOCKSTEP_DB_PASSWORD", "hunter2")
	out := filepath.Join(t.TempDir(), "out")
	hooks, log := run(t, Hook{Name: "h", Command: []string{script(t, `cat >"$1"; env >>"$1"; echo said; echo "$2" >&2`), out, "$HOME; false"}}, event(7))
	raw, err := os.ReadFile(out)
	require.NoError(t, err)
	var got Event
	dec := json.NewDecoder(bytes.NewReader(raw))
	require.NoError(t, dec.Decode(&got))
	require.Equal(t, event(7), got)
	rest, err := io.ReadAll(io.MultiReader(dec.Buffered(), bytes.NewReader(raw[dec.InputOffset():])))
	require.NoError(t, err)
	for _, line := range []string{"LOCKSTEP_EVENT=primary_changed", "LOCKSTEP_CLUSTER=shop", "LOCKSTEP_FROM=s1", "LOCKSTEP_TO_ADDRESS=10.0.0.2:3306",
		"LOCKSTEP_PRIMARY_NAME=s2", "LOCKSTEP_EVENT_ID=7", "LOCKSTEP_PRIMARY_MONITOR=true", "LOCKSTEP_REASON=it's $(so) \"here\""} {
		require.Contains(t, string(rest), line+"\n")
	}
	require.NotContains(t, string(rest), "hunter2", "passwords of the daemon are not passed on")
	require.Contains(t, log, `"event":"hook_done"`)
	require.Contains(t, log, `"output":"said\n$HOME; false"`)
	require.InDelta(t, 1, testutil.ToFloat64(hooks.counters.runs.WithLabelValues("h", "done")), 0)
	require.InDelta(t, 1, testutil.ToFloat64(hooks.counters.events.WithLabelValues("shop", PrimaryChanged)), 0)
}

// One after the other, in order, and each again until it is done.
func TestOrderAndRetries(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	var events []Event
	var want strings.Builder
	for i := range 5 {
		events = append(events, event(i))
		fmt.Fprintf(&want, "%d\n%d\n", i, i)
	}
	// The first attempt of each fails.
	hooks, log := run(t, Hook{Name: "h", Retries: 2, Command: []string{script(t,
		`echo $LOCKSTEP_EVENT_ID >>`+out+`; test $(grep -c "^$LOCKSTEP_EVENT_ID\$" `+out+`) = 2`)}}, events...)
	raw, err := os.ReadFile(out)
	require.NoError(t, err)
	require.Equal(t, want.String(), string(raw))
	require.InDelta(t, 5, testutil.ToFloat64(hooks.counters.runs.WithLabelValues("h", "retried")), 0)
	require.NotContains(t, log, "hook_failed")

	_, log = run(t, Hook{Name: "h", Retries: 2, Command: []string{script(t, "exit 3")}}, event(1))
	require.Equal(t, 2, strings.Count(log, "hook_retried"))
	require.Equal(t, 1, strings.Count(log, "hook_failed"))
	require.Contains(t, log, "exit status 3")
	_, log = run(t, Hook{Name: "h", Command: []string{"/nonexistent/hook"}}, event(1))
	require.Contains(t, log, "no such file or directory")
}

// A command that takes too long is ended with all that it has started.
func TestCommandTimeout(t *testing.T) {
	pid := filepath.Join(t.TempDir(), "pid")
	began := time.Now()
	_, log := run(t, Hook{Name: "h", Timeout: 300 * time.Millisecond, Command: []string{script(t, "(trap '' TERM; exec sleep 1000) >/dev/null 2>&1 & echo $! >"+pid+"; wait")}}, event(1))
	require.Less(t, time.Since(began), 15*time.Second)
	require.Contains(t, log, "did not end in time")
	raw, err := os.ReadFile(pid)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		stat, err := os.ReadFile("/proc/" + strings.TrimSpace(string(raw)) + "/stat")
		return err != nil || strings.Contains(string(stat), ") Z")
	}, 5*time.Second, 10*time.Millisecond, "what the command had started goes on")
}

// A hook that hangs holds up nobody; what it is too slow for is counted, and said.
func TestSlowHook(t *testing.T) {
	release := filepath.Join(t.TempDir(), "go")
	out := filepath.Join(t.TempDir(), "out")
	log := &buffer{}
	hooks := NewHooks(zerolog.New(log), nil)
	hooks.Set([]Hook{
		{Name: "slow", Timeout: time.Minute, Command: []string{script(t, "while ! test -e "+release+"; do sleep 0.01; done; echo $LOCKSTEP_EVENT_ID $LOCKSTEP_MISSED >>"+out)}},
		{Name: "quick", Command: []string{script(t, "")}, Events: []string{"other"}},
	})
	hooks.Offer(event(0))
	require.Eventually(t, func() bool {
		return testutil.ToFloat64(hooks.counters.queue.WithLabelValues("slow")) == 0
	}, 5*time.Second, time.Millisecond)
	for i := range maxQueue + 10 {
		hooks.Offer(event(i + 1))
	}
	e := event(1000)
	e.Name = "other"
	hooks.Offer(e)
	require.Eventually(t, func() bool { return strings.Contains(log.String(), `"hook":"quick"`) }, 10*time.Second, time.Millisecond)
	require.InDelta(t, 11, testutil.ToFloat64(hooks.counters.runs.WithLabelValues("slow", "dropped")), 0)
	require.NoError(t, os.WriteFile(release, nil, 0o600))
	require.Eventually(t, func() bool { raw, _ := os.ReadFile(out); return strings.Count(string(raw), "\n") > 2 }, 20*time.Second, 10*time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	require.Error(t, hooks.Close(ctx), "what was not delivered is said")
	raw, err := os.ReadFile(out)
	require.NoError(t, err)
	require.Contains(t, string(raw), "0 0\n12 11\n13 0\n")
}

func TestWhichEvents(t *testing.T) {
	e := event(1)
	e.PrimaryMonitor = false
	for want, list := range map[bool][]Hook{
		true:  {{}, {Events: []string{PrimaryLost, PrimaryChanged}}, {Clusters: []string{"shop"}}},
		false: {{Events: []string{PrimaryLost}}, {Clusters: []string{"depot"}}, {OnlyPrimaryMonitor: true}},
	} {
		for _, h := range list {
			require.Equal(t, want, h.wants(e), "%+v", h)
		}
	}
	require.True(t, Hook{OnlyPrimaryMonitor: true}.wants(event(1)))
}

func TestWebhook(t *testing.T) {
	var mu sync.Mutex
	var bodies []string
	answers := []int{503, 429, 204, 302, 200}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		body, err := io.ReadAll(r.Body)
		if err != nil || r.Header.Get("Content-Type") != "application/json" || r.Method != http.MethodPost {
			t.Error(r.Method, r.Header, err)
		}
		mac := hmac.New(sha256.New, []byte("key"))
		mac.Write(body)
		if r.Header.Get("Lockstep-Signature") != "sha256="+hex.EncodeToString(mac.Sum(nil)) || r.Header.Get("Lockstep-Event") != PrimaryChanged {
			t.Error(r.Header)
		}
		var e Event
		if err := json.Unmarshal(body, &e); err != nil || e.ID != r.Header.Get("Lockstep-Event-Id") {
			t.Error(err)
		}
		bodies = append(bodies, e.ID)
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(answers[0])
		answers = answers[1:]
	}))
	defer server.Close()
	hooks, log := run(t, Hook{Name: "h", URL: server.URL + "/secret-path", Secret: "key", Retries: 5}, event(1), event(2), event(3))
	require.Equal(t, []string{"1", "1", "1", "2", "3"}, bodies)
	require.Contains(t, log, "the webhook answers 302 Found: not tried again")
	require.InDelta(t, 2, testutil.ToFloat64(hooks.counters.runs.WithLabelValues("h", "done")), 0)
	require.InDelta(t, 1, testutil.ToFloat64(hooks.counters.runs.WithLabelValues("h", "failed")), 0)
	server.Close()
	_, log = run(t, Hook{Name: "h", URL: server.URL + "/secret-path", Secret: "key"}, event(1))
	require.Contains(t, log, "connection refused")
	require.NotContains(t, log, "secret-path")
}

// A webhook that does not answer is left in time.
func TestWebhookTimeout(t *testing.T) {
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer server.Close()
	defer close(release)
	_, log := run(t, Hook{Name: "h", URL: server.URL, Timeout: 50 * time.Millisecond}, event(1))
	require.Contains(t, log, "context deadline exceeded")
}

// A reload keeps the queue of a hook that is the same, and lets one that is gone end.
func TestSet(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	hooks := NewHooks(zerolog.Nop(), nil)
	slow := Hook{Name: "slow", Command: []string{script(t, "sleep 0.1; echo $LOCKSTEP_EVENT_ID >>"+out)}}
	hooks.Set([]Hook{slow})
	same := hooks.workers[0]
	hooks.Offer(event(1))
	hooks.Offer(event(2))
	hooks.Set([]Hook{{Name: "new", Command: []string{"/bin/true"}}, slow})
	require.Same(t, same, hooks.workers[1])
	hooks.Set(nil)
	hooks.Offer(event(3))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	require.NoError(t, hooks.Close(ctx))
	raw, err := os.ReadFile(out)
	require.NoError(t, err)
	require.Equal(t, "1\n2\n", string(raw))
	hooks.Offer(event(4))
	hooks.Set([]Hook{slow})
	require.Empty(t, hooks.workers)
}
