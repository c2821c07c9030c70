package monitor

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/lockstep-ha/lockstep/election"
	"github.com/lockstep-ha/lockstep/monitor/backend"
	"github.com/lockstep-ha/lockstep/monitor/operation"
	"github.com/lockstep-ha/lockstep/topology"
	"github.com/lockstep-ha/lockstep/topology/gtid"
	"github.com/lockstep-ha/lockstep/topology/mariadb"
)

// writeFailures is after how many failed write probes in a row the primary counts
// as failed.
const writeFailures = 2

// writes is the write probe of the primary: a server can answer every query and
// yet write nothing, with a full disk or storage that hangs.
type writes struct {
	server   string
	pos      gtid.Position
	failures int
	detail   string
	// problem is why the probe itself cannot work.
	problem string
	done    chan error // buffered; nil while none is under way
}

// writeProber is a Fleet that can probe writes, on a connection of its own: one
// that hangs must not take a lock with it.
type writeProber interface {
	ProbeWrite(ctx context.Context, server, sql string) error
}

// probeWrites probes the primary where nothing was written since the last tick,
// and counts failures.
func (m *Monitor) probeWrites(ctx context.Context, fleet Fleet, s scene) {
	w := &m.writes
	table := m.d.cfg.Policy.WriteProbe
	f, able := fleet.(writeProber)
	i := indexOf(s.servers, m.mem.chosen)
	if table == "" || !able || i < 0 || s.d.Role != election.Primary {
		*w = writes{}
		return
	}
	p := s.servers[i]
	if w.server != p.Name {
		*w = writes{server: p.Name}
	}
	if w.done != nil {
		select {
		case err := <-w.done:
			w.done = nil
			m.probed(p, err)
		default:
			return
		}
	}
	moved := !p.BinlogPos.Equal(w.pos)
	w.pos = p.BinlogPos
	if moved && s.rows[i].Answered {
		w.failures, w.detail = 0, ""
	}
	if moved || !s.rows[i].Answered || p.ReadOnly != topology.No || m.foreground() {
		return
	}
	done := make(chan error, 1)
	w.done = done
	schema, name, _ := strings.Cut(table, ".")
	sql := mariadb.WriteProbe(schema, name, m.timing.Timeout)
	go func() {
		done <- f.ProbeWrite(context.WithoutCancel(ctx), p.Name, sql)
		m.clock.Wake()
	}()
}

// probed takes the outcome of a write probe.
func (m *Monitor) probed(p topology.Server, err error) {
	w := &m.writes
	w.problem = ""
	switch {
	case err == nil:
		w.failures, w.detail = 0, ""
	case errors.Is(err, backend.ErrWriteStalled) || mariadb.GaveUpWaiting(backend.Code(err)) || mariadb.StorageFailed(backend.Code(err)):
		w.failures++
		w.detail = err.Error()
		m.log.Warn().Str("event", "write_probe_failed").Str("server", p.Name).Int("failures", w.failures).AnErr("error", err).Msg("the primary does not write")
	default:
		w.failures = 0
		w.problem = fmt.Sprintf("%s: the write probe to %s does not work: %v", p.Name, m.d.cfg.Policy.WriteProbe, err)
	}
}

// stalled marks the primary as failed where write probes say so.
func (m *Monitor) stalled(servers []topology.Server) {
	w := &m.writes
	if w.failures < writeFailures {
		return
	}
	if i := indexOf(servers, w.server); i >= 0 && servers[i].Up() {
		servers[i].Evidence, servers[i].Detail = topology.WriteFailed, fmt.Sprintf("%d write probes in a row: %s", w.failures, w.detail)
	}
}

// outdated marks a primary as failed that lacks transactions which a replica has,
// and that was started again, or is read-only, or is not offered while nothing
// replicates from it: it must not go on from where it is. One that replicates can
// seem to be behind for one answer.
func (m *Monitor) outdated(servers []topology.Server) {
	i := indexOf(servers, m.mem.chosen)
	if i < 0 || !servers[i].Up() {
		return
	}
	moving := m.foreground() && m.ops.current.Plan.Kind != operation.Failover
	works := servers[i].ReadOnly != topology.Yes && (m.mem.offered == servers[i].Name || len(topology.NewGraph(servers).Below(i, true)) > 0)
	if !m.mem.unproven && (moving || works) {
		return
	}
	if ahead := aheadBefore(servers, m.before, i); ahead != "" {
		servers[i].Evidence, servers[i].Detail = topology.Outdated, ahead
	}
}

// writeProbeFault names what is wrong with the probe itself.
func (m *Monitor) writeProbeFault() []FaultView {
	if m.writes.problem == "" {
		return nil
	}
	return []FaultView{{Code: "write_probe", Server: m.writes.server, Text: m.writes.problem,
		Remedy: fmt.Sprintf("CREATE TABLE %s (id INT PRIMARY KEY, at DATETIME(6)), and grant the monitor INSERT and UPDATE on it", m.d.cfg.Policy.WriteProbe)}}
}
