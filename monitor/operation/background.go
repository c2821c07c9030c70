package operation

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lockstep-ha/lockstep/topology/mariadb"
)

// Of steps after the turn.
const (
	// backgroundPatience keeps a replica that hangs from holding up the ticks.
	backgroundPatience = 250 * time.Millisecond
	maxAttempts        = 3
	retryPause         = time.Second
)

// background advances every lane by what can be done now. It returns after what
// time to call again, zero when all lanes have ended.
func (r *Run) background(ctx context.Context, c Cluster, s Servers) time.Duration {
	var again time.Duration
	sooner := func(d time.Duration) {
		if again == 0 || d < again {
			again = d
		}
	}
	var ready []*lane
	for _, l := range r.lanes {
		if r.look(c, s, l) {
			ready = append(ready, l)
		}
	}
	if len(ready) > 0 {
		if err := s.Verify(ctx); err != nil {
			r.end(s, Abandoned, fmt.Sprintf("given up: %v; %s is the primary, what follows was not finished", err, r.Plan.To))
			return poll
		}
		r.sendLanes(ctx, s, ready)
		sooner(poll)
	}
	for _, l := range r.lanes {
		if l.next < len(l.steps) {
			sooner(max(min((s.Now()-l.began)/10, time.Second), poll))
		}
	}
	return again
}

// look advances a lane past what only has to be seen, and reports whether its
// next step is to be sent.
func (r *Run) look(c Cluster, s Servers, l *lane) bool {
	for l.next < len(l.steps) {
		st := l.steps[l.next]
		now := s.Now()
		if l.began == 0 {
			l.began = now
			r.note(s, st)
		}
		late := now-l.began > st.limit()
		server, _ := c.server(st.Server)
		switch {
		case st.wait != nil:
			ok, why := st.wait(c, l.sent)
			if ok {
				r.laneDone(s, l, Done, "")
				continue
			}
			l.problem = why
		case l.unsure && server.Up() && server.SentAt >= l.sent && (!st.aside || st.seen(server) || now-l.sent > asideLimit):
			if st.seen(server) {
				r.laneDone(s, l, Done, "")
				continue
			}
			l.unsure = false
			l.attempts++
			if l.attempts >= maxAttempts {
				r.laneFailed(s, l)
				return false
			}
			l.retryAt = now + retryPause
		case !l.unsure && now >= l.retryAt:
			return true
		}
		if late && now >= l.retryAt {
			r.laneFailed(s, l)
		}
		return false
	}
	return false
}

func (r *Run) sendLanes(ctx context.Context, s Servers, ready []*lane) {
	abandon := func() {
		r.end(s, Abandoned, fmt.Sprintf("given up: %v; %s is the primary, what follows was not finished", r.lost, r.Plan.To))
	}
	var calls []Call
	var sent []*lane
	for _, l := range ready {
		st := l.steps[l.next]
		if st.special == killBlocked {
			a := r.killWaiting(ctx, s, st)
			if r.lost != nil {
				abandon()
				return
			}
			l.sent = s.Now()
			r.answered(s, l, st, a)
			st = l.steps[l.next]
			l.began = s.Now()
			r.note(s, st)
		}
		if st.special != plain {
			continue
		}
		call := st.call()
		if st.seen != nil {
			call.Patience = backgroundPatience
		}
		calls = append(calls, call)
		sent = append(sent, l)
	}
	if len(calls) > 0 {
		answers := s.Execute(ctx, calls)
		for i, l := range sent {
			l.sent = s.Now()
			r.answered(s, l, l.steps[l.next], answers[i])
		}
		return
	}
	// Events come last: there can be many, and no replica waits for them.
	for _, l := range ready {
		st := l.steps[l.next]
		a := r.events(ctx, s, st)
		l.sent = s.Now()
		r.answered(s, l, st, a)
		if r.lost != nil {
			abandon()
			return
		}
	}
}

// answered takes the answer to a step of a lane.
func (r *Run) answered(s Servers, l *lane, st Step, a Answer) {
	switch {
	case a.Err == nil:
		r.laneDone(s, l, Done, "")
	case st.seen != nil:
		l.unsure, l.problem = true, a.Err.Error()
	case st.soft:
		r.warn(fmt.Sprintf("%s on %s: %v", st.Name, st.Server, a.Err))
		r.laneDone(s, l, Warned, a.Err.Error())
	default:
		l.problem = a.Err.Error()
		r.laneFailed(s, l)
	}
}

func (r *Run) laneDone(s Servers, l *lane, outcome, detail string) {
	r.noteEnd(s, l.steps[l.next], outcome, detail)
	l.next++
	l.began, l.unsure, l.attempts = 0, false, 0
}

func (r *Run) laneFailed(s Servers, l *lane) {
	st := l.steps[l.next]
	r.noteEnd(s, st, Failed, l.problem)
	r.warn(fmt.Sprintf("%s on %s: %s", st.Name, st.Server, l.problem))
	l.next = len(l.steps)
}

// events moves scheduled events: it asks for them, and alters those that have to
// be, one by one, so that one that cannot be altered does not stop the others.
func (r *Run) events(ctx context.Context, s Servers, st Step) Answer {
	a := s.Execute(ctx, []Call{{Server: st.Server, SQL: mariadb.EventsStatement, Limit: st.limit(), Reads: true}})[0]
	if mariadb.EventsUnavailable(a.Code) {
		return Answer{Known: true}
	}
	if a.Err != nil || len(a.Tables) == 0 {
		return a
	}
	events, err := mariadb.ParseEvents(&a.Tables[0])
	if err != nil {
		return Answer{Known: true, Err: err}
	}
	var names []string
	var problems []error
	until := s.Now() + st.limit()
	alter := func(e mariadb.Event, statement string) {
		if s.Now() >= until {
			problems = append(problems, fmt.Errorf("%s.%s: there was no time left for it", e.Schema, e.Name))
			return
		}
		if r.lost == nil {
			r.lost = s.Verify(ctx)
		}
		if r.lost != nil {
			problems = append(problems, fmt.Errorf("%s.%s: %w", e.Schema, e.Name, r.lost))
			return
		}
		one := s.Execute(ctx, []Call{{Server: st.Server, SQL: statement, Limit: statementLimit}})[0]
		if one.Err != nil && one.Code != mariadb.ErrEventMissing {
			problems = append(problems, fmt.Errorf("%s.%s: %w", e.Schema, e.Name, one.Err))
			return
		}
		names = append(names, e.Schema+"."+e.Name)
	}
	if st.special == eventsOff {
		r.enabled = append([]mariadb.Event{}, mariadb.ToDisable(events)...)
		for _, e := range r.enabled {
			alter(e, e.DisableOnReplica())
		}
	} else {
		for _, e := range mariadb.ToEnable(events, r.enabled) {
			if e.Overdue && r.enabled == nil {
				r.warn(fmt.Sprintf("%s: the event %s.%s is past its time and may have run on the former primary: it is left disabled", st.Server, e.Schema, e.Name))
				continue
			}
			alter(e, e.Enable())
		}
	}
	if i, ok := r.steps[key(st)]; ok && len(names) > 0 {
		r.Record.Steps[i].Detail = strings.Join(names, ", ")
	}
	return Answer{Known: true, Err: errors.Join(problems...)}
}

// killRounds bounds how often privileged connections are looked for.
const killRounds = 5

// purgeRounds bounds how often that is done again when the target has caught up.
const purgeRounds = 3

// killPrivileged ends the connections of accounts that a read-only server does
// not stop from writing, or of all clients, a round a call.
func (r *Run) killPrivileged(ctx context.Context, s Servers, st Step) bool {
	list := mariadb.PrivilegedSessions(r.p.KeepConnections)
	if st.special == killClients {
		list = mariadb.ClientSessions(r.p.KeepConnections)
	}
	found, err := sessions(ctx, s, st.Server, list)
	if err != nil {
		r.passed(s, st, fmt.Sprintf("connections could not be listed: %v", err))
		return true
	}
	if len(found) == 0 || r.kills >= killRounds {
		r.passed(s, st, "")
		return true
	}
	r.kills++
	r.kill(ctx, s, st, st.Server, found)
	return false
}

// purged ends the connections of privileged accounts that have come back since they
// were ended, and reports whether there were any. One that goes on coming back is
// left, with a warning: whether it writes is seen by the primary's position.
func (r *Run) purged(ctx context.Context, s Servers, st Step) bool {
	found, err := sessions(ctx, s, st.purge, mariadb.PrivilegedSessions(r.p.KeepConnections))
	if err != nil || len(found) == 0 {
		return false
	}
	if r.purges >= purgeRounds {
		for _, f := range found {
			r.warn(fmt.Sprintf("%s: %s comes back whenever it is ended, and may write there", st.purge, f.who))
		}
		return false
	}
	r.purges++
	r.kill(ctx, s, st, st.purge, found)
	r.sent = s.Now()
	return true
}

// killWaiting ends the connections that wait to commit on a former primary: what
// they would commit when they may is on nobody else.
func (r *Run) killWaiting(ctx context.Context, s Servers, st Step) Answer {
	found, err := sessions(ctx, s, st.Server, mariadb.BlockedSessions(r.p.KeepConnections))
	if err == nil && len(found) > 0 {
		if r.lost = s.Verify(ctx); r.lost == nil {
			r.killAll(ctx, s, st.Server, found)
		}
	}
	return Answer{Known: true, Err: err}
}

// clientSession is a connection that is to be ended.
type clientSession struct {
	id  uint64
	who string
}

func sessions(ctx context.Context, s Servers, server, list string) ([]clientSession, error) {
	a := s.Execute(ctx, []Call{{Server: server, SQL: list, Limit: statementLimit, Reads: true}})[0]
	if a.Err != nil {
		return nil, a.Err
	}
	if len(a.Tables) == 0 {
		return nil, errors.New("the server sent no list")
	}
	var out []clientSession
	for i := range a.Tables[0].Rows {
		row := a.Tables[0].Row(i)
		if id, ok, err := row.Uint("ID"); err == nil && ok {
			out = append(out, clientSession{id, fmt.Sprintf("%s@%s, connection %d", row.String("USER"), row.String("HOST"), id)})
		}
	}
	return out, nil
}

// kill ends connections; the run ends where the majority is not this monitor's.
func (r *Run) kill(ctx context.Context, s Servers, st Step, server string, list []clientSession) {
	if err := s.Verify(ctx); err != nil {
		r.end(s, Abandoned, fmt.Sprintf("given up at the step %s on %s: %v; %s", st.Name, st.Server, err, r.state()))
		return
	}
	r.killAll(ctx, s, server, list)
}

func (r *Run) killAll(ctx context.Context, s Servers, server string, list []clientSession) {
	for _, c := range list {
		if a := s.Execute(ctx, []Call{{Server: server, SQL: mariadb.Kill(c.id), Limit: statementLimit}})[0]; a.Err != nil && !mariadb.NoSuchConnection(a.Code) {
			r.warn(fmt.Sprintf("%s: %s: %v", server, c.who, a.Err))
		} else {
			r.warn(fmt.Sprintf("%s: ended %s", server, c.who))
		}
	}
}

// waitingCommits says how many commits wait for an acknowledgement.
func (r *Run) waitingCommits(ctx context.Context, s Servers, server string) string {
	a := s.Execute(ctx, []Call{{Server: server, SQL: mariadb.WaitingCommits, Limit: statementLimit, Reads: true}})[0]
	if a.Err != nil || len(a.Tables) == 0 {
		return "a long transaction, or commits that wait for a semi-sync acknowledgement"
	}
	if n := a.Tables[0].Row(0).String("Value"); n != "0" && n != "" {
		return n + " commits wait for a semi-sync acknowledgement, and are not ended: that would commit them here alone"
	}
	return "a long transaction"
}
