package api

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/monitor"
)

// stream reads events of a server.
type stream struct {
	t    *testing.T
	resp *http.Response
	r    *bufio.Reader
	stop func()
}

// listenAndServe serves until the test and its streams have ended.
func listenAndServe(t *testing.T, a *api) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(nil)
	server.Config = NewServer(newRouter(a))
	server.Start()
	t.Cleanup(server.Close)
	return server
}

func open(t *testing.T, url string) *stream {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	s := &stream{t, resp, bufio.NewReader(resp.Body), cancel}
	t.Cleanup(func() { cancel(); _ = resp.Body.Close() })
	return s
}

func (s *stream) next() monitor.View {
	s.t.Helper()
	var lines []string
	for range 3 {
		line, err := s.r.ReadString('\n')
		require.NoError(s.t, err)
		lines = append(lines, strings.TrimSuffix(line, "\n"))
	}
	require.Equal(s.t, "event: view", lines[0])
	data, ok := strings.CutPrefix(lines[1], "data: ")
	require.True(s.t, ok)
	require.Empty(s.t, lines[2])
	var v monitor.View
	require.NoError(s.t, json.Unmarshal([]byte(data), &v))
	return v
}

func TestEvents(t *testing.T) {
	f := shop()
	f.view.Monitor.Timing.IntervalMS = 3_600_000
	f.view.ValidForMS = 3_600_000
	server := listenAndServe(t, newAPI(fakes(f)))
	s := open(t, server.URL+"/v1/clusters/shop/events")
	require.Equal(t, http.StatusOK, s.resp.StatusCode)
	require.Equal(t, "text/event-stream", s.resp.Header.Get("Content-Type"))

	// Every event is what GET gives.
	resp, err := http.Get(server.URL + "/v1/clusters/shop")
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	var want monitor.View
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&want))
	require.Equal(t, want, s.next())

	f.set(func(v *monitor.View) { v.Primary, v.Reason = nil, "gone\nand lost" })
	for {
		if v := s.next(); v.Primary == nil {
			require.Equal(t, "gone\nand lost", v.Reason)
			break
		}
	}
	s.stop()
	require.Eventually(t, func() bool { return f.watched() == 0 }, 5*time.Second, time.Millisecond, "a watcher was left behind")
}

// A primary that expires while the monitor stands still is sent as gone, and a view
// that does not change is sent once an interval.
func TestEventsWithoutChange(t *testing.T) {
	f := shop()
	f.view.Monitor.Timing.IntervalMS = 20
	server := listenAndServe(t, newAPI(fakes(f)))
	s := open(t, server.URL+"/v1/clusters/shop/events")
	for range 5 {
		require.NotNil(t, s.next().Primary)
	}
	v := f.View()
	require.Equal(t, 20*time.Millisecond, nextEvent(v))
	v.ValidForMS = 3
	require.Equal(t, 4*time.Millisecond, nextEvent(v))
	v.Primary, v.Monitor.Timing.IntervalMS = nil, 0
	require.Equal(t, time.Second, nextEvent(v))
}

func TestEventsAreBounded(t *testing.T) {
	f := shop()
	server := listenAndServe(t, newAPI(fakes(f)))
	var all []*stream
	for range maxStreams {
		all = append(all, open(t, server.URL+"/v1/clusters/shop/events"))
	}
	last := open(t, server.URL+"/v1/clusters/shop/events")
	require.Equal(t, http.StatusServiceUnavailable, last.resp.StatusCode)
	require.Equal(t, "5", last.resp.Header.Get("Retry-After"))
	all[0].stop()
	require.Eventually(t, func() bool {
		s := open(t, server.URL+"/v1/clusters/shop/events")
		defer s.stop()
		return s.resp.StatusCode == http.StatusOK
	}, 5*time.Second, 5*time.Millisecond)
}

// A reader that takes nothing holds up nobody, and is left in the end.
func TestSlowReader(t *testing.T) {
	f := shop()
	f.view.Reason = strings.Repeat("x", 1<<20)
	server := listenAndServe(t, newAPI(fakes(f)))
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	_, err = io.WriteString(conn, "GET /v1/clusters/shop/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return f.watched() == 1 }, 5*time.Second, time.Millisecond)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 1000 {
			f.set(func(v *monitor.View) { v.Tick++ })
		}
	}()
	select {
	case <-done:
	case <-time.After(5 * time.Second):
		t.Fatal("the monitor waits for a reader")
	}
}

// The end of the daemon, and a monitor that was replaced, end a stream.
func TestEventsEnd(t *testing.T) {
	f := shop()
	list := []*fake{f}
	a := newAPI(func() []source { return fakes(list...)() })
	server := listenAndServe(t, a)
	s := open(t, server.URL+"/v1/clusters/shop/events")
	s.next()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	require.NoError(t, server.Config.Shutdown(ctx))
	_, err := io.ReadAll(s.r)
	require.NoError(t, err)
	require.False(t, newAPI(fakes(shop())).runs(f))
	require.True(t, a.runs(f))
}
