package topology

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/topology/gtid"
)

func position(text string) gtid.Position {
	p, err := gtid.ParsePosition(text)
	if err != nil {
		panic(err)
	}
	return p
}

// server builds server number n of a test: s1 is 10.0.0.1 with server id 1, up,
// writable, without replication.
func server(n int, change ...func(*Server)) Server {
	s := Server{
		Settings: Settings{Name: fmt.Sprintf("s%d", n), Address: fmt.Sprintf("10.0.0.%d:3306", n), Votes: 1, Promotion: Neutral},
		Evidence: Answered, EverSeen: true, ServerID: uint64(n), Instance: fmt.Sprintf("host%d:3306 /data/", n),
		ReadOnly: No, ReplicationKnown: true, Flavor: MariaDB, CurrentPos: position("0-1-100"),
	}
	for _, f := range change {
		f(&s)
	}
	return s
}

func readOnly(s *Server) { s.ReadOnly = Yes }

func down(s *Server) { s.Evidence = Refused }

// neverSeen is a server that was down when the monitor started.
func neverSeen(s *Server) {
	s.Evidence, s.EverSeen, s.ReadOnly, s.ServerID, s.Instance, s.Replication = Refused, false, Unknown, 0, "", nil
	s.CurrentPos, s.ReplicationKnown = gtid.Position{}, false
}

func maintenance(s *Server) { s.Maintenance = true }

func mustNot(s *Server) { s.Promotion = MustNot }

func at(text string) func(*Server) {
	return func(s *Server) { s.CurrentPos = position(text) }
}

// from adds a running replication connection from server number n.
func from(n int) func(*Server) {
	return func(s *Server) {
		s.Replication = append(s.Replication, Replication{
			Host: fmt.Sprintf("10.0.0.%d", n), Port: 3306, SourceServerID: uint64(n), IO: "Yes", SQL: "Yes", SecondsBehind: Yes,
		})
	}
}

// outdated answers, and has to be replaced.
func outdated(s *Server) { s.Evidence = Outdated }

// lost is a connection from server number n that tries to connect.
func lost(n int) func(*Server) {
	return func(s *Server) {
		from(n)(s)
		s.Replication[len(s.Replication)-1].IO = "Connecting"
		s.Replication[len(s.Replication)-1].SecondsBehind = Unknown
	}
}

// replica is read-only and replicates from server number n.
func replica(n, source int, change ...func(*Server)) Server {
	return server(n, append([]func(*Server){readOnly, from(source)}, change...)...)
}

func choose(before string, servers ...Server) Choice {
	return ChoosePrimary(servers, NewGraph(servers), before)
}

func requireChoice(t testing.TB, c Choice, name string, usable, sole bool) {
	t.Helper()
	require.Equal(t, name, c.Name, c.Reason)
	require.Equal(t, usable, c.Usable, c.Reason)
	require.Equal(t, sole, c.Sole, c.Reason)
	require.NotEmpty(t, c.Reason)
}
