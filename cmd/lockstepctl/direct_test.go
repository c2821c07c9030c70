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

	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/internal/testdb"
)

// directConfig writes a configuration for a test cluster.
func directConfig(t *testing.T, c *testdb.Cluster, password string) string {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "[cluster.main]\nuser = %q\npassword = %q\n", testdb.MonitorUser, password)
	for i, s := range c.Servers {
		fmt.Fprintf(&b, "[[cluster.main.server]]\nname = \"s%d\"\naddress = %q\n", i+1, s.Addr())
	}
	path := filepath.Join(t.TempDir(), "lockstep.toml")
	require.NoError(t, os.WriteFile(path, []byte(b.String()), 0o600))
	return path
}

func TestDirectShowsHolders(t *testing.T) {
	c := testdb.NewCluster(t, 3, testdb.ClusterOptions{})
	path := directConfig(t, c, testdb.MonitorPassword)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	ctl := func(args ...string) (int, string, string) {
		var out, errs bytes.Buffer
		code := run(ctx, append(args, "--direct", "--config", path), nil, &out, &errs)
		return code, out.String(), errs.String()
	}
	code, _, errs := ctl("primary")
	require.Equal(t, exitNoPrimary, code, errs)
	require.Contains(t, errs, "no primary is published")

	root, err := c.Servers[0].Root().Conn(ctx)
	require.NoError(t, err)
	defer func() { require.NoError(t, root.Close()) }()
	_, err = root.ExecContext(ctx, "DO GET_LOCK('maxscale_mariadbmonitor',0)")
	require.NoError(t, err)
	code, out, errs := ctl("list", "servers")
	require.Equal(t, exitOK, code, errs)
	require.Contains(t, out, "root@localhost")
	require.Contains(t, out, "not trusted")

	code, out, _ = ctl("explain")
	require.Equal(t, exitOK, code)
	require.Contains(t, out, "KILL ")
	// A server notices a closed connection a moment after the client has closed it.
	require.Eventually(t, func() bool {
		return c.Servers[1].MustQuery(t, "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER = 'monitor'") == "0"
	}, 5*time.Second, 10*time.Millisecond, "no connection may stay")
}

func TestCheckNamesFaults(t *testing.T) {
	c := testdb.NewCluster(t, 2, testdb.ClusterOptions{})
	check := func(path string) (int, string) {
		var out, errs bytes.Buffer
		code := run(t.Context(), []string{"check", "--config", path}, nil, &out, &errs)
		return code, out.String() + errs.String()
	}
	code, out := check(directConfig(t, c, testdb.MonitorPassword))
	require.Equal(t, exitOK, code, out)
	code, out = check(directConfig(t, c, "wrong"))
	require.Equal(t, exitError, code)
	require.Contains(t, out, "access denied")
	require.Contains(t, out, "check user")
}

func TestGrants(t *testing.T) {
	var out, errs bytes.Buffer
	require.Equal(t, exitOK, run(t.Context(), []string{"grants", "--for", "10.11", "--account", "m@'10.%'"}, nil, &out, &errs), errs.String())
	require.Contains(t, out.String(), "GRANT SLAVE MONITOR, PROCESS ON *.* TO m@'10.%';")
	require.Equal(t, exitUsage, run(t.Context(), []string{"grants", "--for", "x"}, nil, &out, &errs))
	require.Equal(t, exitUsage, run(t.Context(), []string{"--direct", "primary"}, nil, &out, &errs))
}
