// Command demo shows two lockstepd over three real MariaDB servers while clients
// write: the primary server is killed and replaced, it comes back as a replica,
// the primary is moved by command, and then one monitor is killed and one is
// frozen. It sets up all it needs on loopback and removes it at the end. It fails
// if a write that was acknowledged is missing on any server afterwards.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	keep := flag.Bool("keep", false, "leave servers and monitors running until interrupted")
	flag.Parse()
	// When the reader of the output goes away, the demo ends in order: see print.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	err := run(ctx, *keep)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "demo: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, keep bool) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	d := &demo{began: time.Now(), cancel: cancel}
	defer func() { err = errors.Join(err, d.close()) }()
	for _, step := range []func(context.Context) error{
		d.build, d.startServers, d.startMonitors, d.startWriting,
		d.killPrimaryServer, d.rejoin, d.acknowledge, d.switchover,
		d.killPrimaryMonitor, d.restartMonitor, d.freezePrimaryMonitor,
		d.checkWrites, d.summary,
	} {
		err := step(ctx)
		if ctx.Err() != nil {
			return errors.New("interrupted") // what the step says about it is of no use
		}
		if err != nil {
			return err
		}
	}
	if keep {
		d.explore()
		<-ctx.Done()
	}
	return nil
}
