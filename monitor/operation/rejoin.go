package operation

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lockstep-ha/lockstep/topology"
	"github.com/lockstep-ha/lockstep/topology/gtid"
)

// History is what a rejoin has to know of the primary beyond a probe.
type History struct {
	// Oldest is the position at the start of its oldest binary log; Known is false
	// where it could not be read.
	Oldest gtid.Position
	Known  bool
}

// Stray says why a server should be joined to the primary, or repointed; "" for a
// server that is where it belongs, or that a person has to look at first. It is
// lasting where that is so only if it goes on: a source that does not answer at
// the moment is no reason yet.
func Stray(c Cluster, i int) (reason string, lasting bool) {
	s := c.Servers[i]
	if i == c.Primary || c.Primary < 0 || !s.Up() || s.SameAs != "" || s.Maintenance || !s.ReplicationKnown || !c.Servers[c.Primary].Up() {
		return "", false
	}
	if len(s.Replication) == 0 {
		return s.Name + " replicates from nobody", false
	}
	sources := c.Graph.Sources(i)
	if l := s.Replication[0]; len(s.Replication) == 1 && len(sources) == 1 && sources[0] == c.Primary && l.IO == "No" && l.SQL == "Yes" && l.IOErrno == 0 {
		return s.Name + " receives nothing: its IO thread was stopped, as a failover that was cut short leaves it", true
	}
	if len(s.Replication) != 1 || len(sources) != 1 || sources[0] == c.Primary {
		return "", false // several sources, or one outside the cluster: on purpose, as far as can be known
	}
	src, link := c.Servers[sources[0]], s.Replication[0]
	former := slices.Contains(c.Former, src.Name)
	switch {
	case link.IO == "No" && !former:
		return "", false // stopped by a person, or by an error that is reported
	case former:
		return fmt.Sprintf("%s is set to replicate from %s, which was the primary before", s.Name, src.Name), false
	case link.IO != "Yes":
		return fmt.Sprintf("%s is set to replicate from %s (%s) and cannot", s.Name, src.Name, src.Evidence), true
	case len(c.Graph.Sources(sources[0])) > 0:
		return "", false // a relay that works
	}
	return fmt.Sprintf("%s replicates from %s, which is not the primary", s.Name, src.Name), true
}

// PlanRejoin plans to make a server replicate from the primary. It is read-only
// before anything else, and it is joined only if its GTIDs allow it: errant
// transactions are named and the server is left alone. What is known of the
// server must have been read before what is known of the primary: otherwise a
// transaction that the primary logged in between looks errant. The error is a
// *RefusedError.
func PlanRejoin(c Cluster, p Policy, r Request, h History) (Plan, error) {
	pl := newPlanner(c, p)
	k := &checks{kind: Rejoin, force: r.Force}
	pl.needAccount(k)
	i := c.Index(r.To)
	switch {
	case i < 0:
		k.refuse("no_such_server", "", "there is no server %q", r.To)
	case c.Primary < 0 || !c.Servers[c.Primary].Writable():
		k.refuse("no_primary", "", "there is no primary to join it to")
	case i == c.Primary:
		k.refuse("is_primary", "", "%s is the primary", r.To)
	}
	if len(k.refusals) > 0 && (i < 0 || i == c.Primary || c.Primary < 0) {
		return Plan{}, k.err()
	}
	s, primary := c.Servers[i], c.Servers[c.Primary]
	switch {
	case s.DoneAt > primary.SentAt:
		k.refuse("too_early", "", "%s has to be looked at again after %s", primary.Name, s.Name)
	case !s.Up():
		k.refuse("target_down", "", "%s does not answer: %s", s.Name, s.Why())
	case s.Maintenance:
		k.doubt("maintenance", "clear it", "%s is in maintenance", s.Name)
	case !s.ReplicationKnown:
		k.refuse("replication_unknown", "grant the monitor SLAVE MONITOR", "the replication state of %s cannot be read", s.Name)
	case len(s.Replication) > 1:
		k.refuse("several_sources", "remove all but one", "%s has %d replication connections", s.Name, len(s.Replication))
	}
	connection, fresh := "", len(s.Replication) == 0
	if len(s.Replication) == 1 {
		connection = s.Replication[0].Name
		if sources := c.Graph.Sources(i); len(sources) == 1 && sources[0] == c.Primary && s.Replication[0].Running() {
			k.doubt("already_joined", "", "%s replicates from %s already", s.Name, primary.Name)
		}
	}
	checkHistory(k, s, primary, h)
	if err := k.err(); err != nil {
		return Plan{}, err
	}
	plan := Plan{Kind: Rejoin, To: s.Name, Overrides: k.overrides}
	plan.Reason, _ = Stray(c, i)
	if s.ReadOnly != topology.Yes {
		ro := readOnlyStep(s.Name)
		ro.seen = func(s topology.Server) bool { return s.ReadOnly == topology.Yes }
		plan.Steps = append(plan.Steps, ro)
	}
	if fresh {
		plan.Steps = append(plan.Steps, pl.afterDemotion(s)...)
	}
	// A server that could be written to since it was looked at may have more of its
	// own by now: that must be part of what it asks the primary for.
	demote := !s.SlavePos.Equal(s.CurrentPos) || s.ReadOnly != topology.Yes
	join, err := pl.repoint(i, connection, primary, demote, pl.demotedSemiSync(s)...)
	if err != nil {
		return Plan{}, err
	}
	plan.Steps = append(plan.Steps, join...)
	return plan, nil
}

// checkHistory refuses a server that has transactions which the primary lacks,
// or that needs ones which the primary has purged.
func checkHistory(k *checks, s, primary topology.Server, h History) {
	upstream := gtid.Upstream{State: primary.BinlogState, SlavePos: primary.SlavePos, Oldest: h.Oldest, OldestKnown: h.Known}
	pos := s.CurrentPos
	if errant := gtid.Errant(s.BinlogState, primary.BinlogState); len(errant) > 0 {
		list := make([]string, len(errant))
		for i, e := range errant {
			list[i] = e.String()
		}
		k.refuse("errant", fmt.Sprintf("compare them with %s (mariadb-binlog on %s shows them), save what is needed, then seed %s anew from a backup of %s", primary.Name, s.Name, s.Name, primary.Name),
			"%s has transactions that %s never had, up to %s in each domain: it is not joined", s.Name, primary.Name, strings.Join(list, ", "))
		return
	}
	if v := gtid.CanReplicate(upstream, pos); !v.OK {
		k.refuse("gtid", fmt.Sprintf("seed %s anew from a backup of %s", s.Name, primary.Name), "%s cannot replicate from %s: %s", s.Name, primary.Name, v)
	}
}
