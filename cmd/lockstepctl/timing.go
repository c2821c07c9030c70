package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstep-ha/lockstep/locks"
	"github.com/lockstep-ha/lockstep/monitor"
)

// timingAnswer is the JSON form of timing.
type timingAnswer struct {
	Cluster string `json:"cluster,omitempty"`
	monitor.TimingView
}

func timingCommand(a *app) *cobra.Command {
	var interval time.Duration
	var failcount int
	cmd := &cobra.Command{
		Use: "timing [CLUSTER]", Short: "Show the derived timing of a cluster, or of given intervals",
		Long: "Show what follows from interval, timeout and failcount.\n\n" +
			"Without --interval it is the timing of a running cluster. With it nothing is\n" +
			"asked, and --timeout is the timeout of the monitor.",
		Example: "  lockstepctl timing\n  lockstepctl timing --interval 2s --timeout 3s --failcount 5",
		Args:    argsBetween(0, 1), ValidArgsFunction: a.completeClusters,
	}
	cmd.Flags().DurationVar(&interval, "interval", 0, "time from tick to tick")
	cmd.Flags().DurationVar(&a.timeout, "timeout", defaultTimeout, "with --interval: timeout of each network operation; else how long to wait for an answer")
	cmd.Flags().IntVar(&failcount, "failcount", 0, "with --interval: missed ticks before a failover (default the smallest safe number)")
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if err := argsBetween(0, 1)(cmd, args); err != nil {
			return err
		}
		given := cmd.Flags().Changed
		switch {
		case given("interval") && len(args) > 0:
			return usagef("give a cluster or --interval, not both")
		case given("interval") && !given("timeout"):
			return usagef("--interval needs --timeout beside it")
		case given("failcount") && !given("interval"):
			return usagef("--failcount needs --interval and --timeout beside it")
		case given("failcount") && failcount < 1:
			return usagef("--failcount is %d: it must be at least 1", failcount)
		}
		return nil
	}
	cmd.RunE = a.runE(func(ctx context.Context, args []string) (answer, error) {
		if cmd.Flags().Changed("interval") {
			t, err := locks.Derive(locks.Settings{Interval: interval, Timeout: a.timeout, Failcount: failcount})
			if err != nil {
				return answer{}, err
			}
			return timingOf(timingAnswer{TimingView: timingView(t)}), nil
		}
		v, err := a.pick(ctx, clusterArg(args))
		if err != nil {
			return answer{}, err
		}
		ans := timingOf(timingAnswer{v.Cluster, v.Monitor.Timing})
		if t := v.Monitor.Timing; t.Failcount < t.SafeFailcount {
			ans.err = fmt.Errorf("%w: failcount of cluster %s is %d, the smallest safe one is %d", locks.ErrUnsafeFailcount, v.Cluster, t.Failcount, t.SafeFailcount)
		}
		return ans, nil
	})
	return cmd
}

func timingOf(t timingAnswer) answer {
	return answer{data: t, text: func(p *page) {
		p.table([]string{"Timing", "Value", "Meaning"}, timingRows(t.TimingView))
	}}
}

func timingView(t locks.Timing) monitor.TimingView {
	return monitor.TimingView{
		IntervalMS: t.Interval.Milliseconds(), TimeoutMS: t.Timeout.Milliseconds(), WaitTimeoutMS: t.WaitTimeout.Milliseconds(),
		NoticeMS: t.Notice.Milliseconds(), LeaseMS: t.Lease.Milliseconds(), SettleMS: t.Settle.Milliseconds(),
		Failcount: t.Failcount, SafeFailcount: t.SafeFailcount,
		FailoverAfterMS: t.FailoverAfter().Milliseconds(), FailoverWorstMS: t.FailoverWorst().Milliseconds(),
	}
}
