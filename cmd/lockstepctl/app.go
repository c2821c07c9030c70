package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/lockstep-ha/lockstep/monitor"
)

// Defaults of the global flags.
const (
	serverEnv      = "LOCKSTEP_SERVER"
	defaultServer  = "http://127.0.0.1:8990"
	defaultTimeout = 5 * time.Second
	defaultWatch   = 2 * time.Second
)

// clearScreen puts the cursor home and clears the terminal.
const clearScreen = "\x1b[H\x1b[2J"

// source is where views come from.
type source interface {
	// Clusters returns the views of all clusters.
	Clusters(ctx context.Context) ([]monitor.View, error)
	// Cluster returns the view of one cluster.
	Cluster(ctx context.Context, name string) (monitor.View, error)
}

// app is what the commands of one command line share.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	// asks tells that stdin is a terminal, where a person can answer a question;
	// terminal that stdout is one, colour that colours may be used.
	asks, terminal, colour bool

	// Values of the global flags.
	server    string
	output    format
	watch     time.Duration
	timeout   time.Duration
	noHeaders bool
	direct    bool
	config    string
	access    access

	src source
}

func newApp(stdin io.Reader, stdout, stderr io.Writer) *app {
	a := &app{stdin: stdin, stdout: stdout, stderr: stderr, output: formatTable, asks: isTerminal(stdin), terminal: isTerminal(stdout)}
	a.colour = a.terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	return a
}

func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// source returns where to read views from. It is picked once, so that a watch
// keeps its connections.
func (a *app) source() (source, error) {
	if a.src != nil {
		return a.src, nil
	}
	if a.direct {
		d, err := newDirect(a.config, a.timeout)
		if err != nil {
			return nil, err
		}
		a.src = d
		return d, nil
	}
	return a.client()
}

// client returns the client of lockstepd, always the same.
func (a *app) client() (*client, error) {
	if c, ok := a.src.(*client); ok {
		return c, nil
	}
	url := a.server
	if url == "" {
		url = os.Getenv(serverEnv)
	}
	if url == "" {
		url = defaultServer
	}
	c, err := newClient(url, a.access)
	if err != nil {
		return nil, err
	}
	a.src = c
	return c, nil
}

var errNoCluster = errors.New("lockstepd monitors no cluster")

// pick returns the view of the named cluster, or of the only one for no name.
func (a *app) pick(ctx context.Context, name string) (monitor.View, error) {
	src, err := a.source()
	if err != nil {
		return monitor.View{}, err
	}
	if name != "" {
		return src.Cluster(ctx, name)
	}
	all, err := src.Clusters(ctx)
	if err != nil {
		return monitor.View{}, err
	}
	switch len(all) {
	case 0:
		return monitor.View{}, errNoCluster
	case 1:
		return all[0], nil
	}
	return monitor.View{}, usagef("there are several clusters, name one: %s", strings.Join(clusterNames(all), ", "))
}

func clusterNames(all []monitor.View) []string {
	names := make([]string, len(all))
	for i, v := range all {
		names[i] = v.Cluster
	}
	slices.Sort(names)
	return names
}

// answer is what a query yields.
type answer struct {
	// data is what JSON and YAML show.
	data any
	// text writes the form for people.
	text func(*page)
	// err is reported after the output.
	err error
}

// query finds the answer to a command line.
type query func(ctx context.Context, args []string) (answer, error)

// runE makes a cobra function from a query: once, or again and again for --watch.
func (a *app) runE(q query) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if a.timeout <= 0 {
			return usagef("--timeout is %v: it must be greater than zero", a.timeout)
		}
		if f := cmd.Flags().Lookup("watch"); f == nil || !f.Changed {
			return a.once(cmd.Context(), args, q, "")
		}
		if a.watch <= 0 {
			return usagef("--watch is %v: it must be greater than zero", a.watch)
		}
		return a.repeat(cmd.Context(), args, q)
	}
}

// repeat runs a query until the context ends. Errors other than of the command
// line are reported and do not end it.
func (a *app) repeat(ctx context.Context, args []string, q query) error {
	between := ""
	if a.terminal {
		between = clearScreen
	}
	for {
		err := a.once(ctx, args, q, between)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, errUsage) || errors.Is(err, errOutput):
			return err
		case err != nil:
			report(a.stderr, err)
		}
		if !a.terminal {
			between = map[format]string{formatTable: "\n", formatYAML: "---\n"}[a.output]
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(a.watch):
		}
	}
}

// once runs a query and writes its answer in one piece after the prefix.
func (a *app) once(ctx context.Context, args []string, q query, prefix string) error {
	limited, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	ans, err := q(limited, args)
	var out bytes.Buffer
	if err == nil {
		err = a.render(&out, ans)
	}
	if err != nil {
		if a.terminal && prefix != "" {
			_, _ = io.WriteString(a.stdout, prefix) // the old answer must not look current
		}
		return err
	}
	if err := a.write(prefix + out.String()); err != nil {
		return err
	}
	return ans.err
}

func (a *app) write(text string) error {
	if _, err := io.WriteString(a.stdout, text); err != nil {
		return fmt.Errorf("%w: %w", errOutput, err)
	}
	return nil
}

// print writes an answer.
func (a *app) print(ans answer) error {
	var out bytes.Buffer
	if err := a.render(&out, ans); err != nil {
		return err
	}
	if err := a.write(out.String()); err != nil {
		return err
	}
	return ans.err
}

// errOutput marks that the output cannot be written.
var errOutput = errors.New("cannot write the output")

// clusterArg is the cluster that the arguments name, "" for none.
func clusterArg(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}
