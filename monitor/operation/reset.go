package operation

import (
	"fmt"

	"github.com/lockstep-ha/lockstep/topology"
	"github.com/lockstep-ha/lockstep/topology/mariadb"
)

// PlanReset plans to throw away the binary logs and replication settings of all
// servers and to start replication anew from one of them. Data is not compared:
// servers whose data differ go on to differ. The error is a *RefusedError.
func PlanReset(c Cluster, p Policy, r Request) (Plan, error) {
	pl := newPlanner(c, p)
	k := &checks{kind: ResetReplication, force: r.Force}
	pl.needAccount(k)
	i := c.Primary
	if r.To != "" {
		if i = c.Index(r.To); i < 0 {
			k.refuse("no_such_server", "", "there is no server %q", r.To)
		}
	}
	if i < 0 {
		k.refuse("no_primary", "name the server that is to be the primary", "no server is named, and there is no primary")
		return Plan{}, k.err()
	}
	to := c.Servers[i]
	if !answers(to) {
		k.refuse("target_down", "", "%s does not answer: %s", to.Name, to.Why())
	}
	for j, s := range c.Servers {
		switch {
		case s.SameAs != "" || j == i:
		case !answers(s):
			k.doubt("server_down", "bring it back, or override and seed it anew", "%s does not answer and would keep its old history", s.Name)
		case !covers(to, s.CurrentPos) && !s.CurrentPos.IsEmpty():
			k.doubt("data_differ", "compare the data", "%s has applied %s, and %s only %s", s.Name, s.CurrentPos, to.Name, to.CurrentPos)
		}
	}
	if err := k.err(); err != nil {
		return Plan{}, err
	}
	plan := Plan{Kind: ResetReplication, To: to.Name, Overrides: k.overrides, Reason: "all binary logs and GTID positions are thrown away"}
	if c.Primary >= 0 && c.Primary != i {
		plan.From = c.Servers[c.Primary].Name
	}
	for _, s := range c.Servers {
		if s.SameAs != "" || !answers(s) || s.ReadOnly == topology.Yes {
			continue
		}
		ro := readOnlyStep(s.Name)
		ro.seen = func(s topology.Server) bool { return s.ReadOnly == topology.Yes }
		if s.Name == to.Name || s.Name == plan.From {
			ro.undo = mariadb.SetWritable()
			ro.Undo = ro.undo
		}
		plan.Steps = append(plan.Steps, ro)
	}
	for _, s := range c.Servers {
		if s.SameAs != "" || !answers(s) {
			continue
		}
		statements := pl.demotedSemiSync(s)
		for _, link := range s.Replication {
			statements = append(statements, mariadb.StopReplica(link.Name), mariadb.ForgetSource(link.Name))
		}
		statements = append(statements, "RESET MASTER", "SET GLOBAL gtid_slave_pos=''")
		forget := step("forget history", s.Name, resetLimit, s.Name+" has no binary log and no position", statements...)
		forget.aside = true // with many binary logs RESET MASTER takes its time
		forget.seen = func(s topology.Server) bool {
			return s.BinlogState.IsEmpty() && s.SlavePos.IsEmpty() && len(s.Replication) == 0
		}
		plan.Steps = append(plan.Steps, forget)
	}
	var start []string
	if from := c.Primary; from >= 0 && !p.LeaveSemiSync && c.Servers[from].SemiSync.PrimaryOn {
		start = mariadb.SemiSyncLike(c.Servers[from].SemiSync)
	}
	st := step("open", to.Name, statementLimit, to.Name+" accepts writes", append(start, mariadb.SetWritable())...)
	st.turn = true
	st.seen = func(s topology.Server) bool { return s.ReadOnly == topology.No }
	plan.Steps = append(plan.Steps, st)
	if lane := pl.afterPromotion(to, len(start) > 0); len(lane) > 0 {
		plan.Then = append(plan.Then, lane)
	}
	for j, s := range c.Servers {
		if j == i || s.SameAs != "" || !answers(s) {
			continue
		}
		lane, err := pl.repoint(j, "", to, false)
		if err != nil {
			return Plan{}, fmt.Errorf("plan reset-replication: %w", err)
		}
		plan.Then = append(plan.Then, append(lane, pl.afterDemotion(s)...))
	}
	return plan, nil
}

// answers reports whether a server can be told to begin anew: one that lacks
// transactions can, as an operation that was cut short leaves it.
func answers(s topology.Server) bool { return s.Up() || s.Evidence == topology.Outdated }
