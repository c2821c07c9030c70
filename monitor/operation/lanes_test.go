package operation

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/topology"
	"github.com/lockstep-ha/lockstep/topology/mariadb"
)

// turned is a failover to s2 that has just had its effect, with s3 and s4 to follow.
func turned(t testing.TB, p Policy) (*fake, *Run) {
	f := newFake(t, server(1, down), replica(2, 1, lost), replica(3, 1, lost), replica(4, 1, lost))
	run := f.start(p, Request{Kind: Failover})
	f.drive(run, run.Turned)
	require.False(t, run.Ended())
	return f, run
}

func leaveEvents(p *Policy) { p.LeaveEvents = true }

func TestLanesRunInParallel(t *testing.T) {
	t.Parallel()
	f, run := turned(t, policy(leaveEvents))
	f.drive(run, nil)
	require.Equal(t, Done, run.Record.Outcome)
	require.Empty(t, run.Record.Warnings)
	last := f.batches[len(f.batches)-1]
	require.Len(t, last, 2, "both in one round trip")
	require.Equal(t, "s3", last[0].Server)
	require.Equal(t, "s4", last[1].Server)
	for _, c := range last {
		require.Equal(t, backgroundPatience, c.Patience)
		require.Equal(t, statementLimit, c.Limit)
		require.False(t, c.Aside)
	}
	require.Equal(t, uint64(2), f.server("s3").Replication[0].SourceServerID)
	require.Equal(t, uint64(2), f.server("s4").Replication[0].SourceServerID)
}

// TestReplicaThatCannotFollow holds up nobody, and leaves a warning.
func TestReplicaThatCannotFollow(t *testing.T) {
	t.Parallel()
	f, run := turned(t, policy(leaveEvents))
	f.rule(rule{server: "s3", sql: "CHANGE MASTER", answer: Answer{Known: true, Err: errTest, Code: 1200}})
	f.drive(run, nil)
	require.Equal(t, Done, run.Record.Outcome)
	require.Equal(t, []string{"replicate from s2 on s3: no luck"}, run.Record.Warnings)
	tries := slices.DeleteFunc(slices.Clone(f.log), func(l string) bool { return !strings.HasPrefix(l, "s3: STOP SLAVE ''; CHANGE") })
	require.Len(t, tries, 3)
	require.Equal(t, uint64(2), f.server("s4").Replication[0].SourceServerID)
	i := slices.IndexFunc(run.Record.Steps, func(s StepRecord) bool { return s.Server == "s3" && s.Name == "replicate from s2" })
	require.Equal(t, Failed, run.Record.Steps[i].Outcome)
	require.Equal(t, "no luck", run.Record.Steps[i].Detail)
	require.False(t, slices.ContainsFunc(run.Record.Steps, func(s StepRecord) bool { return s.Server == "s3" && s.Name == "confirm" }))
	require.GreaterOrEqual(t, run.Record.EndedAt.Sub(*run.Record.TurnedAt), 2*retryPause, "a pause between the attempts")
	f.requireVerified()
}

func TestReplicaThatFollowsAtTheSecondAttempt(t *testing.T) {
	t.Parallel()
	f, run := turned(t, policy(leaveEvents))
	f.rule(rule{server: "s3", sql: "CHANGE MASTER", times: 1, answer: Answer{Known: true, Err: errTest}})
	f.drive(run, nil)
	require.Equal(t, Done, run.Record.Outcome)
	require.Empty(t, run.Record.Warnings)
	require.Equal(t, "Yes", f.server("s3").Replication[0].IO)
}

// TestReplicaThatHangs: a lost answer is not repeated while the server is silent.
func TestReplicaThatHangs(t *testing.T) {
	t.Parallel()
	f, run := turned(t, policy(leaveEvents))
	f.rule(rule{server: "s3", sql: "CHANGE MASTER", answer: Answer{Err: errTest}, before: func() { f.server("s3").Evidence = topology.TimedOut }})
	f.drive(run, nil)
	require.Equal(t, Done, run.Record.Outcome)
	require.Equal(t, []string{"replicate from s2 on s3: no luck"}, run.Record.Warnings)
	require.Len(t, slices.DeleteFunc(slices.Clone(f.log), func(l string) bool { return !strings.HasPrefix(l, "s3: STOP SLAVE ''; CHANGE") }), 1)
	require.LessOrEqual(t, run.Record.EndedAt.Sub(*run.Record.TurnedAt), statementLimit+second)
}

// TestConfirmation: what was sent is not success before it was seen.
func TestConfirmation(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		change func(*topology.Replication)
		want   string
	}{
		"not connected":     {func(r *topology.Replication) { r.IO = "Connecting" }, "s3: IO Connecting, SQL Yes"},
		"cannot connect":    {func(r *topology.Replication) { r.IO, r.IOErrno, r.IOError = "Connecting", 1045, "denied" }, "s3 cannot replicate from s2: error 1045: denied"},
		"cannot apply":      {func(r *topology.Replication) { r.SQL, r.SQLErrno, r.SQLError = "No", 1062, "twice" }, "s3 cannot apply what s2 sends: error 1062: twice"},
		"of another server": {func(r *topology.Replication) { r.Host = "10.0.0.4"; r.SourceServerID = 4 }, "s3 does not replicate from s2"},
		"of another id":     {func(r *topology.Replication) { r.SourceServerID = 77 }, "s3: IO Yes, SQL Yes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, run := turned(t, policy(leaveEvents))
			for !run.Ended() {
				c := f.look()
				for i, s := range c.Servers {
					if s.Name == "s3" && s.Replication[0].Host == "10.0.0.2" {
						x.change(&c.Servers[i].Replication[0])
					}
				}
				c.Graph = topology.NewGraph(c.Servers)
				f.at += run.Advance(context.Background(), c, f)
			}
			require.Equal(t, Done, run.Record.Outcome)
			require.Equal(t, []string{"confirm on s3: " + x.want}, run.Record.Warnings)
			require.InDelta(t, confirmLimit, run.Record.EndedAt.Sub(*run.Record.TurnedAt), float64(2*second))
		})
	}
}

func TestSoftAndPromotionSQLInLanes(t *testing.T) {
	t.Parallel()
	f, run := turned(t, policy(leaveEvents, func(p *Policy) { p.PromotionSQL = []string{"DO 1", "DO 2"} }))
	f.rule(rule{server: "s2", sql: "DO 1;DO 2", answer: Answer{Known: true, Err: errTest}})
	f.drive(run, nil)
	require.Equal(t, Done, run.Record.Outcome)
	require.Equal(t, []string{"promotion SQL on s2: no luck"}, run.Record.Warnings)
	i := slices.IndexFunc(run.Record.Steps, func(s StepRecord) bool { return s.Name == "promotion SQL" })
	require.Equal(t, Warned, run.Record.Steps[i].Outcome)
}

func TestEventsOfADeadPrimary(t *testing.T) {
	t.Parallel()
	f, run := turned(t, policy())
	late := event("late", "SLAVESIDE_DISABLED")
	late.Overdue = true
	f.events["s2"] = []mariadb.Event{event("a", "SLAVESIDE_DISABLED"), event("b", "DISABLED"), late, event("c", "ENABLED")}
	f.drive(run, nil)
	require.Equal(t, Done, run.Record.Outcome)
	require.Equal(t, []string{"s2: the event db.late is past its time and may have run on the former primary: it is left disabled"}, run.Record.Warnings)
	require.Equal(t, []mariadb.Event{event("a", "ENABLED"), event("b", "DISABLED"), late, event("c", "ENABLED")}, f.events["s2"])
}

// TestEventsThatFail: one that cannot be altered stops neither the others nor the
// switchover; one that is gone is no problem.
func TestEventsThatFail(t *testing.T) {
	t.Parallel()
	f, run := switchover(t)
	f.events["s1"] = append(f.events["s1"], event("c", "ENABLED"), event("d", "ENABLED"))
	f.events["s2"] = append(f.events["s2"], event("c", "SLAVESIDE_DISABLED"))
	f.rule(rule{server: "s1", sql: "`a`", answer: Answer{Known: true, Err: errTest}})
	f.rule(rule{server: "s1", sql: "`d`", answer: Answer{Known: true, Err: errors.New("unknown event"), Code: mariadb.ErrEventMissing}})
	f.drive(run, nil)
	require.Equal(t, Done, run.Record.Outcome)
	require.Equal(t, "disable events on s1: db.a: no luck", run.Record.Warnings[0])
	require.Equal(t, Warned, run.Record.Steps[1].Outcome)
	require.Contains(t, f.log, "s1: event c DISABLE ON SLAVE")
	require.Contains(t, f.log, "s2: event a ENABLE")
	require.Contains(t, f.log, "s2: event c ENABLE")
	require.NotContains(t, f.log, "s2: event b ENABLE")
}

// TestNoEventScheduler: a server that runs no events has none to move.
func TestNoEventScheduler(t *testing.T) {
	t.Parallel()
	f, run := switchover(t)
	f.rule(rule{sql: "information_schema.EVENTS", answer: Answer{Known: true, Err: errTest, Code: mariadb.ErrEventsDisabled}})
	f.drive(run, nil)
	require.Equal(t, Done, run.Record.Outcome)
	require.Len(t, run.Record.Warnings, 1, "the connection that was ended")
}

func TestConnectionsAreEndedInBoundedRounds(t *testing.T) {
	t.Parallel()
	f, run := switchover(t)
	f.immortal = true
	f.sessions["s1"] = []uint64{7, 8}
	f.rule(rule{server: "s1", sql: "CONNECTION 8", answer: Answer{Known: true, Err: errTest, Code: 1094}})
	f.drive(run, nil)
	require.Equal(t, Done, run.Record.Outcome)
	kills := slices.DeleteFunc(slices.Clone(f.log), func(l string) bool { return !strings.Contains(l, "KILL") })
	require.Len(t, kills, 2*(5+3), "five rounds, and three more when the target has caught up")
	for i, l := range f.log {
		if strings.HasSuffix(l, "CONNECTION 7") {
			require.Equal(t, []string{"s1: privileged?", "verify"}, f.log[i-2:i])
		}
	}
	require.Len(t, run.Record.Warnings, 2*(5+3)+2)
	require.Contains(t, run.Record.Warnings[16], "connection 7 comes back whenever it is ended, and may write there")
}

func TestConnectionsThatCannotBeListed(t *testing.T) {
	t.Parallel()
	f, run := switchover(t)
	f.rule(rule{server: "s1", sql: "PROCESSLIST", answer: Answer{Known: true, Err: errTest}})
	f.drive(run, nil)
	require.Equal(t, Done, run.Record.Outcome)
	require.Equal(t, Warned, run.Record.Steps[2].Outcome)
	require.Equal(t, "connections could not be listed: no luck", run.Record.Steps[2].Detail)
}

// TestConnectionsOfMonitorsAreKept: those of accounts that are named are not listed.
func TestConnectionsOfMonitorsAreKept(t *testing.T) {
	t.Parallel()
	for kind, servers := range map[Kind][]topology.Server{
		Switchover: list(server(1), replica(2, 1)),
		Failover:   list(server(1, evidence(topology.WriteFailed)), replica(2, 1)),
	} {
		f := newFake(t, servers...)
		run := f.start(policy(func(p *Policy) { p.KeepConnections = []string{"backup"} }), Request{Kind: kind})
		f.drive(run, nil)
		require.Equal(t, Done, run.Record.Outcome)
		i := slices.IndexFunc(f.batches, func(b []Call) bool { return strings.Contains(b[0].SQL, "PROCESSLIST") })
		require.Contains(t, f.batches[i][0].SQL, "'backup'")
		require.True(t, f.batches[i][0].Reads)
		require.Equal(t, kind == Switchover, strings.Contains(f.batches[i][0].SQL, "USER_PRIVILEGES"), "a primary that cannot write has all its clients ended")
	}
}

// TestAsideSteps: a statement whose source does not answer is waited for by
// looking, and counts as done when it is seen.
func TestAsideSteps(t *testing.T) {
	t.Parallel()
	f, run := hungPrimary(t, Request{Kind: Failover})
	slow := func(name, sql string) {
		f.rule(rule{server: name, sql: sql, times: 1, answer: Answer{Err: errTest}})
	}
	slow("s2", "STOP SLAVE '' IO_THREAD")
	slow("s3", "STOP SLAVE '' IO_THREAD")
	f.drive(run, at(run, "receive nothing more"))
	require.Equal(t, []bool{true, true}, []bool{f.batches[0][0].Aside, f.batches[1][0].Aside})
	require.Equal(t, backgroundPatience, f.batches[0][0].Patience)
	require.Equal(t, asideLimit, f.batches[0][0].Limit)
	began := f.at
	f.drive(run, func() bool { return f.at > began+2*second })
	require.Equal(t, "receive nothing more", run.Plan.Steps[run.next].Name)
	f.server("s2").Replication[0].IO = "No"
	f.drive(run, run.Turned)
	require.Equal(t, "s3", run.Plan.Steps[4].Server)
	require.Equal(t, []string{"receive nothing more on s3: s3 still receives"}, run.Record.Warnings, "others hold it up no longer than their limit")
	slow("s3", "CHANGE MASTER")
	turnedAt := f.at
	f.drive(run, func() bool { return f.at > turnedAt+5*second })
	require.False(t, run.Ended(), "it may still be at work")
	f.drive(run, nil)
	require.Equal(t, Done, run.Record.Outcome)
	require.Greater(t, f.at, turnedAt+asideLimit)
	require.Len(t, run.Record.Warnings, 1, "the second attempt was seen")
}

// TestSemiSyncOffOfOldVersions: where it takes seconds to turn the primary side of
// semi-sync off, the lock connection is not kept waiting for that.
func TestSemiSyncOffOfOldVersions(t *testing.T) {
	t.Parallel()
	for text, aside := range map[string]bool{"10.5.23-MariaDB": true, "10.11.18-MariaDB": false} {
		f := newFake(t, server(1, strong, version(text)), replica(2, 1, acknowledges, version(text)))
		run := f.start(policy(), Request{Kind: Switchover})
		f.drive(run, nil)
		require.Equal(t, Done, run.Record.Outcome, run.Record.Detail)
		i := slices.IndexFunc(f.batches, func(b []Call) bool { return strings.Contains(b[0].SQL, mariadb.SemiSyncPrimaryOff) })
		require.Equal(t, aside, f.batches[i][0].Aside, text)
	}
}

func TestRejoinRuns(t *testing.T) {
	t.Parallel()
	f := newFake(t, server(1), server(2))
	c := f.look()
	c.Servers[1].DoneAt -= second
	plan, err := PlanRejoin(c, policy(), Request{Kind: Rejoin, To: "s2"}, History{Known: true})
	require.NoError(t, err)
	run := Start("op-1", plan, policy(), Request{Kind: Rejoin}, f)
	f.drive(run, nil)
	require.Equal(t, Done, run.Record.Outcome)
	require.Equal(t, []string{"verify", "s2: " + toReadOnly, "verify", "s2: events?", "verify", "s2: STOP SLAVE ''; CHANGE MASTER 10.0.0.1; START SLAVE ''"}, f.log)
	require.Nil(t, run.Record.TurnedAt)
	require.False(t, run.Turned())
}

func TestResetRuns(t *testing.T) {
	t.Parallel()
	f := newFake(t, server(1, strong), replica(2, 1))
	f.rule(rule{server: "s2", sql: "RESET MASTER", effect: true, times: 1, answer: Answer{Err: errTest}})
	run := f.start(policy(leaveEvents), Request{Kind: ResetReplication, To: "s2"})
	f.drive(run, nil)
	require.Equal(t, Done, run.Record.Outcome)
	require.Equal(t, []string{"s1: " + toReadOnly,
		"s1: SET GLOBAL rpl_semi_sync_master_enabled=0; SET GLOBAL rpl_semi_sync_slave_enabled=1; RESET MASTER; SET GLOBAL gtid_slave_pos=''",
		"s2: STOP SLAVE ''; RESET SLAVE '' ALL; RESET MASTER; SET GLOBAL gtid_slave_pos=''"}, f.sent(0)[:3])
	require.Equal(t, topology.No, f.server("s2").ReadOnly)
	require.Equal(t, topology.Yes, f.server("s1").ReadOnly)
	require.True(t, f.server("s2").SemiSync.PrimaryOn)
	require.False(t, f.server("s1").SemiSync.PrimaryOn)
	require.Equal(t, "10.0.0.2", f.server("s1").Replication[0].Host)
	require.Less(t, f.at, start+time.Minute)
}

// TestConnectionsThatWaitToCommit are ended before they may: what they commit on the
// former primary is on nobody else.
func TestConnectionsThatWaitToCommit(t *testing.T) {
	t.Parallel()
	f, run := switchover(t)
	f.committing = []uint64{9, 11}
	f.drive(run, nil)
	require.Equal(t, Done, run.Record.Outcome)
	i := slices.Index(f.log, "s1: BACKUP STAGE END")
	require.Equal(t, []string{"verify", "s1: blocked?", "verify", "s1: KILL SOFT CONNECTION 9", "s1: KILL SOFT CONNECTION 11"}, f.log[i-5:i])
	require.Contains(t, run.Record.Warnings, "s1: ended app@10.1.1.1:5000, connection 11")
}

// TestCommitsAreNotBlockedAnyMore where the session that blocked them is gone.
func TestCommitsAreNotBlockedAnyMore(t *testing.T) {
	t.Parallel()
	f, run := switchover(t)
	f.rule(rule{server: "s1", sql: mariadb.UnblockCommits, answer: Answer{Known: true, Err: errTest, Code: mariadb.ErrNotBlocked}})
	f.drive(run, nil)
	require.Equal(t, Done, run.Record.Outcome, "%+v", run.Record)

	f, run = switchover(t)
	f.rule(rule{server: "s1", sql: mariadb.UnblockCommits, answer: Answer{Known: true, Err: errTest, Code: mariadb.ErrNotBlocked}})
	f.frozen, f.server("s1").BinlogPos = true, position("0-1-107")
	f.drive(run, at(run, "catch up"))
	require.True(t, run.Cancel())
	f.drive(run, nil)
	require.Equal(t, Cancelled, run.Record.Outcome)
	require.False(t, run.Left())
	require.Equal(t, topology.No, f.server("s1").ReadOnly)
}

// TestCommitsCannotBeBlocked is said, and no reason to stop.
func TestCommitsCannotBeBlocked(t *testing.T) {
	t.Parallel()
	f, run := switchover(t)
	f.rule(rule{server: "s1", sql: "BACKUP STAGE BLOCK_COMMIT", answer: Answer{Known: true, Err: errTest, Code: 1205}})
	f.drive(run, nil)
	require.Equal(t, Done, run.Record.Outcome, "%+v", run.Record)
	require.Contains(t, run.Record.Warnings, "block commits on s1: no luck")
	require.Contains(t, f.log, "s1: BACKUP STAGE END", "it may have begun")
}
