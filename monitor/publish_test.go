package monitor

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/election"
	"github.com/lockstep-ha/lockstep/locks"
	"github.com/lockstep-ha/lockstep/monitor/backend"
	"github.com/lockstep-ha/lockstep/topology"
)

// stuck is a fleet on which some kind of action never succeeds.
type stuck struct {
	rows []locks.Row
	fail backend.ActionKind
	done []backend.Action
}

func (f *stuck) Observe(context.Context) ([]topology.Server, []locks.Row) { return nil, f.rows }

func (f *stuck) Rows() []locks.Row { return f.rows }

func (f *stuck) Do(_ context.Context, actions []backend.Action) []backend.Outcome {
	out := make([]backend.Outcome, len(actions))
	for i, a := range actions {
		out[i] = backend.Outcome{Action: a, Result: backend.Done}
		if a.Kind == f.fail {
			out[i].Result = backend.ResultUnknown
			continue
		}
		f.done = append(f.done, a)
	}
	return out
}

func (f *stuck) Close(context.Context) error { return nil }

// TestFailedReleaseOffersNothingNew: while the lock on the old server could not
// be released, the new one is neither published nor offered.
func TestFailedReleaseOffersNothingNew(t *testing.T) {
	m, err := New(Config{Servers: []ServerConfig{{Name: "s1", Address: "10.0.0.1:3306"}}})
	require.NoError(t, err)
	st := newStage(t, election.Primary)
	f := &stuck{rows: st.rows, fail: backend.ReleasePrimaryLock}
	move := offer{name: "s2", publish: "s2", unpublish: []string{"s1"}}
	_, o := m.carryOut(t.Context(), f, st.scene, move, memory{offered: "s1"})
	require.Empty(t, o.name)
	require.Empty(t, f.done, "the lock on s2 must not be taken")
	require.NotZero(t, o.again)

	f.fail = backend.ReleaseAll
	_, o = m.carryOut(t.Context(), f, st.scene, move, memory{offered: "s1"})
	require.Equal(t, "s2", o.name)
	require.Len(t, f.done, 2)
}

// TestMoveFromAWritableServerIsBarred sets the bar that TestMoveWaitsForStaleViews waits for.
func TestMoveFromAWritableServerIsBarred(t *testing.T) {
	st := newStage(t, election.Primary)
	st.servers[1].ReadOnly, st.servers[1].Replication = topology.No, nil
	st.servers[0].Replication = []topology.Replication{{Host: "10.0.0.2", Port: 3306, SourceServerID: 2, IO: "Yes", SQL: "Yes"}}
	o, m := st.decide(memory{chosen: "s1", offered: "s1"})
	require.Equal(t, "s2", m.chosen)
	require.Empty(t, o.name)
	require.Equal(t, offerNow+st.timing.Notice, m.barredUntil)

	st.servers[0].ReadOnly = topology.Yes
	o, _ = st.decide(memory{chosen: "s1", offered: "s1"})
	require.Equal(t, "s2", o.publish, "who is seen read-only takes no writes: nothing to wait for")
}

// TestRestartedPrimaryIsProvenFirst: its replicas must have answered since.
func TestRestartedPrimaryIsProvenFirst(t *testing.T) {
	st := newStage(t, election.Primary)
	st.servers[0].StartedAt = offerNow - time.Second
	st.servers[2].SentAt = offerNow - 2*time.Second // s3 was looked at before the restart
	o, m := st.decide(memory{chosen: "s1", started: time.Second})
	require.Empty(t, o.publish)
	require.True(t, m.unproven)
	require.Contains(t, o.reason, "s3 has not said since what it has")
	st.servers[2].SentAt = offerNow
	o, m = st.decide(m)
	require.Equal(t, "s1", o.publish)
	require.False(t, m.unproven)
}
