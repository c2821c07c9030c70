package operation

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/election"
	"github.com/lockstep-ha/lockstep/topology"
	"github.com/lockstep-ha/lockstep/topology/gtid"
)

// watch looks at clusters in virtual time. W and N are 8 s, five intervals 10 s.
type watch struct {
	t        testing.TB
	d        Detector
	mode     election.Mode
	policy   Policy
	majority time.Duration
	primary  int
}

func newWatch(t testing.TB, mode election.Mode) *watch {
	return &watch{t: t, mode: mode, policy: policy()}
}

// look shows servers that were asked just before the instant at, counted from start.
func (w *watch) look(at time.Duration, servers ...topology.Server) Verdict {
	now := start + at
	for i := range servers {
		if servers[i].SentAt == start-10*time.Millisecond {
			servers[i].SentAt, servers[i].DoneAt = now-10*time.Millisecond, now-5*time.Millisecond
		}
	}
	c := Cluster{Now: now, Servers: servers, Graph: topology.NewGraph(servers), Primary: w.primary}
	return w.d.Look(Sight{Cluster: c, Timing: timing(w.t), Mode: w.mode, MajoritySince: w.majority, Policy: w.policy})
}

// gone is a primary that closed the connection and refuses new ones, and to which
// something was sent last at start.
func gone(s *topology.Server) {
	s.Evidence, s.PeerClosed, s.LockSentAt = topology.Refused, true, start
}

func hung(s *topology.Server) { s.Evidence, s.LockSentAt = topology.TimedOut, start }

func TestDeadPrimaryIsReplacedAfterTheDelay(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]election.Mode{"running": election.MajorityOfRunning, "none": election.None} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWatch(t, mode)
			v := w.look(0, server(1), replica(2, 1))
			require.Equal(t, Verdict{Reason: "s1 answers"}, v)
			v = w.look(2*second, server(1, gone), replica(2, 1, lost))
			require.True(t, v.Failed)
			require.True(t, v.Dead)
			require.False(t, v.Almost)
			require.Equal(t, start+3*second, v.At, "DeadPrimaryDelay is 1 s")
			require.False(t, v.Due(start+3*second-1))
			require.True(t, v.Due(start+3*second))
			v = w.look(2500*time.Millisecond, server(1, gone), replica(2, 1, lost))
			require.Equal(t, start+3*second, v.At, "counted from the first sight")
		})
	}
}

func TestRestartWithinTheDelayStartsAnew(t *testing.T) {
	t.Parallel()
	w := newWatch(t, election.MajorityOfRunning)
	w.look(0, server(1, gone), replica(2, 1, lost))
	require.False(t, w.look(500*time.Millisecond, server(1), replica(2, 1)).Failed)
	require.Equal(t, start+1900*time.Millisecond, w.look(900*time.Millisecond, server(1, gone), replica(2, 1, lost)).At)
	// A replica that is connected again takes the evidence back for a moment.
	v := w.look(1200*time.Millisecond, server(1, gone), replica(2, 1))
	require.False(t, v.Dead)
	require.True(t, v.Almost)
	v = w.look(1500*time.Millisecond, server(1, gone), replica(2, 1, lost))
	require.Equal(t, start+2500*time.Millisecond, v.At)
}

func TestWhatIsNoProofOfDeath(t *testing.T) {
	t.Parallel()
	weak := func(s *topology.Server) { strong(s); s.SemiSync.Timeout = 10 * second }
	same := func(s *topology.Server) { s.SameAs = "s2" }
	trust := func(p *Policy) { p.TrustEvidence = true }
	for name, x := range map[string]struct {
		mode    election.Mode
		servers []topology.Server
		policy  func(*Policy)
		missing string // "" where it is proof
		almost  bool
	}{
		"closed, refused, lost":          {election.MajorityOfRunning, list(server(1, gone), replica(2, 1, lost)), nil, "", false},
		"not closed":                     {election.MajorityOfRunning, list(server(1, gone, func(s *topology.Server) { s.PeerClosed = false }), replica(2, 1, lost)), nil, "no connection to it that it closed", false},
		"timed out":                      {election.MajorityOfRunning, list(server(1, gone, silent), replica(2, 1, lost)), nil, "new connections are not refused", false},
		"closed only":                    {election.MajorityOfRunning, list(server(1, gone, evidence(topology.Closed)), replica(2, 1, lost)), nil, "new connections are not refused", false},
		"a replica is connected":         {election.MajorityOfRunning, list(server(1, gone), replica(2, 1), replica(3, 1, lost), replica(4, 1)), nil, "s2, s4 still connected to it", true},
		"a replica of another source is": {election.MajorityOfRunning, list(server(1, gone), replica(2, 1, lost), replica(3, 2)), nil, "", false},
		"a replica is down":              {election.MajorityOfRunning, list(server(1, gone), replica(2, 1, lost), replica(3, 1, down)), nil, "", false},
		"all: strong semi-sync":          {election.MajorityOfAll, list(server(1, gone, strong), replica(2, 1, lost), replica(3, 1, lost)), nil, "", false},
		"all: asynchronous":              {election.MajorityOfAll, list(server(1, gone), replica(2, 1, lost)), nil, "rpl_semi_sync_master_enabled is OFF", true},
		"all: falls back":                {election.MajorityOfAll, list(server(1, gone, weak), replica(2, 1, lost)), nil, "rpl_semi_sync_master_timeout is 10s", true},
		"all: settings unknown":          {election.MajorityOfAll, list(server(1, gone, func(s *topology.Server) { s.SemiSync = topology.SemiSync{} }), replica(2, 1, lost)), nil, "settings are not known", true},
		"all: a replica cannot be asked": {election.MajorityOfAll, list(server(1, gone, strong), replica(2, 1, lost), replica(3, 1, silent)), nil, "s3, which cannot be asked", true},
		"all: a replica is connected":    {election.MajorityOfAll, list(server(1, gone, strong), replica(2, 1, lost), replica(3, 1)), trust, "s3 still connected to it", true},
		"all: trusted, asynchronous":     {election.MajorityOfAll, list(server(1, gone), replica(2, 1, lost)), trust, "", false},
		"all: trusted, one away":         {election.MajorityOfAll, list(server(1, gone), replica(2, 1, lost), replica(3, 1, silent)), trust, "", false},
		"all: the same server twice":     {election.MajorityOfAll, list(server(1, gone, strong), replica(2, 1, lost), replica(3, 1, silent, same)), nil, "", false},
		"none: a replica is down":        {election.None, list(server(1, gone), replica(2, 1, lost), replica(3, 1, down)), nil, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWatch(t, x.mode)
			if x.policy != nil {
				w.policy = policy(x.policy)
			}
			v := w.look(0, x.servers...)
			require.True(t, v.Failed)
			require.Equal(t, x.missing == "", v.Dead, v.Reason)
			require.Equal(t, x.almost, v.Almost)
			require.Contains(t, v.Reason, x.missing)
			if x.mode != election.None && !v.Dead {
				require.GreaterOrEqual(t, v.At, start+16*second, "W + N since something was sent")
			}
		})
	}
}

func TestAlmostLastsASecond(t *testing.T) {
	t.Parallel()
	w := newWatch(t, election.MajorityOfRunning)
	require.True(t, w.look(0, server(1, gone), replica(2, 1)).Almost)
	require.True(t, w.look(980*time.Millisecond, server(1, gone), replica(2, 1)).Almost)
	require.False(t, w.look(time.Second, server(1, gone), replica(2, 1)).Almost)
}

func TestUnreachablePrimaryIsReplacedWhenItsLocksAreGone(t *testing.T) {
	t.Parallel()
	sent := func(at time.Duration) change { return func(s *topology.Server) { s.LockSentAt = start + at } }
	for name, x := range map[string]struct {
		mode     election.Mode
		lockSent time.Duration
		majority time.Duration
		at       time.Duration
	}{
		"since something was sent":         {election.MajorityOfRunning, 3 * second, -100 * second, 19 * second},
		"majority_of_all":                  {election.MajorityOfAll, 3 * second, -100 * second, 19 * second},
		"since the majority was gained":    {election.MajorityOfRunning, -60 * second, 5 * second, 21 * second},
		"the later of both":                {election.MajorityOfRunning, 6 * second, 5 * second, 22 * second},
		"not before failcount intervals":   {election.MajorityOfRunning, -60 * second, -100 * second, 10*second - 10*time.Millisecond},
		"just W + N":                       {election.MajorityOfRunning, -6*second - 9*time.Millisecond, -100 * second, 10*second - 9*time.Millisecond},
		"mode none knows no locks":         {election.None, 6 * second, 5 * second, 10*second - 10*time.Millisecond},
		"mode none, nothing was ever sent": {election.None, -start, -start, 10*second - 10*time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWatch(t, x.mode)
			w.majority = start + x.majority
			v := w.look(0, server(1, silent, sent(x.lockSent)), replica(2, 1, lost))
			require.True(t, v.Failed)
			require.False(t, v.Dead)
			require.Equal(t, start+x.at, v.At)
			require.Contains(t, v.Reason, "and everybody has noticed, in ")
			v = w.look(4*second, server(1, silent, sent(x.lockSent)), replica(2, 1, lost))
			require.Equal(t, start+x.at, v.At, "it does not move while nothing is sent")
			// The failure changes its face, and goes on.
			v = w.look(5*second, server(1, down, sent(x.lockSent)), replica(2, 1, lost))
			require.Equal(t, start+x.at, v.At)
			require.True(t, v.Due(v.At))
		})
	}
}

func TestLaterSendsMoveTheInstant(t *testing.T) {
	t.Parallel()
	w := newWatch(t, election.MajorityOfRunning)
	for at := time.Duration(0); at < 60*second; at += 2 * second {
		v := w.look(at, server(1, silent, func(s *topology.Server) { s.LockSentAt = start + at }), replica(2, 1, lost))
		require.Equal(t, start+at+16*second, v.At)
	}
}

func TestAnAnswerStartsTheCountAnew(t *testing.T) {
	t.Parallel()
	w := newWatch(t, election.None)
	w.look(0, server(1, hung), replica(2, 1))
	w.look(8*second, server(1), replica(2, 1))
	v := w.look(9*second, server(1, hung), replica(2, 1))
	require.Equal(t, start+19*second-10*time.Millisecond, v.At)
}

func TestWhatIsNoFailureOfTheServer(t *testing.T) {
	t.Parallel()
	for _, e := range []topology.Evidence{topology.NotAsked, topology.AccessDenied, topology.TooManyConnections, topology.TLSFailed,
		topology.NameResolution, topology.ShuttingDown, topology.ProxyInBetween, topology.Unsupported, topology.OtherFailure} {
		t.Run(e.String(), func(t *testing.T) {
			t.Parallel()
			w := newWatch(t, election.None)
			for at := time.Duration(0); at < 100*second; at += 2 * second {
				v := w.look(at, server(1, evidence(e)), replica(2, 1, lost))
				require.False(t, v.Failed)
				require.Zero(t, v.At)
				require.Contains(t, v.Reason, e.String()+"; that does not count as a failure of the server")
			}
			v := w.look(100*second, server(1, hung), replica(2, 1, lost))
			require.Equal(t, start+110*second-10*time.Millisecond, v.At, "what was before does not count")
		})
	}
}

// TestShutdownGoesOnCounting: a server that was down and says that it shuts down
// is still down.
func TestShutdownGoesOnCounting(t *testing.T) {
	t.Parallel()
	w := newWatch(t, election.None)
	at := w.look(0, server(1, hung), replica(2, 1, lost)).At
	v := w.look(2*second, server(1, evidence(topology.ShuttingDown)), replica(2, 1, lost))
	require.True(t, v.Failed)
	require.Equal(t, at, v.At)
}

func TestMaintenanceIsNotReplaced(t *testing.T) {
	t.Parallel()
	w := newWatch(t, election.MajorityOfRunning)
	for at := time.Duration(0); at < 60*second; at += 2 * second {
		v := w.look(at, server(1, gone, maintenance), replica(2, 1, lost))
		require.Equal(t, Verdict{Reason: "s1 is in maintenance: it is not replaced"}, v)
	}
}

func TestReplicasThatReceiveKeepItAlive(t *testing.T) {
	t.Parallel()
	beats := func(n uint64) change { return link(func(r *topology.Replication) { r.Heartbeats = n }) }
	for name, x := range map[string]struct {
		last  []change // what s2 shows when the primary is silent for the first time but one
		alive bool
	}{
		"heartbeats":           {[]change{beats(8)}, true},
		"events":               {[]change{beats(7), received("0-1-101")}, true},
		"nothing new":          {[]change{beats(7)}, false},
		"not connected":        {[]change{beats(8), lost}, false},
		"cannot be asked":      {[]change{beats(8), silent}, false},
		"heartbeats set anew":  {[]change{beats(0)}, false},
		"from another source":  {[]change{beats(8), link(func(r *topology.Replication) { r.Host, r.SourceServerID = "10.0.0.3", 3 })}, false},
		"the events of before": {[]change{beats(7), received("0-1-100")}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWatch(t, election.None)
			other := func() topology.Server { return replica(3, 1, lost) }
			w.look(0, server(1), replica(2, 1, beats(6)), other())
			v := w.look(2*second, server(1, hung), replica(2, 1, beats(7)), other())
			require.NotZero(t, v.At, "it may have received that before the primary was silent")
			s2 := func() topology.Server { return replica(2, 1, x.last...) }
			v = w.look(4*second, server(1, hung), s2(), other())
			require.True(t, v.Failed)
			if !x.alive {
				require.NotZero(t, v.At)
				return
			}
			require.Zero(t, v.At)
			require.False(t, v.Due(start+1000*second))
			require.Contains(t, v.Reason, "it is alive: s2 has received events or heartbeats from it 0s ago")
			v = w.look(11*second, server(1, hung), s2(), other())
			require.Zero(t, v.At, "less than N")
			v = w.look(12*second, server(1, hung), s2(), other())
			require.Equal(t, start+12*second-10*time.Millisecond, v.At, "N is 8 s")
		})
	}
}

// TestReachablePrimaries are replaced though they answer, and though their
// replicas receive from them.
func TestReachablePrimaries(t *testing.T) {
	t.Parallel()
	for _, e := range []topology.Evidence{topology.WriteFailed, topology.Outdated} {
		t.Run(e.String(), func(t *testing.T) {
			t.Parallel()
			w := newWatch(t, election.MajorityOfAll)
			sick := func(s *topology.Server) { s.Evidence, s.LockSentAt = e, s.SentAt }
			w.look(0, server(1), replica(2, 1))
			for i := range uint64(10) {
				at := 2*second + time.Duration(i)*second
				v := w.look(at, server(1, sick), replica(2, 1, link(func(r *topology.Replication) { r.Heartbeats = i })))
				require.True(t, v.Failed)
				require.False(t, v.Dead)
				require.Equal(t, start+12*second-10*time.Millisecond, v.At, "five intervals, which are not less than N and one interval")
			}
		})
	}
}

func TestReachablePrimaryWaitsForNotice(t *testing.T) {
	t.Parallel()
	w := newWatch(t, election.MajorityOfAll)
	tm := timing(t)
	tm.Failcount = 1
	c := cluster(server(1, evidence(topology.WriteFailed)), replica(2, 1))
	v := w.d.Look(Sight{Cluster: c, Timing: tm, Mode: w.mode, Policy: w.policy})
	require.Equal(t, c.Servers[0].SentAt+10*second, v.At, "an interval and N")
}

func TestChangeOfPrimaryForgets(t *testing.T) {
	t.Parallel()
	w := newWatch(t, election.None)
	two := func() topology.Server { return server(2, hung) }
	w.look(0, server(1, hung), two())
	w.primary = 1
	v := w.look(8*second, server(1, hung), two())
	require.Equal(t, start+18*second-10*time.Millisecond, v.At)
	require.Contains(t, v.Reason, "s2 does not answer")
	w.primary = -1
	require.Equal(t, Verdict{Reason: "no server is the primary"}, w.look(9*second, server(1, hung), two()))
	w.primary = 1
	require.Equal(t, start+20*second-10*time.Millisecond, w.look(10*second, server(1, hung), two()).At)
}

func TestVerdictIsNotDueWithoutFailure(t *testing.T) {
	t.Parallel()
	require.False(t, Verdict{At: second}.Due(2*second))
	require.False(t, Verdict{Failed: true}.Due(2*second))
	require.True(t, Verdict{Failed: true, At: second}.Due(second))
}

// TestDetectorRemembersWhatWasReceived while the primary is away, or has it too.
func TestDetectorRemembersWhatWasReceived(t *testing.T) {
	t.Parallel()
	has := func(text string) func(*topology.Server) {
		return func(s *topology.Server) {
			state, err := gtid.ParseState(text)
			require.NoError(t, err)
			s.BinlogState = state
		}
	}
	w := newWatch(t, election.MajorityOfRunning)
	had := func(text string) {
		t.Helper()
		require.Equal(t, text, w.d.Had()["s2"].String())
	}
	w.look(0, server(1, has("0-1-100")), replica(2, 1, received("0-1-100")))
	had("0-1-100")
	w.look(second, server(1, has("0-1-110")), replica(2, 1, received("0-1-105")))
	had("0-1-105")
	w.look(2*second, server(1, has("0-1-110")), replica(2, 1, received("0-1-90")))
	had("0-1-105") // thrown away, and fetched anew: the primary has it
	w.look(3*second, server(1, gone), replica(2, 1, lost, received("0-1-108")))
	had("0-1-108")
	w.look(4*second, server(1, gone), replica(2, 1, lost, received("0-1-90")))
	had("0-1-108")
	w.look(5*second, server(1, gone), replica(2, 1, down, received("0-1-90")))
	had("0-1-108")
	earlier := func(s *topology.Server) { s.SentAt = start + 2*second }
	w.look(5*second, server(1, has("0-1-107"), earlier), replica(2, 1, down, received("0-1-90")))
	had("0-1-108") // that answer is older
	w.look(6*second, server(1, has("0-1-3")), replica(2, 1, received("0-1-2")))
	had("0-1-2") // RESET MASTER
	w.primary = 1
	w.look(7*second, server(1), server(2, has("0-1-3,0-2-9")))
	had("0-1-2") // the next primary has it
	w.look(8*second, server(1), server(2, has("0-2-9")))
	require.Empty(t, w.d.Had())
}
