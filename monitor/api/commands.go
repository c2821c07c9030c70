package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/lockstep-ha/lockstep/monitor"
	"github.com/lockstep-ha/lockstep/monitor/operation"
)

// Limits of commands.
const (
	maxBody     = 16 << 10
	maxRelease  = time.Hour
	commandTime = 4 * time.Second // less than readTimeout, the write limit of the server
)

// Problem is the body of an answer to what was not done.
type Problem struct {
	Error string `json:"error"`
	// Code tells why in one word: refused, not_primary_monitor, busy, stopped,
	// invalid, unauthorized, forbidden, not_found or failed.
	Code     string              `json:"code"`
	Refusals []operation.Refusal `json:"refusals,omitempty"`
}

// command carries out a command. The content type must be application/json: a
// page in a browser cannot send that to another origin without being asked first.
func (a *api) command(w http.ResponseWriter, r *http.Request) {
	var what audited
	s := &statusWriter{ResponseWriter: w, status: http.StatusOK}
	a.carryOut(s, r, &what)
	c, _ := a.auth.who(r)
	a.auditLine(r, c, what, s.status, what.problem)
}

func (a *api) carryOut(w http.ResponseWriter, r *http.Request, what *audited) {
	m := a.find(w, r)
	if m == nil {
		return
	}
	if t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || t != "application/json" {
		answer(w, http.StatusUnsupportedMediaType, Problem{Error: "the content type must be application/json", Code: "invalid"})
		return
	}
	if !local(r) {
		answer(w, http.StatusForbidden, Problem{Error: "the name " + r.Host + " is not one of this host's own: use its address, or localhost", Code: "invalid"})
		return
	}
	var cmd monitor.Command
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&cmd); err != nil {
		answer(w, http.StatusBadRequest, Problem{Error: fmt.Sprintf("the command cannot be read: %v", err), Code: "invalid"})
		return
	}
	if dec.More() {
		answer(w, http.StatusBadRequest, Problem{Error: "there is more after the command", Code: "invalid"})
		return
	}
	what.cmd = cmd
	if cmd.Action == monitor.ActReleaseLocks {
		releaseLocks(w, m, cmd.Value)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), commandTime)
	defer cancel()
	reply, err := m.Command(ctx, cmd)
	if err != nil {
		status, p := problemOf(err)
		what.problem = p.Error
		answer(w, status, p)
		return
	}
	what.id = reply.ID
	status := http.StatusOK
	if reply.ID != "" {
		status = http.StatusAccepted
		w.Header().Set("Location", "/v1/clusters/"+m.Cluster()+"/operations/"+reply.ID)
	}
	answer(w, status, reply)
}

// local reports whether a request that came in over loopback names this host by
// an address or as localhost: a page whose name was made to lead here does not.
func local(r *http.Request) bool {
	at, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return true
	}
	tcp, ok := at.(*net.TCPAddr)
	if !ok || !tcp.IP.IsLoopback() {
		return true
	}
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = r.Host
	}
	return host == "localhost" || net.ParseIP(strings.Trim(host, "[]")) != nil
}

// releaseLocks works on any monitor: it gives up what this one holds.
func releaseLocks(w http.ResponseWriter, m source, text string) {
	d := time.Minute
	if text != "" {
		var err error
		if d, err = time.ParseDuration(text); err != nil || d <= 0 || d > maxRelease {
			answer(w, http.StatusBadRequest, Problem{Error: fmt.Sprintf("value %q: it must be a duration up to %v", text, maxRelease), Code: "invalid"})
			return
		}
	}
	m.ReleaseLocks(d)
	answer(w, http.StatusOK, monitor.Reply{Text: fmt.Sprintf("the locks are released and not taken again for %v", d)})
}

func problemOf(err error) (int, Problem) {
	var refused *operation.RefusedError
	switch {
	case errors.As(err, &refused):
		return http.StatusConflict, Problem{Error: err.Error(), Code: "refused", Refusals: refused.Refusals}
	case errors.Is(err, monitor.ErrNotPrimaryMonitor):
		return http.StatusConflict, Problem{Error: err.Error(), Code: "not_primary_monitor"}
	case errors.Is(err, monitor.ErrBusy):
		return http.StatusConflict, Problem{Error: err.Error(), Code: "busy"}
	case errors.Is(err, monitor.ErrStopped):
		return http.StatusServiceUnavailable, Problem{Error: err.Error(), Code: "stopped"}
	case errors.Is(err, monitor.ErrInvalid):
		return http.StatusBadRequest, Problem{Error: err.Error(), Code: "invalid"}
	}
	return http.StatusInternalServerError, Problem{Error: err.Error(), Code: "failed"}
}

func (a *api) operations(w http.ResponseWriter, r *http.Request) {
	if m := a.find(w, r); m != nil {
		answer(w, http.StatusOK, map[string]any{"operations": m.Operations()})
	}
}

func (a *api) operation(w http.ResponseWriter, r *http.Request) {
	m := a.find(w, r)
	if m == nil {
		return
	}
	rec, ok := m.Operation(r.PathValue("id"))
	if !ok {
		problem(w, http.StatusNotFound, fmt.Sprintf("this monitor has no operation %q: the history of each monitor is its own", r.PathValue("id")))
		return
	}
	answer(w, http.StatusOK, rec)
}
