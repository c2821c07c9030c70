package monitor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/lockstep-ha/lockstep/election"
	"github.com/lockstep-ha/lockstep/locks"
	"github.com/lockstep-ha/lockstep/monitor/backend"
	"github.com/lockstep-ha/lockstep/topology"
	"github.com/lockstep-ha/lockstep/topology/mariadb"
)

// fenceMinority sets the primary read-only where this monitor can reach it, but
// neither it nor anybody whose locks it sees can have a majority: on the minority
// side of a split. It can only stop writes, so that it needs no majority itself;
// it takes the free server lock of the server for as long as it takes.
func (m *Monitor) fenceMinority(ctx context.Context, fleet Fleet, s scene) {
	i := indexOf(s.servers, m.mem.chosen)
	if !m.d.cfg.Policy.FenceOnLostMajority || m.d.cfg.Passive || s.d.Tally.Mode != election.MajorityOfAll || s.d.Role != election.Secondary ||
		i < 0 || !s.servers[i].Writable() || s.d.Tally.Running >= s.d.Tally.Needed || s.rows[i].ServerLock.State != locks.Free {
		return
	}
	name, now := s.servers[i].Name, m.clock.Now()
	if now < m.ops.fenceAt[name] {
		return
	}
	m.ops.fenceAt[name] = now + m.timing.Settle
	if got := fleet.Do(ctx, []backend.Action{{Server: name, Kind: backend.TakeServerLock}})[0]; got.Result != backend.Done {
		return
	}
	execute := func(kind backend.ActionKind, sql string) backend.Outcome {
		return fleet.Do(ctx, []backend.Action{{Server: name, Kind: kind, SQL: sql, Limit: fenceWait + m.timing.Timeout}})[0]
	}
	defer fleet.Do(ctx, []backend.Action{{Server: name, Kind: backend.ReleaseAll}})
	why := fmt.Sprintf("%d of %d needed votes can be reached", s.d.Tally.Running, s.d.Tally.Needed)
	if o := execute(backend.Execute, mariadb.SetReadOnly(fenceWait)); o.Err != nil {
		detail := ""
		if w := execute(backend.Ask, mariadb.WaitingCommits); w.Err == nil && len(w.Tables) > 0 {
			detail = w.Tables[0].Row(0).String("Value") + " commits wait for a semi-sync acknowledgement"
		}
		m.log.Error().Str("event", "fence_failed").Str("server", name).Str("reason", why).AnErr("error", o.Err).Str("detail", detail).
			Msg("the primary on the minority side could not be set read-only")
		return
	}
	ended := 0
	if o := execute(backend.Ask, mariadb.ClientSessions(m.d.cfg.Policy.KeepConnections)); o.Err == nil && len(o.Tables) > 0 {
		for k := range o.Tables[0].Rows {
			if id, ok, err := o.Tables[0].Row(k).Uint("ID"); err == nil && ok {
				if execute(backend.Execute, mariadb.Kill(id)).Err == nil {
					ended++
				}
			}
		}
	}
	m.log.Error().Str("event", "fenced").Str("server", name).Str("reason", why).Int("connections_ended", ended).
		Msg("the majority is lost: the primary was set read-only (fence_on_lost_majority)")
}

// fencing is the fence command of one failure of a primary.
type fencing struct {
	server string
	since  time.Duration
	done   chan error // buffered; nil while none was started
	result string     // why it failed
	off    bool       // it exited 0: the server is off
}

// fenceLimit bounds a fence command.
const fenceLimit = 30 * time.Second

// fenceCommand runs the operator's command against a primary that has failed for
// failcount ticks without being known dead, once a failure. Where it exits 0 the
// server is off, and nothing has to be waited for.
func (m *Monitor) fenceCommand(ctx context.Context, s scene) {
	v, f := &m.ops.verdict, &m.ops.fencing
	argv := m.d.cfg.Policy.FenceCommand
	if s.d.Role != election.Primary {
		*f = fencing{} // what others have done since is not known
		return
	}
	if !v.Failed || v.Dead {
		if f.done == nil || !v.Failed {
			*f = fencing{}
		}
		return
	}
	if len(argv) == 0 {
		return
	}
	i := indexOf(s.servers, m.mem.chosen)
	if f.server != m.mem.chosen {
		*f = fencing{server: m.mem.chosen, since: s.now}
	}
	switch {
	case f.off:
	case f.done != nil:
		select {
		case err := <-f.done:
			f.off = err == nil
			if err != nil {
				f.result = err.Error()
				m.log.Error().Str("event", "fence_command_failed").Str("server", f.server).AnErr("error", err).Msg("the fence command failed: the locks' time is waited for")
			}
		default:
			return
		}
	case f.result == "" && v.At != 0 && s.now >= f.since+s.timing.FailoverAfter() && i >= 0 &&
		m.d.cfg.Policy.AutoFailover && m.shared.paused == "" && m.blocked(s.now) == "" && s.d.Role == election.Primary:
		f.done = make(chan error, 1)
		go runFence(context.WithoutCancel(ctx), argv, m.cluster, s.servers[i], f.done, m.clock.Wake)
		m.log.Warn().Str("event", "fence_command_started").Str("server", f.server).Strs("command", argv).Msg("running the fence command")
		return
	}
	if f.off {
		v.Dead, v.At = true, s.now
		v.Reason = fmt.Sprintf("%s is off: the fence command says so", f.server)
	}
}

func runFence(ctx context.Context, argv []string, cluster string, sv topology.Server, done chan<- error, wake func()) {
	ctx, cancel := context.WithTimeout(ctx, fenceLimit)
	defer cancel()
	defer wake()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "LOCKSTEP_CLUSTER="+cluster, "LOCKSTEP_SERVER="+sv.Name, "LOCKSTEP_ADDRESS="+sv.Address, "LOCKSTEP_EVIDENCE="+sv.Evidence.String())
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err != nil && ctx.Err() != nil {
		err = errors.Join(err, fmt.Errorf("it took longer than %v", fenceLimit))
	}
	if err != nil {
		err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(out[:min(len(out), 400)])))
	}
	done <- err
}
