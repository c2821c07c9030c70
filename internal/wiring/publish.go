package wiring

import (
	"github.com/lockstep-ha/lockstep/internal/config"
	"github.com/lockstep-ha/lockstep/monitor/publish"
)

// Hooks makes the hooks of a daemon.
func Hooks(f *config.File) []publish.Hook {
	var out []publish.Hook
	for _, h := range f.Hooks {
		p := publish.Hook{Name: h.Name, URL: h.URL.Reveal(), Secret: h.Secret.Reveal(), Events: h.Events, Clusters: h.Clusters,
			OnlyPrimaryMonitor: h.OnlyPrimaryMonitor, Timeout: h.Timeout, Retries: h.Retries}
		for _, word := range h.Command {
			p.Command = append(p.Command, word.Reveal())
		}
		out = append(out, p)
	}
	return out
}
