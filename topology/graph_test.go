package topology

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestGraphRelay(t *testing.T) {
	servers := []Server{server(1), replica(2, 1), replica(3, 2), replica(4, 2, func(s *Server) { s.Replication[0].SQL = "No" })}
	g := NewGraph(servers)
	require.Empty(t, g.External)
	require.Equal(t, []int{1, 2, 3}, g.Below(0, false))
	require.Equal(t, []int{1, 2}, g.Below(0, true))
	require.Equal(t, []int{1}, g.Replicas(0, false))
	require.Equal(t, []int{2, 3}, g.Replicas(1, false))
	require.Equal(t, []int{2}, g.Replicas(1, true))
	require.Equal(t, []int{1}, g.Sources(2))
	require.Empty(t, g.Sources(0))
	require.True(t, g.Relays(1))
	for _, i := range []int{0, 2, 3} {
		require.False(t, g.Relays(i))
	}
	for i := range servers {
		require.False(t, g.InCycle(i))
	}
}

func TestGraphCycle(t *testing.T) {
	g := NewGraph([]Server{server(1, from(3)), server(2, from(1)), server(3, from(2)), replica(4, 1)})
	for i := range 3 {
		require.True(t, g.InCycle(i))
		require.Len(t, g.Below(i, true), 3)
		require.NotContains(t, g.Below(i, true), i)
	}
	require.False(t, g.InCycle(3), "it hangs below the cycle")
}

func TestGraphDownServersKeepTheirLinks(t *testing.T) {
	g := NewGraph([]Server{server(1, down), replica(2, 1, down), replica(3, 1), replica(4, 1, neverSeen)})
	require.Equal(t, []int{1, 2}, g.Below(0, false))
	require.Equal(t, []int{2}, g.Below(0, true))
}

func TestGraphFindsSource(t *testing.T) {
	const none = -1
	connection := func(host string, port int, id uint64, io string) func(*Server) {
		return func(s *Server) {
			s.Replication = []Replication{{Host: host, Port: port, SourceServerID: id, IO: io, SQL: "Yes"}}
		}
	}
	named := func(address, private, peer string) func(*Server) {
		return func(s *Server) { s.Address, s.PrivateAddress, s.PeerIP = address, private, peer }
	}
	id := func(n uint64) func(*Server) { return func(s *Server) { s.ServerID = n } }
	for _, c := range []struct {
		name   string
		first  []func(*Server)
		second []func(*Server)
		link   func(*Server)
		want   int
	}{
		{"address", nil, nil, connection("10.0.0.1", 3306, 0, "Connecting"), 0},
		{"another port", nil, nil, connection("10.0.0.1", 3307, 0, "Connecting"), none},
		{"name without regard to case", []func(*Server){named("DB1.example:3306", "", "")}, nil, connection("db1.Example", 3306, 0, "Connecting"), 0},
		{"private address", []func(*Server){named("db1:3306", "192.168.0.1:3307", "")}, nil, connection("192.168.0.1", 3307, 0, "Connecting"), 0},
		{"resolved address", []func(*Server){named("db1:3306", "", "10.9.9.9")}, nil, connection("10.9.9.9", 3306, 0, "Connecting"), 0},
		{"resolved address, another port", []func(*Server){named("db1:3306", "", "10.9.9.9")}, nil, connection("10.9.9.9", 3307, 0, "Connecting"), none},
		{"loopback names", []func(*Server){named("localhost:4001", "", "")}, nil, connection("127.0.0.1", 4001, 0, "Connecting"), 0},
		{"IPv6", []func(*Server){named("[fd00::1]:3306", "", "")}, nil, connection("fd00::1", 3306, 0, "Connecting"), 0},
		{"server id behind an unknown address", nil, nil, connection("vip.example", 3306, 1, "Yes"), 0},
		{"server id, not connected now", nil, nil, connection("vip.example", 3306, 1, "Connecting"), 0},
		{"the id that is connected wins over the address", nil, nil, connection("10.0.0.1", 3306, 2, "Yes"), 1},
		{"an old id loses against the address", nil, nil, connection("10.0.0.1", 3306, 2, "Connecting"), 0},
		{"an id that is not unique is worthless", nil, []func(*Server){id(1)}, connection("vip.example", 3306, 1, "Yes"), none},
		{"an id that is not unique, known address", nil, []func(*Server){id(1)}, connection("10.0.0.2", 3306, 1, "Yes"), 1},
		{"an id of a server that was never seen", []func(*Server){neverSeen, id(1)}, nil, connection("vip.example", 3306, 1, "Yes"), none},
		{"a server that was never seen, by address", []func(*Server){neverSeen}, nil, connection("10.0.0.1", 3306, 0, "Connecting"), 0},
		{"outside", nil, nil, connection("10.1.1.1", 3306, 77, "Yes"), none},
		{"not from itself", nil, nil, connection("10.0.0.3", 3306, 3, "Yes"), none},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := NewGraph([]Server{server(1, c.first...), server(2, c.second...), server(3, readOnly, c.link)})
			if c.want == none {
				require.Empty(t, g.Sources(2))
				require.Len(t, g.External[2], 1)
				return
			}
			require.Equal(t, []int{c.want}, g.Sources(2))
			require.Empty(t, g.External)
		})
	}
}

func TestGraphSeveralConnections(t *testing.T) {
	g := NewGraph([]Server{server(1), server(2), replica(3, 1, from(2), from(1), from(9))})
	require.Equal(t, []int{0, 1}, g.Sources(2), "two connections to one source are one source")
	require.Equal(t, []int{2}, g.Replicas(0, true))
	require.Equal(t, []string{"10.0.0.9:3306"}, g.External[2])
}

func TestReplicatingFromItself(t *testing.T) {
	// A link that comes back to its server through a server in between is a cycle
	// even when nothing runs.
	g := NewGraph([]Server{server(1, lost(2)), server(2, lost(1))})
	require.True(t, g.InCycle(0))
	require.Empty(t, g.Below(0, true))
}
