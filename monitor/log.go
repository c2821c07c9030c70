package monitor

import (
	"strings"

	"github.com/rs/zerolog"

	"github.com/lockstep-ha/lockstep/election"
)

// loggedState is what was logged last, so that each change is logged once.
type loggedState struct {
	started bool
	role    election.Role
	primary string
	none    string
	servers map[string]string
	faults  map[string]bool
	notes   map[string]bool
}

func (m *Monitor) logStart() {
	t := m.d.timing
	e := m.log.Info()
	if t.Unsafe() {
		e = m.log.Warn().Int("safe_failcount", t.SafeFailcount)
	}
	e.Str("event", "monitor_started").Stringer("quorum", m.d.cfg.Quorum).Int("servers", len(m.d.servers)).
		Dur("interval_ms", t.Interval).Dur("timeout_ms", t.Timeout).Dur("wait_timeout_ms", t.WaitTimeout).
		Int("failcount", t.Failcount).Dur("settle_ms", t.Settle).Bool("passive", m.d.cfg.Passive).Msg("monitoring")
	if m.d.cfg.Quorum == election.MajorityOfRunning && len(m.d.servers) > 2 {
		m.log.Warn().Str("event", "quorum_warning").Msg("majority_of_running: when the network splits, each side may have a majority of what it can reach")
	}
}

// logChanges logs what differs from the view before, one event a line.
func (m *Monitor) logChanges(v *View) {
	l := &m.logged
	if !l.started || l.role != v.Monitor.Role {
		m.log.Info().Str("event", "role_changed").Stringer("role", v.Monitor.Role).Str("reason", v.Monitor.Reason).Msg("role")
		l.role = v.Monitor.Role
	}
	m.logPrimary(v)
	if l.servers == nil {
		l.servers = map[string]string{}
	}
	for _, s := range v.Servers {
		state := strings.Join(s.State, ", ")
		if l.servers[s.Name] == state {
			continue
		}
		e := m.log.Info()
		if s.Detail != "" {
			e = m.log.Warn()
		}
		e.Str("event", "server_changed").Str("server", s.Name).Str("state", state).Str("was", l.servers[s.Name]).
			Str("evidence", s.Evidence).Str("reason", s.Detail).Msg("server")
		l.servers[s.Name] = state
	}
	l.faults = logSet(l.faults, len(v.Faults), func(i int) string { return v.Faults[i].Server + "\x00" + v.Faults[i].Text }, func(i int) {
		f := v.Faults[i]
		m.log.Warn().Str("event", "fault").Str("code", f.Code).Str("server", f.Server).Str("remedy", f.Remedy).Msg(f.Text)
	})
	l.notes = logSet(l.notes, len(v.Notes), func(i int) string { return v.Notes[i] }, func(i int) {
		m.log.Info().Str("event", "note").Msg(v.Notes[i])
	})
	l.started = true
}

func (m *Monitor) logPrimary(v *View) {
	l := &m.logged
	switch {
	case v.Primary != nil && l.primary != v.Primary.Name:
		m.log.Info().Str("event", "primary").Str("server", v.Primary.Name).Str("address", v.Primary.Address).Str("was", l.primary).
			Stringer("role", v.Monitor.Role).Str("reason", v.Reason).Msg("primary")
		l.primary, l.none = v.Primary.Name, ""
	case v.Primary == nil && (l.primary != "" || l.none != v.Reason):
		level := zerolog.WarnLevel
		if l.primary == "" && l.started {
			level = zerolog.InfoLevel
		}
		m.log.WithLevel(level).Str("event", "no_primary").Str("was", l.primary).Stringer("role", v.Monitor.Role).Str("reason", v.Reason).Msg("no primary")
		l.primary, l.none = "", v.Reason
	}
}

// logSet logs the members that were not in the set before and returns the new set.
func logSet(before map[string]bool, n int, key func(int) string, log func(int)) map[string]bool {
	now := make(map[string]bool, n)
	for i := range n {
		k := key(i)
		if !before[k] && !now[k] {
			log(i)
		}
		now[k] = true
	}
	return now
}
