package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"
)

// completionTime bounds how long the shell waits for names.
const completionTime = time.Second

// completeClusters offers the names of clusters to the shell.
func (a *app) completeClusters(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	src, err := a.source()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
	defer cancel()
	all, err := src.Clusters(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return clusterNames(all), cobra.ShellCompDirectiveNoFileComp
}

// completeServers offers the names of the servers of the cluster that is meant.
func (a *app) completeServers(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
	defer cancel()
	v, err := a.pick(ctx, clusterFlag(cmd))
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []cobra.Completion
	for _, s := range v.Servers {
		names = append(names, s.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeOperations offers the operations that the monitor remembers.
func (a *app) completeOperations(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	c, err := a.client()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
	defer cancel()
	list, err := a.operations(ctx, c, clusterFlag(cmd))
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var ids []cobra.Completion
	for _, r := range list {
		ids = append(ids, cobra.CompletionWithDesc(r.ID, movement(r.Kind, r.From, r.To)+", "+r.Outcome))
	}
	return ids, cobra.ShellCompDirectiveNoFileComp
}

// addClusterFlag gives a command, and those below it, the flag that chooses the
// cluster where the argument is something else.
func (a *app) addClusterFlag(cmd *cobra.Command) {
	cmd.PersistentFlags().String("cluster", "", "name of the cluster; needed only where lockstepd monitors several")
	// Without completion the flag still works.
	_ = cmd.RegisterFlagCompletionFunc("cluster", func(cmd *cobra.Command, _ []string, s string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return a.completeClusters(cmd, nil, s)
	})
}

func clusterFlag(cmd *cobra.Command) string {
	if f := cmd.Flags().Lookup("cluster"); f != nil {
		return f.Value.String()
	}
	return ""
}
