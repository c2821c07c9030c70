package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// errDeclined is returned when a person does not answer yes.
var errDeclined = errors.New("nothing was done")

// canAsk checks that there is somebody to answer a question.
func (a *app) canAsk(cmd *cobra.Command) error {
	if a.asks {
		return nil
	}
	return usagef("%s asks before it starts, and the standard input is no terminal: use --yes", cmd.CommandPath())
}

// confirm asks a question on the standard error; the output stays clean.
func (a *app) confirm(ctx context.Context, question string) error {
	if _, err := fmt.Fprint(a.stderr, question+" [y/N] "); err != nil {
		return fmt.Errorf("cannot ask: %w", err)
	}
	line := make(chan string, 1)
	go func() {
		text, _ := bufio.NewReader(a.stdin).ReadString('\n') // the end of the input is no yes
		line <- text
	}()
	select {
	case <-ctx.Done():
		_, _ = fmt.Fprintln(a.stderr)
		return fmt.Errorf("interrupted: %w", errDeclined)
	case text := <-line:
		switch strings.ToLower(strings.TrimSpace(text)) {
		case "y", "yes":
			return nil
		}
		if !strings.HasSuffix(text, "\n") {
			_, _ = fmt.Fprintln(a.stderr)
		}
		return errDeclined
	}
}
