package operation

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/topology"
	"github.com/lockstep-ha/lockstep/topology/gtid"
)

// TestConditions: what is waited for is true only as seen after the step before.
func TestConditions(t *testing.T) {
	t.Parallel()
	seen := start - 10*time.Millisecond // when server and replica were asked
	type condition = func(Cluster, time.Duration) (bool, string)
	thrown := func(ok condition) condition {
		return func(c Cluster, since time.Duration) (bool, string) {
			c.Had = map[string]gtid.Position{"s2": position("0-1-101")}
			return ok(c, since)
		}
	}
	for name, x := range map[string]struct {
		servers []topology.Server
		ok      condition
		since   time.Duration
		why     string // "" where it holds
	}{
		"drained":                 {list(server(1, down), replica(2, 1, lost)), drained("s2", "s1", false), seen, ""},
		"drained, as seen before": {list(server(1, down), replica(2, 1, lost)), drained("s2", "s1", false), seen + 1, "s2 has not answered since"},
		"drained, silent":         {list(server(1, down), replica(2, 1, silent)), drained("s2", "s1", false), seen, "s2 has not answered since (timed out)"},
		"drained, one left":       {list(server(1, down), replica(2, 1, lost, received("0-1-101"))), drained("s2", "s1", false), seen, "has yet to apply 1 transactions"},
		"drained, in one domain":  {list(server(1, down), replica(2, 1, lost, received("0-1-100,3-1-2"))), drained("s2", "s1", false), seen, "has yet to apply 2 transactions"},
		"drained, of another server": {list(server(1, down), replica(2, 1, lost, received("0-9-100"))), drained("s2", "s1", false), seen,
			"has yet to apply 1 transactions (received 0-9-100, applied 0-1-100)"},
		"drained, it had more":                             {list(server(1, down), replica(2, 1, lost)), thrown(drained("s2", "s1", false)), seen, "s2 had received 0-1-101 and has thrown it away"},
		"drained, it had more, forced":                     {list(server(1, down), replica(2, 1, lost)), thrown(drained("s2", "s1", true)), seen, ""},
		"drained, a former primary":                        {list(server(1, down), replica(2, 1, lost, received("0-2-100"), func(s *topology.Server) { s.SlavePos, s.BinlogState = gtid.Position{}, state("0-2-100") })), drained("s2", "s1", false), seen, ""},
		"drained, a former primary that has received more": {list(server(1, down), replica(2, 1, lost, received("0-1-101"), func(s *topology.Server) { s.SlavePos, s.BinlogState = gtid.Position{}, state("0-2-100") })), drained("s2", "s1", false), seen, "has yet to apply"},
		"drained, repointed":                               {list(server(1, down), replica(2, 3), server(3)), drained("s2", "s1", false), seen, "s2 does not replicate from s1 any more"},
		"most advanced":                                    {list(server(1, down), replica(2, 1, lost), replica(3, 1, lost)), mostAdvanced("s2", "s1"), seen, ""},
		"most advanced, as before":                         {list(server(1, down), replica(2, 1, lost), replica(3, 1, lost)), mostAdvanced("s2", "s1"), seen + 1, "s3 has not answered since"},
		"another has more":                                 {list(server(1, down), replica(2, 1, lost), replica(3, 1, lost, received("0-1-101"))), mostAdvanced("s2", "s1"), seen, "s3 has received more than s2 by now"},
		"one that is down has":                             {list(server(1, down), replica(2, 1, lost), replica(3, 1, down, received("0-1-101"))), mostAdvanced("s2", "s1"), seen, ""},
		"one of a relay has":                               {list(server(1, down), replica(2, 1, lost), replica(3, 2, received("0-1-101"))), mostAdvanced("s2", "s1"), seen, ""},
		"replicates":                                       {list(server(1), replica(2, 1)), replicatesFrom("s2", "s1"), seen, ""},
		"replicates, as before":                            {list(server(1), replica(2, 1)), replicatesFrom("s2", "s1"), seen + 1, "s2 has not answered since"},
		"replicates, silent":                               {list(server(1), replica(2, 1, silent)), replicatesFrom("s2", "s1"), seen, "s2 has not answered since (timed out)"},
		"no replica":                                       {list(server(1), replica(2, 1, lost)), hasReplica("s1"), seen, "no replica is connected to s1"},
		"a replica":                                        {list(server(1), replica(2, 1)), hasReplica("s1"), seen, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ok, why := x.ok(cluster(x.servers...), x.since)
			require.Equal(t, x.why == "", ok, why)
			if !ok {
				require.Contains(t, why, x.why)
			}
		})
	}
}

// TestCaughtUp: the primary has to be seen twice with a position that the target has.
func TestCaughtUp(t *testing.T) {
	t.Parallel()
	at := func(sent time.Duration, pos string) change {
		return func(s *topology.Server) { s.SentAt, s.BinlogPos, s.ReadOnly = start+sent, position(pos), topology.Yes }
	}
	type look struct {
		primary, target topology.Server
		why             string
	}
	target := func(sent time.Duration, pos string) topology.Server {
		return replica(2, 1, applied(pos), at(sent, pos))
	}
	for name, looks := range map[string][]look{
		"twice the same":        {{server(1, at(1, "0-1-100")), target(1, "0-1-100"), "seen twice"}, {server(1, at(2, "0-1-100")), target(2, "0-1-100"), ""}},
		"the same look":         {{server(1, at(1, "0-1-100")), target(1, "0-1-100"), "seen twice"}, {server(1, at(1, "0-1-100")), target(1, "0-1-100"), "seen twice"}},
		"it moves":              {{server(1, at(1, "0-1-100")), target(1, "0-1-100"), "seen twice"}, {server(1, at(2, "0-1-101")), target(2, "0-1-101"), "seen twice"}, {server(1, at(3, "0-1-101")), target(3, "0-1-101"), ""}},
		"as seen before":        {{server(1, at(-1, "0-1-100")), target(1, "0-1-100"), "no new answer yet"}, {server(1, at(1, "0-1-100")), target(-1, "0-1-100"), "no new answer yet"}},
		"the target is behind":  {{server(1, at(1, "0-1-101")), target(1, "0-1-100"), "s2 has applied 0-1-100 of 0-1-101"}, {server(1, at(2, "0-1-101")), target(2, "0-1-101"), ""}},
		"one domain is behind":  {{server(1, at(1, "0-1-100,1-1-1")), target(1, "0-1-100"), "has applied"}, {server(1, at(2, "0-1-100,1-1-1")), target(2, "0-1-100"), "has applied"}},
		"parted":                {{server(1, at(1, "0-1-100")), target(1, "0-2-100"), "has applied"}, {server(1, at(2, "0-1-100")), target(2, "0-2-101"), "has applied"}},
		"writable again":        {{server(1, at(1, "0-1-100"), func(s *topology.Server) { s.ReadOnly = topology.No }), target(1, "0-1-100"), "s1 is writable again"}},
		"the primary is silent": {{server(1, at(1, "0-1-100"), silent), target(1, "0-1-100"), "s1 has stopped answering: timed out"}},
		"the target is silent":  {{server(1, at(1, "0-1-100")), replica(2, 1, silent), "s2 has stopped answering: timed out"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ok := caughtUp("s2", "s1")
			for _, l := range looks {
				done, why := ok(cluster(l.primary, l.target), start)
				require.Equal(t, l.why == "", done, why)
				require.Contains(t, why, l.why)
			}
		})
	}
}

// TestOldObservationsDecideNothing: after an answer was lost only what was asked
// later counts, in steps and in lanes.
func TestOldObservationsDecideNothing(t *testing.T) {
	t.Parallel()
	stale := func(f *fake, run *Run, old Cluster) {
		began := f.at
		for f.at < began+second {
			f.at += run.Advance(context.Background(), old, f)
		}
	}
	f, run := switchover(t)
	old := f.look()
	f.rule(rule{server: "s1", sql: toReadOnly, times: 1, effect: true, answer: Answer{Err: errTest}})
	stale(f, run, old)
	require.False(t, run.Ended())
	require.Len(t, f.log, 2)
	f.drive(run, nil)
	require.Equal(t, Done, run.Record.Outcome)

	f, run = turned(t, policy(leaveEvents))
	old = f.look()
	f.rule(rule{server: "s3", sql: "CHANGE MASTER", times: 1, effect: true, answer: Answer{Err: errTest}})
	n := len(f.log)
	stale(f, run, old)
	require.Len(t, f.sent(n), 2, "one for each replica")
	require.False(t, run.Ended())
	f.drive(run, nil)
	require.Empty(t, run.Record.Warnings)
	require.Len(t, f.sent(n), 2)
}
