package monitor

import (
	"context"
	"fmt"
	"time"

	"github.com/lockstep-ha/lockstep/internal/sqlrows"
	"github.com/lockstep-ha/lockstep/monitor/backend"
	"github.com/lockstep-ha/lockstep/monitor/operation"
	"github.com/lockstep-ha/lockstep/topology"
	"github.com/lockstep-ha/lockstep/topology/mariadb"
)

// diskInterval is how often the disks of a server are looked at.
const diskInterval = 15 * time.Second

// diskSlack is by how many percent a disk must have more than the limit before
// it counts as having enough again.
const diskSlack = 2

// looker is a Fleet that can ask on a connection of its own: a file system that
// hangs must not take a lock with it.
type looker interface {
	Look(ctx context.Context, server, sql string) ([]sqlrows.Table, error)
}

// disks is what is known of the servers' disks, by server.
type disks struct {
	at      time.Duration
	asked   bool
	pending map[string]bool
	answers chan diskAnswer // buffered for one answer of each server
	low     map[string]string
	problem map[string]FaultView
	movedAt time.Duration
	moved   bool
}

type diskAnswer struct {
	server string
	tables []sqlrows.Table
	err    error
}

// lookAtDisks takes in what servers have answered, marks those with little space,
// and asks again now and then.
func (m *Monitor) lookAtDisks(ctx context.Context, fleet Fleet, servers []topology.Server) {
	f, able := fleet.(looker)
	d, limit := &m.disks, m.d.cfg.Policy.MinFreeDisk
	if limit <= 0 || !able {
		*d = disks{}
		return
	}
	if d.answers == nil || cap(d.answers) < len(servers) {
		*d = disks{answers: make(chan diskAnswer, len(servers)), pending: map[string]bool{}, low: map[string]string{}, problem: map[string]FaultView{}}
	}
	for len(d.answers) > 0 {
		m.diskAnswered(<-d.answers, limit)
	}
	for i := range servers {
		servers[i].LowDisk = d.low[servers[i].Name]
		if servers[i].LowDisk != "" && m.d.cfg.Policy.DrainOnLowDisk && servers[i].Name != m.mem.chosen {
			servers[i].Drain = true
		}
	}
	now := m.clock.Now()
	if d.asked && now-d.at < diskInterval {
		return
	}
	d.asked, d.at = true, now
	answers := d.answers
	for _, s := range servers {
		if !s.Up() || s.SameAs != "" || d.pending[s.Name] {
			continue
		}
		d.pending[s.Name] = true
		go func() {
			tables, err := f.Look(ctx, s.Name, mariadb.DisksStatement)
			answers <- diskAnswer{s.Name, tables, err}
		}()
	}
}

func (m *Monitor) diskAnswered(a diskAnswer, limit int) {
	d := &m.disks
	delete(d.pending, a.server)
	disk, ok, err := mariadb.ParseDisks(a.tables)
	fault := func(text, remedy string) {
		d.problem[a.server] = FaultView{Code: "disk_unknown", Server: a.server, Text: a.server + ": how full its disks are cannot be seen: " + text, Remedy: remedy}
		delete(d.low, a.server)
	}
	switch {
	case backend.Code(a.err) == mariadb.ErrNoDisks:
		fault("the plugin disks is not there", "INSTALL SONAME 'disks' on "+a.server+", or set min_free_disk = 0")
	case a.err != nil:
		fault(a.err.Error(), "")
	case err != nil:
		fault(err.Error(), "")
	case !ok:
		fault("no file system is shown", fmt.Sprintf("GRANT %s ON *.* TO the monitor's account, or set min_free_disk = 0", mariadb.DiskGrant.Privilege))
	default:
		delete(d.problem, a.server)
		free := disk.FreePercent()
		was := d.low[a.server] != ""
		low := free < float64(limit) || (was && free < float64(limit+diskSlack))
		if low {
			d.low[a.server] = fmt.Sprintf("%.1f %% of its disk are free (%s: %d MiB), and min_free_disk is %d", free, disk.Path, disk.FreeKiB>>10, limit)
		} else {
			delete(d.low, a.server)
		}
		if low != was {
			m.log.Warn().Str("event", "disk_space").Str("server", a.server).Bool("low", low).Float64("free_percent", free).Str("path", disk.Path).Msg("disk space")
		}
	}
}

// diskFaults are what a person can mend.
func (m *Monitor) diskFaults() []FaultView {
	var out []FaultView
	for _, s := range m.d.servers {
		if f, ok := m.disks.problem[s.Name]; ok {
			out = append(out, f)
		}
		if low := m.disks.low[s.Name]; low != "" {
			out = append(out, FaultView{Code: "disk_low", Server: s.Name, Text: s.Name + ": " + low, Remedy: "make room"})
		}
	}
	return out
}

// leaveLowDisk starts a switchover away from a primary whose disk fills up, where
// that is wanted and there is a better server.
func (m *Monitor) leaveLowDisk(ctx context.Context, h *hands) {
	policy, now := m.d.cfg.Policy, h.Now()
	primary := indexOf(h.s.servers, m.mem.chosen)
	if !policy.SwitchoverOnLowDisk || primary < 0 || h.s.servers[primary].LowDisk == "" || m.ops.current != nil || m.shared.paused != "" || m.blocked(now) != "" || now < m.ops.retryAt {
		return
	}
	if m.disks.moved && (policy.FailoverBlock < 0 || now < m.disks.movedAt+policy.FailoverBlock) {
		return
	}
	r := operation.Request{Kind: operation.Switchover, Automatic: true}
	plan, err := operation.PlanSwitchover(m.sight(h.s), policy, r)
	if err != nil {
		m.ops.retryAt = now + m.timing.Settle
		m.log.Warn().Str("event", "low_disk_switchover_refused").AnErr("error", err).Msg("the primary has little disk space, and cannot be switched over")
		return
	}
	plan.Reason = plan.From + ": " + h.s.servers[primary].LowDisk + "; " + plan.Reason
	m.disks.moved, m.disks.movedAt = true, now
	m.beginNoted(ctx, h, plan, r)
}
