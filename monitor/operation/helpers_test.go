package operation

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/locks"
	"github.com/lockstep-ha/lockstep/topology"
	"github.com/lockstep-ha/lockstep/topology/gtid"
)

const (
	second = time.Second
	// start is the instant of the observations from which plans are made.
	start = 1000 * second
	// secret is a part of the replication password that needs no quoting.
	secret = "hush-hush"
)

type change = func(*topology.Server)

func policy(changes ...func(*Policy)) Policy {
	p := Policy{ReplicationUser: "repl", ReplicationPassword: `pa'` + secret + `\ss`}
	for _, f := range changes {
		f(&p)
	}
	return p.WithDefaults(2 * second)
}

// timing: interval 2 s, timeout 3 s: W and N are 8 s, failcount is 5.
func timing(t testing.TB) locks.Timing {
	t.Helper()
	tm, err := locks.Derive(locks.Settings{Interval: 2 * second, Timeout: 3 * second})
	require.NoError(t, err)
	return tm
}

func position(text string) gtid.Position {
	p, err := gtid.ParsePosition(text)
	if err != nil {
		panic(err)
	}
	return p
}

func state(text string) gtid.State {
	s, err := gtid.ParseState(text)
	if err != nil {
		panic(err)
	}
	return s
}

// server builds server number n: s1 is 10.0.0.1 with server id 1, up, writable,
// without replication, and has logged 0-1-100.
func server(n int, changes ...change) topology.Server {
	s := topology.Server{
		Settings: topology.Settings{Name: fmt.Sprintf("s%d", n), Address: fmt.Sprintf("10.0.0.%d:3306", n), Votes: 1, Promotion: topology.Neutral},
		Evidence: topology.Answered, EverSeen: true, ServerID: uint64(n), Flavor: topology.MariaDB,
		SentAt: start - 10*time.Millisecond, DoneAt: start - 5*time.Millisecond, ReadOnly: topology.No, ReplicationKnown: true,
		LogBin: topology.Yes, LogReplicaWrites: topology.Yes, BinlogFormat: "ROW",
		BinlogPos: position("0-1-100"), BinlogState: state("0-1-100"), CurrentPos: position("0-1-100"), SemiSync: topology.SemiSync{Known: true},
	}
	s.Version, _ = topology.ParseVersion("10.11.6-MariaDB")
	for _, f := range changes {
		f(&s)
	}
	return s
}

// replica builds a read-only replica of server number source that has received
// and applied 0-1-100.
func replica(n, source int, changes ...change) topology.Server {
	s := server(n)
	s.ReadOnly, s.SlavePos = topology.Yes, position("0-1-100")
	s.Replication = []topology.Replication{{Host: fmt.Sprintf("10.0.0.%d", source), Port: 3306, SourceServerID: uint64(source),
		IO: "Yes", SQL: "Yes", Received: position("0-1-100"), SecondsBehind: topology.Yes, UsesGTID: true}}
	for _, f := range changes {
		f(&s)
	}
	return s
}

// cluster is one whose primary is s1.
func cluster(servers ...topology.Server) Cluster {
	return Cluster{Now: start, Servers: servers, Graph: topology.NewGraph(servers)}
}

func evidence(e topology.Evidence) change { return func(s *topology.Server) { s.Evidence = e } }

var (
	down   = evidence(topology.Refused)
	silent = evidence(topology.TimedOut)
)

func link(f func(*topology.Replication)) change {
	return func(s *topology.Server) { f(&s.Replication[0]) }
}

func received(text string) change {
	return link(func(r *topology.Replication) { r.Received = position(text) })
}

func applied(text string) change {
	return func(s *topology.Server) {
		s.SlavePos, s.CurrentPos, s.BinlogPos, s.BinlogState = position(text), position(text), position(text), state(text)
	}
}

func threads(io, sql string) change {
	return link(func(r *topology.Replication) { r.IO, r.SQL = io, sql })
}

// lost is what replicas show whose source does not answer.
var lost = threads("Connecting", "Yes")

func version(text string) change {
	return func(s *topology.Server) { s.Version, _ = topology.ParseVersion(text) }
}

func readOnly(s *topology.Server) { s.ReadOnly = topology.Yes }

func maintenance(s *topology.Server) { s.Maintenance = true }

func mustNot(s *topology.Server) { s.Promotion = topology.MustNot }

func alone(s *topology.Server) { s.Replication = nil }

// strong is semi-sync that never falls back, and its replica side.
func strong(s *topology.Server) {
	s.SemiSync = topology.SemiSync{Known: true, PrimaryOn: true, ReplicaOn: true, Timeout: 60 * 24 * time.Hour, WaitPoint: "AFTER_SYNC", WaitNoReplica: true}
}

func acknowledges(s *topology.Server) { s.SemiSync = topology.SemiSync{Known: true, ReplicaOn: true} }

// external is a replication connection that leads out of the cluster.
func external(name string) change {
	return func(s *topology.Server) {
		s.Replication = append(s.Replication, topology.Replication{Name: name, Host: "203.0.113.9", Port: 3306, SourceServerID: 900, IO: "Yes", SQL: "Yes"})
	}
}

// requireNoSecret fails where the replication password can be read.
func requireNoSecret(t testing.TB, texts ...string) {
	t.Helper()
	for _, text := range texts {
		require.NotContains(t, text, secret)
	}
}
