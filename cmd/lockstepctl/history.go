package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/lockstep-ha/lockstep/monitor/operation"
)

func historyCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "history [ID]", Short: "List the operations of this monitor, or show one with its steps",
		Long: "List the operations that this monitor has run since it was started, the newest first,\n" +
			"or show one of them with its steps and warnings. Each monitor remembers its own.",
		Args: argsBetween(0, 1), ValidArgsFunction: a.completeOperations,
	}
	a.addClusterFlag(cmd)
	run := a.runE(func(ctx context.Context, args []string) (answer, error) {
		c, err := a.client()
		if err != nil {
			return answer{}, err
		}
		if len(args) == 0 {
			list, err := a.operations(ctx, c, clusterFlag(cmd))
			return answer{data: list, text: func(p *page) { listOperations(p, list) }}, err
		}
		cluster, err := a.clusterName(ctx, c, clusterFlag(cmd))
		if err != nil {
			return answer{}, err
		}
		rec, err := c.Operation(ctx, cluster, args[0])
		return answer{data: rec, text: func(p *page) { showOperation(p, rec) }}, err
	})
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := a.daemonOnly(cmd); err != nil {
			return err
		}
		return run(cmd, args)
	}
	return cmd
}

// operations returns what the monitor of a cluster remembers, the newest first.
func (a *app) operations(ctx context.Context, c *client, cluster string) ([]operation.Record, error) {
	cluster, err := a.clusterName(ctx, c, cluster)
	if err != nil {
		return nil, err
	}
	list, err := c.Operations(ctx, cluster)
	if list == nil {
		list = []operation.Record{}
	}
	slices.SortStableFunc(list, func(x, y operation.Record) int { return y.StartedAt.Compare(x.StartedAt) })
	return list, err
}

func listOperations(p *page, list []operation.Record) {
	if len(list) == 0 {
		p.line("This monitor has run no operation since it was started.")
		return
	}
	var rows [][]string
	for _, r := range list {
		rows = append(rows, []string{clean(r.ID), clean(string(r.Kind)), or(r.From, "-"), or(r.To, "-"), date(r.StartedAt), duration(r),
			automatic(r), p.outcome(r.Outcome)})
	}
	p.table([]string{"ID", "Kind", "From", "To", "Started", "Took", "Automatic", "Outcome"}, rows)
}

func automatic(r operation.Record) string {
	return map[bool]string{true: "yes", false: "no"}[r.Automatic]
}

// duration is how long an operation took, "-" while it runs.
func duration(r operation.Record) string {
	if r.EndedAt == nil {
		return "-"
	}
	return span(r.EndedAt.Sub(r.StartedAt))
}

func showOperation(p *page, r operation.Record) {
	turned, ended := "-", "-"
	if r.TurnedAt != nil {
		turned = fmt.Sprintf("%s, %s was the primary after %s", date(*r.TurnedAt), clean(r.To), span(r.TurnedAt.Sub(r.StartedAt)))
	}
	if r.EndedAt != nil {
		ended = fmt.Sprintf("%s, after %s", date(*r.EndedAt), duration(r))
	}
	p.table(nil, [][]string{
		{"Operation", clean(r.ID)},
		{"Kind", clean(string(r.Kind))},
		{"From", or(r.From, "-")},
		{"To", or(r.To, "-")},
		{"Automatic", automatic(r)},
		{"Reason", or(r.Reason, "-")},
		{"Started", date(r.StartedAt)},
		{"Turned", turned},
		{"Ended", ended},
		{"Outcome", p.outcome(r.Outcome)},
		{"Detail", or(r.Detail, "-")},
	})
	for _, o := range r.Overrides {
		p.line("Overridden: %s", clean(o))
	}
	for _, w := range r.Warnings {
		p.line("%s: %s", p.paint(yellow, "Warning"), clean(w))
	}
	if len(r.Steps) == 0 {
		return
	}
	p.line("")
	var rows [][]string
	for _, s := range r.Steps {
		rows = append(rows, stepCells(p, s))
	}
	p.table([]string{"Time", "Server", "Step", "Took", "Outcome", "Detail"}, rows)
}
