package routing

import (
	"context"
	"slices"
	"time"

	"github.com/lockstep-ha/lockstep/monitor"
	"github.com/lockstep-ha/lockstep/topology"
	"github.com/lockstep-ha/lockstep/topology/gtid"
)

// View is what a router knows of a cluster at an instant. Instants are durations
// on the clock that Now reads.
type View struct {
	// Primary is the name of the server to write to, "" for none.
	Primary string
	// Reason says why this is the primary, or why there is none.
	Reason string
	// Until is the instant until which the primary may be believed.
	Until time.Duration
	// Servers are all servers of the cluster, in any order.
	Servers []Server
}

// Server is one server of a View.
type Server struct {
	Name string
	// Address is host:port, or "unix:" and a path.
	Address string
	Site    string
	// Readable is true for a replica that answers, replicates, and is neither in
	// maintenance nor drained.
	Readable bool
	// Fresh is the instant before which everything that the primary committed is
	// known to be on this replica; FreshKnown is false where nothing is known.
	Fresh      time.Duration
	FreshKnown bool
	// Position is what a MariaDB server has applied, and ServerID its server_id.
	Position gtid.Position
	ServerID uint32
	Flavor   topology.Flavor
}

// Source tells a router what is true of its cluster.
type Source interface {
	// Watch calls publish with the view, and again whenever it has changed or may be
	// believed for longer, until ctx ends. Calls are made one at a time. A source
	// that learns nothing more just stops calling: views expire.
	Watch(ctx context.Context, publish func(View))
}

// Hurrier is a Source that can look again at once, which a router asks for when a
// server says that it is not the primary.
type Hurrier interface {
	// Hurry never blocks.
	Hurry()
}

// monitorSource is a monitor in this process.
type monitorSource struct{ m *monitor.Monitor }

// FromMonitor takes the view from a monitor in this process, which somebody else
// runs.
func FromMonitor(m *monitor.Monitor) Source { return monitorSource{m} }

// Watch implements Source.
func (s monitorSource) Watch(ctx context.Context, publish func(View)) {
	var memory freshness
	s.m.Watch(ctx, func(monitor.View) {
		// The monitor's view was made a moment ago; the one taken here says for how
		// long from now it holds.
		at := Now()
		publish(memory.convert(s.m.View(), at))
	})
}

// freshness remembers when the primary was asked last, while there is none.
type freshness struct {
	primarySeen time.Duration
	seen        bool
}

// convert makes a View of a monitor's. at is an instant before it was taken.
func (f *freshness) convert(v monitor.View, at time.Duration) View {
	out := View{Reason: v.Reason, Servers: make([]Server, 0, len(v.Servers))}
	if v.Primary != nil {
		out.Primary, out.Until = v.Primary.Name, at+time.Duration(v.ValidForMS)*time.Millisecond
		for _, s := range v.Servers {
			if s.Name == v.Primary.Name && s.ProbeAgeMS >= 0 {
				f.primarySeen, f.seen = at-millis(s.ProbeAgeMS), true
			}
		}
	}
	interval := millis(v.Monitor.Timing.IntervalMS)
	for _, s := range v.Servers {
		r := Server{Name: s.Name, Address: s.Address, Site: s.Site, ServerID: uint32(s.ServerID), Flavor: flavorOf(s.Flavor)}
		r.Readable = s.Evidence == topology.Answered.String() && slices.Contains(s.State, topology.LabelReplica) &&
			!slices.Contains(s.State, topology.LabelMaintenance) && !slices.Contains(s.State, topology.LabelDrained)
		// A position that cannot be read says nothing; the monitor has parsed it before.
		r.Position, _ = gtid.ParsePosition(s.CurrentPos)
		if s.LagMS != nil && s.ProbeAgeMS >= 0 && f.seen {
			r.Fresh, r.FreshKnown = freshAt(f.primarySeen, at-millis(s.ProbeAgeMS), millis(*s.LagMS), interval), true
		}
		out.Servers = append(out.Servers, r)
	}
	return out
}

// freshAt is the instant before which a replica is known to have everything. A
// replica without lag had all that the primary had when both were asked; one with
// lag lacks a position that was first seen that long ago, and was written at most
// an interval before.
func freshAt(primarySeen, replicaSeen, lag, interval time.Duration) time.Duration {
	at := min(primarySeen, replicaSeen) - lag
	if lag > 0 {
		at -= interval
	}
	return at
}

func flavorOf(s string) topology.Flavor {
	for _, f := range []topology.Flavor{topology.MariaDB, topology.MySQL} {
		if s == f.String() {
			return f
		}
	}
	return topology.FlavorUnknown
}

func millis(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
