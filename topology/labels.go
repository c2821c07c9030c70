package topology

import (
	"fmt"
	"slices"
	"time"
)

// Labels of servers.
const (
	LabelPrimary     = "Primary"
	LabelReplica     = "Replica"
	LabelRelay       = "Relay"
	LabelRunning     = "Running"
	LabelDown        = "Down"
	LabelMaintenance = "Maintenance"
	LabelDrained     = "Drained"
	LabelAuthError   = "Auth Error"
	LabelReadOnly    = "Read-only"
	LabelLagging     = "Lagging"
	LabelLowDisk     = "Low Disk"
)

// Labels names what server i is. primary is the index of the server that the
// monitor offers, negative for none.
func Labels(servers []Server, g Graph, i, primary int, lag Lag, limit time.Duration) []string {
	s := servers[i]
	var out []string
	if i == primary {
		out = append(out, LabelPrimary)
	} else if s.Up() && replicates(s) {
		out = append(out, LabelReplica)
		if g.Relays(i) {
			out = append(out, LabelRelay)
		}
	}
	if limit > 0 && lag.Known && lag.Behind > limit {
		out = append(out, LabelLagging)
	}
	switch {
	case s.Up():
		if s.ReadOnly == Yes && i != primary {
			out = append(out, LabelReadOnly)
		}
	case s.notLetIn():
		out = append(out, LabelAuthError)
	}
	if s.Maintenance {
		out = append(out, LabelMaintenance)
	}
	if s.Drain {
		out = append(out, LabelDrained)
	}
	if s.LowDisk != "" {
		out = append(out, LabelLowDisk)
	}
	switch {
	case s.Up() || s.Evidence == TooManyConnections:
		out = append(out, LabelRunning)
	case s.Evidence != NotAsked && !s.notLetIn():
		out = append(out, LabelDown)
	}
	return out
}

// notLetIn reports whether the server is there but does not let the monitor in:
// that is a fault of accounts or certificates and says nothing about the server.
func (s Server) notLetIn() bool { return s.Evidence == AccessDenied || s.Evidence == TLSFailed }

func replicates(s Server) bool {
	return slices.ContainsFunc(s.Replication, func(r Replication) bool { return r.SQL == "Yes" && r.IO != "No" })
}

// ClusterFaults finds what is wrong between servers: the same process listed
// twice, server ids that are not unique, writable servers beside the primary.
// The returned faults are by server index.
func ClusterFaults(servers []Server, g Graph, primary int) map[int][]Fault {
	out := map[int][]Fault{}
	for i, s := range servers {
		if s.SameAs != "" {
			out[i] = append(out[i], Fault{"same_server", fmt.Sprintf("%s and %s are the same server (%s)", s.SameAs, s.Name, s.Instance),
				"remove one of them from the configuration"})
			continue
		}
		for j := range i {
			if s.Up() && servers[j].Up() && s.ServerID == servers[j].ServerID && s.Instance != servers[j].Instance {
				out[i] = append(out[i], Fault{"duplicate_server_id", fmt.Sprintf("%s and %s both have server_id %d", servers[j].Name, s.Name, s.ServerID),
					"give each server its own server_id"})
			}
		}
		if primary >= 0 && i != primary && s.Writable() {
			out[i] = append(out[i], Fault{"writable_beside_primary", fmt.Sprintf("%s is writable, but %s is the primary", s.Name, servers[primary].Name),
				"SET GLOBAL read_only=1 on " + s.Name})
		}
		if more := replicationFaults(servers, i); i != primary && len(more) > 0 {
			out[i] = append(out[i], more...)
		}
		for _, e := range g.External[i] {
			out[i] = append(out[i], Fault{"external_source", fmt.Sprintf("%s replicates from %s, which is not in the configuration", s.Name, e), ""})
		}
	}
	return out
}

// CodeNotReplicating is the code of the fault of a server whose replication has
// stopped.
const CodeNotReplicating = "not_replicating"

// replicationFaults names the connections of a server that replicate nothing,
// though their source is there.
func replicationFaults(servers []Server, i int) []Fault {
	s := servers[i]
	if !s.Up() || s.Maintenance {
		return nil
	}
	var out []Fault
	for _, r := range s.Replication {
		which, source := s.Name, findSource(servers, i, r)
		if r.Name != "" {
			which += " (connection " + r.Name + ")"
		}
		stopped := "START SLAVE on " + s.Name
		if r.Name != "" {
			stopped = "START SLAVE '" + r.Name + "' on " + s.Name
		}
		switch {
		case r.SQL != "Yes" && r.SQLErrno != 0:
			out = append(out, Fault{CodeNotReplicating, fmt.Sprintf("%s cannot apply what %s sends: error %d: %s", which, r.Address(), r.SQLErrno, r.SQLError),
				"compare its data with the primary's, or seed it anew; then " + stopped})
		case source >= 0 && !servers[source].Up():
		case r.IO != "Yes" && r.IOErrno != 0:
			out = append(out, Fault{CodeNotReplicating, fmt.Sprintf("%s receives nothing from %s: error %d: %s", which, r.Address(), r.IOErrno, r.IOError), ""})
		case r.IO == "No" && r.SQL == "No":
			out = append(out, Fault{CodeNotReplicating, fmt.Sprintf("%s does not replicate from %s: both threads are stopped", which, r.Address()), stopped})
		case r.IO == "No":
			out = append(out, Fault{CodeNotReplicating, fmt.Sprintf("%s receives nothing from %s: its IO thread is stopped", which, r.Address()), stopped})
		case r.SQL == "No":
			out = append(out, Fault{CodeNotReplicating, fmt.Sprintf("%s applies nothing from %s: its SQL thread is stopped", which, r.Address()), stopped})
		}
	}
	return out
}

// MarkDuplicates sets SameAs on every server that is the same process as an
// earlier one, as far as the two have ever said. Such an entry has no vote, no
// locks and no part in the topology: it would count one server twice.
func MarkDuplicates(servers []Server) {
	for i := range servers {
		servers[i].SameAs = ""
		for _, e := range servers[:i] {
			s := servers[i]
			if s.EverSeen && e.EverSeen && s.Instance != "" && s.Instance == e.Instance && s.ServerID == e.ServerID {
				servers[i].SameAs = e.Name
				break
			}
		}
	}
}
