package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/internal/config"
	"github.com/lockstep-ha/lockstep/internal/testdb"
)

// configText is a configuration for a test cluster.
func configText(c *testdb.Cluster, extra string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "[http]\nlisten = \"\"\n[cluster.main]\nuser = %q\npassword = %q\ninterval = \"200ms\"\ntimeout = \"400ms\"\n%s\n",
		testdb.MonitorUser, testdb.MonitorPassword, extra)
	for i, s := range c.Servers {
		fmt.Fprintf(&b, "[[cluster.main.server]]\nname = \"s%d\"\naddress = %q\n", i+1, s.Addr())
	}
	return b.String()
}

func parse(t *testing.T, text string) []config.Cluster {
	t.Helper()
	f, err := config.Parse("test.toml", []byte(text), os.LookupEnv)
	require.NoError(t, err)
	return f.Clusters
}

func TestReloadKeepsLocks(t *testing.T) {
	c := testdb.NewCluster(t, 3, testdb.ClusterOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	g := newGroup(ctx, zerolog.Nop())
	t.Cleanup(func() { cancel(); g.wait() })
	holder := func() string {
		return c.Servers[0].MustQuery(t, "SELECT IFNULL(IS_USED_LOCK('maxscale_mariadbmonitor_master'),'')")
	}
	require.NoError(t, g.apply(parse(t, configText(c, ""))))
	require.Eventually(t, func() bool { return holder() != "" }, 10*time.Second, 10*time.Millisecond)
	first, mon := holder(), g.monitors()[0]

	require.NoError(t, g.apply(parse(t, configText(c, "lag_limit = \"1s\"\ntrusted_lock_users = [\"x\"]\nmonitor_name = \"m2\""))))
	require.Same(t, mon, g.monitors()[0])
	require.Eventually(t, func() bool { return mon.View().Monitor.Name == "m2" }, 5*time.Second, 10*time.Millisecond)
	require.Equal(t, first, holder(), "the lock must stay on its connection")

	require.NoError(t, g.apply(parse(t, configText(c, "failcount = 9"))))
	require.NotSame(t, mon, g.monitors()[0])
	require.Eventually(t, func() bool { h := holder(); return h != "" && h != first }, 10*time.Second, 10*time.Millisecond)

	after := holder()
	bad := parse(t, configText(c, "failcount = 2"))
	require.ErrorContains(t, g.apply(bad), "smallest safe one")
	require.Equal(t, after, holder(), "an error must change nothing")
}

func TestExitCodes(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.toml")
	require.NoError(t, os.WriteFile(bad, []byte("[cluster.main]\ninterval = 2\n"), 0o600))
	for _, tc := range []struct {
		args []string
		code int
		text string
	}{
		{[]string{"version"}, exitOK, ""},
		{[]string{"check", "--config", bad}, exitConfig, `bad.toml:2: cluster.main.interval = 2: a duration needs a unit`},
		{[]string{"check", "--config", filepath.Join(dir, "none.toml")}, exitConfig, "none.toml"},
		{[]string{"--nonsense"}, exitUsage, "unknown flag"},
		{[]string{"frobnicate"}, exitUsage, "frobnicate"},
	} {
		var out, errs bytes.Buffer
		require.Equal(t, tc.code, run(t.Context(), tc.args, &out, &errs), "%v: %s", tc.args, errs.String())
		require.Contains(t, errs.String(), tc.text)
	}
}
