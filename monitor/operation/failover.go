package operation

import (
	"fmt"
	"slices"
	"time"

	"github.com/lockstep-ha/lockstep/topology"
	"github.com/lockstep-ha/lockstep/topology/gtid"
	"github.com/lockstep-ha/lockstep/topology/mariadb"
)

// Request is what a person, or the monitor itself, asks for.
type Request struct {
	Kind Kind `json:"kind"`
	// To names the new primary of a failover, switchover or reset-replication, or
	// the server that is to rejoin; "" lets the planner choose.
	To string `json:"to,omitempty"`
	// Force overrides refusals that allow it.
	Force bool `json:"force,omitempty"`
	// NotBefore is the instant before which a failover must not promote; what can be
	// taken back is done before.
	NotBefore time.Duration `json:"-"`
	// Automatic is true for what the monitor starts by itself.
	Automatic bool `json:"-"`
}

// PlanFailover plans to replace a primary that has failed; that it has, and that
// enough time has passed, is for Detector to say. The error is a *RefusedError.
func PlanFailover(c Cluster, p Policy, r Request) (Plan, error) {
	pl := newPlanner(c, p)
	k := &checks{kind: Failover, force: r.Force}
	pl.needAccount(k)
	if c.Primary < 0 {
		k.refuse("no_primary", "name the server that was the primary by making it writable, or use reset-replication", "it is not known which server was the primary")
		return Plan{}, k.err()
	}
	from := c.Servers[c.Primary]
	plan := Plan{Kind: Failover, From: from.Name}
	if i := pl.promotedAlready(); i >= 0 && (r.To == "" || r.To == c.Servers[i].Name) {
		plan.To, plan.Reason = c.Servers[i].Name, c.Servers[i].Name+" was promoted already: it is writable, replicates from nobody, and no other server has a transaction that it lacks"
		st := waitStep("take over", plan.To, "it is writable", statementLimit, plan.To+" is the primary", func(c Cluster, _ time.Duration) (bool, string) {
			return c.Servers[c.Index(plan.To)].Writable(), plan.To + " is not writable"
		})
		st.turn = true
		if from.SemiSync.PrimaryOn && !from.Up() {
			plan.Steps = pl.stopAll(plan.To, from) // none of them acknowledges what the old primary may still commit
		}
		plan.Steps = append(plan.Steps, pl.waitForLocks(from, r)...)
		if from.SemiSync.PrimaryOn {
			plan.Steps = append(plan.Steps, pl.noOtherReceives(plan.To, from)...)
		}
		plan.Steps = append(plan.Steps, st)
		return pl.finishFailover(plan, k, i, from)
	}
	if i := pl.promotedAlready(); i >= 0 {
		k.refuse("promoted_already", "name "+c.Servers[i].Name+", or set it read-only first", "%s was promoted already: it is writable and has all transactions", c.Servers[i].Name)
		return Plan{}, k.err()
	}
	ranking := topology.RankCandidates(c.Servers, c.Graph, c.Primary)
	plan.To, plan.Reason = ranking.Best, ranking.Reason
	if r.To != "" && r.To != ranking.Best {
		plan.To, plan.Reason = r.To, "named by a person"
		pl.named(k, ranking, r.To)
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
	pl.knownMore(k, i, from)
	pl.knownElsewhere(k, i)
	pl.thrownAway(k, i, from)
	link := c.linkFrom(i, c.Primary)
	if link == nil {
		k.refuse("not_a_replica", "", "%s does not replicate from %s", to.Name, from.Name)
		return Plan{}, k.err()
	}
	backlog := backlogOf(ranking, to.Name)
	switch {
	case backlog == 0:
	case p.RelayLog == RelayLogAbort:
		k.doubt("relay_log", "wait until it has applied them, or set relay_log = \"wait\"", "%s has yet to apply %d transactions and relay_log is abort", to.Name, backlog)
	}
	if from.Evidence.Reachable() {
		// It answers: what it still accepts must not be acknowledged.
		ro := readOnlyStep(from.Name)
		ro.soft, ro.undo = true, mariadb.SetWritable()
		ro.Undo = ro.undo
		plan.Steps = append(plan.Steps, ro, Step{Name: "end client connections", Server: from.Name, LimitMS: statementLimit.Milliseconds(), special: killClients, soft: true,
			Statement: "KILL SOFT CONNECTION for each connection of a client", After: "what clients have begun on " + from.Name + " is not committed later"})
	}
	if p.RelayLog != RelayLogProceed || backlog == 0 {
		plan.Steps = append(plan.Steps, pl.drain(to, from, link, p, r, k.lossy)...)
	} else {
		plan.Steps = append(plan.Steps, pl.waitForLocks(from, r)...)
	}
	promote := pl.promotion(to, from, link.Name)
	promote.undo = mariadb.SetReadOnly(readOnlyWait)
	promote.Undo = promote.undo
	plan.Steps = append(plan.Steps, promote)
	return pl.finishFailover(plan, k, i, from)
}

// drain are the steps after which a candidate has applied all that it received
// and receives no more. lossy leaves out the comparison with other replicas, and
// with what was received before.
func (pl planner) drain(to, from topology.Server, link *topology.Replication, p Policy, r Request, lossy bool) []Step {
	var out []Step
	if to.SemiSync.PrimaryOn && !p.LeaveSemiSync {
		out = append(out, step("semi-sync primary side off", to.Name, statementLimit, "its SQL thread waits for no acknowledgement", mariadb.SemiSyncPrimaryOff))
	}
	if link.SQL != "Yes" {
		out = append(out, step("start applying", to.Name, statementLimit, "its SQL thread runs", mariadb.StartApplying(link.Name)))
	}
	out = append(out, waitStep("apply relay log", to.Name, "all that it has received is applied (Gtid_IO_Pos = gtid_slave_pos)", p.FailoverTimeout, "its relay log is empty", drained(to.Name, from.Name, lossy)))
	out = append(out, pl.stopReceiving(to, from, link)...)
	out = append(out, pl.waitForLocks(from, r)...)
	if from.SemiSync.PrimaryOn {
		out = append(out, pl.noOtherReceives(to.Name, from)...)
	}
	if !lossy {
		out = append(out, waitStep("nobody has more", to.Name, "no other replica that answers has received more", statementLimit, "it is still the most advanced", mostAdvanced(to.Name, from.Name)))
	}
	return append(out, waitStep("apply the rest", to.Name, "all that it has received is applied, as seen after that", p.FailoverTimeout, "nothing that it has received is lost", drained(to.Name, from.Name, lossy)))
}

// waitForLocks is the step before which nothing is promoted, where there is
// something to wait for.
func (pl planner) waitForLocks(from topology.Server, r Request) []Step {
	if r.NotBefore <= pl.c.Now {
		return nil
	}
	return []Step{waitStep("wait for the locks", from.Name, "its locks are gone, and everybody has noticed", r.NotBefore-pl.c.Now+statementLimit,
		"no other monitor names it as the primary", func(c Cluster, _ time.Duration) (bool, string) {
			return c.Now >= r.NotBefore, fmt.Sprintf("%v are left", r.NotBefore-c.Now)
		})}
}

// stopReceiving are the steps after which a candidate receives nothing more. Where
// the source does not answer that takes a second, on every replica: the others
// are stopped at the same time, so that they can follow the new primary, and
// acknowledge its commits, at once. Until then none of them acknowledges what the
// old primary may still commit.
func (pl planner) stopReceiving(to, from topology.Server, link *topology.Replication) []Step {
	if !away(to, from) {
		stop := step("stop receiving", to.Name, statementLimit, to.Name+" receives nothing more", mariadb.StopReceiving(link.Name))
		stop.undo, stop.seen = mariadb.StartReceiving(link.Name), stopped(link.Name)
		stop.Undo = stop.undo
		return []Step{stop}
	}
	return pl.stopAll(to.Name, from)
}

// stopped tells whether the IO thread of a connection has stopped.
func stopped(connection string) func(topology.Server) bool {
	return func(s topology.Server) bool {
		return slices.ContainsFunc(s.Replication, func(r topology.Replication) bool { return r.Name == connection && r.IO == "No" })
	}
}

// stopAll are the steps after which no replica of a source receives anything more,
// the one that must among them.
func (pl planner) stopAll(must string, from topology.Server) []Step {
	var send, see []Step
	for _, i := range pl.c.Graph.Replicas(pl.c.Primary, false) {
		s := pl.c.Servers[i]
		l := pl.c.linkFrom(i, pl.c.Primary)
		if l == nil || !s.Up() || s.SameAs != "" || s.Maintenance || (l.IO == "No" && s.Name != must) || (l.SQL != "Yes" && s.Name != must) {
			continue // with both threads stopped it would throw its relay log away
		}
		stop := step("stop receiving", s.Name, asideLimit, s.Name+" is about to receive nothing more", hurried(mariadb.StopReceiving(l.Name))...)
		stop.aside, stop.undo = true, mariadb.StartReceiving(l.Name)
		stop.Undo, stop.soft = stop.undo, s.Name != must
		name := l.Name
		wait := waitStep("receive nothing more", s.Name, "its IO thread has stopped", asideLimit, s.Name+" receives nothing more", func(c Cluster, since time.Duration) (bool, string) {
			now, _ := c.server(s.Name)
			return now.Up() && now.SentAt >= since && stopped(name)(now), s.Name + " still receives"
		})
		wait.soft = stop.soft
		send, see = append(send, stop), append(see, wait)
	}
	return append(send, see...)
}

// noOtherReceives are the steps before a promotion that stop replicas which could
// not be stopped before, and by now answer: what they acknowledge later is lost.
func (pl planner) noOtherReceives(must string, from topology.Server) []Step {
	var out []Step
	for _, i := range pl.c.Graph.Replicas(pl.c.Primary, false) {
		s := pl.c.Servers[i]
		l := pl.c.linkFrom(i, pl.c.Primary)
		if l == nil || s.Name == must || !away(s, from) || s.SameAs != "" || s.Maintenance || l.SQL != "Yes" {
			continue
		}
		again := step("stop receiving", s.Name, asideLimit, "", hurried(mariadb.StopReceiving(l.Name))...)
		again.aside = true
		name := l.Name
		wait := waitStep("acknowledge nothing more", s.Name, "if it answers, its IO thread has stopped; else it is stopped", asideLimit, s.Name+" acknowledges nothing to "+from.Name, func(c Cluster, _ time.Duration) (bool, string) {
			now, _ := c.server(s.Name)
			return !now.Up() || stopped(name)(now), s.Name + " still receives"
		})
		wait.soft, wait.again = true, &again
		out = append(out, wait)
	}
	return out
}

func (pl planner) finishFailover(plan Plan, k *checks, to int, from topology.Server) (Plan, error) {
	if err := k.err(); err != nil {
		return Plan{}, err
	}
	plan.Overrides = k.overrides
	if lane := pl.afterPromotion(pl.c.Servers[to], from.SemiSync.PrimaryOn); len(lane) > 0 {
		plan.Then = append(plan.Then, lane)
	}
	lanes, err := pl.otherReplicas(pl.c.Index(from.Name), pl.c.Servers[to])
	plan.Then = append(plan.Then, lanes...)
	return plan, err
}

// promotedAlready finds the server that an operation which was cut short had
// promoted, -1 for none: the only writable one, alone, and nobody has more.
func (pl planner) promotedAlready() int {
	found := -1
	for i, s := range pl.c.Servers {
		if i == pl.c.Primary || !s.Writable() || s.SameAs != "" || s.Maintenance || s.Promotion == topology.MustNot {
			continue
		}
		running := false
		for _, r := range s.Replication {
			running = running || r.IO != "No" || r.SQL != "No"
		}
		if running || !s.ReplicationKnown || s.CurrentPos.IsEmpty() || topology.Ahead(pl.c.Servers, i, true) != "" {
			continue
		}
		known := false
		for _, j := range pl.c.Graph.Replicas(pl.c.Primary, false) {
			known = known || (j != i && behind(pl.c, i, j))
		}
		if known {
			continue // it lacks what a replica had that does not answer now
		}
		if found >= 0 {
			return -1
		}
		found = i
	}
	return found
}

// named checks a server that a person chose against the ranking.
func (pl planner) named(k *checks, ranking topology.Ranking, name string) {
	for _, cand := range ranking.Candidates {
		if cand.Server != name {
			continue
		}
		i := pl.c.Index(name)
		switch {
		case cand.Rejected == "" && ranking.Best != "" && behind(pl.c, i, pl.c.Index(ranking.Best)):
			k.doubt("behind", "name "+ranking.Best+", or override", "%s has received less than %s: promoting it loses transactions", name, ranking.Best)
		case cand.Rejected == "" && ranking.Best == "":
			k.doubt("diverged", "override, and lose what only others have", "%s: promoting %s loses transactions", ranking.Reason, name)
		case cand.Rejected != "" && !pl.c.Servers[i].Up():
			k.refuse("target_down", "", "%s cannot be promoted: %s", name, cand.Rejected)
		case cand.Rejected != "":
			k.doubt("unfit", "name another server, or override", "%s should not be promoted: %s", name, cand.Rejected)
		}
		return
	}
	k.refuse("no_such_server", "name one of the replicas", "%s is not a server that could be promoted", name)
}

// behind reports whether server i lacks something that server j has received or
// applied.
func behind(c Cluster, i, j int) bool {
	link := c.linkFrom(j, c.Primary)
	if link == nil {
		return false
	}
	mine := c.linkFrom(i, c.Primary)
	for id := range (gtid.Progress{Received: link.Received, Applied: c.Servers[j].SlavePos}).Have().All() {
		if mine != nil {
			if got, ok := mine.Received.Get(id.Domain); ok && (got.Seq > id.Seq || got == id) {
				continue
			}
		}
		if cur, ok := c.Servers[i].CurrentPos.Get(id.Domain); ok && cur == id {
			continue
		}
		if !c.Servers[i].BinlogState.Contains(id) {
			return true
		}
	}
	return false
}

// knownMore refuses while a replica that cannot be promoted, or does not answer,
// has more.
func (pl planner) knownMore(k *checks, to int, from topology.Server) {
	for _, j := range pl.c.Graph.Replicas(pl.c.Primary, false) {
		s := pl.c.Servers[j]
		if j == to || s.SameAs != "" || !behind(pl.c, to, j) {
			continue
		}
		if s.Up() {
			if !k.lossy && k.refusals == nil {
				k.doubt("replica_ahead", "override, and lose what only it has", "%s has received more from %s than %s has, and cannot be promoted itself", s.Name, from.Name, pl.c.Servers[to].Name)
			}
			continue
		}
		k.doubt("replica_ahead_down", fmt.Sprintf("bring %s back, or override and lose what only it has", s.Name),
			"%s, which does not answer (%s), has received more from %s than %s has", s.Name, s.Evidence, from.Name, pl.c.Servers[to].Name)
	}
}

// knownElsewhere refuses while a server that does not replicate from the primary
// has replicated more: there is another primary, or was.
func (pl planner) knownElsewhere(k *checks, to int) {
	c := pl.c
	below := c.Graph.Below(c.Primary, false)
	for j, s := range c.Servers {
		if j == to || j == c.Primary || !s.Up() || s.SameAs != "" || slices.Contains(below, j) {
			continue
		}
		if id := c.common(j, to); id != "" {
			k.doubt("elsewhere_ahead", "bring "+c.Servers[c.Primary].Name+" back, or override and lose it", "%s, which does not replicate from %s, has %s, which %s had too and %s lacks", s.Name, c.Servers[c.Primary].Name, id, c.Servers[c.Primary].Name, c.Servers[to].Name)
			continue
		}
		for id := range s.SlavePos.All() {
			if c.has(to, id) {
				continue
			}
			k.doubt("elsewhere_ahead", "see which server it replicates from, and make that the primary", "%s, which does not replicate from %s, has replicated %s, which %s lacks", s.Name, c.Servers[c.Primary].Name, id, c.Servers[to].Name)
			break
		}
	}
}

// common names a transaction that the primary had when it answered last and that
// server j has too, but server to has not, "" for none.
func (c Cluster) common(j, to int) string {
	for id := range c.Servers[c.Primary].BinlogState.All() {
		if c.Servers[j].BinlogState.Contains(id) && !c.has(to, id) {
			return id.String()
		}
	}
	return ""
}

// has reports whether server i has received, applied or logged a transaction.
func (c Cluster) has(i int, id gtid.GTID) bool {
	s := c.Servers[i]
	have := gtid.Progress{Applied: s.CurrentPos}
	if link := c.linkFrom(i, c.Primary); link != nil {
		have.Received = link.Received
	}
	got, ok := have.Have().Get(id.Domain)
	return (ok && (got.Seq > id.Seq || got == id)) || s.BinlogState.Contains(id)
}

// thrownAway refuses while a replica is known to have had something that neither it
// nor the candidate has by now: when both replication threads of a MariaDB replica
// are stopped and started again, relay log that was not applied is gone.
func (pl planner) thrownAway(k *checks, to int, from topology.Server) {
	for j, s := range pl.c.Servers {
		if s.Up() && pl.c.lacks(j, s.Name) != "" {
			if id := pl.c.lacks(to, s.Name); id != "" {
				k.doubt("thrown_away", fmt.Sprintf("start %s again, which has it, or override and lose it", from.Name),
					"%s had received %s from %s and has thrown it away, and %s has not got it", s.Name, id, from.Name, pl.c.Servers[to].Name)
			}
		}
	}
}

// lacks names what server i has not got of what a replica had received, "" for
// nothing.
func (c Cluster) lacks(i int, replica string) string {
	for id := range c.Had[replica].All() {
		if !c.has(i, id) {
			return id.String()
		}
	}
	return ""
}

// mostAdvanced reports whether no replica that answers has received more than a
// candidate, as seen after the candidate stopped receiving.
func mostAdvanced(server, source string) func(Cluster, time.Duration) (bool, string) {
	return func(c Cluster, since time.Duration) (bool, string) {
		i, p := c.Index(server), c.Index(source)
		c.Primary = p
		for _, j := range c.Graph.Replicas(p, false) {
			s := c.Servers[j]
			switch {
			case j == i || s.SameAs != "" || !s.Up():
			case s.SentAt < since:
				return false, s.Name + " has not answered since"
			case behind(c, i, j):
				return false, fmt.Sprintf("%s has received more than %s by now", s.Name, server)
			}
		}
		return true, ""
	}
}

func backlogOf(r topology.Ranking, name string) uint64 {
	for _, c := range r.Candidates {
		if c.Server == name {
			return c.Backlog
		}
	}
	return 0
}

func rejected(r topology.Ranking) string {
	text := ""
	for i, c := range r.Candidates {
		if i > 0 {
			text += "; "
		}
		text += c.Server + ": " + c.Rejected
	}
	return text
}
