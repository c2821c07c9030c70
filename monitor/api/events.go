package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/lockstep-ha/lockstep/monitor"
)

// Limits of streams.
const (
	maxStreams = 64
	// streamWrite is how long a reader may take for one event before it is left.
	streamWrite = 10 * time.Second
)

// events streams the views of a cluster: at every change, when a primary that was
// offered expires, and at least once an interval. Views that come faster than the
// reader takes them are left out: each one is whole. The stream ends when the
// monitor is replaced or the daemon stops; a client connects again.
func (a *api) events(w http.ResponseWriter, r *http.Request) {
	m := a.find(w, r)
	if m == nil {
		return
	}
	select {
	case a.streams <- struct{}{}:
		defer func() { <-a.streams }()
		if a.metrics != nil {
			a.metrics.streams.Inc()
			defer a.metrics.streams.Dec()
		}
	default:
		w.Header().Set("Retry-After", "5")
		problem(w, http.StatusServiceUnavailable, fmt.Sprintf("there are %d streams already: ask again later", maxStreams))
		return
	}
	rc := http.NewResponseController(w)
	// The limits on a request are not for a stream; where they cannot be lifted it
	// ends early, and the client connects again.
	_ = rc.SetReadDeadline(time.Time{})
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // proxies that hold answers back
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return
	}
	changed := make(chan struct{}, 1)
	go m.Watch(r.Context(), func(monitor.View) {
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	for a.runs(m) {
		v := m.View()
		if err := send(w, rc, v); err != nil {
			return
		}
		timer := time.NewTimer(nextEvent(v))
		select {
		case <-changed:
		case <-timer.C:
		case <-r.Context().Done():
		case <-a.closing:
		}
		timer.Stop()
		select {
		case <-r.Context().Done():
			return
		case <-a.closing:
			return
		default:
		}
	}
}

// nextEvent is after how long a view is sent again if nothing changes.
func nextEvent(v monitor.View) time.Duration {
	d := time.Duration(v.Monitor.Timing.IntervalMS) * time.Millisecond
	if d <= 0 {
		d = time.Second
	}
	if v.Primary != nil {
		// One more millisecond, since what is left was rounded down.
		d = min(d, time.Duration(v.ValidForMS+1)*time.Millisecond)
	}
	return d
}

func send(w http.ResponseWriter, rc *http.ResponseController, v monitor.View) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_ = rc.SetWriteDeadline(time.Now().Add(streamWrite)) // see SetReadDeadline in events
	if _, err := fmt.Fprintf(w, "event: view\ndata: %s\n\n", data); err != nil {
		return err
	}
	return rc.Flush()
}

// runs reports whether a monitor is still one of the daemon's.
func (a *api) runs(m source) bool {
	for _, other := range a.list() {
		if other == m {
			return true
		}
	}
	return false
}
