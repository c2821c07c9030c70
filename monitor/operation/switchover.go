package operation

import (
	"fmt"
	"strings"
	"time"

	"github.com/lockstep-ha/lockstep/topology"
	"github.com/lockstep-ha/lockstep/topology/mariadb"
)

// readOnlyWait is how long SET GLOBAL read_only may wait for running commits.
// Others wait behind it, so it is short; it is tried again.
const readOnlyWait = time.Second

// PlanSwitchover plans to move the primary to another server without losing a
// write: the primary is set read-only first, and the target promoted when it has
// applied all. The error is a *RefusedError.
func PlanSwitchover(c Cluster, p Policy, r Request) (Plan, error) {
	pl := newPlanner(c, p)
	k := &checks{kind: Switchover, force: r.Force}
	pl.needAccount(k)
	if c.Primary < 0 {
		k.refuse("no_primary", "", "there is no primary to switch over from")
		return Plan{}, k.err()
	}
	from := c.Servers[c.Primary]
	switch {
	case !from.Up():
		k.refuse("primary_down", "use failover", "the primary %s does not answer: %s", from.Name, from.Why())
	case from.LogBin != topology.Yes:
		k.refuse("no_binlog", "", "the primary %s has no binary log", from.Name)
	}
	if ext := c.Graph.External[c.Primary]; len(ext) > 0 {
		for _, l := range from.Replication {
			if l.Name == "" {
				k.refuse("external_default", "give it a name (CHANGE MASTER 'name' TO ...)", "the default replication connection of %s leads to %s, outside the cluster: it is the one with which it is to follow the new primary", from.Name, l.Address())
			}
		}
		k.doubt("external_source", "the connection is left as it is: move it by hand", "the primary %s replicates from %s, outside the cluster", from.Name, strings.Join(ext, ", "))
	}
	ranking := topology.RankCandidates(c.Servers, c.Graph, c.Primary)
	plan := Plan{Kind: Switchover, From: from.Name, To: ranking.Best, Reason: ranking.Reason}
	if r.To != "" {
		plan.To, plan.Reason = r.To, "named by a person"
		if r.To == from.Name {
			k.refuse("is_primary", "", "%s is the primary already", r.To)
			return Plan{}, k.err()
		}
		pl.namedTarget(k, ranking, r.To)
	}
	if plan.To == "" {
		k.refuse("no_candidate", "see the reason against each server", "%s: %s", ranking.Reason, rejected(ranking))
		return Plan{}, k.err()
	}
	i := c.Index(plan.To)
	if i < 0 {
		return Plan{}, k.err()
	}
	to := c.Servers[i]
	if to.LowDisk != "" {
		k.doubt("low_disk", "make room there, name another server, or override", "%s: %s", to.Name, to.LowDisk)
	}
	link := c.linkFrom(i, c.Primary)
	switch {
	case link == nil:
		k.refuse("not_a_replica", "", "%s does not replicate from %s", to.Name, from.Name)
		return Plan{}, k.err()
	case link.IO != "Yes":
		k.refuse("not_receiving", "mend its replication first", "%s receives nothing from %s: IO thread %s %q", to.Name, from.Name, link.IO, link.IOError)
	case link.SecondsBehind == topology.Yes && time.Duration(link.Seconds)*time.Second > p.SwitchoverTimeout:
		k.refuse("lagging", "wait until it has caught up, or raise switchover_timeout", "%s is %d s behind, and switchover_timeout is %v", to.Name, link.Seconds, p.SwitchoverTimeout)
	}
	if err := k.err(); err != nil {
		return Plan{}, err
	}
	plan.Overrides = k.overrides

	if link.SQL != "Yes" {
		plan.Steps = append(plan.Steps, step("start applying", to.Name, statementLimit, "its SQL thread runs", mariadb.StartApplying(link.Name)))
	}
	ro := readOnlyStep(from.Name)
	ro.undo = mariadb.SetWritable()
	ro.Undo = ro.undo
	ro.seen = func(s topology.Server) bool { return s.ReadOnly == topology.Yes }
	plan.Steps = append(plan.Steps, ro)
	if !p.LeaveEvents {
		// An event of a privileged account writes to a read-only server.
		off := eventsStep(from.Name)
		off.Undo = "ALTER EVENT ... ENABLE for each of them"
		plan.Steps = append(plan.Steps, off)
	}
	catchUp := waitStep("catch up", to.Name, "it has applied all that "+from.Name+" has logged, and "+from.Name+" logs nothing more", p.SwitchoverTimeout,
		"nothing that was acknowledged is missing on "+to.Name, caughtUp(to.Name, from.Name))
	catchUp.purge = from.Name
	// What a privileged account commits after the last look at the position would be
	// lost.
	block := step("block commits", from.Name, readOnlyWait+statementLimit, "nobody commits on "+from.Name+", whatever the account may do", mariadb.BlockCommits(readOnlyWait)...)
	block.waits, block.soft = readOnlyWait, true
	block.undo, block.Undo = mariadb.UnblockCommits, mariadb.UnblockCommits
	plan.Steps = append(plan.Steps,
		Step{Name: "end privileged connections", Server: from.Name, LimitMS: p.SwitchoverTimeout.Milliseconds(), special: killSessions, soft: true,
			Statement: "KILL SOFT CONNECTION for each connection of an account that may write to a read-only server", After: "no account writes to " + from.Name},
		block, catchUp)
	promote := pl.promotion(to, from, link.Name)
	back, _, err := mariadb.ChangeSource(to.Version, mariadb.Source{Connection: link.Name, Address: addressFor(from), User: p.ReplicationUser, Password: p.ReplicationPassword, TLS: p.ReplicationTLS})
	if err != nil {
		return Plan{}, err
	}
	promote.undo = mariadb.SetReadOnly(readOnlyWait) + ";" + mariadb.StopReplica(link.Name) + ";" + back + ";" + mariadb.StartReplica(link.Name)
	promote.Undo = "replicate from " + from.Name + " again"
	plan.Steps = append(plan.Steps, promote)

	if lane := pl.afterPromotion(to, from.SemiSync.PrimaryOn); len(lane) > 0 {
		plan.Then = append(plan.Then, lane)
	}
	demote, err := pl.repoint(c.Primary, "", to, true, pl.demotedSemiSync(from)...)
	if err != nil {
		return Plan{}, err
	}
	unblock := step("let commits go on", from.Name, statementLimit, "its replication can be set", mariadb.UnblockCommits)
	unblock.seen = func(topology.Server) bool { return true } // where its session is gone, so is the block
	lane := []Step{{Name: "end connections that wait to commit", Server: from.Name, LimitMS: statementLimit.Milliseconds(), special: killBlocked, soft: true,
		Statement: "KILL SOFT CONNECTION for each connection that waits to commit", After: "what they have begun is not committed on " + from.Name}, unblock}
	plan.Then = append(plan.Then, append(append(lane, demote...), pl.demotionSQL(from)...))
	others, err := pl.otherReplicas(c.Primary, to)
	plan.Then = append(plan.Then, others...)
	return plan, err
}

// namedTarget checks a target that a person chose.
func (pl planner) namedTarget(k *checks, ranking topology.Ranking, name string) {
	for _, cand := range ranking.Candidates {
		if cand.Server == name {
			if cand.Rejected != "" && pl.c.Servers[pl.c.Index(name)].Up() {
				k.doubt("unfit", "name another server, or override", "%s should not be promoted: %s", name, cand.Rejected)
			} else if cand.Rejected != "" {
				k.refuse("target_down", "", "%s cannot be promoted: %s", name, cand.Rejected)
			}
			return
		}
	}
	names := make([]string, 0, len(ranking.Candidates))
	for _, cand := range ranking.Candidates {
		names = append(names, cand.Server)
	}
	k.refuse("no_such_server", fmt.Sprintf("name one of %s", strings.Join(names, ", ")), "there is no server %q", name)
}
