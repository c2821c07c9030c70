package topology

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLabels(t *testing.T) {
	evidence := func(e Evidence) func(*Server) { return func(s *Server) { s.Evidence = e } }
	servers := []Server{
		server(1),
		replica(2, 1),
		replica(3, 2),
		replica(4, 1, evidence(Refused)),
		replica(5, 1, evidence(AccessDenied)),
		replica(6, 1, evidence(TooManyConnections)),
		replica(7, 1, maintenance),
		replica(8, 1, func(s *Server) { s.Drain = true }),
		server(9, evidence(NotAsked)),
		server(10, readOnly),
		server(11, from(1)),
		server(12, readOnly, lost(1)),
		server(13, readOnly, from(1), func(s *Server) { s.Replication[0].SQL = "No" }),
		server(14, readOnly, from(1), func(s *Server) { s.Replication[0].IO = "No" }),
		server(15, maintenance, evidence(TimedOut)),
	}
	g := NewGraph(servers)
	for i, want := range [][]string{
		{"Primary", "Running"},
		{"Replica", "Relay", "Read-only", "Running"},
		{"Replica", "Read-only", "Running"},
		{"Down"},
		{"Auth Error"},
		{"Running"},
		{"Replica", "Read-only", "Maintenance", "Running"},
		{"Replica", "Read-only", "Drained", "Running"},
		nil,
		{"Read-only", "Running"},
		{"Replica", "Running"},
		{"Replica", "Read-only", "Running"},
		{"Read-only", "Running"},
		{"Read-only", "Running"},
		{"Maintenance", "Down"},
	} {
		require.Equal(t, want, Labels(servers, g, i, 0, Lag{}, 0), servers[i].Name)
	}
	require.Equal(t, []string{"Running"}, Labels(servers, g, 0, -1, Lag{}, 0), "no primary is offered")
}

func TestLabelLagging(t *testing.T) {
	servers := []Server{server(1), replica(2, 1)}
	g := NewGraph(servers)
	labels := func(lag Lag, limit time.Duration) []string { return Labels(servers, g, 1, 0, lag, limit) }
	require.Contains(t, labels(Lag{Known: true, Behind: 11 * time.Second}, 10*time.Second), LabelLagging)
	require.NotContains(t, labels(Lag{Known: true, Behind: 10 * time.Second}, 10*time.Second), LabelLagging)
	require.NotContains(t, labels(Lag{Known: true, Behind: time.Hour}, 0), LabelLagging, "no limit")
	require.NotContains(t, labels(Lag{Behind: time.Hour}, time.Second), LabelLagging, "not known")
}

func codes(faults []Fault) []string {
	var out []string
	for _, f := range faults {
		out = append(out, f.Code)
	}
	return out
}

func TestClusterFaults(t *testing.T) {
	twin := func(s *Server) { s.ServerID, s.Instance = 1, "host1:3306 /data/" }
	sameID := func(s *Server) { s.ServerID = 1 }
	for _, c := range []struct {
		name    string
		servers []Server
		primary int
		want    map[int][]string
	}{
		{"none", []Server{server(1), replica(2, 1)}, 0, map[int][]string{}},
		{"same server", []Server{server(1), server(2, twin)}, 0, map[int][]string{1: {"same_server"}}},
		{"same server, one of them down", []Server{server(1), server(2, twin, down)}, 0, map[int][]string{1: {"same_server"}}},
		{"same id", []Server{server(1), server(2, readOnly, sameID)}, 0, map[int][]string{1: {"duplicate_server_id"}}},
		{"same id three times", []Server{server(1), server(2, readOnly, sameID), server(3, readOnly, sameID)}, 0,
			map[int][]string{1: {"duplicate_server_id"}, 2: {"duplicate_server_id", "duplicate_server_id"}}},
		{"same id, down", []Server{server(1), server(2, sameID, down)}, 0, map[int][]string{}},
		{"writable beside the primary", []Server{server(1), server(2, from(1))}, 0, map[int][]string{1: {"writable_beside_primary"}}},
		{"writable, no primary", []Server{server(1), server(2)}, -1, map[int][]string{}},
		{"threads", []Server{server(1), replica(2, 1, replication(func(r *Replication) { r.IO, r.SQL = "No", "No" })), replica(3, 1, replication(func(r *Replication) { r.SQL, r.SQLErrno, r.SQLError = "No", 1062, "duplicate" })),
			replica(4, 1, replication(func(r *Replication) { r.IO = "No" })), replica(5, 1, replication(func(r *Replication) { r.SQL = "No" })),
			replica(6, 1, replication(func(r *Replication) { r.IO, r.IOErrno, r.IOError = "Connecting", 1045, "denied" })), replica(7, 1, replication(func(r *Replication) { r.IO = "Connecting" }))}, 0,
			map[int][]string{1: {CodeNotReplicating}, 2: {CodeNotReplicating}, 3: {CodeNotReplicating}, 4: {CodeNotReplicating}, 5: {CodeNotReplicating}}},
		{"threads, the source is down", []Server{server(1, down), replica(2, 1, replication(func(r *Replication) { r.IO, r.IOErrno = "Connecting", 2003 }))}, 0, map[int][]string{}},
		{"threads, in maintenance", []Server{server(1), replica(2, 1, maintenance, replication(func(r *Replication) { r.IO, r.SQL = "No", "No" }))}, 0, map[int][]string{}},
		{"outside", []Server{server(1, from(9)), replica(2, 1)}, 0, map[int][]string{0: {"external_source"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			MarkDuplicates(c.servers)
			got := ClusterFaults(c.servers, NewGraph(c.servers), c.primary)
			require.Len(t, got, len(c.want))
			for i, want := range c.want {
				require.Equal(t, want, codes(got[i]))
				for _, f := range got[i] {
					require.Contains(t, f.Text, c.servers[i].Name)
					require.Contains(t, f.String(), f.Text)
				}
			}
		})
	}
}

func TestMarkDuplicates(t *testing.T) {
	one := func(s *Server) { s.ServerID, s.Instance = 1, "host1:3306 /data/" }
	servers := []Server{server(1), server(2), server(3, one), server(4, one), server(5, one, down), server(6, func(s *Server) { s.Instance = "" }), server(7, func(s *Server) { s.ServerID, s.Instance = 6, "" })}
	want := []string{"", "", "s1", "s1", "s1", "", ""} // what a server that is down said before still counts
	MarkDuplicates(servers)
	for i := range servers {
		require.Equal(t, want[i], servers[i].SameAs, servers[i].Name)
	}
}
