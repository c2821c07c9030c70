package monitor

import (
	"fmt"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/election"
	"github.com/lockstep-ha/lockstep/locks"
	"github.com/lockstep-ha/lockstep/topology"
	"github.com/lockstep-ha/lockstep/topology/gtid"
)

const offerNow = 100 * time.Second

// stage is a cluster for decideOffer: s1 is writable, s2 and s3 replicate from it.
type stage struct{ scene }

func newStage(t testing.TB, role election.Role) stage {
	t.Helper()
	tm, err := locks.Derive(locks.Settings{Interval: 2 * time.Second, Timeout: 3 * time.Second})
	require.NoError(t, err)
	st := stage{scene{now: offerNow, timing: tm}}
	for i := range 3 {
		s := topology.Server{
			Settings: topology.Settings{Name: fmt.Sprintf("s%d", i+1), Address: fmt.Sprintf("10.0.0.%d:3306", i+1), Votes: 1, Promotion: topology.Neutral},
			Evidence: topology.Answered, EverSeen: true, ServerID: uint64(i + 1), Instance: fmt.Sprint("host", i),
			ReadOnly: topology.No, ReplicationKnown: true,
			SentAt: offerNow - time.Duration(i+1)*100*time.Millisecond, DoneAt: offerNow,
		}
		if i > 0 {
			s.ReadOnly = topology.Yes
			s.Replication = []topology.Replication{{Host: "10.0.0.1", Port: 3306, SourceServerID: 1, IO: "Yes", SQL: "Yes"}}
		}
		st.servers = append(st.servers, s)
		st.rows = append(st.rows, locks.Row{Server: s.Name, Session: 5, Answered: true, SentAt: s.SentAt, DoneAt: offerNow,
			ServerLock: locks.Lock{State: locks.Free}, PrimaryLock: locks.Lock{State: locks.Free}})
	}
	st.d = election.Decision{Role: role, Tally: election.Tally{Mode: election.MajorityOfAll, Needed: 2, Total: 3, Running: 3}}
	if role != election.Secondary {
		st.d.Tally.Held = 3
		st.d.Lease = offerNow + 5*time.Second
		for i := range st.rows {
			st.rows[i].ServerLock.State = locks.Self
		}
	}
	return st
}

// decide takes what was offered, where m does not say when, as offered a second ago.
func (st stage) decide(m memory) (offer, memory) {
	if m.offered != "" && m.offeredAt == 0 {
		m.offeredAt = st.now - time.Second
	}
	st.graph = topology.NewGraph(st.servers)
	return decideOffer(st.scene, m)
}

func heldBy(conn uint64, trusted bool) locks.Lock {
	return locks.Lock{State: locks.Other, Holder: locks.Holder{ConnectionID: conn, User: "u", Host: "h", Checked: true, Trusted: trusted}}
}

// publishedOn lets another monitor hold both locks of server i.
func (st stage) publishedOn(i int, trusted bool) stage {
	st.rows[i].ServerLock, st.rows[i].PrimaryLock = heldBy(9, trusted), heldBy(9, trusted)
	return st
}

func TestPrimaryPublishesThenOffers(t *testing.T) {
	st := newStage(t, election.Primary)
	o, m := st.decide(memory{})
	require.Equal(t, "s1", o.publish)
	require.Empty(t, o.unpublish)
	require.Equal(t, "s1", o.name, "on condition that the lock is got")
	require.Equal(t, memory{chosen: "s1", offered: "s1", offeredAt: offerNow, led: true, answered: st.servers[0].SentAt}, m)
	require.Equal(t, st.d.Lease, o.deadline)

	st.rows[0].PrimaryLock.State = locks.Self
	o, _ = st.decide(m)
	require.Equal(t, "s1", o.name)
	require.Empty(t, o.publish)
	require.Empty(t, o.unpublish)

	st.d.Lease = offerNow + time.Hour
	o, _ = st.decide(m)
	require.Equal(t, st.servers[0].SentAt+st.timing.Lease, o.deadline, "no longer than what was seen of the server itself")
}

func TestPrimaryDoesNotOfferWhatItCannotPublish(t *testing.T) {
	st := newStage(t, election.Primary)
	st.rows[0].ServerLock.State = locks.Free
	o, m := st.decide(memory{})
	require.Empty(t, o.name)
	require.Empty(t, o.publish, "the server lock comes first")
	require.Contains(t, o.reason, "server lock is not ours")
	require.Equal(t, "s1", m.chosen)
	require.Empty(t, m.offered)
	// What it offered already it goes on offering.
	o, _ = st.decide(memory{chosen: "s1", offered: "s1"})
	require.Equal(t, "s1", o.name)
	// A stale lock of the one before blocks a first offer, too.
	st = newStage(t, election.Primary)
	st.rows[0].PrimaryLock = heldBy(9, true)
	o, _ = st.decide(memory{})
	require.Empty(t, o.name)
	require.Contains(t, o.reason, "u@h, connection 9")
	// A lock of an account that is not trusted does not.
	st.rows[0].PrimaryLock = heldBy(9, false)
	o, _ = st.decide(memory{})
	require.Equal(t, "s1", o.name)
	require.Empty(t, o.publish)
}

func TestPrimaryReleasesBeforeItMoves(t *testing.T) {
	st := newStage(t, election.Primary)
	st.rows[0].PrimaryLock.State = locks.Self
	// A person moved the primary to s2.
	st.servers[0].ReadOnly, st.servers[1].ReadOnly = topology.Yes, topology.No
	st.servers[0].Replication = []topology.Replication{{Host: "10.0.0.2", Port: 3306, SourceServerID: 2, IO: "Yes", SQL: "Yes"}}
	st.servers[1].Replication = nil
	o, m := st.decide(memory{chosen: "s1", offered: "s1"})
	require.Equal(t, []string{"s1"}, o.unpublish)
	require.Equal(t, "s2", o.publish)
	require.Equal(t, "s2", o.name)
	require.Equal(t, "s2", m.chosen)
}

func TestPrimaryWithoutUsableServer(t *testing.T) {
	for name, spoil := range map[string]func(*topology.Server){
		"down":      func(s *topology.Server) { s.Evidence = topology.TimedOut },
		"read-only": func(s *topology.Server) { s.ReadOnly = topology.Yes },
	} {
		st := newStage(t, election.Primary)
		st.rows[0].PrimaryLock.State = locks.Self
		spoil(&st.servers[0])
		o, m := st.decide(memory{chosen: "s1", offered: "s1"})
		require.Empty(t, o.name, name)
		require.Empty(t, o.publish)
		require.Equal(t, []string{"s1"}, o.unpublish)
		require.Equal(t, "s1", m.chosen, "it stays the primary of the cluster")
		require.Empty(t, m.offered)
		require.NotEmpty(t, o.reason)
	}
}

func TestAlone(t *testing.T) {
	st := newStage(t, election.Primary)
	st.d = election.Decision{Role: election.Primary, Tally: election.Tally{Mode: election.None}}
	for i := range st.rows {
		st.rows[i].ServerLock.State = locks.Free
	}
	o, m := st.decide(memory{})
	require.Equal(t, "s1", o.name)
	require.Empty(t, o.publish)
	require.Equal(t, st.servers[0].SentAt+st.timing.Lease, o.deadline)
	require.Equal(t, "s1", m.offered)
}

func TestSettlingOffersOnlyWhatIsSafe(t *testing.T) {
	notSole := map[string]func(*stage){
		"another is down":         func(st *stage) { st.servers[2].Evidence = topology.TimedOut },
		"another is writable":     func(st *stage) { st.servers[2].ReadOnly = topology.No },
		"another does not follow": func(st *stage) { st.servers[2].Replication = nil },
		"another has lost it":     func(st *stage) { st.servers[2].Replication[0].IO = "Connecting" },
	}
	// The only writable server of a whole cluster is offered.
	o, m := newStage(t, election.Settling).decide(memory{})
	require.Equal(t, "s1", o.name)
	require.Equal(t, "s1", o.publish)
	require.Equal(t, "s1", m.offered)
	for name, spoil := range notSole {
		for _, before := range []memory{{}, {chosen: "s1"}, {chosen: "s1", offered: "s2"}} {
			st := newStage(t, election.Settling)
			spoil(&st)
			st.rows[0].PrimaryLock.State = locks.Self
			o, m := st.decide(before)
			require.Empty(t, o.name, "%s, %+v", name, before)
			require.Empty(t, o.publish)
			require.Equal(t, []string{"s1"}, o.unpublish)
			require.Contains(t, o.reason, "settled")
			require.Empty(t, m.offered)
			require.Equal(t, "s1", m.chosen)
		}
		// What its own view offered already goes on.
		st := newStage(t, election.Settling)
		spoil(&st)
		o, m := st.decide(memory{chosen: "s1", offered: "s1"})
		require.Equal(t, "s1", o.name, name)
		require.Equal(t, "s1", o.publish)
		require.Equal(t, "s1", m.offered)
		// Once settled it is offered.
		st.d.Role = election.Primary
		o, _ = st.decide(memory{})
		require.Equal(t, "s1", o.name, name)
	}
}

func TestSecondaryFollows(t *testing.T) {
	st := newStage(t, election.Secondary).publishedOn(0, true)
	o, m := st.decide(memory{vanished: 90 * time.Second})
	require.Equal(t, "s1", o.name)
	require.Equal(t, st.servers[0].SentAt+st.timing.Lease, o.deadline)
	require.Empty(t, o.publish)
	require.Zero(t, o.again)
	require.Equal(t, memory{chosen: "s1", offered: "s1", offeredAt: offerNow, followed: true, publisher: 9, answered: st.servers[0].SentAt}, m)
	require.Contains(t, o.reason, "connection 9")
	// It follows what is published, whatever it would choose itself.
	st = newStage(t, election.Secondary).publishedOn(1, true)
	st.servers[1].ReadOnly = topology.No
	o, m = st.decide(memory{chosen: "s1", offeredAt: offerNow - st.timing.WaitTimeout})
	require.Equal(t, "s2", o.name)
	require.Equal(t, "s2", m.chosen)
}

func TestSecondaryRefuses(t *testing.T) {
	for _, c := range []struct {
		name, reason string
		stage        func(stage) stage
	}{
		{"nothing published", "no primary is published", func(st stage) stage { return st }},
		{"votes without a publication", "other monitors hold 1 server locks", func(st stage) stage { st.rows[2].ServerLock = heldBy(9, true); return st }},
		{"read-only", "s1 carries the primary lock but is read-only", func(st stage) stage {
			st.servers[0].ReadOnly = topology.Yes
			return st.publishedOn(0, true)
		}},
		{"read_only not known", "s1 carries", func(st stage) stage {
			st.servers[0].ReadOnly = topology.Unknown
			return st.publishedOn(0, true)
		}},
		{"down", "s1 carries", func(st stage) stage {
			st.servers[0].Evidence = topology.TimedOut
			return st.publishedOn(0, true)
		}},
		{"locks unknown", "no primary is published", func(st stage) stage {
			st.rows[0] = locks.Row{Server: "s1"}
			return st
		}},
		{"two holders", "the server lock by u@h, connection 8", func(st stage) stage {
			st = st.publishedOn(0, true)
			st.rows[0].ServerLock = heldBy(8, true)
			return st
		}},
		{"primary lock alone", "the server lock by nobody", func(st stage) stage {
			st.rows[0].PrimaryLock = heldBy(9, true)
			return st
		}},
		{"forged", "is not trusted", func(st stage) stage { return st.publishedOn(0, false) }},
		{"primary lock forged beside a vote", "is not trusted", func(st stage) stage {
			st.rows[0].ServerLock, st.rows[0].PrimaryLock = heldBy(8, true), heldBy(9, false)
			return st
		}},
		{"two published", "2 servers carry a primary lock", func(st stage) stage {
			st.servers[1].ReadOnly = topology.No
			return st.publishedOn(0, true).publishedOn(1, true)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, before := range []memory{{}, {chosen: "s1", offered: "s1", offeredAt: offerNow - 20*time.Second, vanished: offerNow - time.Second}} {
				o, m := c.stage(newStage(t, election.Secondary)).decide(before)
				require.Empty(t, o.name)
				require.Empty(t, o.publish)
				require.Zero(t, o.deadline)
				require.Contains(t, o.reason, c.reason)
				require.Empty(t, m.offered)
				require.Equal(t, before.chosen, m.chosen)
			}
		})
	}
}

func TestForgedBesideThePublished(t *testing.T) {
	st := newStage(t, election.Secondary).publishedOn(0, true).publishedOn(1, false)
	st.servers[1].ReadOnly = topology.No
	o, _ := st.decide(memory{})
	require.Equal(t, "s1", o.name, "a lock that is not trusted does not hide the real one")
}

func TestSecondaryReleasesALeftover(t *testing.T) {
	st := newStage(t, election.Secondary).publishedOn(0, true)
	st.rows[1].PrimaryLock.State = locks.Self
	o, _ := st.decide(memory{})
	require.Equal(t, []string{"s2"}, o.unpublish)
	require.Equal(t, "s1", o.name)
}

func TestVanishedPublicationIsLookedForOften(t *testing.T) {
	st := newStage(t, election.Secondary)
	o, _ := st.decide(memory{chosen: "s1"})
	require.Zero(t, o.again, "nothing has vanished")

	// At first the server is still offered: its lock was released, and it is writable.
	o, _ = st.decide(memory{chosen: "s1", offered: "s1"})
	require.Empty(t, o.name, "who had the majority itself stops at once")
	o, m := st.decide(memory{chosen: "s1", offered: "s1", followed: true})
	require.Equal(t, 20*time.Millisecond, o.again)
	require.Equal(t, "s1", o.name)
	require.Equal(t, offerNow+handover, o.deadline)
	require.Equal(t, memory{chosen: "s1", offered: "s1", followed: true, offeredAt: offerNow, vanished: offerNow}, m)
	for name, spoil := range map[string]func(*stage){
		"read-only":    func(st *stage) { st.servers[0].ReadOnly = topology.Yes },
		"down":         func(st *stage) { st.servers[0].Evidence = topology.Refused },
		"not known":    func(st *stage) { st.rows[0] = locks.Row{Server: "s1"} },
		"held":         func(st *stage) { st.rows[0].PrimaryLock = heldBy(9, true) },
		"for too long": func(st *stage) { st.now += handover },
	} {
		spoilt := newStage(t, election.Secondary)
		spoil(&spoilt)
		o, next := spoilt.decide(m)
		require.Empty(t, o.name, name)
		require.Empty(t, next.offered, name)
	}
	m.offered = ""
	for _, c := range []struct{ since, again time.Duration }{
		{20 * time.Millisecond, 20 * time.Millisecond},
		{100 * time.Millisecond, 50 * time.Millisecond},
		{2 * time.Second, time.Second},
		{4*time.Second - 2, 2*time.Second - 1},
		{4 * time.Second, 0},
		{time.Hour, 0},
	} {
		st.now = offerNow + c.since
		o, next := st.decide(m)
		require.Equal(t, c.again, o.again, "%v after it vanished", c.since)
		require.Equal(t, m, next)
	}
	// Who becomes primary meanwhile forgets it.
	_, m = newStage(t, election.Primary).decide(m)
	require.Zero(t, m.vanished)
}

// TestMoveWaitsForStaleViews moves to a new server while the one before still
// takes writes: nothing is offered until no view can name the old one.
func TestMoveWaitsForStaleViews(t *testing.T) {
	st := newStage(t, election.Primary)
	st.servers[1].ReadOnly = topology.No
	m := memory{chosen: "s1", offered: "s1", barredUntil: offerNow + st.timing.Notice}
	o, _ := st.decide(m)
	require.Empty(t, o.name)
	require.Contains(t, o.reason, "when no monitor offers the one before")
	st.now += st.timing.Notice
	o, _ = st.decide(m)
	require.NotContains(t, o.reason, "when no monitor offers the one before")
}

// TestLockGivenUpOnPurposeIsNoHandover: who holds the server lock still has
// taken the primary lock away.
func TestLockGivenUpOnPurposeIsNoHandover(t *testing.T) {
	st := newStage(t, election.Secondary)
	st.rows[0].ServerLock = heldBy(9, true)
	o, _ := st.decide(memory{chosen: "s1", offered: "s1", followed: true, publisher: 9})
	require.Empty(t, o.name)
	o, _ = st.decide(memory{chosen: "s1", offered: "s1", followed: true, publisher: 8})
	require.Equal(t, "s1", o.name)
}

// TestOldMemoryYields: a monitor that was cut off for long does not go on with the
// primary that it remembers when it gains the majority, if another has taken its
// place meanwhile; one that has looked all the time does.
func TestOldMemoryYields(t *testing.T) {
	t.Parallel()
	st := newStage(t, election.Settling)
	st.servers[1].ReadOnly, st.servers[1].Replication = topology.No, nil
	st.servers[2].Replication[0].Host, st.servers[2].Replication[0].SourceServerID = "10.0.0.2", 2
	_, m := st.decide(memory{chosen: "s1", offeredAt: offerNow - st.timing.Notice - 1})
	require.Equal(t, "s2", m.chosen)
	_, m = st.decide(memory{chosen: "s1", led: true})
	require.Equal(t, "s1", m.chosen, "nobody else can have moved it")
	_, m = st.decide(memory{chosen: "s1", offeredAt: offerNow - st.timing.Notice})
	require.Equal(t, "s1", m.chosen)
}

func TestStalePublicationIsNotFollowed(t *testing.T) {
	t.Parallel()
	st := newStage(t, election.Secondary)
	st.publishedOn(0, true)
	st.d.Tally = election.Tally{Mode: election.MajorityOfAll, Needed: 2, Total: 3, Free: 1, Others: 2}
	o, _ := st.decide(memory{})
	require.Equal(t, "s1", o.name, o.reason)
	st.d.Tally.Free, st.d.Tally.Others = 2, 1
	o, _ = st.decide(memory{})
	require.Empty(t, o.name)
	require.Contains(t, o.reason, "cannot have the majority: 2 of 3 votes are free")
	st.d.Tally.Mode = election.MajorityOfRunning
	o, _ = st.decide(memory{})
	require.Equal(t, "s1", o.name, "its holder may reach fewer servers")
}

// TestLeaderKeepsReadOnlyPrimary: while a monitor leads without a break, a server
// that stands alone with transactions of its own does not become the primary
// because a person has set the primary read-only.
func TestLeaderKeepsReadOnlyPrimary(t *testing.T) {
	t.Parallel()
	st := newStage(t, election.Primary)
	at := func(i int, pos, logged string) {
		p, err := gtid.ParsePosition(pos)
		require.NoError(t, err)
		b, err := gtid.ParseState(logged)
		require.NoError(t, err)
		st.servers[i].CurrentPos, st.servers[i].BinlogPos, st.servers[i].BinlogState = p, p, b
	}
	at(0, "0-1-9", "0-1-9")
	at(1, "0-1-9", "0-1-9")
	at(2, "0-3-10", "0-1-9,0-3-10")
	st.servers[0].ReadOnly, st.servers[2].Replication = topology.Yes, nil
	_, m := st.decide(memory{chosen: "s1", led: true})
	require.Equal(t, "s1", m.chosen)
	_, m = st.decide(memory{chosen: "s1"})
	require.Equal(t, "s3", m.chosen, "another monitor may have promoted it")
}

// TestFollowedPrimaryThatTakesWritesIsNotLeft: while the server that was followed is
// writable, the lock that is seen on another is stale.
func TestFollowedPrimaryThatTakesWritesIsNotLeft(t *testing.T) {
	t.Parallel()
	st := newStage(t, election.Secondary)
	st.publishedOn(1, true)
	st.servers[1].ReadOnly = topology.No
	before := memory{chosen: "s1", offeredAt: offerNow - time.Second}
	o, _ := st.decide(before)
	require.NotEqual(t, "s2", o.name)
	require.Contains(t, o.reason, "s1, which was offered a moment ago, may still take writes")
	before.offeredAt = offerNow - st.timing.WaitTimeout
	o, _ = st.decide(before)
	require.Equal(t, "s2", o.name)
	st.servers[0].ReadOnly = topology.Yes
	before.offeredAt = offerNow
	o, _ = st.decide(before)
	require.Equal(t, "s2", o.name, "a switchover")
	st.servers[0].Evidence = topology.TimedOut
	o, _ = st.decide(before)
	require.NotEqual(t, "s2", o.name, "one that is silent is not replaced so soon")
	st.servers[0].Evidence = topology.Refused
	o, _ = st.decide(before)
	require.Equal(t, "s2", o.name, "a failover of a dead primary")
}

// TestPublishedPrimaryThatLacksTransactions is one that was replaced meanwhile.
func TestPublishedPrimaryThatLacksTransactions(t *testing.T) {
	t.Parallel()
	st := newStage(t, election.Secondary).publishedOn(0, true)
	more, err := gtid.ParsePosition("0-2-10")
	require.NoError(t, err)
	st.servers[2].CurrentPos = more
	o, _ := st.decide(memory{})
	require.Equal(t, "s1", o.name, "a busy primary can seem to be behind its replicas")
	st.servers[1].Replication[0].IO, st.servers[2].Replication[0].IO = "No", "No"
	o, _ = st.decide(memory{})
	require.Empty(t, o.name)
	require.Contains(t, o.reason, "nothing replicates from it, and s3 has transactions that it lacks")
}

// TestOldPublicationIsNotFollowed is of a server that stood still with its locks,
// while another was made the primary.
func TestOldPublicationIsNotFollowed(t *testing.T) {
	t.Parallel()
	st := newStage(t, election.Secondary).publishedOn(1, true)
	st.servers[1].ReadOnly = topology.No
	a, w := absences{}, st.timing.WaitTimeout
	chosen := "s1"
	st.rows[1].Idle = -1
	at := func(now time.Duration) (offer, map[string]oldLock) {
		for i := range st.rows {
			st.rows[i].SentAt = now
		}
		st.old = a.look(st.servers, st.rows, now, st.timing)
		o, _ := st.decide(memory{chosen: chosen})
		return o, st.old
	}
	answered := st.rows[1]
	_, old := at(time.Second)
	require.Empty(t, old, "it has always answered")
	st.rows[1] = locks.Row{Server: "s2"}
	at(2 * time.Second)
	at(3 * time.Second)
	st.rows[1] = answered
	o, old := at(4 * time.Second)
	require.Equal(t, map[string]oldLock{"s2": {w, false}}, old)
	require.Empty(t, o.name)
	require.Contains(t, o.reason, "s2 carries the primary lock that it had before it fell silent, and its holder has sent nothing since")
	o, _ = st.decide(memory{chosen: "s2"})
	require.Equal(t, "s2", o.name, "it was published last")
	o, _ = at(4*time.Second + w - 1)
	require.Empty(t, o.name)
	o, old = at(4*time.Second + w)
	require.Equal(t, "s2", o.name, "its session lives")
	require.Empty(t, old)

	st.rows[1] = locks.Row{Server: "s2"}
	at(60 * time.Second)
	st.rows[1] = answered
	st.rows[1].PrimaryLock.Holder.ConnectionID++
	st.rows[1].ServerLock.Holder.ConnectionID++
	o, _ = at(61 * time.Second)
	require.Equal(t, "s2", o.name, "published by another connection since")

	// The server that was followed last is silent for as long as a failover takes.
	answered, chosen = st.rows[1], "s2"
	silence := func(from, to time.Duration) offer {
		st.rows[1] = answered
		at(from)
		st.rows[1] = locks.Row{Server: "s2"}
		at(from + 1)
		st.rows[1] = answered
		o, _ := at(to)
		return o
	}
	require.Equal(t, "s2", silence(100*time.Second, 100*time.Second+st.timing.Notice-1).name, "too short")
	require.Empty(t, silence(200*time.Second, 200*time.Second+st.timing.Notice).name)
	st.rows[1].Idle = time.Second
	o, _ = at(200*time.Second + st.timing.Notice + time.Second)
	require.Empty(t, o.name, "the last that its holder sent may have lain there since before")
	o, _ = at(200*time.Second + st.timing.Notice + 2*time.Second)
	require.Equal(t, "s2", o.name, "its holder is there")
}

// TestNotedPrimary has a former primary come back writable, with a replica that was
// not told of the new one, while all monitors are started anew.
func TestNotedPrimary(t *testing.T) {
	t.Parallel()
	at := func(st stage, i int, pos, logged string) {
		p, err := gtid.ParsePosition(pos)
		require.NoError(t, err)
		b, err := gtid.ParseState(logged)
		require.NoError(t, err)
		st.servers[i].CurrentPos, st.servers[i].BinlogPos, st.servers[i].BinlogState = p, p, b
	}
	st := newStage(t, election.Primary)
	at(st, 0, "0-1-9", "0-1-9")
	at(st, 1, "0-1-9", "0-1-9")
	at(st, 2, "0-3-10", "0-1-8,0-3-10")
	st.servers[2].ReadOnly, st.servers[2].Replication = topology.No, nil
	_, m := st.decide(memory{})
	require.Equal(t, "s1", m.chosen, "more follow it")
	st.noted = "s3"
	_, m = st.decide(memory{chosen: "s1"})
	require.Equal(t, "s3", m.chosen)
	_, m = st.decide(memory{chosen: "s1", led: true})
	require.Equal(t, "s1", m.chosen, "this monitor has offered it")
	at(st, 2, "0-1-8", "0-1-8")
	_, m = st.decide(memory{})
	require.Equal(t, "s1", m.chosen, "it has all that the noted one has")
	at(st, 2, "0-3-10", "0-1-8,0-3-10")
	st.servers[2].ReadOnly = topology.Yes
	_, m = st.decide(memory{})
	require.Equal(t, "s1", m.chosen, "a person has moved the primary")

	// Nothing can be chosen: a former primary came back writable, and the one that was
	// noted was left read-only by a switchover that was cut short.
	st = newStage(t, election.Primary)
	for i := range 3 {
		at(st, i, "0-1-9", "0-1-9")
	}
	st.servers[0].ReadOnly, st.servers[1].ReadOnly, st.servers[1].Replication = topology.Yes, topology.No, nil
	st.servers[0].Replication = []topology.Replication{{Host: "203.0.113.9", Port: 3306, IO: "No", SQL: "No"}}
	st.graph = topology.NewGraph(st.servers)
	at(st, 1, "0-1-7", "0-1-7")
	_, m = st.decide(memory{})
	require.Empty(t, m.chosen)
	st.noted = "s1"
	o, m := st.decide(memory{})
	require.Equal(t, "s1", m.chosen)
	require.Empty(t, o.name, "it is read-only")
	st.servers[2].Evidence = topology.TimedOut
	_, m = st.decide(memory{})
	require.Empty(t, m.chosen, "who knows what has become of s3")
}

// TestStateRows takes in rows of servers that know more or less.
func TestStateRows(t *testing.T) {
	t.Parallel()
	m := &Monitor{shared: shared{servers: map[string]serverRow{}, rows: map[string]row{}, stale: map[string]bool{}}, ops: newOperations(), log: zerolog.Nop(), clock: newRealClock()}
	pause := func(version uint64, on bool) row {
		return row{fmt.Sprintf(`{"paused":%v}`, on), version, time.Duration(version)}
	}
	m.take(map[string]map[string]row{"s1": {rowPause: pause(3, true)}, "s2": {rowPause: pause(2, false)}, "s3": {}})
	require.NotEmpty(t, m.shared.paused)
	require.Equal(t, map[string]bool{"s2": true, "s3": true}, m.shared.stale)
	m.take(map[string]map[string]row{"s2": {rowPause: pause(2, false)}})
	require.NotEmpty(t, m.shared.paused, "what is older does not come back")
	m.keep(rowPause, pauseRow{})
	require.Equal(t, uint64(4), m.shared.rows[rowPause].version)
	m.pause(false)
	m.take(map[string]map[string]row{"s1": {rowPause: pause(3, true)}})
	require.Empty(t, m.shared.paused, "nor what this monitor has changed and not yet written")
	m.take(map[string]map[string]row{"s1": {rowPause: pause(5, true), "server s2": {`{"drain":true,"maintenance":"x"}`, 1, 1}, rowPrimary: {`{"server":"s3"}`, 1, 1}}})
	require.NotEmpty(t, m.shared.paused)
	require.Empty(t, m.shared.servers, "a row that is not understood has no effect")
	failover := func(version uint64, at time.Duration) map[string]map[string]row {
		return map[string]map[string]row{"s1": {rowFailover: {`{"from":"s1","to":"s2"}`, version, at}}}
	}
	m.take(failover(1, time.Minute))
	m.take(failover(2, time.Hour))
	require.Equal(t, time.Hour, m.shared.failoverAt, "the same once more is another failover, and blocks anew")
	m.take(failover(1, 2*time.Hour))
	require.Equal(t, time.Hour, m.shared.failoverAt)
	require.Equal(t, "s3", m.shared.primary)
}

// TestExpiredOffersAreForgotten: a monitor that stood still for a moment in a tick
// takes neither what it offered before that for a view that is still believed, nor an
// answer from before that for a publication.
func TestExpiredOffersAreForgotten(t *testing.T) {
	t.Parallel()
	handedOver := memory{chosen: "s1", offered: "s1", followed: true, offeredAt: offerNow - time.Second}
	st := newStage(t, election.Secondary)
	o, _ := st.decide(handedOver)
	require.Equal(t, "s1", o.name, o.reason)
	handedOver.offeredAt = offerNow - st.timing.Lease
	o, m := st.decide(handedOver)
	require.Empty(t, o.name, o.reason)
	require.Empty(t, m.offered)

	st.rows[0].ServerLock, st.rows[0].PrimaryLock = heldBy(9, true), heldBy(9, true)
	st.servers[0].SentAt = offerNow - st.timing.Lease + 1
	o, _ = st.decide(memory{})
	require.Equal(t, "s1", o.name, o.reason)
	st.servers[0].SentAt--
	o, m = st.decide(memory{})
	require.Empty(t, o.name)
	require.Empty(t, m.offered)
	require.Contains(t, o.reason, "has not answered for")

	settling := newStage(t, election.Settling)
	settling.servers[2].Evidence = topology.TimedOut
	o, _ = settling.decide(memory{chosen: "s1", offered: "s1", offeredAt: offerNow - time.Second})
	require.Equal(t, "s1", o.name, o.reason)
	o, _ = settling.decide(memory{chosen: "s1", offered: "s1", offeredAt: offerNow - st.timing.Lease})
	require.Empty(t, o.name, o.reason)
}

// TestRecentlyStartedPrimaryIsCompared: a monitor without memory cannot know whether
// a server that was started a moment ago has lost the end of its binary log.
func TestRecentlyStartedPrimaryIsCompared(t *testing.T) {
	t.Parallel()
	position := func(s string) gtid.Position {
		p, err := gtid.ParsePosition(s)
		require.NoError(t, err)
		return p
	}
	st := newStage(t, election.Primary)
	st.now = time.Hour
	st.d.Lease = st.now + 5*time.Second
	for i := range st.servers {
		st.servers[i].SentAt, st.servers[i].CurrentPos = st.now, position("0-1-7")
	}
	st.servers[0].CurrentPos, st.servers[0].BinlogPos = position("0-1-5"), position("0-1-5")
	st.servers[0].StartedAt = st.now - recentStart + 1
	o, m := st.decide(memory{chosen: "s1"})
	require.Empty(t, o.name)
	require.True(t, m.unproven)
	require.Contains(t, o.reason, "s2 has transactions that it lacks")
	st.servers[0].StartedAt--
	o, _ = st.decide(memory{chosen: "s1"})
	require.Equal(t, "s1", o.name, "whoever had it for that long knows: "+o.reason)
	st.servers[0].StartedAt += time.Minute
	st.servers[1].CurrentPos, st.servers[2].CurrentPos = position("0-2-7"), position("0-1-5")
	o, _ = st.decide(memory{chosen: "s1"})
	require.Equal(t, "s1", o.name, "what a replica has written itself is errant, not lost: "+o.reason)
}

// TestRestartsInARow: two restarts within the resolution of a server's uptime are
// told apart by the silence between them.
func TestRestartsInARow(t *testing.T) {
	t.Parallel()
	st := newStage(t, election.Primary)
	st.servers[0].StartedAt = offerNow - time.Second
	m := memory{chosen: "s1", led: true, offered: "s1", offeredAt: offerNow - time.Second, started: offerNow - time.Second, answered: offerNow - 500*time.Millisecond}
	_, again := st.decide(m)
	require.False(t, again.unproven)
	m.silent = true
	st.servers[1].SentAt = offerNow - 2*time.Second
	_, again = st.decide(m)
	require.True(t, again.unproven, "s2 has not said yet what it has")
	st.servers[0].Evidence = topology.Refused
	_, again = st.decide(m)
	require.True(t, again.silent)
	m.answered = offerNow + 2*time.Second
	st.servers[0].Evidence = topology.Answered
	_, again = st.decide(m)
	require.False(t, again.unproven, "it ran before the silence and after it")
}

// TestBusyPrimaryIsNotBehind: what a replica shows is compared with what the primary
// has one tick later.
func TestBusyPrimaryIsNotBehind(t *testing.T) {
	t.Parallel()
	position := func(s string) gtid.Position {
		p, err := gtid.ParsePosition(s)
		require.NoError(t, err)
		return p
	}
	servers := []topology.Server{
		{Settings: topology.Settings{Name: "s1"}, Evidence: topology.Answered, ServerID: 1, SentAt: 10, StartedAt: 1, CurrentPos: position("0-1-8")},
		{Settings: topology.Settings{Name: "s2"}, Evidence: topology.Answered, ServerID: 2, SentAt: 10, CurrentPos: position("0-1-9")},
	}
	before := []topology.Server{servers[0], servers[1]}
	before[1].SentAt, before[1].CurrentPos = 5, position("0-1-8")
	require.NotEmpty(t, aheadBefore(servers, nil, 0))
	require.Empty(t, aheadBefore(servers, before, 0))
	before[1].CurrentPos = position("0-1-9")
	require.NotEmpty(t, aheadBefore(servers, before, 0))
	before[1].CurrentPos, before[1].SentAt = position("0-1-8"), 0
	require.NotEmpty(t, aheadBefore(servers, before, 0), "before the primary was started")
	before[1].SentAt, before[1].Evidence = 5, topology.TimedOut
	require.NotEmpty(t, aheadBefore(servers, before, 0))
}
