package monitor

import (
	"errors"
	"fmt"
	"slices"

	"github.com/lockstep-ha/lockstep/monitor/backend"
	"github.com/lockstep-ha/lockstep/topology"
)

// ErrNeedsRestart is returned by Reconfigure for changes that need new
// connections, or that change what a majority is.
var ErrNeedsRestart = errors.New("the change needs a new monitor")

// Reconfigure applies a changed configuration to a running monitor without
// touching its locks: lag limit, passive, trusted lock users, name, the policy
// of operations, and the promotion rule, maintenance, drain and site of servers. Any other change gives
// ErrNeedsRestart and has no effect. TLS settings are not compared.
func (m *Monitor) Reconfigure(cfg Config) error {
	d, err := derive(cfg)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.d
	if m.pending != nil {
		now = *m.pending
	}
	if what := hardChange(now, d); what != "" {
		return fmt.Errorf("cluster %s: %s changed: %w", cfg.Cluster, what, ErrNeedsRestart)
	}
	m.pending = &d
	m.clock.Wake()
	return nil
}

func hardChange(a, b derived) string {
	switch {
	case a.cfg.Cluster != b.cfg.Cluster:
		return "the name"
	case a.cfg.Quorum != b.cfg.Quorum:
		return "quorum"
	case a.timing != b.timing:
		return "the timing"
	case len(a.servers) != len(b.servers):
		return "the number of servers"
	case (a.cfg.Policy.ReplicationUser == "") != (b.cfg.Policy.ReplicationUser == ""):
		return "whether there is a replication user"
	case a.names != b.names:
		return "a lock name or what monitors must agree on"
	}
	for i := range a.servers {
		x, y := a.servers[i], b.servers[i]
		if x.Name != y.Name || x.Address != y.Address || x.PrivateAddress != y.PrivateAddress || x.Votes != y.Votes {
			return "server " + x.Name
		}
		if x.User != y.User || x.Password != y.Password {
			return "the account on server " + x.Name
		}
	}
	return ""
}

// adopt takes over a pending configuration at the start of a tick.
func (m *Monitor) adopt(fleet Fleet) {
	m.mu.Lock()
	p := m.pending
	m.pending = nil
	if p != nil {
		m.d = *p
	}
	m.mu.Unlock()
	if p == nil {
		return
	}
	if f, ok := fleet.(*backend.Fleet); ok {
		f.Trust(slices.Clone(p.cfg.TrustedLockUsers))
	}
	m.log.Info().Str("event", "reconfigured").Msg("the changed configuration is in force; no lock was touched")
}

// settings puts the current settings into servers, whatever those were when
// their connections were made, and marks those that are listed twice.
func (m *Monitor) settings(servers []topology.Server) {
	for i := range servers {
		servers[i].Settings = m.d.servers[i].Settings
		m.shared.servers[servers[i].Name].apply(&servers[i].Settings)
	}
	topology.MarkDuplicates(servers)
}
