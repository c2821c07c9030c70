package main

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/lockstep-ha/lockstep/monitor"
	"github.com/lockstep-ha/lockstep/topology"
)

func maintenanceCommand(a *app) *cobra.Command {
	group := a.setGroup("maintenance", "Put a server into maintenance, or take it out",
		"A server in maintenance votes, but is neither used nor changed. The setting is for all\n"+
			"monitors and outlives them.")
	var force, yes bool
	set := &cobra.Command{Use: "set SERVER", Short: "Put a server into maintenance", Args: argsBetween(1, 1), ValidArgsFunction: a.completeServers}
	set.Flags().BoolVar(&force, "force", false, "do it even if the server is the primary")
	set.Flags().BoolVarP(&yes, "yes", "y", false, "ask nothing")
	set.RunE = a.act(func(ctx context.Context, c *client, cluster string, args []string) error {
		if force && !yes {
			if err := a.confirm(ctx, "A primary in maintenance is not replaced when it fails.\nPut "+clean(args[0])+" into maintenance?"); err != nil {
				return err
			}
		}
		return a.tell(ctx, c, cluster, monitor.Command{Action: monitor.ActMaintenance, Server: args[0], Value: "on", Force: force})
	}, func(cmd *cobra.Command) error {
		if force && !yes {
			return a.canAsk(cmd)
		}
		return nil
	})
	group.AddCommand(set, a.setCommand("clear SERVER", "Take a server out of maintenance", func(server string) monitor.Command {
		return monitor.Command{Action: monitor.ActMaintenance, Server: server, Value: "off"}
	}), a.setCommand("reset SERVER", "Return to what is configured", func(server string) monitor.Command {
		return monitor.Command{Action: monitor.ActMaintenance, Server: server}
	}))
	return group
}

func drainCommand(a *app) *cobra.Command {
	group := a.setGroup("drain", "Have a server get no new connections, or end that",
		"A server that is drained gets no new connections. The setting is for all monitors and\noutlives them.")
	for _, c := range []struct{ use, short, value string }{
		{"set SERVER", "Give a server no new connections", "on"},
		{"clear SERVER", "Give a server new connections again", "off"},
		{"reset SERVER", "Return to what is configured", ""},
	} {
		group.AddCommand(a.setCommand(c.use, c.short, func(server string) monitor.Command {
			return monitor.Command{Action: monitor.ActDrain, Server: server, Value: c.value}
		}))
	}
	return group
}

func promotionCommand(a *app) *cobra.Command {
	values := []string{string(topology.Prefer), string(topology.Neutral), string(topology.MustNot)}
	group := a.setGroup("promotion", "Say whether a server is to become the primary",
		"Say whether a server is to become the primary rather than others, like others, or\n"+
			"never. The setting is for all monitors and outlives them.")
	set := &cobra.Command{
		Use: "set SERVER prefer|neutral|must_not", Short: "Set the promotion rule of a server",
		Args: func(cmd *cobra.Command, args []string) error {
			if err := argsBetween(2, 2)(cmd, args); err != nil {
				return err
			}
			if !slices.Contains(values, args[1]) {
				return usagef("promotion %q: it must be prefer, neutral or must_not", args[1])
			}
			return nil
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, s string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if len(args) == 1 {
				return values, cobra.ShellCompDirectiveNoFileComp
			}
			return a.completeServers(cmd, args, s)
		},
		RunE: a.act(func(ctx context.Context, c *client, cluster string, args []string) error {
			return a.tell(ctx, c, cluster, monitor.Command{Action: monitor.ActPromotion, Server: args[0], Value: args[1]})
		}),
	}
	group.AddCommand(set, a.setCommand("clear SERVER", "Return to the promotion rule of the configuration", func(server string) monitor.Command {
		return monitor.Command{Action: monitor.ActPromotion, Server: server}
	}))
	return group
}

func (a *app) setGroup(use, short, long string) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Long: long, Args: groupArgs, RunE: group}
	a.addClusterFlag(c)
	return c
}

// setCommand makes a command that sets something of one server.
func (a *app) setCommand(use, short string, of func(server string) monitor.Command) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: argsBetween(1, 1), ValidArgsFunction: a.completeServers,
		RunE: a.act(func(ctx context.Context, c *client, cluster string, args []string) error {
			return a.tell(ctx, c, cluster, of(args[0]))
		}),
	}
}
