package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/lockstep-ha/lockstep/internal/config"
	"github.com/lockstep-ha/lockstep/internal/manpages"
)

// Exit codes.
const (
	exitOK     = 0
	exitError  = 1 // could not start, or stopped because of an error
	exitUsage  = 2
	exitConfig = 3 // the configuration has errors
)

// defaultConfig is where packages put the configuration.
const defaultConfig = "/etc/lockstep/lockstep.toml"

// errConfig marks errors of the configuration.
var errConfig = errors.New("configuration")

// errUsage marks a wrong command line.
var errUsage = errors.New("usage")

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRoot(stdout, stderr)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	fmt.Fprintf(stderr, "lockstepd: %v\n", err)
	switch {
	case errors.Is(err, errConfig):
		return exitConfig
	case errors.Is(err, errUsage):
		return exitUsage
	}
	return exitError
}

func newRoot(stdout, stderr io.Writer) *cobra.Command {
	var path string
	root := &cobra.Command{
		Use:   "lockstepd",
		Short: "Monitor replication clusters in step with other monitors",
		Long: "lockstepd monitors MariaDB replication clusters in step with other instances of itself\n" +
			"and tells over HTTP which server is the primary of each.\n\n" +
			"SIGHUP reads the configuration again, SIGTERM releases all locks and ends.\n" +
			"Exit codes: 0 ended by a signal, 1 error, 2 wrong command line, 3 errors in the configuration.",
		SilenceUsage: true, SilenceErrors: true,
		Args: usageArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return serve(cmd.Context(), path, stderr) },
	}
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.PersistentFlags().StringVarP(&path, "config", "c", defaultConfig, "configuration file")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return fmt.Errorf("%w: %w", errUsage, err) })
	check := &cobra.Command{
		Use: "check", Short: "Check the configuration and print what is derived from it", Args: usageArgs,
		RunE: func(*cobra.Command, []string) error { return check(path, stdout) },
	}
	reference := &cobra.Command{
		Use: "reference", Short: "Print the reference of the configuration as Markdown", Args: usageArgs,
		RunE: func(*cobra.Command, []string) error { _, err := io.WriteString(stdout, config.Markdown()); return err },
	}
	ver := &cobra.Command{
		Use: "version", Short: "Print the version", Args: usageArgs,
		RunE: func(*cobra.Command, []string) error { _, err := fmt.Fprintln(stdout, version); return err },
	}
	root.AddCommand(check, reference, ver, manpages.Command("8"))
	return root
}

func usageArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%w: %s takes no argument %q; see lockstepd --help", errUsage, cmd.Name(), args[0])
	}
	return nil
}

func load(path string) (*config.File, error) {
	f, err := config.Load(path, os.LookupEnv)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errConfig, err)
	}
	return f, nil
}

// check prints what a running daemon would derive.
func check(path string, out io.Writer) error {
	f, err := load(path)
	if err != nil {
		return err
	}
	for _, w := range f.Warnings {
		fmt.Fprintf(out, "warning: %s\n", w)
	}
	var problems []error
	for _, c := range f.Clusters {
		m, err := newMonitor(c)
		if err != nil {
			problems = append(problems, fmt.Errorf("%w: %s: %w", errConfig, path, err))
			continue
		}
		t := m.Timing()
		fmt.Fprintf(out, "cluster %s: %d servers, %s; wait_timeout %v, failcount %d (smallest safe one %d), settles %v, failover starts after %v, worst case %v\n",
			c.Name, len(c.Servers), c.Quorum, t.WaitTimeout, t.Failcount, t.SafeFailcount, t.Settle, t.FailoverAfter(), t.FailoverWorst())
	}
	if err := errors.Join(problems...); err != nil {
		return err
	}
	fmt.Fprintf(out, "%s is fine\n", path)
	return nil
}
