package testdb

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestVersionChoice(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("HOME", cache)
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv("LOCKSTEP_BACKEND", "")
	t.Setenv(VersionEnv, "10.4")
	_, err := (&Options{}).backend(t.Context())
	require.ErrorContains(t, err, `LOCKSTEP_DB is "10.4": use one of 10.5, 10.11, 11.8, mysql`)

	// What is not there is an error that says how to get it, and never another version.
	t.Setenv(VersionEnv, "11.8")
	_, err = Start(t.Context(), Options{Version: "10.5", Backend: BackendProcess})
	require.ErrorContains(t, err, "version 10.5 is not there: run 'make setup LOCKSTEP_DB=10.5'")

	userCache, err := os.UserCacheDir()
	require.NoError(t, err)
	servers := filepath.Join(userCache, "lockstep", "servers")
	require.NoError(t, os.MkdirAll(filepath.Join(servers, "11.8-abc"), 0o700))
	require.NoError(t, os.Symlink("11.8-abc", filepath.Join(servers, "11.8")))
	version, err := (&Options{}).version()
	require.NoError(t, err)
	p, err := findPrograms(version)
	require.NoError(t, err)
	require.True(t, strings.HasSuffix(p.server, "/lockstep/servers/11.8-abc/base/sbin/mysqld"), p.server)
	require.False(t, p.mysql)
}

// TestVersion finds the wanted version in the server.
func TestVersion(t *testing.T) {
	t.Parallel()
	want := os.Getenv(VersionEnv)
	if want == "" || want == MySQL {
		t.Skip("no version of MariaDB is asked for")
	}
	s := New(t, Options{})
	require.True(t, strings.HasPrefix(s.MustQuery(t, "SELECT VERSION()"), want+"."))
}
