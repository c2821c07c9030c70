// Command demo shows two lockstepd over three real MariaDB servers: they agree
// on the primary, one is killed, one is frozen, and the other goes on. It sets
// up all it needs on loopback and removes it at the end.
package main

import (
	"context"
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
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, *keep)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "demo: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, keep bool) (err error) {
	d := &demo{began: time.Now()}
	defer func() {
		if cerr := d.close(); err == nil {
			err = cerr
		}
	}()
	for _, step := range []func(context.Context) error{d.build, d.startServers, d.startMonitors, d.killPrimaryMonitor, d.comeBack, d.freezePrimaryMonitor, d.summary} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	if keep {
		d.explore()
		<-ctx.Done()
	}
	return nil
}
