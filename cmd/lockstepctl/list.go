package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/lockstep-ha/lockstep/election"
	"github.com/lockstep-ha/lockstep/monitor"
)

// primaryAnswer is the JSON form of the primary command.
type primaryAnswer struct {
	Cluster    string            `json:"cluster"`
	Primary    *monitor.Endpoint `json:"primary"`
	Reason     string            `json:"reason"`
	ValidForMS int64             `json:"valid_for_ms"`
}

func primaryCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "primary [CLUSTER]", Short: "Print host:port of the primary",
		Long: "Print host:port of the primary and nothing else.\n\nWithout one the exit code is 3 and the reason is on the standard error.",
		Args: argsBetween(0, 1), ValidArgsFunction: a.completeClusters,
		RunE: a.runE(func(ctx context.Context, args []string) (answer, error) {
			v, err := a.pick(ctx, clusterArg(args))
			if err != nil {
				return answer{}, err
			}
			ans := answer{data: primaryAnswer{v.Cluster, v.Primary, v.Reason, v.ValidForMS}, text: func(*page) {}}
			if v.Primary == nil {
				ans.err = marked{errNoPrimary, fmt.Sprintf("%s has no primary: %s", v.Cluster, v.Reason)}
				return ans, nil
			}
			ans.text = func(p *page) { p.line("%s", clean(v.Primary.Address)) }
			return ans, nil
		}),
	}
}

func listServersCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "servers [CLUSTER]", Short: "List the servers of a cluster", Args: argsBetween(0, 1), ValidArgsFunction: a.completeClusters,
		RunE: a.runE(func(ctx context.Context, args []string) (answer, error) {
			v, err := a.pick(ctx, clusterArg(args))
			if err != nil {
				return answer{}, err
			}
			return answer{data: v.Servers, text: func(p *page) { listServers(p, v) }}, nil
		}),
	}
}

func listServers(p *page, v monitor.View) {
	header := []string{"Server", "Address", "State", "Locked by", "Primary lock", "Read-only", "Lag", "GTID"}
	var rows [][]string
	for _, s := range v.Servers {
		rows = append(rows, []string{
			clean(s.Name), clean(s.Address), p.state(s.State),
			holder(s.LockHeld, s.LockOwner), holder(s.PrimaryLockHeld, s.PrimaryLockOwner),
			yesNo(s.ReadOnly), lagText(s), or(s.CurrentPos, "-"),
		})
	}
	p.table(header, rows)
}

// clusterLine is the JSON form of a line of list clusters.
type clusterLine struct {
	Cluster   string            `json:"cluster"`
	Primary   *monitor.Endpoint `json:"primary"`
	Role      election.Role     `json:"role"`
	Majority  election.Tally    `json:"majority"`
	ServersUp int               `json:"servers_up"`
	Servers   int               `json:"servers"`
	Faults    int               `json:"faults"`
	// Operation is the one under way, nil for none.
	Operation *monitor.RunningView `json:"operation"`
}

func listClustersCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "clusters", Short: "List the clusters", Args: argsBetween(0, 0),
		RunE: a.runE(func(ctx context.Context, _ []string) (answer, error) {
			src, err := a.source()
			if err != nil {
				return answer{}, err
			}
			all, err := src.Clusters(ctx)
			if err != nil {
				return answer{}, err
			}
			lines := []clusterLine{}
			for _, v := range all {
				lines = append(lines, clusterLine{v.Cluster, v.Primary, v.Monitor.Role, v.Monitor.Majority,
					countUp(v.Servers), len(v.Servers), len(v.Faults), v.Operations.Running})
			}
			return answer{data: lines, text: func(p *page) { listClusters(p, lines) }}, nil
		}),
	}
}

func listClusters(p *page, lines []clusterLine) {
	var rows [][]string
	for _, l := range lines {
		votes := fmt.Sprintf("%d/%d", l.Majority.Held, l.Majority.Needed)
		if l.Majority.Mode == election.None {
			votes = "-"
		}
		primary := endpoint(l.Primary)
		if l.Primary == nil {
			primary = p.paint(red, primary)
		}
		rows = append(rows, []string{clean(l.Cluster), primary, p.paint(roleColour(l.Role), l.Role.String()), votes,
			fmt.Sprintf("%d/%d", l.ServersUp, l.Servers), fmt.Sprint(l.Faults), operationName(l.Operation)})
	}
	p.table([]string{"Cluster", "Primary", "Monitor role", "Held/Needed", "Servers up", "Faults", "Operation"}, rows)
}
