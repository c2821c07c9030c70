package operation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-ha/lockstep/internal/sqlrows"
	"github.com/lockstep-ha/lockstep/topology/mariadb"
)

// Answer is what came of statements on one server.
type Answer struct {
	// Known is false where the answer was lost: the statements may have had their
	// effect.
	Known  bool
	Tables []sqlrows.Table
	Err    error
	// Code is the error code of the server, zero for errors that are not its own.
	Code uint16
}

// Call is one round trip to one server.
type Call struct {
	Server string
	SQL    string
	Limit  time.Duration
	// Reads is true for statements that change nothing.
	Reads bool
	// Aside is set for statements that may take longer than a lease lasts: they get a
	// connection of their own.
	Aside bool
	// Wait is how long the server itself may wait before it carries out the
	// statement: the answer may take that much longer.
	Wait time.Duration
	// Patience is how long to wait for the answer where that is less than Limit; the
	// statement goes on.
	Patience time.Duration
}

// Servers is how a Run reaches the servers.
type Servers interface {
	// Now is the clock of the observations.
	Now() time.Duration
	// Wall is the time of day, for records.
	Wall() time.Time
	// Verify asks a majority of the servers, in one parallel round trip, whether
	// the locks are still this monitor's.
	Verify(ctx context.Context) error
	// Execute makes calls in parallel, each on the connection that was verified
	// last. It returns when all have been answered or soon after they should have.
	Execute(ctx context.Context, calls []Call) []Answer
}

// ErrNotSent is in the chain of errors of statements that were not sent, since the
// server lock was not known to be held, or the lease had ended: they can be tried
// again.
var ErrNotSent = errors.New("not sent")

// Outcomes of records and steps.
const (
	Running   = "running"
	Done      = "done"
	Failed    = "failed"
	Undone    = "undone"
	Cancelled = "cancelled"
	Abandoned = "abandoned"
	Warned    = "warned"
)

// Record is the history of one operation.
type Record struct {
	ID        string `json:"id"`
	Kind      Kind   `json:"kind"`
	From      string `json:"from,omitempty"`
	To        string `json:"to"`
	Automatic bool   `json:"automatic"`
	// Reason says why it was started, and why To was chosen.
	Reason    string     `json:"reason,omitempty"`
	Overrides []string   `json:"overrides,omitempty"`
	StartedAt time.Time  `json:"started_at"`
	TurnedAt  *time.Time `json:"turned_at,omitempty"`
	EndedAt   *time.Time `json:"ended_at,omitempty"`
	Outcome   string     `json:"outcome"`
	// Detail says what went wrong and what state each server was left in.
	Detail   string       `json:"detail,omitempty"`
	Warnings []string     `json:"warnings,omitempty"`
	Steps    []StepRecord `json:"steps"`
}

// StepRecord is one step as it was run.
type StepRecord struct {
	Name      string    `json:"name"`
	Server    string    `json:"server"`
	Statement string    `json:"statement"`
	StartedAt time.Time `json:"started_at"`
	TookMS    float64   `json:"took_ms"`
	Outcome   string    `json:"outcome"`
	Detail    string    `json:"detail,omitempty"`
}

// Run is an operation under way. Its methods are called by one goroutine.
type Run struct {
	Plan   Plan
	Record Record
	p      Policy

	next      int
	sent      time.Duration // instant after the last statement
	began     time.Duration // of the step under way; zero before it begins
	unsure    bool          // whether the step had its effect has to be seen
	problem   string        // why that is not known
	turned    bool
	lanes     []*lane
	cancelled bool
	done      []int // indexes of steps with an undo that were carried out
	kills     int
	purges    int
	again     time.Duration   // when a waiting step has sent something again
	left      bool            // something could not be undone
	lost      error           // the verification that failed between the statements of one step
	enabled   []mariadb.Event // events that were enabled on the former primary; nil where not known
	steps     map[string]int  // index in Record.Steps of a step under way
}

// lane is the steps that follow on one server.
type lane struct {
	steps    []Step
	next     int
	sent     time.Duration
	began    time.Duration
	unsure   bool
	attempts int
	retryAt  time.Duration
	problem  string
}

// Start begins an operation.
func Start(id string, plan Plan, p Policy, r Request, s Servers) *Run {
	run := &Run{Plan: plan, p: p, steps: map[string]int{}, Record: Record{ID: id, Kind: plan.Kind, From: plan.From, To: plan.To, Automatic: r.Automatic,
		Reason: plan.Reason, Overrides: plan.Overrides, StartedAt: s.Wall(), Outcome: Running, Steps: []StepRecord{}}}
	for _, steps := range plan.Then {
		run.lanes = append(run.lanes, &lane{steps: steps})
	}
	return run
}

// Left reports whether something that was done could not be taken back, so that
// From may be read-only still.
func (r *Run) Left() bool { return r.left || (r.Record.Outcome == Abandoned && !r.turned) }

// Turned reports whether To is the primary now.
func (r *Run) Turned() bool { return r.turned }

// Ended reports whether nothing is left to do.
func (r *Run) Ended() bool { return r.Record.EndedAt != nil }

// Cancel makes the run stop before its next step and undo what can be undone. It
// has no effect after the turn; then it returns false.
func (r *Run) Cancel() bool {
	if r.turned || r.Ended() {
		return false
	}
	r.cancelled = true
	return true
}

// poll is how soon a condition is looked at again.
const poll = 5 * time.Millisecond

// Advance goes as far as possible without waiting: it is called once a tick with
// the newest observation, while the majority is held. It returns after what time
// to call again.
func (r *Run) Advance(ctx context.Context, c Cluster, s Servers) time.Duration {
	turned := r.turned
	for !r.Ended() && r.next < len(r.Plan.Steps) {
		// A promotion that may have had its effect is not stopped.
		promoting := r.unsure && r.Plan.Steps[r.next].turn
		if from, ok := c.server(r.Plan.From); ok && !promoting && r.Plan.Kind == Failover && r.Record.Automatic && from.Up() {
			r.fail(ctx, s, Cancelled, from.Name+" answers again")
			return poll
		}
		if r.cancelled && !promoting {
			r.fail(ctx, s, Cancelled, "cancelled by a person before the step "+r.Plan.Steps[r.next].Name)
			return poll
		}
		if !r.foreground(ctx, c, s) {
			return r.pace(s)
		}
	}
	if r.Ended() || r.turned != turned {
		return poll // the new primary is published before anything else is done
	}
	again := r.background(ctx, c, s)
	if again == 0 && !r.Ended() {
		r.end(s, Done, "")
	}
	return again
}

// pace looks often at first, then less: a relay log can take minutes.
func (r *Run) pace(s Servers) time.Duration {
	return min(max((s.Now()-r.began)/20, poll), 250*time.Millisecond)
}

// Abandon ends a run whose monitor has lost the majority: nothing may be undone.
func (r *Run) Abandon(s Servers, why string) {
	at := "after its last step"
	if r.next < len(r.Plan.Steps) {
		at = "at the step " + r.Plan.Steps[r.next].Name + " on " + r.Plan.Steps[r.next].Server
	}
	r.end(s, Abandoned, fmt.Sprintf("given up %s: %s; what was done stays done: %s", at, why, r.state()))
}

// foreground runs the current step and reports whether it is done.
func (r *Run) foreground(ctx context.Context, c Cluster, s Servers) bool {
	st := r.Plan.Steps[r.next]
	if r.began == 0 {
		r.began = s.Now()
		r.note(s, st)
	}
	late := s.Now()-r.began > st.limit()
	var why string
	switch {
	case st.wait != nil:
		ok, reason := st.wait(c, r.sent)
		if ok && st.purge != "" && r.purged(ctx, s, st) {
			ok, reason = false, "connections that may write to "+st.purge+" had to be ended again"
		}
		if r.Ended() {
			return false
		}
		if ok {
			r.passed(s, st, "")
			return true
		}
		why = reason
		r.resend(ctx, s, st)
	case r.unsure:
		server, _ := c.server(st.Server)
		if server.Up() && server.SentAt >= r.sent && (st.seen == nil || st.seen(server) || late || (!st.aside && !slices.Contains(c.Lingering, st.Server))) {
			if st.seen != nil && st.seen(server) {
				r.unsure = false
				r.passed(s, st, "it was seen to have had its effect, though: "+r.problem)
				return true
			}
			r.noteEnd(s, st, Failed, "")
			r.fail(ctx, s, Failed, fmt.Sprintf("step %s on %s has not had its effect: %s", st.Name, st.Server, r.problem))
			return false
		}
		why = "its answer was lost and the server has not answered since"
	case st.special == killSessions, st.special == killClients:
		if r.killPrivileged(ctx, s, st) {
			return true
		}
		return false
	case late && r.problem != "":
		why = r.problem
	default:
		return r.send(ctx, s, st)
	}
	if late && st.soft {
		r.warn(fmt.Sprintf("%s on %s: %s", st.Name, st.Server, why))
		r.passed(s, st, why)
		return true
	}
	if late {
		r.noteEnd(s, st, Failed, why)
		r.fail(ctx, s, Failed, fmt.Sprintf("step %s on %s took longer than %v: %s", st.Name, st.Server, st.limit(), why))
	}
	return false
}

// send carries out a step that is a statement.
func (r *Run) send(ctx context.Context, s Servers, st Step) bool {
	if err := s.Verify(ctx); err != nil {
		r.noteEnd(s, st, Failed, err.Error())
		r.end(s, Abandoned, fmt.Sprintf("given up before the step %s on %s: %v; what was done stays done: %s", st.Name, st.Server, err, r.state()))
		return false
	}
	var a Answer
	if st.special == plain {
		a = s.Execute(ctx, []Call{st.call()})[0]
	} else {
		a = r.events(ctx, s, st)
	}
	r.sent = s.Now()
	switch {
	case r.lost != nil:
		r.noteEnd(s, st, Failed, r.lost.Error())
		r.end(s, Abandoned, fmt.Sprintf("given up at the step %s on %s: %v; what was done stays done: %s", st.Name, st.Server, r.lost, r.state()))
		return false
	case a.Err == nil:
		r.passed(s, st, "")
		return true
	case st.aside && st.seen == nil && !a.Known:
		r.passed(s, st, "") // a step that follows waits for its effect
		return true
	case st.soft:
		r.warn(fmt.Sprintf("%s on %s: %v", st.Name, st.Server, a.Err))
		r.passed(s, st, a.Err.Error())
		return true
	case errors.Is(a.Err, ErrNotSent) && !st.aside:
		r.problem = a.Err.Error()
		return false
	case !a.Known || st.seen != nil:
		// The next observation decides.
		if mariadb.GaveUpWaiting(a.Code) {
			a.Err = fmt.Errorf("commits did not end in time (%s): %w", r.waitingCommits(ctx, s, st.Server), a.Err)
		}
		r.unsure, r.problem = true, a.Err.Error()
		if i, ok := r.steps[key(st)]; ok {
			r.Record.Steps[i].Detail = a.Err.Error()
		}
		if st.Undo != "" && !slices.Contains(r.done, r.next) {
			r.done = append(r.done, r.next)
		}
		return false
	}
	r.noteEnd(s, st, Failed, a.Err.Error())
	r.fail(ctx, s, Failed, fmt.Sprintf("step %s on %s: %v", st.Name, st.Server, a.Err))
	return false
}

// resendPause is how soon a waiting step sends something again.
const resendPause = time.Second

// resend sends what a waiting step needs to come true.
func (r *Run) resend(ctx context.Context, s Servers, st Step) {
	if st.again == nil || (r.again != 0 && s.Now()-r.again < resendPause) || s.Verify(ctx) != nil {
		return
	}
	r.again = s.Now()
	if a := s.Execute(ctx, []Call{st.again.call()})[0]; a.Err != nil && a.Known {
		r.again -= resendPause * 4 / 5 // its server lock may be held soon
	}
	r.sent = s.Now()
}

// call is what a step that is a plain statement sends.
func (s Step) call() Call {
	c := Call{Server: s.Server, SQL: s.sql, Limit: s.limit(), Aside: s.aside, Wait: s.waits}
	if s.aside {
		c.Patience = backgroundPatience
	}
	return c
}

func (r *Run) passed(s Servers, st Step, detail string) {
	outcome := Done
	if detail != "" && st.soft {
		outcome = Warned
	}
	r.noteEnd(s, st, outcome, detail)
	if st.Undo != "" && !slices.Contains(r.done, r.next) {
		r.done = append(r.done, r.next)
	}
	if st.turn {
		r.turned = true
		at := s.Wall()
		r.Record.TurnedAt = &at
	}
	r.next++
	r.began, r.unsure, r.again, r.problem = 0, false, 0, ""
}

// fail undoes, in reverse order, what was done, and ends the run.
func (r *Run) fail(ctx context.Context, s Servers, outcome, detail string) {
	if r.turned || len(r.done) == 0 {
		r.end(s, outcome, detail+"; "+r.state())
		return
	}
	undone, failed := []string{}, []string{}
	for _, i := range slices.Backward(r.done) {
		st := r.Plan.Steps[i]
		back := Step{Name: "undo " + st.Name, Server: st.Server, Statement: st.Undo}
		r.note(s, back)
		err := s.Verify(ctx)
		verified := err == nil
		if verified {
			err = r.takeBack(ctx, s, st)
		}
		if err != nil {
			r.noteEnd(s, back, Failed, err.Error())
			failed = append(failed, fmt.Sprintf("undoing %q on %s failed: %v (%s)", st.Name, st.Server, err, st.Undo))
			if !verified || st.turn {
				break // where To may be writable, From is not made so
			}
			continue
		}
		r.noteEnd(s, back, Done, "")
		undone = append(undone, st.Name+" on "+st.Server)
	}
	if len(undone) > 0 {
		detail += "; undone: " + strings.Join(undone, ", ")
	}
	if len(failed) > 0 {
		r.left = true
		r.end(s, outcome, detail+"; "+strings.Join(failed, "; "))
		return
	}
	if outcome == Failed {
		outcome = Undone
	}
	r.end(s, outcome, detail)
}

func (r *Run) takeBack(ctx context.Context, s Servers, st Step) error {
	sql := st.undo
	if st.special == eventsOff {
		var problems []error
		for _, e := range r.enabled {
			problems = append(problems, s.Execute(ctx, []Call{{Server: st.Server, SQL: e.Enable(), Limit: statementLimit}})[0].Err)
		}
		return errors.Join(problems...)
	}
	if sql == "" {
		return nil
	}
	a := s.Execute(ctx, []Call{{Server: st.Server, SQL: sql, Limit: readOnlyWait + statementLimit, Wait: readOnlyWait}})[0]
	if sql == mariadb.UnblockCommits && a.Code == mariadb.ErrNotBlocked {
		return nil
	}
	return a.Err
}

// state says what has been done so far.
func (r *Run) state() string {
	var parts []string
	for _, st := range r.Plan.Steps[:r.next] {
		if st.wait == nil {
			parts = append(parts, st.Name+" on "+st.Server)
		}
	}
	if len(parts) == 0 {
		return "no server was changed"
	}
	return "done were " + strings.Join(parts, ", ")
}

func (r *Run) end(s Servers, outcome, detail string) {
	at := s.Wall()
	r.Record.EndedAt, r.Record.Outcome, r.Record.Detail = &at, outcome, detail
}

func (r *Run) warn(text string) { r.Record.Warnings = append(r.Record.Warnings, text) }

func key(st Step) string { return st.Server + "\x00" + st.Name }

// note begins the record of a step.
func (r *Run) note(s Servers, st Step) {
	r.steps[key(st)] = len(r.Record.Steps)
	r.Record.Steps = append(r.Record.Steps, StepRecord{Name: st.Name, Server: st.Server, Statement: st.Statement, StartedAt: s.Wall(), Outcome: Running})
}

func (r *Run) noteEnd(s Servers, st Step, outcome, detail string) {
	i, ok := r.steps[key(st)]
	if !ok {
		return
	}
	rec := &r.Record.Steps[i]
	rec.TookMS = float64(s.Wall().Sub(rec.StartedAt).Microseconds()) / 1000
	rec.Outcome = outcome
	if detail != "" {
		rec.Detail = detail
	}
}
