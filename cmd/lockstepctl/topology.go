package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/lockstep-ha/lockstep/monitor"
)

// node is a server with its replicas.
type node struct {
	Name    string   `json:"name"`
	Address string   `json:"address"`
	State   []string `json:"state"`
	LagMS   *int64   `json:"lag_ms"`
	// External is a source that is no member of the cluster.
	External string  `json:"external_source,omitempty"`
	Replicas []*node `json:"replicas"`

	lag string
}

// treeAnswer is the JSON form of topology.
type treeAnswer struct {
	Cluster string            `json:"cluster"`
	Primary *monitor.Endpoint `json:"primary"`
	Servers []*node           `json:"servers"`
}

func topologyCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "topology [CLUSTER]", Short: "Draw who replicates from whom", Args: argsBetween(0, 1), ValidArgsFunction: a.completeClusters,
		RunE: a.runE(func(ctx context.Context, args []string) (answer, error) {
			v, err := a.pick(ctx, clusterArg(args))
			if err != nil {
				return answer{}, err
			}
			t := treeAnswer{v.Cluster, v.Primary, tree(v)}
			return answer{data: t, text: func(p *page) {
				for _, n := range t.Servers {
					draw(p, n, "", "")
				}
			}}, nil
		}),
	}
}

// tree returns the servers at the top: the primary first, then those without a
// source, then one of each ring that is left. Every server is in it once.
func tree(v monitor.View) []*node {
	below := map[string][]monitor.ServerView{}
	known := map[string]bool{}
	for _, s := range v.Servers {
		below[s.Source] = append(below[s.Source], s)
		known[s.Name] = true
	}
	seen := map[string]bool{}
	var grow func(s monitor.ServerView) *node
	grow = func(s monitor.ServerView) *node {
		seen[s.Name] = true
		n := &node{Name: s.Name, Address: s.Address, State: s.State, LagMS: s.LagMS, Replicas: []*node{}, lag: lagText(s)}
		if s.Source == "" && len(s.Replication) > 0 {
			n.External = s.Replication[0].Source
		}
		for _, r := range below[s.Name] {
			if !seen[r.Name] {
				n.Replicas = append(n.Replicas, grow(r))
			}
		}
		return n
	}
	top := []*node{}
	add := func(want func(monitor.ServerView) bool) {
		for _, s := range v.Servers {
			if !seen[s.Name] && want(s) {
				top = append(top, grow(s))
			}
		}
	}
	add(func(s monitor.ServerView) bool { return v.Primary != nil && s.Name == v.Primary.Name })
	add(func(s monitor.ServerView) bool { return !known[s.Source] })
	add(func(monitor.ServerView) bool { return true })
	return top
}

// draw writes a server after a branch, and its replicas below it.
func draw(p *page, n *node, branch, indent string) {
	line := branch + clean(n.Name) + " " + clean(n.Address) + " [" + p.state(n.State) + "]"
	if n.lag != "-" {
		line += " lag " + n.lag
	}
	if n.External != "" {
		line += " from " + clean(n.External)
	}
	p.line("%s", line)
	for i, r := range n.Replicas {
		next := indent + "|  "
		if i == len(n.Replicas)-1 {
			next = indent + "   "
		}
		draw(p, r, indent+"+- ", next)
	}
}
