package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/lockstep-ha/lockstep/monitor"
	"github.com/lockstep-ha/lockstep/monitor/operation"
)

const (
	// pollPause is the time between two looks at an operation under way.
	pollPause = 100 * time.Millisecond
	// minPatience is the least time without an answer after which lockstepd is
	// given up.
	minPatience = 10 * time.Second
)

// await waits for the end of an operation, prints its steps as they end, and
// returns nil if it was done.
func (a *app) await(ctx context.Context, c *client, cluster string, reply monitor.Reply, limit time.Duration) error {
	steps := &stepWriter{a: a, seen: map[int]bool{}}
	if a.output == formatTable {
		if err := steps.begin(reply); err != nil {
			return err
		}
	}
	rec, err := a.follow(ctx, c, cluster, reply.ID, limit, func(rec *operation.Record) error {
		if a.output != formatTable {
			return nil
		}
		return steps.show(rec)
	})
	if rec == nil {
		return err
	}
	switch {
	case a.output != formatTable:
		err = errors.Join(a.print(answer{data: rec}), err)
	case err == nil:
		err = a.print(answer{text: func(p *page) { p.line("%s", outcomeLine(p, rec)) }})
	}
	for _, w := range rec.Warnings {
		_, _ = fmt.Fprintf(a.stderr, "lockstepctl: warning: %s\n", clean(w))
	}
	if err != nil || rec.Outcome == operation.Done {
		return err
	}
	return fmt.Errorf("%s %s: %s: %s", rec.Kind, rec.ID, rec.Outcome, or(rec.Detail, "no reason is given"))
}

// follow looks at an operation again and again until it has ended. The record is
// the last one that was seen, nil for none.
func (a *app) follow(ctx context.Context, c *client, cluster, id string, limit time.Duration, show func(*operation.Record) error) (*operation.Record, error) {
	var rec *operation.Record
	goesOn := "the operation goes on; see lockstepctl history " + id
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	answered := time.Now()
	for {
		now, err := a.look(bounded, c, cluster, id)
		var p *problem
		switch {
		case err == nil:
			rec, answered = &now, time.Now()
			if err := show(rec); err != nil || rec.EndedAt != nil {
				return rec, err
			}
		case bounded.Err() != nil:
		case errors.As(err, &p) && p.status == http.StatusNotFound && rec != nil:
			return rec, fmt.Errorf("what became of %s is not known: lockstepd has forgotten it, as it does when it is started again; see its log", id)
		case time.Since(answered) > max(minPatience, 2*a.timeout):
			return rec, fmt.Errorf("%w; %s", err, goesOn)
		}
		select {
		case <-bounded.Done():
			if ctx.Err() != nil {
				return rec, fmt.Errorf("interrupted; %s, or stop it with lockstepctl call cancel", goesOn)
			}
			return rec, fmt.Errorf("%s has not ended within %v; %s", id, limit, goesOn)
		case <-time.After(pollPause):
		}
	}
}

func (a *app) look(ctx context.Context, c *client, cluster, id string) (operation.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	return c.Operation(ctx, cluster, id)
}

// stepWriter prints each step once, when it has ended. Steps on several servers
// end in any order.
type stepWriter struct {
	a            *app
	seen         map[int]bool
	server, name int // widths
}

func (w *stepWriter) begin(reply monitor.Reply) error {
	line := reply.ID
	if p := reply.Plan; p != nil {
		line = movement(p.Kind, p.From, p.To) + ", operation " + reply.ID
		w.measure(p.Steps)
		for _, lane := range p.Then {
			w.measure(lane)
		}
	}
	return w.a.write(clean(line) + "\n")
}

func (w *stepWriter) measure(steps []operation.Step) {
	for _, s := range steps {
		w.server, w.name = max(w.server, len(s.Server)), max(w.name, len(s.Name))
	}
}

func (w *stepWriter) show(rec *operation.Record) error {
	return w.a.print(answer{text: func(p *page) {
		for i, s := range rec.Steps {
			if w.seen[i] || s.Outcome == operation.Running {
				continue
			}
			w.seen[i] = true
			cells := stepCells(p, s)
			line := fmt.Sprintf("%s  %-*s  %-*s  %7s  %s", cells[0], w.server, cells[1], w.name, cells[2], cells[3], cells[4])
			if cells[5] != "" {
				line += "  " + cells[5]
			}
			p.line("%s", line)
		}
	}})
}

// stepCells are time, server, step, duration, outcome and detail.
func stepCells(p *page, s operation.StepRecord) []string {
	took := "-"
	if s.Outcome != operation.Running {
		took = span(time.Duration(s.TookMS * float64(time.Millisecond)))
	}
	return []string{clock(s.StartedAt), clean(s.Server), clean(s.Name), took, p.outcome(s.Outcome), clean(s.Detail)}
}

// outcomeLine says how an operation ended and how long it took.
func outcomeLine(p *page, rec *operation.Record) string {
	text := p.outcome(rec.Outcome) + " after " + span(rec.EndedAt.Sub(rec.StartedAt))
	if rec.TurnedAt != nil {
		text += fmt.Sprintf("; %s was the primary after %s", clean(rec.To), span(rec.TurnedAt.Sub(rec.StartedAt)))
	}
	return text
}

// outcome writes how a step or an operation ended.
func (p *page) outcome(s string) string {
	code := ""
	switch s {
	case operation.Done:
		code = green
	case operation.Warned, operation.Running:
		code = yellow
	case operation.Failed, operation.Undone, operation.Cancelled, operation.Abandoned:
		code = red
	}
	return p.paint(code, clean(s))
}

// clock writes a time of day, date a date with it, in UTC as all records have it.
func clock(t time.Time) string { return t.UTC().Format("15:04:05.000Z") }

func date(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

// span writes a duration as exactly as a person can use it.
func span(d time.Duration) string {
	if d < time.Second {
		return d.Round(100 * time.Microsecond).String()
	}
	return d.Round(10 * time.Millisecond).String()
}
