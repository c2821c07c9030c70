package operation

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/election"
	"github.com/lockstep-ha/lockstep/topology"
	"github.com/lockstep-ha/lockstep/topology/mariadb"
)

// TestFailoverWithoutRelayLogWaitsForTheLocks: relay_log = "proceed" gives up
// relay log, and not the time until nobody names the old primary.
func TestFailoverWithoutRelayLogWaitsForTheLocks(t *testing.T) {
	t.Parallel()
	f := newFake(t, server(1, silent), replica(2, 1, lost, received("0-1-107"), applied("0-1-95")))
	f.frozen = true
	run := f.start(policy(func(p *Policy) { p.RelayLog = RelayLogProceed }), Request{Kind: Failover, NotBefore: start + second})
	f.drive(run, run.Turned)
	require.GreaterOrEqual(t, f.at, start+second)
}

// TestTakeOverWaitsForTheLocks: the server that was promoted already is published
// no earlier than any other.
func TestTakeOverWaitsForTheLocks(t *testing.T) {
	t.Parallel()
	f := newFake(t, server(1, silent), server(2), replica(3, 1, lost))
	run := f.start(policy(), Request{Kind: Failover, NotBefore: start + second})
	f.drive(run, run.Turned)
	require.GreaterOrEqual(t, f.at, start+second)
}

// TestForcedFailoverToOneThatIsBehind: what a person has overridden is not
// checked once more.
func TestForcedFailoverToOneThatIsBehind(t *testing.T) {
	t.Parallel()
	f := newFake(t, server(1, down), replica(2, 1, lost, received("0-1-105"), applied("0-1-105")), replica(3, 1, lost))
	run := f.start(policy(), Request{Kind: Failover, To: "s3", Force: true})
	f.drive(run, nil)
	require.Equal(t, Done, run.Record.Outcome, run.Record.Detail)
}

// TestForcedFailoverAppliesTheRest: whatever was overridden, what the candidate
// has received is not thrown away.
func TestForcedFailoverAppliesTheRest(t *testing.T) {
	t.Parallel()
	f := newFake(t, server(1, down), replica(2, 1, lost, mustNot))
	run := f.start(policy(), Request{Kind: Failover, To: "s2", Force: true})
	f.rule(rule{server: "s2", sql: "IO_THREAD", effect: true, times: 1, answer: Answer{Known: true},
		before: func() { f.frozen = true; f.server("s2").Replication[0].Received = position("0-1-101") }})
	f.drive(run, func() bool { return f.at > start+30*second })
	require.Equal(t, topology.Yes, f.server("s2").ReadOnly)
}

// TestDomainsDiffer: where no server has all of all domains, a person decides.
func TestDomainsDiffer(t *testing.T) {
	t.Parallel()
	_, err := PlanFailover(cluster(server(1, down), replica(2, 1, lost, received("0-1-101,5-1-1"), applied("0-1-101,5-1-1")),
		replica(3, 1, lost, received("0-1-100,5-1-2"), applied("0-1-100,5-1-2"))), policy(), Request{})
	require.ErrorContains(t, err, "promote one by hand")
}

// TestNamedLacksWhatAnotherApplied: a replica that was restarted shows less as
// received than it has applied.
func TestNamedLacksWhatAnotherApplied(t *testing.T) {
	t.Parallel()
	for name, io := range map[string]string{"nothing received": "", "less received": "0-1-90"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := cluster(server(1, down), replica(2, 1, lost), replica(3, 1, lost, received(io), applied("0-1-102")))
			_, err := PlanFailover(c, policy(), Request{To: "s2"})
			require.ErrorContains(t, err, "s2 has received less than s3")
		})
	}
}

// TestUnfitReplicaHasMore: a plan that can only fail at its last look is refused
// at once, with a reason.
func TestUnfitReplicaHasMore(t *testing.T) {
	t.Parallel()
	for name, unfit := range map[string]change{"must not": mustNot, "maintenance": maintenance, "filtered": link(func(r *topology.Replication) { r.Filtered = true })} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			more := replica(3, 1, lost, received("0-1-105"), applied("0-1-105"), unfit)
			_, err := PlanFailover(cluster(server(1, down), replica(2, 1, lost), more), policy(), Request{})
			require.ErrorContains(t, err, "s3")
		})
	}
}

// TestLostPromotionIsNotCancelled: while it is not known whether a server was
// promoted, nothing is taken back.
func TestLostPromotionIsNotCancelled(t *testing.T) {
	t.Parallel()
	sides := func(f *fake) []string {
		var out []string
		for _, s := range f.servers {
			if s.Writable() {
				out = append(out, s.Name)
			}
		}
		return out
	}
	t.Run("the primary answers again", func(t *testing.T) {
		t.Parallel()
		f, run := hungPrimary(t, Request{Kind: Failover, Automatic: true})
		f.rule(rule{server: "s2", sql: "RESET SLAVE", times: 1, effect: true, answer: Answer{Err: errTest}, before: func() { f.server("s1").Evidence = topology.Answered }})
		f.drive(run, nil)
		require.Equal(t, run.Turned(), slices.Contains(sides(f), "s2"), run.Record.Detail)
	})
	t.Run("a person cancels", func(t *testing.T) {
		t.Parallel()
		f, run := switchover(t)
		f.rule(rule{server: "s2", sql: "RESET SLAVE", times: 1, effect: true, answer: Answer{Err: errTest}})
		f.drive(run, func() bool { return run.unsure })
		run.Cancel()
		f.drive(run, nil)
		require.Len(t, sides(f), 1, run.Record.Detail)
	})
}

// TestUndoOfAPromotionClosesTheServer: a statement whose answer was lost may have
// its effect later than it was looked for.
func TestUndoOfAPromotionClosesTheServer(t *testing.T) {
	t.Parallel()
	_, run := switchover(t)
	undo := run.Plan.Steps[len(run.Plan.Steps)-1].undo
	require.Contains(t, undo, toReadOnly)
	require.Less(t, strings.Index(undo, toReadOnly), strings.Index(undo, "START SLAVE"))
}

// TestAnotherWasPromotedAlready: a second one beside it would be the second
// writable server.
func TestAnotherWasPromotedAlready(t *testing.T) {
	t.Parallel()
	_, err := PlanFailover(cluster(server(1, down), server(2), replica(3, 1, lost)), policy(), Request{To: "s3"})
	require.ErrorContains(t, err, "s2")
}

// TestNamedAmongDiverged: where each has something that the others lack, naming
// one loses transactions as much as naming one that is behind.
func TestNamedAmongDiverged(t *testing.T) {
	t.Parallel()
	c := cluster(server(1, down), replica(2, 1, lost, received("0-2-101"), func(s *topology.Server) { s.CurrentPos = position("0-2-101") }),
		replica(3, 1, lost, received("0-1-101"), applied("0-1-101")))
	_, err := PlanFailover(c, policy(), Request{})
	require.ErrorContains(t, err, "each have transactions that the other lacks")
	_, err = PlanFailover(c, policy(), Request{To: "s3"})
	var no *RefusedError
	require.ErrorAs(t, err, &no)
	require.True(t, no.Refusals[0].Force)
}

// TestExternalDefaultConnectionIsKept: it is said to be left as it is.
func TestExternalDefaultConnectionIsKept(t *testing.T) {
	t.Parallel()
	plan, err := PlanSwitchover(cluster(server(1, external("")), replica(2, 1)), policy(), Request{Force: true})
	if err == nil {
		require.NotContains(t, plan.String(), "CHANGE MASTER '' TO")
	}
}

// TestServersThatCouldAcknowledgeUnseen: a server whose replication is not known
// may be a replica that acknowledges.
func TestServersThatCouldAcknowledgeUnseen(t *testing.T) {
	t.Parallel()
	for name, other := range map[string]topology.Server{
		"never seen":  {Settings: topology.Settings{Name: "s3", Address: "10.0.0.3:3306", Votes: 1}, Evidence: topology.TimedOut},
		"not legible": server(3, readOnly, func(s *topology.Server) { s.ReplicationKnown = false }),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWatch(t, election.MajorityOfAll)
			require.False(t, w.look(0, server(1, gone, strong), replica(2, 1, lost), other).Dead)
		})
	}
}

// TestForcedRejoinIsRecorded: what can be overridden says so, and an override is kept.
func TestForcedRejoinIsRecorded(t *testing.T) {
	t.Parallel()
	c := cluster(server(1), replica(2, 1, func(s *topology.Server) { s.DoneAt = 0 }))
	_, err := PlanRejoin(c, policy(), Request{To: "s2"}, History{})
	var no *RefusedError
	require.ErrorAs(t, err, &no)
	require.True(t, no.Refusals[0].Force)
	plan, err := PlanRejoin(c, policy(), Request{To: "s2", Force: true}, History{})
	require.NoError(t, err)
	require.Len(t, plan.Overrides, 1)
}

// TestSlowEvents: what takes longer than its limit, or than a lease, is cut short.
func TestSlowEvents(t *testing.T) {
	t.Parallel()
	many := func(status string) (out []mariadb.Event) {
		for i := range 20 {
			out = append(out, event("e"+string(rune('a'+i)), status))
		}
		return out
	}
	t.Run("limit", func(t *testing.T) {
		t.Parallel()
		f, run := switchover(t)
		f.events["s1"] = many("ENABLED")
		f.rule(rule{server: "s1", sql: "DISABLE ON SLAVE", answer: Answer{Known: true, Err: errTest, Code: 1205}, before: func() { f.at += 2 * second }})
		f.drive(run, run.Turned)
		require.LessOrEqual(t, time.Duration(run.Record.Steps[1].TookMS*1e6), eventsLimit+2*second)
	})
	t.Run("verified", func(t *testing.T) {
		t.Parallel()
		f, run := switchover(t)
		f.events["s1"] = many("ENABLED")
		f.drive(run, run.Turned)
		require.Empty(t, f.unverified)
	})
	t.Run("replicas do not wait", func(t *testing.T) {
		t.Parallel()
		f, run := turned(t, policy())
		f.events["s2"] = many("SLAVESIDE_DISABLED")
		f.drive(run, nil)
		follow := slices.IndexFunc(f.log, func(l string) bool { return strings.Contains(l, "CHANGE MASTER 10.0.0.2") })
		enable := slices.IndexFunc(f.log, func(l string) bool { return strings.HasSuffix(l, " ENABLE") })
		require.Less(t, follow, enable)
	})
}

// TestUndoGoesOnPastSoftSteps: a replica that cannot be told to receive again
// does not keep the old primary read-only.
func TestUndoGoesOnPastSoftSteps(t *testing.T) {
	t.Parallel()
	f := newFake(t, server(1, evidence(topology.WriteFailed), strong), replica(2, 1, acknowledges), replica(3, 1, acknowledges))
	run := f.start(policy(), Request{Kind: Failover})
	f.rule(rule{server: "s2", sql: "RESET SLAVE", answer: Answer{Known: true, Err: errors.New("denied")}})
	f.rule(rule{server: "s3", sql: "START SLAVE", answer: Answer{Known: true, Err: errTest}})
	f.drive(run, nil)
	require.Contains(t, f.log, "s2: START SLAVE '' IO_THREAD")
	require.Equal(t, topology.No, f.server("s1").ReadOnly)
}

// TestUndoStopsWhereTwoCouldBeWritable: the old primary is not opened while it is
// not known that the new one is closed.
func TestUndoStopsWhereTwoCouldBeWritable(t *testing.T) {
	t.Parallel()
	t.Run("the new one is silent", func(t *testing.T) {
		t.Parallel()
		f, run := switchover(t)
		f.rule(rule{server: "s2", sql: "RESET SLAVE", times: 1, effect: true, answer: Answer{Err: errTest}, before: func() { f.server("s2").ReadOnly = topology.No }})
		f.drive(run, func() bool { return run.unsure })
		f.server("s2").Evidence = topology.TimedOut
		f.drive(run, nil)
		require.Equal(t, topology.Yes, f.server("s1").ReadOnly, run.Record.Detail)
	})
	t.Run("the majority is gone", func(t *testing.T) {
		t.Parallel()
		f, run := switchover(t)
		f.rule(rule{server: "s2", sql: "RESET SLAVE", answer: Answer{Known: true, Err: errTest}, before: func() { f.refuse = f.verifies + 1 }})
		f.drive(run, nil)
		require.Contains(t, run.Record.Detail, "the majority is gone")
		require.Equal(t, "verify", f.log[len(f.log)-1])
		require.Equal(t, topology.Yes, f.server("s1").ReadOnly)
	})
}
