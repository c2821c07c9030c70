package topology

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFirstChoice(t *testing.T) {
	for _, c := range []struct {
		name         string
		servers      []Server
		want         string
		usable, sole bool
		reason       string
	}{
		{"a primary with two replicas", []Server{server(1), replica(2, 1), replica(3, 1)}, "s1", true, true, "2 of 2"},
		{"not the first in the list", []Server{replica(1, 2), server(2), replica(3, 2)}, "s2", true, true, ""},
		{"through a relay", []Server{server(1), replica(2, 1), replica(3, 2)}, "s1", true, true, ""},
		{"through a relay that does not answer", []Server{server(1), replica(2, 1, down), replica(3, 2), replica(4, 2)}, "", false, false, "s1 is writable, but s3, s4 replicate from s2, which does not answer (connection refused) and may be the primary by now"},
		{"through a relay that does not answer, and directly", []Server{server(1), replica(2, 1, down), replica(3, 2), replica(4, 1)}, "s1", true, false, ""},
		{"a replica does not answer", []Server{server(1), replica(2, 1, down)}, "s1", true, false, ""},
		{"alone", []Server{server(1)}, "s1", true, true, ""},
		{"a replica was down at the start", []Server{server(1), replica(2, 1), server(3, neverSeen)}, "s1", true, false, ""},
		{"a replica has lost its link", []Server{server(1), replica(2, 1), server(3, readOnly, lost(1))}, "s1", true, false, ""},
		{"a writable replica", []Server{server(1), server(2, from(1))}, "s1", true, false, ""},
		{"read-only everywhere", []Server{server(1, readOnly), replica(2, 1), replica(3, 1)}, "s1", false, false, "s1 is read-only; it replicates from nobody, 2 of 2 other servers replicate from it"},
		{"read-only everywhere, a replica is writable", []Server{server(1, readOnly), server(2, from(1)), replica(3, 1)}, "s1", false, false, "replicates from nobody"},
		{"read-only, two stand alone with as much", []Server{server(1, readOnly, at("0-1-5")), server(2, readOnly, at("0-1-5"), func(s *Server) { s.Promotion = Prefer })}, "s2", false, false, "replicates from nobody"},
		{"read-only, all stand alone, one has all", []Server{server(1, readOnly, at("0-1-5")), server(2, readOnly, at("0-1-9"))}, "s2", false, false, "replicates from nobody"},
		{"read-only, one has all of those that answer", []Server{server(1, neverSeen), server(2, readOnly, at("0-1-9"))}, "", false, false, "no writable server"},
		{"promoted, and nothing replicates from it yet", []Server{server(1, readOnly, at("0-1-9")), server(2, at("0-1-9")), replica(3, 1, at("0-1-9"))}, "s2", true, false, "s2 is writable"},
		{"not promoted: it lacks something", []Server{server(1, readOnly, at("0-1-9")), server(2, at("0-1-8")), replica(3, 1, at("0-1-9"))}, "", false, false, "replicate from s1, which cannot be the primary"},
		{"everything down", []Server{server(1, neverSeen), server(2, neverSeen)}, "", false, false, "connection refused"},
		{"no servers", nil, "", false, false, "no writable server"},
		{"the primary was down at the start", []Server{server(1, neverSeen), replica(2, 1), replica(3, 1)}, "s1", false, false, "every server that answers replicates from s1, which cannot take writes: connection refused"},
		{"half of the replicas of a primary that was down at the start", []Server{server(1, neverSeen), replica(2, 1), server(3, neverSeen), server(4, neverSeen)}, "", false, false, "s1 connection refused"},
		{"the replicas of two that were down at the start", []Server{server(1, neverSeen), replica(2, 1), replica(3, 4), server(4, neverSeen)}, "", false, false, "s1 connection refused"},
		{"two writable, none with replicas", []Server{server(1), server(2)}, "", false, false, "2 writable servers"},
		{"two writable, one has all that the other has and more", []Server{server(1, at("0-1-8")), server(2, at("0-1-9"))}, "s2", true, false, "only s2 has all transactions"},
		{"two writable, each lacks something", []Server{server(1, at("0-1-9"), logged("0-1-9")), server(2, at("0-2-9"), logged("0-1-8,0-2-9"))}, "", false, false, "2 writable servers"},
		{"two writable with a replica each", []Server{server(1), server(2), replica(3, 1), replica(4, 2)}, "", false, false, "s1, s2"},
		{"two writable, one with more replicas", []Server{server(1), server(2), replica(3, 2)}, "s2", true, false, ""},
		{"a cycle of two writable servers", []Server{server(1, from(2)), server(2, from(1)), replica(3, 1)}, "", false, false, "writable servers"},
		{"a cycle with one writable server", []Server{server(1, from(2)), replica(2, 1), replica(3, 1)}, "s1", true, true, ""},
		{"empty and alone beside the replicas of a dead primary",
			[]Server{server(1, neverSeen), replica(2, 1), replica(3, 1), server(4, at(""))}, "", false, false, "2 servers replicate from s1"},
		{"empty and alone beside replicas of a primary that is not listed",
			[]Server{server(1, at("")), replica(2, 9, at("0-9-55")), replica(3, 9, at("0-9-55"))}, "", false, false, "transactions that it lacks"},
		{"behind its only replica, which does not run",
			[]Server{server(1, at("0-1-10")), server(2, readOnly, lost(1), at("0-1-20"))}, "s1", false, false, "transactions that it lacks"},
		{"another domain is lacking", []Server{server(1, at("0-1-10")), server(2, readOnly, at("0-1-10,5-1-1"))}, "s2", false, false, "5-1-1"},
		{"a read-only one that stands alone has all and more", []Server{server(1, at("0-1-8")), server(2, readOnly, at("0-1-9"))}, "s2", false, false, "s2, which is read-only, replicates from nobody and has all transactions"},
		{"two of these", []Server{server(1, at("0-1-8")), server(2, readOnly, at("0-1-9")), server(3, readOnly, at("0-1-9"))}, "", false, false, "transactions that it lacks"},
		{"one of these, and one that does not answer", []Server{server(1, at("0-1-8")), server(2, readOnly, at("0-1-9")), server(3, neverSeen)}, "", false, false, "transactions that it lacks"},
		{"one of these that may not be it", []Server{server(1, at("0-1-8")), server(2, readOnly, at("0-1-9"), mustNot)}, "", false, false, "transactions that it lacks"},
		{"one of these that lacks what the writable one has", []Server{server(1, at("0-1-8,5-1-1"), logged("0-1-8,5-1-1")), server(2, readOnly, at("0-1-9"), logged("0-1-9"))}, "", false, false, "transactions that it lacks"},
		{"nothing replicates yet, nothing is lacking", []Server{server(1, at("0-1-10")), server(2, readOnly, at("0-1-10"))}, "s1", true, false, ""},
		{"a replica of the read-only primary does not matter if more follow another",
			[]Server{server(1), replica(2, 1), replica(3, 1), server(4, readOnly), replica(5, 4)}, "s1", true, false, ""},
		{"as many follow a read-only one", []Server{server(1), replica(2, 1), server(3, readOnly), replica(4, 3)}, "s1", true, false, ""},
		{"as many follow a read-only one that has more", []Server{server(1, at("0-1-8")), replica(2, 1, at("0-1-8")), server(3, readOnly, at("0-1-9")), replica(4, 3, at("0-1-9"))}, "", false, false, "s3"},
		{"must_not", []Server{server(1, mustNot), replica(2, 1)}, "", false, false, "must_not"},
		{"a must_not beside a server that may", []Server{server(1, mustNot), server(2), replica(3, 2)}, "s2", true, false, ""},
		{"in maintenance", []Server{server(1, maintenance), replica(2, 1)}, "", false, false, "in maintenance"},
		{"read_only not known", []Server{server(1, func(s *Server) { s.ReadOnly = Unknown }), replica(2, 1)}, "", false, false, "read_only is not known"},
		{"replication not known", []Server{server(1, func(s *Server) { s.ReplicationKnown = false }), replica(2, 1)}, "", false, false, "cannot be read"},
		{"an external source does not disqualify", []Server{server(1, from(9)), replica(2, 1)}, "s1", true, true, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := choose("", c.servers...)
			requireChoice(t, got, c.want, c.usable, c.sole)
			require.Contains(t, got.Reason, c.reason)
		})
	}
}

func TestChoiceSticks(t *testing.T) {
	for _, c := range []struct {
		name         string
		servers      []Server
		want         string
		usable, sole bool
		reason       string
	}{
		{"as before", []Server{server(1), replica(2, 1)}, "s1", true, true, "was the primary before"},
		{"although more follow another writable one", []Server{server(1), server(2), replica(3, 2), replica(4, 2)}, "s1", true, false, ""},
		{"although nobody follows", []Server{server(1, at("")), server(2, readOnly)}, "s1", true, false, ""},
		{"down", []Server{server(1, down), replica(2, 1), replica(3, 1)}, "s1", false, false, "connection refused"},
		{"down, and another is writable with replicas", []Server{server(1, down), server(2), replica(3, 2)}, "s1", false, false, "cannot take writes"},
		{"denied", []Server{server(1, func(s *Server) { s.Evidence, s.Detail = AccessDenied, "for monitor" }), server(2), replica(3, 2)}, "s1", false, false, "access denied (for monitor)"},
		{"read-only everywhere", []Server{server(1, readOnly), replica(2, 1), replica(3, 1)}, "s1", false, false, "read-only"},
		{"switched over and cut short: nothing follows the new one yet", []Server{server(1, readOnly, at("0-1-9")), server(2, at("0-1-9")), replica(3, 1, at("0-1-9"))}, "s2", true, false, "has all transactions"},
		{"read-only, another is writable and lacks something", []Server{server(1, readOnly, at("0-1-9")), server(2, at("0-1-8")), replica(3, 1, at("0-1-9"))}, "s1", false, false, ""},
		{"read-only, two others are writable", []Server{server(1, readOnly, at("0-1-9")), server(2, at("0-1-9")), server(3, at("0-1-9"))}, "s1", false, false, ""},
		{"read-only and left by all, who follow another read-only one", []Server{server(1, readOnly), server(2, readOnly), replica(3, 2)}, "s2", false, false, "s1 was the primary and is read-only"},
		{"read-only, and it follows another read-only one", []Server{replica(1, 2), server(2, readOnly), replica(3, 1)}, "s2", false, false, "s1 was the primary and is read-only"},
		{"it follows one that has died since", []Server{replica(1, 2), server(2, down), replica(3, 1)}, "s2", false, false, "as all that answer do"},
		{"it follows one that has died since, and not all do", []Server{replica(1, 2), server(2, down), replica(3, 4), server(4, readOnly)}, "s1", false, false, ""},
		{"read-only, another is writable and has all", []Server{server(1, readOnly), server(2)}, "s2", true, false, "has all transactions"},
		{"read-only, another is writable and empty", []Server{server(1, readOnly, at("")), server(2, at(""))}, "s1", false, false, ""},
		{"read-only, another is writable with as many", []Server{server(1, readOnly), server(2), replica(3, 1), replica(4, 2)}, "s2", true, false, "has all transactions"},
		{"read_only not known", []Server{server(1, func(s *Server) { s.ReadOnly = Unknown }), server(2), replica(3, 2)}, "s1", false, false, ""},
		{"a person moved it: read-only, the replicas follow another", []Server{server(1, readOnly), server(2), replica(3, 2)}, "s2", true, false, "s1 (read-only) was the primary"},
		{"a person moved it: it replicates from the new one", []Server{replica(1, 2), server(2), replica(3, 2)}, "s2", true, true, ""},
		{"a person moved it: still writable, but it replicates", []Server{server(1, from(2)), server(2), replica(3, 2)}, "s2", true, false, "replicates from s2"},
		{"moved, not all have followed", []Server{replica(1, 2), server(2), replica(3, 1)}, "s2", true, true, ""},
		{"not to one in maintenance", []Server{server(1, readOnly), server(2, maintenance), replica(3, 2)}, "s1", false, false, ""},
		{"not to a must_not", []Server{server(1, readOnly), server(2, mustNot), replica(3, 2)}, "s1", false, false, ""},
		{"must_not keeps who is it", []Server{server(1, mustNot), replica(2, 1)}, "s1", true, true, ""},
		{"maintenance keeps who is it", []Server{server(1, maintenance), replica(2, 1)}, "s1", true, true, ""},
		{"started again without what others have, and alone", []Server{server(1, readOnly, at("0-1-7"), outdated), server(2, readOnly, at("0-2-9")), server(3, readOnly, at("0-1-7")), server(4, readOnly, at("0-1-7")), replica(5, 2, at("0-2-9"))}, "s2", false, false, "s2 is read-only too"},
		{"started again without what others have, writable", []Server{server(1, at("0-1-7"), outdated), server(2, readOnly, at("0-2-9")), server(3, readOnly, at("0-1-7")), replica(4, 2, at("0-2-9"))}, "s1", false, false, ""},
		{"in a cycle", []Server{server(1, from(2)), server(2, from(1)), replica(3, 1)}, "s1", true, false, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := choose("s1", c.servers...)
			requireChoice(t, got, c.want, c.usable, c.sole)
			require.Contains(t, got.Reason, c.reason)
		})
	}
	requireChoice(t, choose("gone", server(1), replica(2, 1)), "s1", true, true)
}

func TestSoleNeedsEveryServer(t *testing.T) {
	good := func() []Server { return []Server{server(1), replica(2, 1), replica(3, 2)} }
	requireChoice(t, choose("s1", good()...), "s1", true, true)
	for name, spoil := range map[string]func(*Server){
		"down":          down,
		"writable":      func(s *Server) { s.ReadOnly = No },
		"unknown":       func(s *Server) { s.ReadOnly = Unknown },
		"not connected": func(s *Server) { s.Replication[0].IO = "Connecting" },
		"not applying":  func(s *Server) { s.Replication[0].SQL = "No" },
		"elsewhere":     func(s *Server) { s.Replication = nil },
		"timed out":     func(s *Server) { s.Evidence = TimedOut },
	} {
		servers := good()
		spoil(&servers[2])
		requireChoice(t, choose("s1", servers...), "s1", true, false)
		require.False(t, choose("s1", servers...).Sole, name)
	}
}

func TestWhatPersonsSetHidesNoSource(t *testing.T) {
	for name, set := range map[string]func(*Server){"maintenance": maintenance, "must_not": mustNot} {
		t.Run(name, func(t *testing.T) {
			c := choose("s1", server(1, from(2), set), server(2), replica(3, 2))
			require.Equal(t, "s2", c.Name, c.Reason)
			require.True(t, c.Usable)
		})
	}
}

func TestSeveralSuccessorsAreNone(t *testing.T) {
	c := choose("s1", server(1, readOnly), server(2), replica(3, 2), server(4), replica(5, 4), replica(6, 4))
	require.Equal(t, "s1", c.Name, c.Reason)
	require.False(t, c.Usable)
	require.Contains(t, c.Reason, "s2 and s4")
}

func TestUnreadableReplicationKeepsThePrimary(t *testing.T) {
	c := choose("s1", server(1, func(s *Server) { s.ReplicationKnown = false }), replica(2, 1))
	require.True(t, c.Usable, c.Reason)
}

func TestAheadLeavesLocalWritesOut(t *testing.T) {
	servers := []Server{server(1, at("0-1-10")), replica(2, 1, at("0-2-11"))}
	require.NotEmpty(t, Ahead(servers, 0, true))
	require.Empty(t, Ahead(servers, 0, false))
	servers[1] = replica(2, 1, at("0-1-11"))
	require.Contains(t, Ahead(servers, 0, false), "s2 has transactions that it lacks (0-1-11")
}

func TestPrimaryOutOfReachButAlive(t *testing.T) {
	c := choose("s1", server(1, down), replica(2, 1), replica(3, 1, down))
	require.False(t, c.Usable)
	require.Contains(t, c.Reason, "alive as seen from s2, which")
}

func TestOvertaken(t *testing.T) {
	servers := func(other string) []Server { return []Server{server(1, at("0-1-9")), server(2, at(other))} }
	require.Contains(t, Overtaken(servers("0-1-10"), 0), "s2 has all transactions of s1 and more (0-1-10)")
	require.Empty(t, Overtaken(servers("0-1-9"), 0))
	require.Empty(t, Overtaken(servers("0-1-8"), 0))
	parted := servers("0-2-20")
	parted[1].BinlogState = state("0-1-8,0-2-20")
	require.Empty(t, Overtaken(parted, 0), "it went another way")
	away := servers("0-1-10")
	away[1].Evidence = TimedOut
	require.Empty(t, Overtaken(away, 0))
}

// logged sets the state of the binary log.
func logged(text string) func(*Server) { return func(s *Server) { s.BinlogState = state(text) } }
