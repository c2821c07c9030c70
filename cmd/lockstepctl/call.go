package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstep-ha/lockstep/monitor"
	"github.com/lockstep-ha/lockstep/monitor/operation"
)

// Defaults of the flags of call.
const (
	defaultWaitTimeout = 5 * time.Minute
	defaultRelease     = time.Minute
)

func callCommand(a *app) *cobra.Command {
	call := &cobra.Command{
		Use: "call", Short: "Have the monitor do something", Args: groupArgs, RunE: group,
		Long: "Give a command to lockstepd. All but release-locks are for the primary monitor: any\n" +
			"other refuses them and says where the primary monitor is.\n\n" +
			"What can lose data asks first; --yes answers.",
	}
	a.addClusterFlag(call)
	call.AddCommand(
		a.operationCommand(operationText{
			action: monitor.ActFailover, use: "failover [SERVER]", short: "Replace a primary that has failed",
			long: "Promote SERVER, or else the replica that has received the most, in the place of a\n" +
				"primary that does not answer.",
			risk: "Transactions that only the failed primary has are lost.",
		}),
		a.operationCommand(operationText{
			action: monitor.ActSwitchover, use: "switchover [SERVER]", short: "Move the primary to another server",
			long: "Make SERVER the primary, or else the replica that is the best to promote. No\n" +
				"acknowledged write is lost. While it runs, writes are refused for a moment.",
		}),
		a.operationCommand(operationText{
			action: monitor.ActRejoin, use: "rejoin SERVER", short: "Make a server replicate from the primary", least: 1,
			long: "Make SERVER read-only and have it replicate from the primary. It is refused where\n" +
				"SERVER has transactions that the primary lacks.",
		}),
		a.operationCommand(operationText{
			action: monitor.ActResetReplication, use: "reset-replication [SERVER]", short: "Throw all binary logs away and start replication anew",
			long: "Throw away the binary logs and the positions of all servers, and have all others\n" +
				"replicate from SERVER, or else from the primary. Data is not compared.",
			risk: "The binary logs and positions of all servers are thrown away. Data is not compared: servers whose data differ go on to differ.",
		}),
		a.releaseCommand(),
		a.plainCommand(monitor.ActCancel, "Stop the operation under way before its next step",
			"Stop the operation that moves the primary before its next step, and undo what can be\nundone. Once the new primary is published it is too late."),
		a.plainCommand(monitor.ActAcknowledge, "Let automatic failover go on after a failover",
			"After a failover, automatic failover is blocked for a time. This ends the block."),
		a.plainCommand(monitor.ActPause, "Turn automatic operations off, on all monitors",
			"Turn automatic failover and rejoin off, on all monitors of the cluster, until resume."),
		a.plainCommand(monitor.ActResume, "Turn automatic operations on again", "End a pause."),
	)
	return call
}

// act makes a cobra function of what works against a daemon only. The checks are
// of the command line.
func (a *app) act(f func(ctx context.Context, c *client, cluster string, args []string) error, checks ...func(*cobra.Command) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if err := a.daemonOnly(cmd); err != nil {
			return err
		}
		if w := cmd.Flags().Lookup("watch"); w != nil && w.Changed {
			return usagef("%s takes no --watch: it is done once", cmd.CommandPath())
		}
		if a.timeout <= 0 {
			return usagef("--timeout is %v: it must be greater than zero", a.timeout)
		}
		for _, check := range checks {
			if err := check(cmd); err != nil {
				return err
			}
		}
		c, err := a.client()
		if err != nil {
			return err
		}
		cluster, err := a.clusterName(cmd.Context(), c, clusterFlag(cmd))
		if err != nil {
			return err
		}
		return f(cmd.Context(), c, cluster, args)
	}
}

func (a *app) daemonOnly(cmd *cobra.Command) error {
	if a.direct {
		return usagef("%s is for lockstepd: it does not work with --direct", cmd.CommandPath())
	}
	return nil
}

// clusterName returns the given name, or that of the only cluster.
func (a *app) clusterName(ctx context.Context, c *client, given string) (string, error) {
	if given != "" {
		return given, nil
	}
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	all, err := c.Clusters(ctx)
	switch {
	case err != nil:
		return "", err
	case len(all) == 0:
		return "", errNoCluster
	case len(all) > 1:
		return "", usagef("there are several clusters, name one with --cluster: %s", strings.Join(clusterNames(all), ", "))
	}
	return all[0].Cluster, nil
}

// send gives a command to the monitor. What was not carried out is written in
// JSON and YAML too, with the reasons.
func (a *app) send(ctx context.Context, c *client, cluster string, cmd monitor.Command) (monitor.Reply, error) {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	reply, err := c.Command(ctx, cluster, cmd)
	var p *problem
	if errors.As(err, &p) && a.output != formatTable {
		return reply, a.print(answer{data: p.Problem, err: err})
	}
	return reply, err
}

// tell sends a command that is carried out at once and writes the reply.
func (a *app) tell(ctx context.Context, c *client, cluster string, cmd monitor.Command) error {
	reply, err := a.send(ctx, c, cluster, cmd)
	if err != nil {
		return err
	}
	return a.print(answer{data: reply, text: func(p *page) {
		if reply.ID != "" {
			p.line("%s: %s", clean(reply.ID), clean(reply.Text))
			return
		}
		p.line("%s", clean(reply.Text))
	}})
}

func (a *app) plainCommand(action monitor.Action, short, long string) *cobra.Command {
	return &cobra.Command{
		Use: string(action), Short: short, Long: long, Args: argsBetween(0, 0),
		RunE: a.act(func(ctx context.Context, c *client, cluster string, _ []string) error {
			return a.tell(ctx, c, cluster, monitor.Command{Action: action})
		}),
	}
}

func (a *app) releaseCommand() *cobra.Command {
	d := defaultRelease
	cmd := &cobra.Command{
		Use: string(monitor.ActReleaseLocks), Short: "Give up all locks for a time, so that another monitor takes over", Args: argsBetween(0, 0),
		Long: "Have this monitor release its locks and take none for a time, so that another monitor\n" +
			"becomes the primary one. It works on any monitor.",
	}
	cmd.Flags().DurationVar(&d, "for", defaultRelease, "how long to take no locks")
	cmd.RunE = a.act(func(ctx context.Context, c *client, cluster string, _ []string) error {
		return a.tell(ctx, c, cluster, monitor.Command{Action: monitor.ActReleaseLocks, Value: d.String()})
	}, func(*cobra.Command) error {
		if d <= 0 {
			return usagef("--for is %v: it must be greater than zero", d)
		}
		return nil
	})
	return cmd
}

// operationText is how an operation is told to a person.
type operationText struct {
	action           monitor.Action
	use, short, long string
	least            int // arguments
	// risk is what a person is asked about, "" for nothing.
	risk string
}

// operationFlags are the flags of an operation.
type operationFlags struct {
	dryRun, force, yes, wait bool
	limit                    time.Duration
}

func (a *app) operationCommand(t operationText) *cobra.Command {
	var f operationFlags
	cmd := &cobra.Command{Use: t.use, Short: t.short, Long: t.long, Args: argsBetween(t.least, 1), ValidArgsFunction: a.completeServers}
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "print the plan and change nothing")
	cmd.Flags().BoolVar(&f.force, "force", false, "override refusals that can be overridden")
	cmd.Flags().BoolVarP(&f.yes, "yes", "y", false, "ask nothing")
	cmd.Flags().BoolVar(&f.wait, "wait", true, "wait for the end and print each step; --wait=false prints the id of the operation")
	cmd.Flags().DurationVar(&f.limit, "wait-timeout", defaultWaitTimeout, "how long to wait; the operation goes on after that")
	cmd.RunE = a.act(func(ctx context.Context, c *client, cluster string, args []string) error {
		command := monitor.Command{Action: t.action, Server: clusterArg(args), Force: f.force, DryRun: f.dryRun}
		return a.operate(ctx, c, cluster, command, t, f)
	}, func(cmd *cobra.Command) error {
		switch {
		case f.limit <= 0:
			return usagef("--wait-timeout is %v: it must be greater than zero", f.limit)
		case t.question(f) != "":
			return a.canAsk(cmd)
		}
		return nil
	})
	return cmd
}

// question is what has to be answered before an operation, "" for nothing.
func (t operationText) question(f operationFlags) string {
	if f.yes || f.dryRun {
		return ""
	}
	if f.force {
		return strings.TrimSpace(t.risk + " --force overrides checks that keep data from being lost.")
	}
	return t.risk
}

// operate plans or runs an operation.
func (a *app) operate(ctx context.Context, c *client, cluster string, command monitor.Command, t operationText, f operationFlags) error {
	if risk := t.question(f); risk != "" {
		// What is refused is refused before a person is asked.
		dry := command
		dry.DryRun = true
		reply, err := a.send(ctx, c, cluster, dry)
		if err != nil {
			return err
		}
		if err := a.confirm(ctx, summary(reply.Plan)+risk+"\nStart it?"); err != nil {
			return err
		}
	}
	reply, err := a.send(ctx, c, cluster, command)
	switch {
	case err != nil:
		return err
	case f.dryRun:
		return a.print(answer{data: reply.Plan, text: func(p *page) { writeLines(p, reply.Text) }})
	case !f.wait:
		return a.print(answer{data: reply, text: func(p *page) { p.line("%s", clean(reply.ID)) }})
	}
	return a.await(ctx, c, cluster, reply, f.limit)
}

// summary is a plan without its steps, "" for none.
func summary(p *operation.Plan) string {
	if p == nil {
		return ""
	}
	var b strings.Builder
	b.WriteString(movement(p.Kind, p.From, p.To) + "\n")
	if p.Reason != "" {
		fmt.Fprintf(&b, "  %s\n", clean(p.Reason))
	}
	for _, o := range p.Overrides {
		fmt.Fprintf(&b, "  overridden: %s\n", clean(o))
	}
	return b.String()
}

// writeLines writes text of several lines.
func writeLines(p *page, text string) {
	for line := range strings.Lines(text) {
		p.line("%s", clean(strings.TrimRight(line, "\n")))
	}
}
