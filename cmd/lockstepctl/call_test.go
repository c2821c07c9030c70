package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/monitor"
	"github.com/lockstep-ha/lockstep/monitor/api"
	"github.com/lockstep-ha/lockstep/monitor/operation"
)

// stub is a lockstepd with one cluster, shop, that answers commands as a test says.
type stub struct {
	url string
	// reply answers a command: a monitor.Reply or an api.Problem.
	reply func(monitor.Command) (int, any)
	// looks are the records of the operation, one for each time it is asked for, the
	// last for all later ones; nil stands for 404.
	looks []*operation.Record

	mu       sync.Mutex
	commands []monitor.Command
	looked   int
}

func newStub(t *testing.T, status int, reply any, looks ...*operation.Record) *stub {
	t.Helper()
	s := &stub{reply: func(monitor.Command) (int, any) { return status, reply }, looks: looks}
	send := func(w http.ResponseWriter, status int, body any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(body)
	}
	views := []monitor.View{shop(t)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/clusters", func(w http.ResponseWriter, _ *http.Request) {
		send(w, http.StatusOK, map[string]any{"clusters": views})
	})
	mux.HandleFunc("POST /v1/clusters/shop/commands", func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		var cmd monitor.Command
		if r.Header.Get("Content-Type") != "application/json" || json.NewDecoder(r.Body).Decode(&cmd) != nil {
			send(w, http.StatusBadRequest, api.Problem{Error: "bad request", Code: "invalid"})
			return
		}
		s.commands = append(s.commands, cmd)
		status, body := s.reply(cmd)
		send(w, status, body)
	})
	mux.HandleFunc("GET /v1/clusters/shop/operations/{id}", func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		rec := s.looks[min(s.looked, len(s.looks)-1)]
		s.looked++
		if rec == nil || rec.ID != r.PathValue("id") {
			send(w, http.StatusNotFound, map[string]string{"error": "this monitor has no operation " + r.PathValue("id")})
			return
		}
		send(w, http.StatusOK, rec)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

func (s *stub) sent() []monitor.Command {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.commands
}

// ctl runs a command line against the stub.
func (s *stub) ctl(t *testing.T, args string) result {
	t.Helper()
	return ctl(t, append(strings.Fields(args), "--server", s.url)...)
}

// ask runs a command line on a terminal where a person types an answer.
func (s *stub) ask(t *testing.T, args string, stdin io.Reader) result {
	t.Helper()
	var out, errs bytes.Buffer
	a := newApp(stdin, &out, &errs)
	require.False(t, a.asks)
	a.asks = true
	code := a.run(t.Context(), append(strings.Fields(args), "--server", s.url))
	return result{code, out.String(), errs.String()}
}

// moved is a failover from s1 to s2 that has gone n steps far of three.
func moved(n int, outcome string) *operation.Record {
	rec := records()[1]
	if outcome == operation.Running {
		rec.EndedAt, rec.Warnings = nil, nil
	}
	rec.Outcome = outcome
	rec.Steps = rec.Steps[:min(n+1, len(rec.Steps))]
	for i := n; i < len(rec.Steps); i++ {
		rec.Steps[i].Outcome, rec.Steps[i].TookMS, rec.Steps[i].Detail = operation.Running, 0, ""
	}
	return &rec
}

func started() monitor.Reply {
	plan := operation.Plan{Kind: operation.Failover, From: "s1", To: "s2", Reason: "s2 has received the most", Overrides: []string{"s3 has received more"},
		Steps: []operation.Step{{Name: "apply relay log", Server: "s2", LimitMS: 1000}, {Name: "promote", Server: "s2"}}, Then: [][]operation.Step{{{Name: "repoint", Server: "s3"}}}}
	return monitor.Reply{ID: "20260301T120000-m1-2", Plan: &plan, Text: "started"}
}

func TestWait(t *testing.T) {
	looks := []*operation.Record{nil, moved(0, operation.Running), moved(1, operation.Running), moved(2, operation.Running), moved(3, operation.Done)}
	s := newStub(t, http.StatusAccepted, started(), looks...)
	r := s.ctl(t, "call failover --yes")
	require.Equal(t, exitOK, r.code, r.stderr)
	require.Equal(t, "lockstepctl: warning: repoint on s3: it does not answer\n", r.stderr)
	golden(t, "wait.txt", r.stdout)
	require.Equal(t, []monitor.Command{{Action: monitor.ActFailover}}, s.sent())

	for _, format := range []string{"json", "yaml"} {
		s.looked = 0
		r = s.ctl(t, "call switchover s2 --force --yes -o "+format)
		require.Equal(t, exitOK, r.code, r.stderr)
		golden(t, "wait."+format, r.stdout)
	}
	require.Equal(t, monitor.Command{Action: monitor.ActSwitchover, Server: "s2", Force: true}, s.sent()[2])
}

// Any outcome but done is an error.
func TestWaitFails(t *testing.T) {
	for _, outcome := range []string{operation.Failed, operation.Undone, operation.Cancelled, operation.Abandoned, "strange"} {
		rec := moved(3, outcome)
		rec.Detail = "what went\nwrong"
		s := newStub(t, http.StatusAccepted, started(), rec)
		r := s.ctl(t, "call switchover")
		require.Equal(t, exitError, r.code)
		require.Contains(t, r.stdout, outcome+" after 1.25s; s2 was the primary after 310ms\n")
		require.Contains(t, r.stderr, "lockstepctl: failover 20260301T120000-m1-2: "+outcome+": what went wrong\n")
		r = s.ctl(t, "call switchover -o json")
		require.Equal(t, exitError, r.code)
		var got operation.Record
		require.NoError(t, json.Unmarshal([]byte(r.stdout), &got))
		require.Equal(t, outcome, got.Outcome)
	}
}

func TestWaitEnds(t *testing.T) {
	s := newStub(t, http.StatusAccepted, started(), moved(1, operation.Running))
	r := s.ctl(t, "call switchover --wait-timeout 150ms")
	require.Equal(t, exitError, r.code)
	require.Contains(t, r.stderr, "20260301T120000-m1-2 has not ended within 150ms; the operation goes on; see lockstepctl history 20260301T120000-m1-2\n")

	s = newStub(t, http.StatusAccepted, started(), moved(1, operation.Running), nil)
	r = s.ctl(t, "call switchover -o json")
	require.Equal(t, exitError, r.code)
	require.Contains(t, r.stderr, "what became of 20260301T120000-m1-2 is not known")
	require.Contains(t, r.stdout, `"outcome": "running"`)

	s = newStub(t, http.StatusAccepted, started(), moved(1, operation.Running))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := &stopping{want: "apply relay log", stop: cancel}
	var errs bytes.Buffer
	require.Equal(t, exitError, run(ctx, []string{"call", "switchover", "--server", s.url}, nil, out, &errs))
	require.Contains(t, errs.String(), "interrupted; the operation goes on")
	require.Contains(t, errs.String(), "lockstepctl call cancel")
}

func TestNoWait(t *testing.T) {
	s := newStub(t, http.StatusAccepted, started())
	r := s.ctl(t, "call rejoin s1 --wait=false")
	require.Equal(t, result{exitOK, "20260301T120000-m1-2\n", ""}, r)
	r = s.ctl(t, "call rejoin s1 --wait=false -o json")
	require.Equal(t, exitOK, r.code)
	var got monitor.Reply
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &got))
	require.Equal(t, started(), got)
	require.Equal(t, monitor.Command{Action: monitor.ActRejoin, Server: "s1"}, s.sent()[1])
}

func TestDryRun(t *testing.T) {
	reply := started()
	reply.ID, reply.Text = "", reply.Plan.String()+"\x1b\n"
	s := newStub(t, http.StatusOK, reply)
	r := s.ctl(t, "call failover s2 --dry-run --force")
	require.Equal(t, exitOK, r.code, r.stderr)
	require.Equal(t, reply.Plan.String()+"?\n", r.stdout)
	r = s.ctl(t, "call reset-replication --dry-run -o json")
	require.Equal(t, exitOK, r.code, r.stderr)
	var got operation.Plan
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &got))
	require.Equal(t, *reply.Plan, got)
	require.Equal(t, []monitor.Command{
		{Action: monitor.ActFailover, Server: "s2", Force: true, DryRun: true}, {Action: monitor.ActResetReplication, DryRun: true},
	}, s.sent())
}

func TestQuestions(t *testing.T) {
	for args, asks := range map[string]bool{
		"call failover": true, "call failover --force": true, "call failover --yes": false,
		"call switchover": false, "call switchover --force": true, "call switchover --force -y": false,
		"call rejoin s1": false, "call rejoin s1 --force": true,
		"call reset-replication": true, "call reset-replication -y": false,
		"maintenance set s1": false, "maintenance set s1 --force": true, "maintenance set s1 --force -y": false,
	} {
		s := newStub(t, http.StatusAccepted, started(), moved(3, operation.Done))
		r := s.ctl(t, args)
		if !asks {
			require.Equal(t, exitOK, r.code, "%s: %s", args, r.stderr)
			continue
		}
		require.Equal(t, exitUsage, r.code, args)
		require.Contains(t, r.stderr, "use --yes")
		require.Empty(t, s.sent(), args)

		for answer, goes := range map[string]bool{"y\n": true, "Yes\n": true, "n\n": false, "\n": false, "": false, "yes please\n": false} {
			s := newStub(t, http.StatusAccepted, started(), moved(3, operation.Done))
			r := s.ask(t, args, strings.NewReader(answer))
			changes := 0
			for _, c := range s.sent() {
				if !c.DryRun {
					changes++
				}
			}
			require.Contains(t, r.stderr, "? [y/N] ")
			if goes {
				require.Equal(t, exitOK, r.code, r.stderr)
				require.Equal(t, 1, changes)
				continue
			}
			require.Equal(t, exitError, r.code)
			require.Contains(t, r.stderr, "lockstepctl: nothing was done\n")
			require.Zero(t, changes)
		}
	}
}

// The question tells what would be done; the output stays clean.
func TestQuestionText(t *testing.T) {
	s := newStub(t, http.StatusAccepted, started(), moved(3, operation.Done))
	r := s.ask(t, "call failover s2 --force --wait=false", strings.NewReader("y\n"))
	require.Equal(t, `failover from s1 to s2
  s2 has received the most
  overridden: s3 has received more
Transactions that only the failed primary has are lost. --force overrides checks that keep data from being lost.
Start it? [y/N] `, r.stderr)
	require.Equal(t, "20260301T120000-m1-2\n", r.stdout)
	require.Equal(t, []monitor.Command{
		{Action: monitor.ActFailover, Server: "s2", Force: true, DryRun: true}, {Action: monitor.ActFailover, Server: "s2", Force: true},
	}, s.sent())
}

// An interrupt ends a question.
func TestQuestionInterrupted(t *testing.T) {
	s := newStub(t, http.StatusOK, started())
	silent, writer := io.Pipe()
	defer func() { require.NoError(t, writer.Close()) }()
	ctx, cancel := context.WithCancel(t.Context())
	errs := &stopping{want: "[y/N] ", stop: cancel}
	a := newApp(silent, io.Discard, errs)
	a.asks = true
	require.Equal(t, exitError, a.run(ctx, []string{"call", "failover", "--server", s.url}))
	require.Contains(t, errs.buf.String(), "interrupted: nothing was done")
	require.Len(t, s.sent(), 1)
	require.True(t, s.sent()[0].DryRun)
}

func refusal() api.Problem {
	return api.Problem{Error: "failover refused: a; b (do this)", Code: "refused", Refusals: []operation.Refusal{
		{Code: "no_account", Text: "no replication\nuser is set"},
		{Code: "not_safe_yet", Text: "s1 is not known dead", Remedy: "wait", Force: true},
	}}
}

func TestRefused(t *testing.T) {
	s := newStub(t, http.StatusConflict, refusal())
	want := `lockstepctl: failover is refused; nothing was done
no replication user is set
s1 is not known dead
  -> wait
  can be overridden with --force
`
	require.Equal(t, result{exitRefused, "", want}, s.ctl(t, "call failover --yes"))
	require.Equal(t, result{exitRefused, "", want}, s.ctl(t, "call failover --dry-run"))
	require.Equal(t, result{exitRefused, "", want}, s.ask(t, "call failover", strings.NewReader("y\n")))
	for _, c := range s.sent()[1:] {
		require.True(t, c.DryRun, "nobody is asked about what is refused")
	}
	r := s.ctl(t, "call failover --yes -o json")
	require.Equal(t, exitRefused, r.code)
	require.Equal(t, want, r.stderr)
	var got api.Problem
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &got))
	require.Equal(t, refusal(), got)
}

func TestProblems(t *testing.T) {
	for _, c := range []struct {
		status  int
		problem api.Problem
		code    int
		says    string
	}{
		{http.StatusConflict, api.Problem{Error: "this is not the primary monitor: the primary monitor is the one at 10.0.0.2", Code: "not_primary_monitor"}, exitRefused, "at 10.0.0.2\n"},
		{http.StatusConflict, api.Problem{Error: "another operation is under way: switchover x", Code: "busy"}, exitRefused, "under way: switchover x\n"},
		{http.StatusServiceUnavailable, api.Problem{Error: "the monitor does not run", Code: "stopped"}, exitError, "does not run\n"},
		{http.StatusBadRequest, api.Problem{Error: "invalid command: there is no server \"s9\"", Code: "invalid"}, exitError, "no server"},
		{http.StatusNotFound, api.Problem{Error: "no such path: /v1/clusters/shop/commands"}, exitError, "no such path"},
		{http.StatusInternalServerError, api.Problem{Error: "context deadline exceeded", Code: "failed"}, exitError, "exceeded; it is not known whether the command is carried out"},
		{http.StatusBadGateway, api.Problem{}, exitError, "is it lockstepd?; it is not known whether the command is carried out"},
	} {
		s := newStub(t, c.status, c.problem)
		r := s.ctl(t, "call switchover s9")
		require.Equal(t, c.code, r.code)
		require.Empty(t, r.stdout)
		require.Contains(t, r.stderr, c.says)
		require.Equal(t, 1, strings.Count(r.stderr, "\n"))
	}
}

// A command to which there is no answer may have been carried out.
func TestNoAnswer(t *testing.T) {
	s := newStub(t, http.StatusOK, nil)
	s.reply = func(monitor.Command) (int, any) {
		time.Sleep(300 * time.Millisecond)
		return http.StatusOK, monitor.Reply{}
	}
	r := s.ctl(t, "call pause --timeout 100ms")
	require.Equal(t, exitError, r.code)
	require.Contains(t, r.stderr, "does not answer in time")
	require.Contains(t, r.stderr, "it is not known whether the command is carried out")
	r = ctl(t, "call", "pause", "--cluster", "shop", "--server", "http://127.0.0.1:1")
	require.Equal(t, exitError, r.code)
	require.NotContains(t, r.stderr, "not known")
}

func TestCommands(t *testing.T) {
	for args, want := range map[string]monitor.Command{
		"call cancel":                  {Action: monitor.ActCancel},
		"call ack":                     {Action: monitor.ActAcknowledge},
		"call pause":                   {Action: monitor.ActPause},
		"call resume":                  {Action: monitor.ActResume},
		"call release-locks":           {Action: monitor.ActReleaseLocks, Value: "1m0s"},
		"call release-locks --for 10s": {Action: monitor.ActReleaseLocks, Value: "10s"},
		"maintenance set s1":           {Action: monitor.ActMaintenance, Server: "s1", Value: "on"},
		"maintenance set s1 --force -y --cluster shop": {Action: monitor.ActMaintenance, Server: "s1", Value: "on", Force: true},
		"maintenance clear s1":                         {Action: monitor.ActMaintenance, Server: "s1", Value: "off"},
		"maintenance reset s1":                         {Action: monitor.ActMaintenance, Server: "s1"},
		"drain reset s1":                               {Action: monitor.ActDrain, Server: "s1"},
		"drain set s1":                                 {Action: monitor.ActDrain, Server: "s1", Value: "on"},
		"drain clear s1 --cluster shop":                {Action: monitor.ActDrain, Server: "s1", Value: "off"},
		"promotion set s1 must_not":                    {Action: monitor.ActPromotion, Server: "s1", Value: "must_not"},
		"promotion clear s1":                           {Action: monitor.ActPromotion, Server: "s1"},
	} {
		s := newStub(t, http.StatusOK, monitor.Reply{Text: "it is\ndone"})
		require.Equal(t, result{exitOK, "it is done\n", ""}, s.ctl(t, args), args)
		require.Equal(t, []monitor.Command{want}, s.sent())
		r := s.ctl(t, args+" -o yaml")
		require.Equal(t, result{exitOK, "text: |-\n  it is\n  done\n", ""}, r, args)
	}
	s := newStub(t, http.StatusAccepted, monitor.Reply{ID: "x-1", Text: "it is cancelled"})
	require.Equal(t, "x-1: it is cancelled\n", s.ctl(t, "call cancel").stdout)
}

func TestEmptyHistory(t *testing.T) {
	require.Equal(t, result{exitOK, "This monitor has run no operation since it was started.\n", ""}, ctl(t, "history", "--server", bare(t)))
	require.Equal(t, result{exitOK, "[]\n", ""}, ctl(t, "history", "-o", "json", "--server", bare(t)))
}

// bare is a lockstepd that has run no operation.
func bare(t *testing.T) string {
	t.Helper()
	views := []monitor.View{shop(t)}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := map[string]any{"clusters": views}
		if strings.HasSuffix(r.URL.Path, "/operations") {
			body = map[string]any{"operations": nil}
		}
		_ = json.NewEncoder(w).Encode(body)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func TestCallUsage(t *testing.T) {
	many := daemon(t, shop(t), depot(t))
	for args, says := range map[string]string{
		"call":                                "needs one of: ack, cancel, failover, pause, rejoin, release-locks, reset-replication, resume, switchover",
		"call failove":                        "did you mean failover?",
		"call rejoin":                         "takes 1 argument",
		"call switchover a b":                 "at most 1 argument",
		"call pause s1":                       "takes no arguments",
		"call pause --force":                  "unknown flag",
		"call pause":                          "name one with --cluster: depot, shop",
		"call switchover --direct":            "lockstepctl call switchover is for lockstepd: it does not work with --direct",
		"call failover --direct":              "does not work with --direct",
		"maintenance set s1 --direct -c x":    "does not work with --direct",
		"promotion clear s1 --direct":         "does not work with --direct",
		"history --direct":                    "does not work with --direct",
		"call switchover --watch":             "takes no --watch",
		"call switchover --timeout 0s":        "--timeout is 0s",
		"call switchover --wait-timeout 0s":   "--wait-timeout is 0s",
		"call release-locks --for -1s":        "--for is -1s",
		"maintenance":                         "needs one of: clear, reset, set",
		"drain set":                           "takes 1 argument",
		"promotion set s1":                    "takes 2 argument",
		"promotion set s1 never":              "prefer, neutral or must_not",
		"history":                             "name one with --cluster: depot, shop",
		"history 20260301T120000-m1-2 --wait": "unknown flag",
	} {
		r := ctl(t, append(strings.Fields(args), "--server", many)...)
		require.Equal(t, exitUsage, r.code, "%s: %s", args, r.stderr)
		require.Contains(t, r.stderr, says)
		require.Empty(t, r.stdout)
	}
	r := ctl(t, "history", "nosuch", "--cluster", "shop", "--server", many)
	require.Equal(t, exitError, r.code)
	require.Contains(t, r.stderr, "the history of each monitor is its own")
	r = ctl(t, "call", "pause", "--server", daemon(t))
	require.Equal(t, exitError, r.code)
	require.Contains(t, r.stderr, "monitors no cluster")
}

func TestCompletion(t *testing.T) {
	url := daemon(t, shop(t), depot(t))
	for args, want := range map[string]string{
		"call switchover --cluster shop ":         "s1 s2 s3 s4 s5",
		"call rejoin --cluster depot ":            "s2",
		"call switchover s1 --cluster shop ":      "",
		"maintenance set --cluster shop ":         "s1 s2 s3 s4 s5",
		"promotion set --cluster shop ":           "s1 s2 s3 s4 s5",
		"promotion set s1 --cluster shop ":        "prefer neutral must_not",
		"show server --cluster shop ":             "s1 s2 s3 s4 s5",
		"call switchover --cluster ":              "depot shop",
		"drain clear --cluster ":                  "depot shop",
		"history --cluster ":                      "depot shop",
		"history --cluster shop ":                 "20260301T120100-m1-3 20260301T120000-m1-2 20260301T110000-m1-1",
		"call switchover --server " + url + "/x ": "",
	} {
		words := strings.Split(args, " ")
		r := ctl(t, append([]string{"__complete", "--server", url}, words...)...)
		var got []string
		for line := range strings.Lines(r.stdout) {
			if name, _, _ := strings.Cut(strings.TrimSpace(line), "\t"); !strings.HasPrefix(name, ":") {
				got = append(got, name)
			}
		}
		require.Equal(t, want, strings.Join(got, " "), args)
	}
}
