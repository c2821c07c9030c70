package operation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/topology"
	"github.com/lockstep-ha/lockstep/topology/mariadb"
)

const (
	toReadOnly = "SET GLOBAL read_only=1"
	toWritable = "SET GLOBAL read_only=0"
	promoted   = "s2: STOP SLAVE ''; SET GLOBAL read_only=0; RESET SLAVE '' ALL"
	backToS1   = "s2: SET GLOBAL read_only=1; STOP SLAVE ''; CHANGE MASTER 10.0.0.1; START SLAVE ''"
)

func event(name, status string) mariadb.Event {
	return mariadb.Event{Schema: "db", Name: name, Status: status}
}

// switchover is one of s1 to s2 with an event, a privileged connection and a
// second replica.
func switchover(t testing.TB) (*fake, *Run) {
	f := newFake(t, server(1), replica(2, 1), replica(3, 1))
	f.events["s1"] = []mariadb.Event{event("a", "ENABLED"), event("b", "DISABLED")}
	f.events["s2"] = []mariadb.Event{event("a", "SLAVESIDE_DISABLED"), event("b", "SLAVESIDE_DISABLED")}
	f.sessions["s1"] = []uint64{7}
	return f, f.start(policy(), Request{Kind: Switchover})
}

// hungPrimary is a failover of a primary that is silent, with semi-sync replicas.
func hungPrimary(t testing.TB, r Request) (*fake, *Run) {
	f := newFake(t, server(1, silent, strong), replica(2, 1, acknowledges), replica(3, 1, acknowledges))
	return f, f.start(policy(func(p *Policy) { p.LeaveEvents = true }), r)
}

func TestSwitchoverRuns(t *testing.T) {
	t.Parallel()
	f, run := switchover(t)
	f.drive(run, run.Turned)
	require.Equal(t, []string{
		"verify", "s1: " + toReadOnly,
		"verify", "s1: events?", "verify", "s1: event a DISABLE ON SLAVE",
		"s1: privileged?", "verify", "s1: KILL SOFT CONNECTION 7", "s1: privileged?",
		"verify", "s1: block commits", "s1: privileged?", "verify", promoted,
	}, f.log, "nothing is done before the new primary is published")
	require.False(t, run.Ended())
	require.False(t, run.Cancel(), "too late")
	n := len(f.log)
	f.drive(run, nil)
	require.Equal(t, []string{
		"verify", "s1: blocked?", "s1: BACKUP STAGE END", "s3: STOP SLAVE ''; CHANGE MASTER 10.0.0.2; START SLAVE ''",
		"verify", "s1: STOP SLAVE ''; CHANGE MASTER 10.0.0.2; START SLAVE ''", "verify", "s2: events?", "verify", "s2: event a ENABLE",
	}, f.log[n:])
	f.requireVerified()
	rec := run.Record
	require.Equal(t, Done, rec.Outcome)
	require.Equal(t, []string{"s1: ended app@10.1.1.1:5000, connection 7"}, rec.Warnings)
	require.Equal(t, topology.Yes, f.server("s1").ReadOnly)
	require.Equal(t, "SLAVESIDE_DISABLED", f.events["s2"][1].Status, "it was not enabled on the old primary")
	require.False(t, run.Cancel())
}

func TestRecordKeepsTimes(t *testing.T) {
	t.Parallel()
	f, run := switchover(t)
	f.drive(run, nil)
	rec := run.Record
	require.Equal(t, "op-1", rec.ID)
	require.Equal(t, "s1", rec.From)
	require.Equal(t, "s2", rec.To)
	require.NotEmpty(t, rec.Reason)
	require.Len(t, rec.Steps, len(run.Plan.Steps)+7)
	last := rec.StartedAt
	for i, st := range rec.Steps {
		require.Equal(t, Done, st.Outcome, st.Name)
		require.False(t, st.StartedAt.Before(last), st.Name)
		last = st.StartedAt
		if i < len(run.Plan.Steps) {
			require.Equal(t, run.Plan.Steps[i].Name, st.Name)
			require.Equal(t, run.Plan.Steps[i].Statement, st.Statement)
			require.False(t, rec.TurnedAt.Before(st.StartedAt.Add(time.Duration(st.TookMS*1e6))))
		}
		require.True(t, st.TookMS > 0 || strings.HasPrefix(st.Statement, "wait: "), st.Name)
	}
	require.Equal(t, "db.a", rec.Steps[1].Detail)
	require.False(t, rec.EndedAt.Before(*rec.TurnedAt))
}

func TestFailoverRuns(t *testing.T) {
	t.Parallel()
	f, run := hungPrimary(t, Request{Kind: Failover, Automatic: true, NotBefore: start + 1500*time.Millisecond})
	f.drive(run, nil)
	require.Equal(t, Done, run.Record.Outcome)
	require.Empty(t, run.Record.Warnings)
	f.requireVerified()
	sent := f.sent(0)
	require.Len(t, sent, 4)
	require.Contains(t, sent[0], "s2: SET @lockstep_kill")
	require.Contains(t, sent[1], "s3: SET @lockstep_kill")
	require.Contains(t, sent[2], "s2: STOP SLAVE ''; SET GLOBAL rpl_semi_sync_master_timeout=5184000000;")
	require.Contains(t, sent[3], "CHANGE MASTER 10.0.0.2")
	require.False(t, run.Record.TurnedAt.Before(f.Wall().Add(start+1500*time.Millisecond-f.at)), "not before it was allowed")
	require.Equal(t, topology.No, f.server("s2").ReadOnly)
}

// TestVerificationFails: whichever verification it is that fails, nothing is sent
// after it and nothing is taken back.
func TestVerificationFails(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func() (*fake, *Run){
		"switchover": func() (*fake, *Run) { return switchover(t) },
		"failover":   func() (*fake, *Run) { return hungPrimary(t, Request{Kind: Failover}) },
		"reset": func() (*fake, *Run) {
			f := newFake(t, server(1), replica(2, 1))
			return f, f.start(policy(), Request{Kind: ResetReplication})
		},
	} {
		f, run := begin()
		f.drive(run, nil)
		total := f.verifies
		require.Equal(t, Done, run.Record.Outcome)
		require.Greater(t, total, 3)
		for n := 1; n <= total; n++ {
			f, run := begin()
			f.refuse = n
			f.drive(run, nil)
			require.Equal(t, Abandoned, run.Record.Outcome, "%s %d", name, n)
			require.Equal(t, n, f.verifies)
			require.Equal(t, "verify", f.log[len(f.log)-1], "%s %d", name, n)
			require.Contains(t, run.Record.Detail, "given up")
			require.Contains(t, run.Record.Detail, "the majority is gone")
		}
	}
}

// TestStatementErrorIsUndone takes back what was done, the last first.
func TestStatementErrorIsUndone(t *testing.T) {
	t.Parallel()
	f, run := switchover(t)
	f.rule(rule{server: "s2", sql: "RESET SLAVE", answer: Answer{Known: true, Err: errTest, Code: 1200}})
	f.drive(run, nil)
	require.Equal(t, Undone, run.Record.Outcome)
	require.Contains(t, run.Record.Detail, "step promote on s2 has not had its effect: no luck; undone: promote on s2, block commits on s1, disable events on s1, set read-only on s1")
	i := slices.Index(f.log, promoted)
	require.Equal(t, []string{"verify", backToS1, "verify", "s1: BACKUP STAGE END", "verify", "s1: event a ENABLE", "verify", "s1: " + toWritable}, f.log[i+1:])
	f.requireVerified()
	require.False(t, run.Turned())
	require.Nil(t, run.Record.TurnedAt)
	require.Equal(t, "ENABLED", f.events["s1"][0].Status)
	require.Equal(t, "DISABLED", f.events["s1"][1].Status)
}

func TestErrorWithoutUndo(t *testing.T) {
	t.Parallel()
	f := newFake(t, server(1, down), replica(2, 1, threads("Connecting", "No")))
	run := f.start(policy(), Request{Kind: Failover})
	f.rule(rule{sql: "SQL_THREAD", answer: Answer{Known: true, Err: errTest}})
	f.drive(run, nil)
	require.Equal(t, Failed, run.Record.Outcome)
	require.Equal(t, "step start applying on s2: no luck; no server was changed", run.Record.Detail)
	require.Equal(t, Failed, run.Record.Steps[0].Outcome)
	require.Len(t, f.log, 2)
}

// TestLostAnswers: what is seen afterwards decides, and nothing is sent twice.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	lostAnswer := Answer{Err: errors.New("broken pipe")}
	for name, x := range map[string]struct {
		server, sql string
		effect      bool
		outcome     string
		detail      string
	}{
		"read-only, done":         {"s1", toReadOnly, true, Done, ""},
		"read-only, not done":     {"s1", toReadOnly, false, Undone, "step set read-only on s1 has not had its effect: broken pipe; undone: set read-only on s1"},
		"promoted":                {"s2", "RESET SLAVE", true, Done, ""},
		"not promoted":            {"s2", "RESET SLAVE", false, Undone, "step promote on s2 has not had its effect: broken pipe; undone: promote on s2, block commits on s1, disable events on s1, set read-only on s1"},
		"repointed":               {"s3", "CHANGE MASTER", true, Done, ""},
		"not repointed, once":     {"s3", "CHANGE MASTER", false, Done, ""},
		"list of events":          {"s1", "information_schema.EVENTS", false, Done, ""},
		"list of the connections": {"s1", "PROCESSLIST", false, Done, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, run := switchover(t)
			f.rule(rule{server: x.server, sql: x.sql, effect: x.effect, times: 1, answer: lostAnswer})
			f.drive(run, nil)
			require.Equal(t, x.outcome, run.Record.Outcome, run.Record.Detail)
			require.Equal(t, x.detail, run.Record.Detail)
			f.requireVerified()
			if x.effect {
				n := 0
				for _, l := range f.log {
					if strings.HasPrefix(l, x.server+": ") && strings.Contains(l, x.sql) {
						n++
					}
				}
				require.Equal(t, 1, n, "not repeated: %v", f.log)
			}
			if x.outcome == Undone {
				require.Equal(t, topology.No, f.server("s1").ReadOnly)
				require.Equal(t, topology.Yes, f.server("s2").ReadOnly)
			}
		})
	}
}

// TestLostAnswerIsSaid: the record says that the answer was lost.
func TestLostAnswerIsSaid(t *testing.T) {
	t.Parallel()
	f, run := switchover(t)
	f.rule(rule{server: "s2", sql: "RESET SLAVE", effect: true, times: 1, answer: Answer{Err: errors.New("broken pipe")}})
	f.drive(run, nil)
	i := slices.IndexFunc(run.Record.Steps, func(s StepRecord) bool { return s.Name == "promote" })
	require.Equal(t, Done, run.Record.Steps[i].Outcome)
	require.Equal(t, "it was seen to have had its effect, though: broken pipe", run.Record.Steps[i].Detail)
}

// TestServerIsSilentAfterwards: a lost answer of a server that does not answer
// any more fails the step when its time is over.
func TestServerIsSilentAfterwards(t *testing.T) {
	t.Parallel()
	f, run := switchover(t)
	f.rule(rule{server: "s2", sql: "RESET SLAVE", times: 1, answer: Answer{Err: errTest}, before: func() { f.server("s2").Evidence = topology.TimedOut }})
	f.drive(run, nil)
	require.Contains(t, run.Record.Detail, "step promote on s2 took longer than 3s: its answer was lost and the server has not answered since")
	require.Contains(t, run.Record.Detail, `undoing "promote" on s2 failed: server s2 does not answer`)
	require.Contains(t, run.Record.Detail, "replicate from s1 again")
	require.Equal(t, Failed, run.Record.Outcome)
}

// TestLingeringConnection: while a former connection of the monitor still holds
// locks, what was sent on it may yet be carried out.
func TestLingeringConnection(t *testing.T) {
	t.Parallel()
	f, run := switchover(t)
	f.rule(rule{server: "s2", sql: "RESET SLAVE", times: 1, answer: Answer{Err: errTest}})
	f.drive(run, func() bool { return run.unsure })
	sent := f.at
	for f.at < sent+2*second {
		c := f.look()
		c.Lingering = []string{"s2"}
		f.at += run.Advance(context.Background(), c, f)
		require.False(t, run.Ended())
	}
	f.statement(f.server("s2"), toWritable)
	f.drive(run, nil)
	require.Equal(t, Done, run.Record.Outcome)
}

func TestCommitsThatDoNotEnd(t *testing.T) {
	t.Parallel()
	for waiting, want := range map[string]string{
		"3": "commits did not end in time (3 commits wait for a semi-sync acknowledgement, and are not ended: that would commit them here alone): no luck; undone",
		"0": "commits did not end in time (a long transaction): no luck; undone",
	} {
		f, run := switchover(t)
		f.waiting = waiting
		f.rule(rule{server: "s1", sql: toReadOnly, answer: Answer{Known: true, Err: errTest, Code: 1969}})
		f.drive(run, nil)
		require.Equal(t, Undone, run.Record.Outcome)
		require.Contains(t, run.Record.Detail, want)
		require.Equal(t, []string{"verify", "s1: " + toReadOnly, "s1: waiting?", "verify", "s1: " + toWritable}, f.log)
	}
}

func TestWaitPastItsLimit(t *testing.T) {
	t.Parallel()
	f, run := switchover(t)
	f.frozen = true
	f.server("s1").BinlogPos = position("0-1-107")
	f.drive(run, nil)
	require.Equal(t, Undone, run.Record.Outcome)
	require.Contains(t, run.Record.Detail, "step catch up on s2 took longer than 10s: s2 has applied 0-1-100 of 0-1-107; undone: block commits on s1, disable events on s1, set read-only on s1")
	took := run.Record.EndedAt.Sub(run.Record.StartedAt)
	require.InDelta(t, 10*second, took, float64(500*time.Millisecond))
	require.Equal(t, topology.No, f.server("s1").ReadOnly)
}

// TestPrivilegedWriter: a position that moves under read_only is never taken for
// one at which all writes have ended.
func TestPrivilegedWriter(t *testing.T) {
	t.Parallel()
	f, run := switchover(t)
	seq := uint64(100)
	for !run.Ended() {
		seq++
		s1 := f.server("s1")
		s1.BinlogPos, s1.BinlogState = position("0-1-"+strconv.FormatUint(seq, 10)), state("0-1-"+strconv.FormatUint(seq, 10))
		f.at += run.Advance(context.Background(), f.look(), f)
	}
	require.Equal(t, Undone, run.Record.Outcome)
	require.Contains(t, run.Record.Detail, "a privileged account may be writing to it")
	require.NotContains(t, f.log, promoted)
}

func TestSoftStepsLeaveWarnings(t *testing.T) {
	t.Parallel()
	f := newFake(t, server(1, evidence(topology.WriteFailed)), replica(2, 1))
	f.sessions["s1"] = []uint64{8}
	f.rule(rule{server: "s1", sql: toReadOnly, answer: Answer{Known: true, Err: errTest}})
	f.rule(rule{server: "s1", sql: "KILL", answer: Answer{Known: true, Err: errTest}, times: 1})
	f.rule(rule{server: "s2", sql: "information_schema.EVENTS", answer: Answer{Known: true, Err: errTest}})
	run := f.start(policy(), Request{Kind: Failover})
	f.drive(run, nil)
	require.Equal(t, Done, run.Record.Outcome)
	require.Equal(t, []string{"set read-only on s1: no luck", "s1: app@10.1.1.1:5000, connection 8: no luck",
		"s1: ended app@10.1.1.1:5000, connection 8", "enable events on s2: no luck"}, run.Record.Warnings)
	require.Equal(t, Warned, run.Record.Steps[0].Outcome)
	require.Equal(t, "no luck", run.Record.Steps[0].Detail)
}

// TestRecordsKeepSecrets: neither what was done nor what was taken back shows the password.
func TestRecordsKeepSecrets(t *testing.T) {
	t.Parallel()
	for _, broken := range []bool{false, true} {
		f, run := switchover(t)
		if broken {
			f.rule(rule{server: "s2", sql: "RESET SLAVE", answer: Answer{Known: true, Err: errTest}})
			f.rule(rule{server: "s2", sql: "CHANGE MASTER", answer: Answer{Known: true, Err: errTest}})
		}
		f.drive(run, nil)
		require.Equal(t, map[bool]string{false: Done, true: Failed}[broken], run.Record.Outcome)
		record, err := json.Marshal(run.Record)
		require.NoError(t, err)
		requireNoSecret(t, string(record))
		require.True(t, slices.ContainsFunc(f.batches, func(b []Call) bool { return strings.Contains(b[0].SQL, secret) }), "it was sent")
	}
}

// TestStatementThatWasNotSent is tried again until its limit: the server lock could
// not be verified in time.
func TestStatementThatWasNotSent(t *testing.T) {
	t.Parallel()
	unsent := Answer{Known: true, Err: fmt.Errorf("no lock (%w)", ErrNotSent)}
	f, run := switchover(t)
	f.rule(rule{server: "s1", sql: "read_only=1", answer: unsent, times: 3})
	f.drive(run, nil)
	require.Equal(t, Done, run.Record.Outcome, "%+v", run.Record)

	f, run = switchover(t)
	f.rule(rule{server: "s2", sql: "read_only=0", answer: unsent})
	f.drive(run, nil)
	require.Equal(t, Undone, run.Record.Outcome)
	require.Contains(t, run.Record.Detail, "step promote on s2 took longer than 3s: no lock (not sent)")
	require.Equal(t, topology.No, f.server("s1").ReadOnly)
}
