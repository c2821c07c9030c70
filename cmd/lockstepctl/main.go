// Command lockstepctl shows what lockstepd knows of its replication clusters:
// who is the primary and why, what the monitor does, and what is wrong. It gives
// lockstepd the commands of a person: failover, switchover, rejoin and others.
//
// Data goes to the standard output, errors to the standard error.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// version is set by the linker.
var version = "dev"

// Exit codes.
const (
	exitOK        = 0
	exitError     = 1
	exitUsage     = 2 // wrong command line
	exitNoPrimary = 3
	exitRefused   = 4 // the monitor has not carried the command out
)

// errUsage marks a wrong command line, errNoPrimary a cluster without a primary,
// errRefused a command that the monitor did not accept.
var (
	errUsage     = errors.New("usage")
	errNoPrimary = errors.New("no primary")
	errRefused   = errors.New("refused")
)

// marked is an error with a mark that does not show in its text.
type marked struct {
	mark error
	text string
}

func (m marked) Error() string        { return m.text }
func (m marked) Is(target error) bool { return target == m.mark }

func usagef(format string, args ...any) error {
	return marked{errUsage, fmt.Sprintf(format, args...)}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run executes one command line and returns the exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return newApp(stdin, stdout, stderr).run(ctx, args)
}

func (a *app) run(ctx context.Context, args []string) int {
	root := newRoot(a)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	report(a.stderr, err)
	switch {
	case errors.Is(err, errUsage):
		return exitUsage
	case errors.Is(err, errNoPrimary):
		return exitNoPrimary
	case errors.Is(err, errRefused):
		return exitRefused
	}
	return exitError
}

// report writes an error for a person, with what stands against a command below
// it. There is nobody to tell if that fails.
func report(stderr io.Writer, err error) {
	_, _ = fmt.Fprintf(stderr, "lockstepctl: %s\n", clean(err.Error()))
	var p *problem
	if !errors.As(err, &p) {
		return
	}
	for _, r := range p.Refusals {
		_, _ = fmt.Fprintln(stderr, clean(r.Text))
		if r.Remedy != "" {
			_, _ = fmt.Fprintf(stderr, "  -> %s\n", clean(r.Remedy))
		}
		if r.Force {
			_, _ = fmt.Fprintln(stderr, "  can be overridden with --force")
		}
	}
}
