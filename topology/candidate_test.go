package topology

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/topology/gtid"
)

func state(text string) gtid.State {
	s, err := gtid.ParseState(text)
	if err != nil {
		panic(err)
	}
	return s
}

// candidate makes a replica of s1 fit for promotion that has received and
// applied 0-1-100.
func candidate(s *Server) {
	from(1)(s)
	s.ReadOnly, s.LogBin, s.LogReplicaWrites = Yes, Yes, Yes
	s.Version, _ = ParseVersion("10.11.6-MariaDB")
	s.Replication[0].UsesGTID = true
	s.Replication[0].Received = position("0-1-100")
	s.BinlogState = state("0-1-100")
}

func received(text string) func(*Server) {
	return func(s *Server) { s.Replication[0].Received = position(text) }
}

func replication(change func(*Replication)) func(*Server) {
	return func(s *Server) { change(&s.Replication[0]) }
}

// orphaned is what replicas show when their primary has died.
var orphaned = replication(func(r *Replication) { r.IO = "Connecting" })

func rank(servers ...Server) Ranking { return RankCandidates(servers, NewGraph(servers), 0) }

func deadPrimary() Server {
	return server(1, func(s *Server) { s.BinlogState = state("0-1-100") }, down)
}

func TestBestCandidate(t *testing.T) {
	prefer := func(s *Server) { s.Promotion = Prefer }
	lowDisk := func(s *Server) { s.LowDisk = "little is free" }
	site := func(name string) func(*Server) { return func(s *Server) { s.Site = name } }
	for name, x := range map[string]struct {
		two, three []func(*Server)
		best       string
		reason     string
	}{
		"equal: the first":                     {nil, nil, "s2", "the same"},
		"received more":                        {nil, []func(*Server){received("0-1-101")}, "s3", "the most"},
		"received beats applied":               {nil, []func(*Server){received("0-1-105"), at("0-1-90")}, "s3", "yet to apply 15 transactions"},
		"received beats prefer":                {[]func(*Server){prefer}, []func(*Server){received("0-1-101")}, "s3", "the most"},
		"prefer among equals":                  {nil, []func(*Server){prefer}, "s3", "the same"},
		"site of the primary":                  {[]func(*Server){site("far")}, nil, "s3", "the same"},
		"prefer beats site":                    {[]func(*Server){site("far"), prefer}, nil, "s2", "the same"},
		"disk space beats prefer":              {[]func(*Server){lowDisk, prefer}, nil, "s3", "the first by disk space, promotion rule and site of 2"},
		"received beats disk space":            {nil, []func(*Server){lowDisk, received("0-1-101")}, "s3", "the most of 2 servers that can be promoted; little is free"},
		"applied among equals":                 {[]func(*Server){at("0-1-99"), prefer}, nil, "s3", "the most"},
		"one only":                             {[]func(*Server){mustNot}, nil, "s3", "of 1 servers"},
		"each lacks something, of two domains": {[]func(*Server){received("0-1-101,5-1-1")}, []func(*Server){received("0-1-100,5-1-2")}, "", "no server has all transactions of all domains"},
		"each lacks something, in one domain":  {[]func(*Server){received("0-2-101"), at("0-2-101")}, []func(*Server){received("0-1-101"), at("0-1-101")}, "", "s2 and s3 each have transactions"},
		"none":                                 {[]func(*Server){mustNot}, []func(*Server){maintenance}, "", "no server can take the place of s1"},
	} {
		t.Run(name, func(t *testing.T) {
			two := append([]func(*Server){candidate, orphaned}, x.two...)
			three := append([]func(*Server){candidate, orphaned}, x.three...)
			r := rank(deadPrimary(), server(2, two...), server(3, three...))
			require.Equal(t, x.best, r.Best, r.Reason)
			require.Contains(t, r.Reason, x.reason)
			require.Len(t, r.Candidates, 2)
		})
	}
}

func TestRejectedCandidates(t *testing.T) {
	for want, change := range map[string]func(*Server){
		"connection refused":  down,
		"in maintenance":      maintenance,
		"must_not":            mustNot,
		"cannot be read":      func(s *Server) { s.ReplicationKnown = false },
		"log_bin":             func(s *Server) { s.LogBin = No },
		"log_slave_updates":   func(s *Server) { s.LogReplicaWrites = Unknown },
		"not replicate from":  func(s *Server) { s.Replication = nil },
		"by GTID":             replication(func(r *Replication) { r.UsesGTID = false }),
		"filters":             replication(func(r *Replication) { r.Filtered = true }),
		"delayed replica (60": replication(func(r *Replication) { r.Delay = 60 }),
		"error 1062: duplicate": replication(func(r *Replication) {
			r.SQL, r.SQLErrno, r.SQLError = "No", 1062, "duplicate"
		}),
		"both of its replication threads": replication(func(r *Replication) { r.SQL, r.IO = "No", "No" }),
		"binlog_format is STATEMENT":      func(s *Server) { s.BinlogFormat = "STATEMENT" },
		"never had: 0-2-7":                func(s *Server) { s.BinlogState = state("0-2-7,0-1-100") },
		"version 11.8, from which s3 with version 10.11": func(s *Server) {
			s.Version, _ = ParseVersion("11.8.1-MariaDB")
		},
		"same server as s1": func(s *Server) { s.SameAs = "s1" },
	} {
		t.Run(want, func(t *testing.T) {
			primary := deadPrimary()
			primary.BinlogFormat = "ROW"
			r := rank(primary, server(2, candidate, orphaned, change), server(3, candidate, orphaned))
			require.Contains(t, r.Candidates[0].Rejected, want)
			require.Empty(t, r.Candidates[1].Rejected)
			require.Equal(t, "s3", r.Best)
		})
	}
}

func TestReplicaAheadOfAnOldSampleIsNotErrant(t *testing.T) {
	ahead := func(s *Server) { s.BinlogState = state("0-1-105") }
	r := rank(deadPrimary(), server(2, candidate, orphaned, ahead))
	require.Empty(t, r.Candidates[0].Rejected)
	require.Equal(t, "s2", r.Best)
}

func TestNewerVersionAloneIsPromoted(t *testing.T) {
	newer := func(s *Server) { s.Version, _ = ParseVersion("11.8.1-MariaDB") }
	require.Equal(t, "s2", rank(deadPrimary(), server(2, candidate, orphaned, newer)).Best)
}
