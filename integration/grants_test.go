package integration

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/monitor"
	"github.com/lockstep-ha/lockstep/monitor/operation"
)

// printedGrants returns the statements of lockstepctl grants, with a password.
func printedGrants(t testing.TB, account, password string, args ...string) []string {
	t.Helper()
	args = append([]string{"run", "../cmd/lockstepctl", "grants", "--account", "'" + account + "'@'%'"}, args...)
	out, err := exec.CommandContext(t.Context(), "go", args...).Output()
	require.NoError(t, err)
	var statements []string
	for line := range strings.Lines(string(out)) {
		if line = strings.TrimSuffix(strings.TrimSpace(line), ";"); line != "" && !strings.HasPrefix(line, "--") {
			statements = append(statements, strings.ReplaceAll(line, "'...'", "'"+password+"'"))
		}
	}
	require.NotEmpty(t, statements)
	return statements
}

// TestPrintedGrantsSuffice lets a monitor do all it can do with the privileges that
// lockstepctl prints, both for this version and without naming one.
func TestPrintedGrantsSuffice(t *testing.T) {
	c := semiSync(t, 3)
	version := c.Primary().MustQuery(t, "SELECT VERSION()")
	c.Primary().MustExec(t, printedGrants(t, "looker", "look")...)
	c.Primary().MustExec(t, printedGrants(t, "default", "secret", "--operate")...)
	c.Primary().MustExec(t, printedGrants(t, "named", "secret", "--operate", "--for", version)...)
	require.NoError(t, c.WaitSync(t.Context()))

	as := func(user, password string) func(*monitor.Config) {
		return func(cfg *monitor.Config) { cfg.User, cfg.Password = user, password }
	}
	faultless := func(v monitor.View) bool {
		return settled(v) && len(v.Faults) == 0
	}
	look := start(t, configOf(c, as("looker", "look")))
	until(t, look, 10*time.Second, "an account that may look sees all", faultless)
	look.stop()

	at := "s1"
	for _, user := range []string{"default", "named"} {
		c.Servers[0].MustExec(t, "SET SESSION sql_log_bin=0", "CREATE EVENT app."+user+later+"SELECT 1")
		m := start(t, configOf(c, operating, as(user, "secret"), func(cfg *monitor.Config) {
			cfg.Policy.EnforceReadOnly = true
			cfg.Policy.FailoverBlock = -1
		}))
		until(t, m, 10*time.Second, "settles without a fault", faultless)
		to := map[string]string{"s1": "s2", "s2": "s3", "s3": "s1"}[at]
		reply, err := m.Command(t.Context(), monitor.Command{Action: monitor.ActSwitchover, Server: to})
		require.NoError(t, err)
		until(t, m, 10*time.Second, "the switchover ends", func(v monitor.View) bool { return v.Operations.Running == nil && offers(to)(v) })
		rec, _ := m.Operation(reply.ID)
		require.Equal(t, operation.Done, rec.Outcome, "%+v", rec)
		require.Empty(t, rec.Warnings, "%+v", rec)

		server := byName(t, c, to)
		require.NoError(t, server.Kill())
		v := until(t, m, 15*time.Second, "it fails over", func(v monitor.View) bool { return v.Primary != nil && v.Primary.Name != to })
		require.NoError(t, server.Restart(t.Context()))
		until(t, m, 20*time.Second, "the old primary is rejoined", replicates(to, v.Primary.Name))
		rec = lastOf(t, m, operation.Failover)
		require.Equal(t, operation.Done, rec.Outcome, "%+v", rec)
		require.Empty(t, rec.Warnings, "%+v", rec)
		m.stop()
		at = v.Primary.Name
	}
}
