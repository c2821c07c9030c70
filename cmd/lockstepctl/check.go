package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/lockstep-ha/lockstep/monitor"
)

// errFaults is returned by check when something has to be mended.
var errFaults = errors.New("there are faults")

// checkCommand makes the command that checks a configuration and the servers in it.
func checkCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "check --config FILE",
		Short: "Check a configuration and the servers in it",
		Long: "Check a configuration, connect to every server in it and print every fault with its remedy.\n" +
			"It needs no daemon and takes no lock. Exit code 1 when there is a fault.",
		Args: argsBetween(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := newDirect(a.config, a.timeout)
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			for _, w := range d.file.Warnings {
				fmt.Fprintf(out, "warning  %s\n", w)
			}
			views, err := d.Clusters(cmd.Context())
			if err != nil {
				return err
			}
			faults := 0
			for _, v := range views {
				t := v.Monitor.Timing
				fmt.Fprintf(out, "cluster %s: wait_timeout %d ms, failcount %d (smallest safe one %d), settles %d ms\n",
					v.Cluster, t.WaitTimeoutMS, t.Failcount, t.SafeFailcount, t.SettleMS)
				for _, s := range v.Servers {
					word := "ok     "
					if s.Evidence != "answered" {
						word = "FAULT  "
						if !named(v.Faults, s.Name) {
							faults++
						}
					}
					fmt.Fprintf(out, "%s  %s (%s): %s %s\n", word, s.Name, s.Address, s.Evidence, s.Version)
					if s.Detail != "" {
						fmt.Fprintf(out, "         %s\n", s.Detail)
					}
				}
				for _, f := range v.Faults {
					fmt.Fprintf(out, "FAULT    %s\n", f.Text)
					if f.Remedy != "" {
						fmt.Fprintf(out, "         -> %s\n", f.Remedy)
					}
					faults++
				}
				for _, n := range v.Notes {
					fmt.Fprintf(out, "note     %s\n", n)
				}
			}
			if faults > 0 {
				return fmt.Errorf("%w: %d", errFaults, faults)
			}
			return nil
		},
	}
}

// named reports whether one of the faults is about a server.
func named(faults []monitor.FaultView, server string) bool {
	return slices.ContainsFunc(faults, func(f monitor.FaultView) bool { return f.Server == server })
}
