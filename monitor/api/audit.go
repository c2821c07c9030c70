package api

import (
	"net/http"

	"github.com/lockstep-ha/lockstep/monitor"
)

// audited is what a command that came in was.
type audited struct {
	cmd     monitor.Command
	id      string
	problem string
}

// auditLine logs one call that changes something or was to. It is logged whatever
// the level.
func (a *api) auditLine(r *http.Request, c client, what audited, status int, problem string) {
	outcome := "denied"
	switch {
	case status == http.StatusOK && what.cmd.DryRun:
		outcome = "planned"
	case status == http.StatusOK:
		outcome = "done"
	case status == http.StatusAccepted:
		outcome = "started"
	case status == http.StatusConflict:
		outcome = "refused"
	case status != http.StatusUnauthorized && status != http.StatusForbidden:
		outcome = "failed"
	}
	a.log.Log().Str("event", "audit").Str("who", c.name).Str("role", c.role.String()).Str("by", c.how).Str("from", r.RemoteAddr).
		Str("cluster", r.PathValue("name")).Str("action", string(what.cmd.Action)).Str("server", what.cmd.Server).Str("value", what.cmd.Value).
		Bool("force", what.cmd.Force).Bool("dry_run", what.cmd.DryRun).Str("outcome", outcome).Int("status", status).
		Str("operation", what.id).Str("problem", problem).Msg("command")
}
