// Command lockstepctl shows what lockstepd knows of its replication clusters:
// who is the primary and why, what the monitor does, and what is wrong.
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
)

// errUsage marks a wrong command line, errNoPrimary a cluster without a primary.
var (
	errUsage     = errors.New("usage")
	errNoPrimary = errors.New("no primary")
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
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run executes one command line and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRoot(stdout, stderr)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	report(stderr, err)
	switch {
	case errors.Is(err, errUsage):
		return exitUsage
	case errors.Is(err, errNoPrimary):
		return exitNoPrimary
	}
	return exitError
}

// report writes an error for a person. There is nobody to tell if that fails.
func report(stderr io.Writer, err error) {
	_, _ = fmt.Fprintf(stderr, "lockstepctl: %s\n", clean(err.Error()))
}
