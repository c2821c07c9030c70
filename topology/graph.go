package topology

import (
	"net"
	"slices"
	"strconv"
	"strings"
)

// Link is one replication connection inside the cluster.
type Link struct {
	Replica, Source int // indexes of servers
	Running         bool
	// Stopped is true where neither thread runs: what is left of a promotion, or
	// the work of a person.
	Stopped bool
}

// Graph is who replicates from whom, as the replicas' settings say; servers that
// are down keep the links that were last seen.
type Graph struct {
	Links []Link
	// External are the sources outside the cluster, by replica.
	External map[int][]string
	n        int
}

// NewGraph builds the graph. The source of a connection is found by the server
// id that it is connected to, where that is known and belongs to one server
// only; else by its address: as configured, private, or resolved.
func NewGraph(servers []Server) Graph {
	g := Graph{n: len(servers), External: map[int][]string{}}
	for i, s := range servers {
		if s.EverSeen && s.SameAs == "" {
			for _, r := range s.Replication {
				src := findSource(servers, i, r)
				if src < 0 {
					g.External[i] = append(g.External[i], r.Address())
					continue
				}
				g.Links = append(g.Links, Link{Replica: i, Source: src, Running: s.Up() && r.Running(), Stopped: r.IO == "No" && r.SQL == "No"})
			}
		}
	}
	return g
}

func findSource(servers []Server, self int, r Replication) int {
	byID := -1
	if r.SourceServerID != 0 {
		for i, s := range servers {
			if i == self || !s.EverSeen || s.SameAs != "" || s.ServerID != r.SourceServerID {
				continue
			}
			if byID >= 0 {
				byID = -2 // not unique: worthless
				break
			}
			byID = i
		}
	}
	if byID >= 0 && r.IO == "Yes" {
		return byID
	}
	for i, s := range servers {
		if i != self && s.hasAddress(r.Host, r.Port) {
			if s.SameAs == "" {
				return i
			}
			return slices.IndexFunc(servers, func(e Server) bool { return e.Name == s.SameAs })
		}
	}
	return max(byID, -1)
}

func (s Server) hasAddress(host string, port int) bool {
	for _, a := range []string{s.PrivateAddress, s.Address} {
		h, p, err := net.SplitHostPort(a)
		if err != nil || p != strconv.Itoa(port) {
			continue
		}
		if strings.EqualFold(h, host) || (loopback(h) && loopback(host)) || (s.PeerIP != "" && s.PeerIP == host) {
			return true
		}
	}
	return false
}

func loopback(h string) bool {
	ip := net.ParseIP(h)
	return strings.EqualFold(h, "localhost") || (ip != nil && ip.IsLoopback() && ip.String() == "127.0.0.1")
}

// Sources lists the servers that server i replicates from, running or not.
func (g Graph) Sources(i int) []int {
	var out []int
	for _, l := range g.Links {
		if l.Replica == i && !slices.Contains(out, l.Source) {
			out = append(out, l.Source)
		}
	}
	return out
}

// Follows lists the servers that server i replicates from with at least one
// thread that is not stopped.
func (g Graph) Follows(i int) []int {
	var out []int
	for _, l := range g.Links {
		if l.Replica == i && !l.Stopped && !slices.Contains(out, l.Source) {
			out = append(out, l.Source)
		}
	}
	return out
}

// Replicas lists the servers that replicate directly from server i; running
// asks for connections that run.
func (g Graph) Replicas(i int, running bool) []int {
	var out []int
	for _, l := range g.Links {
		if l.Source == i && (l.Running || !running) && !slices.Contains(out, l.Replica) {
			out = append(out, l.Replica)
		}
	}
	return out
}

// Below lists the servers that replicate from server i directly or through
// relays, i itself left out. Cycles end where they close.
func (g Graph) Below(i int, running bool) []int {
	seen := make([]bool, g.n)
	seen[i] = true
	queue, out := []int{i}, []int(nil)
	for len(queue) > 0 {
		for _, r := range g.Replicas(queue[0], running) {
			if !seen[r] {
				seen[r] = true
				out, queue = append(out, r), append(queue, r)
			}
		}
		queue = queue[1:]
	}
	slices.Sort(out)
	return out
}

// InCycle reports whether server i replicates from itself through others.
func (g Graph) InCycle(i int) bool {
	return slices.ContainsFunc(g.Sources(i), func(src int) bool { return src == i || slices.Contains(g.Below(i, false), src) })
}

// Relays reports whether server i both replicates from a member and is replicated from.
func (g Graph) Relays(i int) bool {
	return len(g.Sources(i)) > 0 && len(g.Replicas(i, false)) > 0
}
