package topology

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/lockstep-ha/lockstep/topology/gtid"
)

// Candidate is a server seen as the next primary.
type Candidate struct {
	Server string
	// Rejected says why it cannot be promoted, "" if it can.
	Rejected string
	// Backlog is how many transactions it has received and not applied; it has to
	// apply them before it is promoted.
	Backlog uint64
}

// Ranking says which server is the best next primary.
type Ranking struct {
	// Best is its name, "" for none.
	Best string
	// Reason says why it is the best, or why there is none.
	Reason string
	// Candidates are all servers but the primary, in the order of the servers.
	Candidates []Candidate
}

// RankCandidates compares the servers that could take the place of server
// primary, which may be dead: what is said of it is what was seen last.
//
// Of the servers that can be promoted the one that has received the most is
// the best, since nothing that a replica has may be lost; of those the one that
// has applied the most, since it is ready first. Only among equals do space on
// its disk, the promotion rule, the site of the primary and at last the order of
// the servers decide. Where two have
// transactions that the other lacks, the domain of the primary decides; where it
// does not, there is no best one.
//
// A replica need not be connected to the primary to be a candidate: a dead
// primary has no connected replicas.
func RankCandidates(servers []Server, g Graph, primary int) Ranking {
	var r Ranking
	var able []int
	var progress []gtid.Progress
	for i, s := range servers {
		if i == primary {
			continue
		}
		c := Candidate{Server: s.Name, Rejected: unfit(servers, g, primary, i)}
		if link := LinkTo(servers, g, primary, i); link != nil {
			c.Backlog = gtid.Backlog(link.Received, s.CurrentPos)
			if c.Rejected == "" {
				able = append(able, i)
				progress = append(progress, gtid.Progress{Received: link.Received, Applied: s.CurrentPos})
			}
		}
		r.Candidates = append(r.Candidates, c)
	}
	if len(able) == 0 {
		r.Reason = "no server can take the place of " + servers[primary].Name
		return r
	}
	most := gtid.MostAdvanced(progress, uint32(servers[primary].DomainID))
	if !most.OK {
		r.Reason = fmt.Sprintf("%s and %s each have transactions that the other lacks: promote one by hand", servers[able[most.Best[0]]].Name, servers[able[most.Best[len(most.Best)-1]]].Name)
		return r
	}
	if most.ByPreference {
		r.Reason = fmt.Sprintf("no server has all transactions of all domains (%s has the most of domain %d, the primary's): promote one by hand", servers[able[most.Best[0]]].Name, servers[primary].DomainID)
		return r
	}
	backlog := func(k int) uint64 { return gtid.Backlog(progress[k].Received, progress[k].Applied) }
	best := slices.MinFunc(most.Best, func(a, b int) int {
		x, y := servers[able[a]], servers[able[b]]
		site := servers[primary].Site
		return cmp.Or(
			compareBool(x.LowDisk != "", y.LowDisk != ""),
			-compareBool(x.Promotion == Prefer, y.Promotion == Prefer),
			-compareBool(x.Site == site, y.Site == site),
			cmp.Compare(a, b))
	})
	r.Best = servers[able[best]].Name
	r.Reason = fmt.Sprintf("%s has received and applied the most of %d servers that can be promoted", r.Best, len(able))
	if len(most.Best) > 1 {
		by := "promotion rule and site"
		if slices.ContainsFunc(most.Best, func(k int) bool { return servers[able[k]].LowDisk != "" }) {
			by = "disk space, " + by
		}
		r.Reason = fmt.Sprintf("%s is the first by %s of %d servers that have received and applied the same", r.Best, by, len(most.Best))
	}
	if low := servers[able[best]].LowDisk; low != "" {
		r.Reason += "; " + low
	}
	if n := backlog(best); n > 0 {
		r.Reason += fmt.Sprintf("; it has yet to apply %d transactions", n)
	}
	return r
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// LinkTo is the connection by which server i replicates from the primary, nil
// for none.
func LinkTo(servers []Server, g Graph, primary, i int) *Replication {
	if !slices.Contains(g.Sources(i), primary) {
		return nil
	}
	for k, r := range servers[i].Replication {
		if findSource(servers, i, r) == primary {
			return &servers[i].Replication[k]
		}
	}
	return nil
}

// unfit says why server i cannot be promoted in the place of the primary, "" if
// it can.
func unfit(servers []Server, g Graph, primary, i int) string {
	s := servers[i]
	switch {
	case s.SameAs != "":
		return "it is the same server as " + s.SameAs
	case !s.Up():
		return s.Why()
	case s.Maintenance:
		return "it is in maintenance"
	case s.Promotion == MustNot:
		return "its promotion rule is must_not"
	case !s.ReplicationKnown:
		return "its replication state cannot be read"
	case s.LogBin != Yes:
		return "it has no binary log (log_bin)"
	case s.LogReplicaWrites != Yes:
		return "it does not log what it replicates (log_slave_updates)"
	}
	link := LinkTo(servers, g, primary, i)
	switch {
	case link == nil:
		return "it does not replicate from " + servers[primary].Name
	case !link.UsesGTID:
		return "it does not replicate by GTID"
	case link.Filtered:
		return "replication filters are set: it lacks data"
	case link.Delay > 0:
		return fmt.Sprintf("it is a delayed replica (%d s)", link.Delay)
	case link.SQL != "Yes" && link.SQLErrno != 0:
		return fmt.Sprintf("its replication has stopped with error %d: %s", link.SQLErrno, link.SQLError)
	case link.SQL != "Yes" && link.IO == "No":
		return "both of its replication threads are stopped: it has only what it has applied"
	case s.BinlogFormat == "STATEMENT" && servers[primary].BinlogFormat != "" && servers[primary].BinlogFormat != "STATEMENT":
		return "its binlog_format is STATEMENT, that of the primary " + servers[primary].BinlogFormat
	}
	if own := ownErrant(s, servers[primary]); own != "" {
		return "it has transactions of its own that the primary never had: " + own
	}
	if older := olderReplica(servers, g, primary, i); older != "" {
		return older
	}
	return ""
}

// ownErrant names a transaction that a replica wrote itself and that its primary
// did not have when it was last seen. What others wrote is not looked at: the
// primary may have gone on after that.
func ownErrant(s, primary Server) string {
	for id := range s.BinlogState.All() {
		if uint64(id.Server) == s.ServerID && primary.EverSeen && !primary.BinlogState.Contains(id) {
			return id.String()
		}
	}
	return ""
}

// olderReplica names a server that would have to replicate from server i though
// its version is older.
func olderReplica(servers []Server, g Graph, primary, i int) string {
	v := servers[i].Version
	for _, j := range g.Replicas(primary, false) {
		o := servers[j]
		if j != i && o.Up() && !o.Version.AtLeast(v.Major, v.Minor, 0) {
			return fmt.Sprintf("it has version %d.%d, from which %s with version %d.%d cannot safely replicate", v.Major, v.Minor, o.Name, o.Version.Major, o.Version.Minor)
		}
	}
	return ""
}
