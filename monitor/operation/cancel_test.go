package operation

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/topology"
)

// at reports whether a run is at the step of a name.
func at(r *Run, name string) func() bool {
	return func() bool { return r.next < len(r.Plan.Steps) && r.Plan.Steps[r.next].Name == name }
}

// TestCancelBeforeTheTurn: at whichever step a person cancels, everything is as
// it was before.
func TestCancelBeforeTheTurn(t *testing.T) {
	t.Parallel()
	_, sample := switchover(t)
	stopped := map[string]bool{}
	for _, st := range sample.Plan.Steps {
		f, run := switchover(t)
		f.frozen = st.Name == "catch up"
		if f.frozen {
			f.server("s1").BinlogPos = position("0-1-107")
		}
		f.drive(run, at(run, st.Name))
		if run.Turned() {
			continue // passed in the same call as the one before
		}
		stopped[st.Name] = true
		require.True(t, run.Cancel())
		n := len(f.log)
		f.drive(run, nil)
		require.Equal(t, Cancelled, run.Record.Outcome)
		require.Contains(t, run.Record.Detail, "cancelled by a person before the step "+st.Name)
		for _, l := range f.sent(n) {
			require.True(t, strings.HasSuffix(l, " ENABLE") || strings.HasSuffix(l, toWritable) || strings.HasSuffix(l, " BACKUP STAGE END"), "only what takes back: %s", l)
		}
		require.Equal(t, topology.No, f.server("s1").ReadOnly)
		require.Equal(t, topology.Yes, f.server("s2").ReadOnly)
		require.Equal(t, "ENABLED", f.events["s1"][0].Status)
		f.requireVerified()
		require.False(t, run.Cancel(), "it has ended")
	}
	require.Contains(t, stopped, "set read-only")
	require.Contains(t, stopped, "catch up")
}

func TestCancelOfAFailoverStartsReceivingAgain(t *testing.T) {
	t.Parallel()
	f, run := hungPrimary(t, Request{Kind: Failover, NotBefore: start + 60*second})
	f.drive(run, at(run, "wait for the locks"))
	require.Equal(t, "No", f.server("s2").Replication[0].IO)
	require.Equal(t, "No", f.server("s3").Replication[0].IO)
	require.True(t, run.Cancel())
	n := len(f.log)
	f.drive(run, nil)
	require.Equal(t, Cancelled, run.Record.Outcome)
	require.Contains(t, run.Record.Detail, "undone: stop receiving on s3, stop receiving on s2")
	require.Equal(t, []string{"verify", "s3: START SLAVE '' IO_THREAD", "verify", "s2: START SLAVE '' IO_THREAD"}, f.log[n:])
	i := slices.IndexFunc(run.Record.Steps, func(s StepRecord) bool { return s.Name == "undo stop receiving" })
	require.Equal(t, StepRecord{Name: "undo stop receiving", Server: "s3", Statement: "START SLAVE '' IO_THREAD",
		StartedAt: run.Record.Steps[i].StartedAt, TookMS: 2, Outcome: Done}, run.Record.Steps[i])
}

func TestPrimaryThatAnswersAgain(t *testing.T) {
	t.Parallel()
	for _, automatic := range []bool{true, false} {
		f, run := hungPrimary(t, Request{Kind: Failover, Automatic: automatic, NotBefore: start + 60*second})
		f.drive(run, at(run, "wait for the locks"))
		f.server("s1").Evidence = topology.Answered
		n := len(f.log)
		f.drive(run, nil)
		if !automatic {
			require.Equal(t, Done, run.Record.Outcome, "a person knows what they do")
			continue
		}
		require.Equal(t, Cancelled, run.Record.Outcome)
		require.Equal(t, "s1 answers again; undone: stop receiving on s3, stop receiving on s2", run.Record.Detail)
		require.Equal(t, []string{"s3: START SLAVE '' IO_THREAD", "s2: START SLAVE '' IO_THREAD"}, f.sent(n))
		require.Equal(t, topology.Yes, f.server("s2").ReadOnly)
	}
}

// TestNothingIsSentBeforeItIsAllowed: the new primary is not promoted before
// everybody has noticed, to the tick.
func TestNothingIsSentBeforeItIsAllowed(t *testing.T) {
	t.Parallel()
	f, run := hungPrimary(t, Request{Kind: Failover, NotBefore: start + 30*second})
	f.drive(run, func() bool { return f.at >= start+30*second })
	require.Equal(t, topology.Yes, f.server("s2").ReadOnly)
	require.Equal(t, "wait for the locks", run.Plan.Steps[run.next].Name)
	f.drive(run, run.Turned)
	require.Equal(t, topology.No, f.server("s2").ReadOnly)
}

func TestAbandonUndoesNothing(t *testing.T) {
	t.Parallel()
	f, run := hungPrimary(t, Request{Kind: Failover, NotBefore: start + 60*second})
	f.drive(run, at(run, "wait for the locks"))
	n := len(f.log)
	run.Abandon(f, "the majority was lost")
	require.True(t, run.Ended())
	require.Equal(t, Abandoned, run.Record.Outcome)
	require.Equal(t, "given up at the step wait for the locks on s1: the majority was lost; what was done stays done: "+
		"done were stop receiving on s2, stop receiving on s3", run.Record.Detail)
	run.Advance(context.Background(), f.look(), f)
	require.Len(t, f.log, n, "nothing is sent after the end")

	f, run = switchover(t)
	run.Abandon(f, "the monitor is stopping")
	require.Contains(t, run.Record.Detail, "at the step set read-only on s1: the monitor is stopping; what was done stays done: no server was changed")

	f, run = switchover(t)
	f.drive(run, run.Turned)
	run.Abandon(f, "the majority was lost")
	require.Contains(t, run.Record.Detail, "given up after its last step: the majority was lost")
}

// TestUndoFails: what could not be taken back is named, with what to do.
func TestUndoFails(t *testing.T) {
	t.Parallel()
	f, run := switchover(t)
	f.rule(rule{server: "s2", sql: "RESET SLAVE", answer: Answer{Known: true, Err: errTest}})
	f.rule(rule{server: "s1", sql: "` ENABLE", answer: Answer{Known: true, Err: errTest}})
	f.drive(run, nil)
	require.Equal(t, Failed, run.Record.Outcome)
	require.Contains(t, run.Record.Detail, `undoing "disable events" on s1 failed: no luck`)
	require.Contains(t, run.Record.Detail, "ALTER EVENT ... ENABLE for each of them")
	i := slices.IndexFunc(run.Record.Steps, func(s StepRecord) bool { return s.Name == "undo disable events" })
	require.Equal(t, Failed, run.Record.Steps[i].Outcome)
}

// TestNobodyHasMore: a replica that turns out to have received more than the
// candidate stops the failover.
func TestNobodyHasMore(t *testing.T) {
	t.Parallel()
	f := newFake(t, server(1, down), replica(2, 1, lost), replica(3, 1, lost))
	run := f.start(policy(), Request{Kind: Failover})
	f.rule(rule{server: "s2", sql: "IO_THREAD", effect: true, times: 1, answer: Answer{Known: true},
		before: func() { f.frozen = true; f.server("s3").Replication[0].Received = position("0-1-101") }})
	f.drive(run, nil)
	require.Equal(t, Undone, run.Record.Outcome)
	require.Contains(t, run.Record.Detail, "s3 has received more than s2 by now; undone: stop receiving on s2")
	require.Equal(t, topology.Yes, f.server("s2").ReadOnly)
}

// TestRelayLogIsAppliedFirst: while the candidate has relay log left it is not
// promoted, however long that takes.
func TestRelayLogIsAppliedFirst(t *testing.T) {
	t.Parallel()
	backlog := func() (*fake, *Run) {
		f := newFake(t, server(1, down), replica(2, 1, lost, received("0-1-150")))
		f.frozen = true
		return f, f.start(policy(), Request{Kind: Failover})
	}
	f, run := backlog()
	f.drive(run, func() bool { return f.at > start+80*second })
	require.Empty(t, f.log)
	f.frozen = false
	f.drive(run, nil)
	require.Equal(t, Done, run.Record.Outcome)

	f, run = backlog()
	f.drive(run, nil)
	require.Equal(t, Failed, run.Record.Outcome)
	require.Contains(t, run.Record.Detail, "step apply relay log on s2 took longer than 1m30s: s2 has yet to apply 50 transactions (received 0-1-150, applied 0-1-100); SQL thread: Yes")
	require.Empty(t, f.log)
	require.InDelta(t, 90*second, run.Record.EndedAt.Sub(run.Record.StartedAt), float64(time.Second))
}

// TestRestIsAppliedToo: what arrived until the IO thread stopped is applied.
func TestRestIsAppliedToo(t *testing.T) {
	t.Parallel()
	f := newFake(t, server(1, down), replica(2, 1, lost))
	run := f.start(policy(), Request{Kind: Failover})
	f.rule(rule{server: "s2", sql: "IO_THREAD", effect: true, times: 1, answer: Answer{Known: true},
		before: func() { f.frozen = true; f.server("s2").Replication[0].Received = position("0-1-101") }})
	f.drive(run, func() bool { return f.at > start+60*second })
	require.Equal(t, "apply the rest", run.Plan.Steps[run.next].Name)
	require.Equal(t, topology.Yes, f.server("s2").ReadOnly)
	f.frozen = false
	f.drive(run, nil)
	require.Equal(t, Done, run.Record.Outcome)
	require.Equal(t, "0-1-101", f.server("s2").CurrentPos.String())
}
