package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstep-ha/lockstep/internal/manpages"
)

// newRoot returns the command line with everything below it.
func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "lockstepctl",
		Short: "Show and operate the replication clusters of lockstepd",
		Long: "lockstepctl shows what lockstepd knows of its replication clusters: who is the\n" +
			"primary and why, what the monitor does, and what is wrong. It gives lockstepd\n" +
			"commands: failover, switchover, rejoin and others.\n\n" +
			"CLUSTER and --cluster may be left out where lockstepd monitors one cluster only.\n" +
			"Exit codes: 0 fine, 1 error, 2 wrong command line, 3 no primary, 4 the monitor did\n" +
			"not accept the command: it is refused, another operation is under way, or this is\n" +
			"not the primary monitor.",
		SilenceUsage: true, SilenceErrors: true,
		Args: groupArgs,
		RunE: group,
	}
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef("%v; see %s --help", err, cmd.CommandPath())
	})
	f := root.PersistentFlags()
	f.StringVar(&a.server, "server", "", "URL of lockstepd (default $"+serverEnv+", else "+defaultServer+")")
	f.StringVar(&a.access.tokenFile, "token-file", "", "file that holds the token for lockstepd (default: the token in $"+tokenEnv+")")
	f.StringVar(&a.access.ca, "ca", "", "PEM file with the authorities of lockstepd's certificate (default: the system's)")
	f.StringVar(&a.access.cert, "cert", "", "PEM file with a certificate to show to lockstepd; needs --key")
	f.StringVar(&a.access.key, "key", "", "PEM file with the key of --cert")
	f.VarP(&a.output, "output", "o", "output: table, json or yaml")
	f.DurationVar(&a.watch, "watch", 0, "repeat after this time until interrupted: --watch or --watch=5s")
	f.Lookup("watch").NoOptDefVal = defaultWatch.String()
	f.DurationVar(&a.timeout, "timeout", defaultTimeout, "how long to wait for an answer")
	f.BoolVar(&a.noHeaders, "no-headers", false, "leave the header lines of tables out")
	f.BoolVar(&a.direct, "direct", false, "ask the servers themselves, without a daemon; needs --config")
	f.StringVarP(&a.config, "config", "c", "", "configuration file of lockstepd, for --direct and check")
	complete := cobra.FixedCompletions([]cobra.Completion{"table", "json", "yaml"}, cobra.ShellCompDirectiveNoFileComp)
	if err := root.RegisterFlagCompletionFunc("output", complete); err != nil {
		panic(err) // the flag is missing above
	}
	addCommands(root, a)
	root.SetHelpCommand(helpCommand(root))
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() == "completion" {
			c.Args, c.RunE = groupArgs, group
			for _, shell := range c.Commands() {
				shell.Args = argsBetween(0, 0)
			}
		}
	}
	return root
}

// addCommands adds all commands to the root.
func addCommands(root *cobra.Command, a *app) {
	list := &cobra.Command{Use: "list", Short: "List servers or clusters", Args: groupArgs, RunE: group}
	list.AddCommand(listServersCommand(a), listClustersCommand(a))
	show := &cobra.Command{Use: "show", Short: "Show the monitor or a server in full", Args: groupArgs, RunE: group}
	show.AddCommand(showMonitorCommand(a), showServerCommand(a))
	root.AddCommand(primaryCommand(a), list, show, topologyCommand(a), timingCommand(a), explainCommand(a),
		callCommand(a), maintenanceCommand(a), drainCommand(a), promotionCommand(a), historyCommand(a),
		checkCommand(a), grantsCommand(), versionCommand(), manpages.Command("1"))
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: argsBetween(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), version)
			return err
		},
	}
}

func helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND]", Short: "Help about any command",
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return usagef("no help on %q; see lockstepctl --help", strings.Join(args, " "))
			}
			return cmd.Help()
		},
	}
}

// groupArgs refuses a word below a command that only has subcommands.
func groupArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	text := fmt.Sprintf("unknown command %q for %s", args[0], cmd.CommandPath())
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		text += "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return usagef("%s; see %s --help", text, cmd.CommandPath())
}

// group is what a command does that only has subcommands.
func group(cmd *cobra.Command, _ []string) error {
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() && c.Name() != "help" {
			names = append(names, c.Name())
		}
	}
	if !cmd.HasParent() {
		return cmd.Help()
	}
	slices.Sort(names)
	return usagef("%s needs one of: %s", cmd.CommandPath(), strings.Join(names, ", "))
}

// argsBetween checks the number of arguments.
func argsBetween(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) >= least && len(args) <= most {
			if w := cmd.Flags().Lookup("watch"); len(args) > 0 && w != nil && w.Changed {
				if _, err := time.ParseDuration(args[len(args)-1]); err == nil {
					return usagef("write --watch=%s, with an equals sign", args[len(args)-1])
				}
			}
			return nil
		}
		want := fmt.Sprintf("%d to %d arguments", least, most)
		switch {
		case most == 0:
			want = "no arguments"
		case least == most:
			want = fmt.Sprintf("%d argument(s)", least)
		case least == 0:
			want = fmt.Sprintf("at most %d argument(s)", most)
		}
		return usagef("%s takes %s, not %d; usage: %s", cmd.CommandPath(), want, len(args), cmd.UseLine())
	}
}

// format is the value of --output.
type format string

// Formats.
const (
	formatTable format = "table"
	formatJSON  format = "json"
	formatYAML  format = "yaml"
)

// String returns the name.
func (f *format) String() string { return string(*f) }

// Type names the kind of value in the help.
func (f *format) Type() string { return "format" }

// Set checks the name.
func (f *format) Set(s string) error {
	switch format(s) {
	case formatTable, formatJSON, formatYAML:
		*f = format(s)
		return nil
	}
	return fmt.Errorf("it must be table, json or yaml")
}
