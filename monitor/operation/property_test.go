package operation

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/topology"
	"github.com/lockstep-ha/lockstep/topology/gtid"
)

const clusters = 4000

// random makes clusters in which most servers are fit, so that there are plans.
type random struct{ *rand.Rand }

// rarely is true once in n times.
func (r random) rarely(n int) bool { return r.IntN(n) == 0 }

func (r random) position(domains int) gtid.Position {
	var list []gtid.GTID
	for d := range domains {
		list = append(list, gtid.GTID{Domain: uint32(d), Server: 1, Seq: uint64(97 + r.IntN(6))})
	}
	p, err := gtid.NewPosition(list...)
	if err != nil {
		panic(err)
	}
	return p
}

func (r random) server(n, total, domains int) topology.Server {
	source := 1
	if r.rarely(6) {
		source = 1 + r.IntN(total)
	}
	s := replica(n, source)
	pos := r.position(domains)
	applied(pos.String())(&s)
	l := &s.Replication[0]
	l.Received = pos
	if r.rarely(2) {
		// TestNamedLacksWhatAnotherApplied is about less.
		l.Received = gtid.Progress{Received: r.position(domains), Applied: pos}.Have()
	}
	l.IO = []string{"Connecting", "Connecting", "Yes", "No"}[r.IntN(4)]
	l.SQL = []string{"Yes", "Yes", "Yes", "No"}[r.IntN(4)]
	l.UsesGTID, l.Filtered = !r.rarely(12), r.rarely(12)
	if r.rarely(12) {
		l.Delay = 60
	}
	s.Evidence = []topology.Evidence{topology.Refused, topology.TimedOut, topology.AccessDenied}[r.IntN(3)]
	if !r.rarely(5) {
		s.Evidence = topology.Answered
	}
	s.ReplicationKnown, s.Maintenance = !r.rarely(15), r.rarely(12)
	s.Promotion = []topology.Promotion{topology.Neutral, topology.Prefer, topology.MustNot}[r.IntN(3)]
	if r.rarely(8) {
		s.Replication = nil
	}
	if r.rarely(8) {
		s.ReadOnly = topology.No
	}
	if r.rarely(10) {
		s.LogReplicaWrites = topology.No
	}
	if r.rarely(2) {
		s.SemiSync.ReplicaOn = true
	}
	s.SemiSync.PrimaryOn = r.rarely(4)
	return s
}

func (r random) cluster() Cluster {
	total, domains := 3+r.IntN(3), 1+r.IntN(2)
	primary := server(1, evidence([]topology.Evidence{topology.Refused, topology.Closed, topology.TimedOut, topology.WriteFailed}[r.IntN(4)]))
	pos := r.position(domains)
	primary.BinlogPos, primary.CurrentPos, primary.BinlogState = pos, pos, state(pos.String())
	if r.rarely(2) {
		strong(&primary)
	}
	servers := list(primary)
	for n := 2; n <= total; n++ {
		servers = append(servers, r.server(n, total, domains))
	}
	topology.MarkDuplicates(servers)
	return cluster(servers...)
}

func (r random) policy() Policy {
	return policy(func(p *Policy) {
		p.RelayLog = []RelayLog{RelayLogWait, RelayLogAbort, RelayLogProceed}[r.IntN(3)]
		p.LeaveEvents, p.LeaveSemiSync = r.rarely(2), r.rarely(2)
	})
}

// show is a cluster as one line a server.
func show(c Cluster) string {
	var b strings.Builder
	for _, s := range c.Servers {
		fmt.Fprintf(&b, "\n%s: %v, %s, read-only %v, applied %s, %+v", s.Name, s.Evidence, s.Promotion, s.ReadOnly, s.CurrentPos, s.Replication)
	}
	return b.String()
}

func TestFailoverPlansAreSafe(t *testing.T) {
	t.Parallel()
	r := random{rand.New(rand.NewPCG(7, 11))}
	plans, already := 0, 0
	for n := range clusters {
		c, p := r.cluster(), r.policy()
		request := Request{Kind: Failover}
		if r.rarely(2) {
			request.NotBefore = c.Now + second
		}
		if r.rarely(4) {
			request.To = c.Servers[r.IntN(len(c.Servers))].Name
		}
		plan, err := PlanFailover(c, p, request)
		if err != nil {
			var no *RefusedError
			require.ErrorAs(t, err, &no)
			require.NotEmpty(t, no.Refusals)
			continue
		}
		plans++
		if plan.Steps[len(plan.Steps)-1].Name == "take over" {
			already++
		}
		if wrong := unsafePlan(c, p, plan); wrong != "" {
			require.Fail(t, wrong, "case %d:%s\n%s", n, show(c), plan)
		}
		if n%8 == 0 {
			data, err := json.Marshal(plan)
			require.NoError(t, err)
			requireNoSecret(t, plan.String(), string(data))
		}
	}
	require.Greater(t, plans, clusters/6)
	require.Greater(t, already, 10)
}

// unsafePlan says what a plan does that it must never do, "" for nothing.
func unsafePlan(c Cluster, p Policy, plan Plan) string {
	i := c.Index(plan.To)
	to := c.Servers[i]
	taken := plan.Steps[len(plan.Steps)-1].Name == "take over"
	switch {
	case i == c.Primary:
		return "the target is the primary"
	case !to.Up():
		return "the target is down"
	case to.Promotion == topology.MustNot || to.Maintenance:
		return "the target must not be promoted"
	case taken && (!to.Writable() || slices.ContainsFunc(to.Replication, func(r topology.Replication) bool { return r.IO != "No" || r.SQL != "No" })):
		return "the server that is said to be promoted already is not"
	case !taken && c.linkFrom(i, c.Primary) == nil:
		return "the target is no replica of the primary"
	case len(plan.Overrides) > 0:
		return "something was overridden without force"
	}
	if ahead := fitterThan(c, i, taken); ahead != "" {
		return ahead + " has received more"
	}
	return badSteps(c, p, plan, taken)
}

// fitterThan names a server that answers and has received more in the domain of
// the primary than server i.
func fitterThan(c Cluster, i int, taken bool) string {
	domain := uint32(c.Servers[c.Primary].DomainID)
	most := func(k int) uint64 {
		cur, _ := c.Servers[k].CurrentPos.Get(domain)
		seq := cur.Seq
		if l := c.linkFrom(k, c.Primary); l != nil {
			got, _ := l.Received.Get(domain)
			seq = max(seq, got.Seq)
		}
		return seq
	}
	fit := map[string]bool{}
	for _, cand := range topology.RankCandidates(c.Servers, c.Graph, c.Primary).Candidates {
		fit[cand.Server] = cand.Rejected == ""
	}
	for k, s := range c.Servers {
		if k != i && k != c.Primary && s.Up() && (taken || fit[s.Name] || c.linkFrom(k, c.Primary) != nil) && most(k) > most(i) {
			return s.Name
		}
	}
	return ""
}

// badSteps checks the order of steps.
func badSteps(c Cluster, p Policy, plan Plan, taken bool) string {
	turn := slices.IndexFunc(plan.Steps, func(s Step) bool { return s.turn })
	if turn != len(plan.Steps)-1 {
		return "the turn is not the last step"
	}
	for _, lane := range plan.Then {
		if slices.ContainsFunc(lane, func(s Step) bool { return s.turn }) {
			return "a second turn"
		}
	}
	for k, s := range slices.Concat(append([][]Step{plan.Steps}, plan.Then...)...) {
		target, _ := c.server(s.Server)
		switch {
		case s.LimitMS <= 0 || s.After == "" || s.Statement == "":
			return "a step without limit, effect or statement"
		case s.wait == nil && s.Server != plan.From && !target.Up():
			return "a statement for a server that does not answer"
		case k < turn && s.wait == nil && strings.Contains(s.sql, "CHANGE MASTER"):
			return "a CHANGE MASTER before the turn"
		}
	}
	if taken {
		return ""
	}
	l := c.linkFrom(c.Index(plan.To), c.Primary)
	if p.RelayLog == RelayLogProceed && gtid.Backlog(l.Received, c.Servers[c.Index(plan.To)].CurrentPos) > 0 {
		return ""
	}
	last := func(name string) int {
		return slices.IndexFunc(plan.Steps, func(s Step) bool { return s.Name == name && s.Server == plan.To })
	}
	stop, more, rest := last("stop receiving"), last("nobody has more"), last("apply the rest")
	if stop < 0 || more < stop || rest < more || turn < rest || plan.Steps[rest].wait == nil {
		return "the relay log is not waited for before the promotion"
	}
	return ""
}
