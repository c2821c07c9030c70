package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockstep-ha/lockstep/topology"
	"github.com/lockstep-ha/lockstep/topology/mariadb"
)

// grantsCommand makes the command that prints the statements that make a monitor's account.
func grantsCommand() *cobra.Command {
	version, account, operate, disks := "10.11.0-MariaDB", "lockstep@'%'", false, false
	c := &cobra.Command{
		Use:   "grants",
		Short: "Print the statements that create the monitor's account",
		Long:  "Print the statements that create the monitor's account with the privileges that it needs to look, and no more; with --operate also those to move the primary.\nThey go to the primary and reach the replicas by replication.",
		Args:  argsBetween(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			v, _ := topology.ParseVersion(version)
			if v.Major == 0 {
				return usagef("--for %q: give a MariaDB version, like 10.11", version)
			}
			if err := mariadb.CheckVersion(v); err != nil && !v.AtLeast(10, 5, 0) {
				return usagef("--for: %v", err)
			}
			out := cmd.OutOrStdout()
			var privileges []string
			grants := mariadb.Grants(v)
			if operate {
				grants = append(grants, mariadb.OperateGrants(v, true)...)
			}
			if disks {
				grants = append(grants, mariadb.DiskGrant)
			}
			for _, g := range grants {
				if slices.Contains(privileges, g.Privilege) {
					continue
				}
				fmt.Fprintf(out, "-- %s: %s\n", g.Privilege, g.For)
				privileges = append(privileges, g.Privilege)
			}
			fmt.Fprintf(out, "CREATE USER %s IDENTIFIED BY '...';\nGRANT %s ON *.* TO %s;\n", account, strings.Join(privileges, ", "), account)
			if operate {
				fmt.Fprintf(out, "-- the table that all monitors read: the last failover, pauses, maintenance\nGRANT CREATE, SELECT, INSERT, UPDATE ON lockstep.* TO %s;\n", account)
			}
			return nil
		},
	}
	c.Flags().StringVar(&version, "for", version, "server version")
	c.Flags().BoolVar(&operate, "operate", operate, "with what failover, switchover and rejoin need")
	c.Flags().BoolVar(&disks, "disks", disks, "with what min_free_disk needs")
	c.Flags().StringVar(&account, "account", account, "account, as SQL writes it")
	return c
}
