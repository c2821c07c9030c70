package testdb

import (
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestContainer runs where Docker and an image for it are there already; which
// backend the other tests use is for LOCKSTEP_BACKEND to say.
func TestContainer(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	if os.Getenv("LOCKSTEP_BACKEND") != "docker" && !haveAnyImage(t) {
		t.Skip("there is no Docker engine with an image of MariaDB")
	}
	c := NewCluster(t, 2, ClusterOptions{Server: Options{Backend: BackendDocker}})
	s1, s2 := c.Servers[0], c.Servers[1]
	require.Equal(t, BackendDocker, s1.Backend())
	require.Empty(t, s1.Socket())
	s1.MustExec(t, "CREATE TABLE app.t (id INT PRIMARY KEY)", "INSERT INTO app.t VALUES (1)")
	require.NoError(t, c.WaitSync(ctx))

	port := s1.Port()
	require.NoError(t, s1.Freeze())
	require.NoError(t, s1.Thaw())
	require.NoError(t, s1.Kill())
	require.False(t, s1.Running())
	require.NoError(t, s1.Restart(ctx))
	require.Equal(t, port, s1.Port())
	s1.MustExec(t, "INSERT INTO app.t VALUES (2)")
	require.NoError(t, c.WaitSync(ctx))
	require.Equal(t, "2", s2.MustQuery(t, "SELECT COUNT(*) FROM app.t"))

	_, err := StartContainer(ctx, Options{Port: 3306})
	require.ErrorContains(t, err, "chooses the port itself")
}

func haveAnyImage(t *testing.T) bool {
	t.Helper()
	if !dockerAnswers(t.Context()) {
		return false
	}
	if version := os.Getenv(VersionEnv); version != "" {
		return haveImage(builtImage + ":" + version)
	}
	return haveImage(officialImage) || slices.ContainsFunc(builtTags, func(tag string) bool { return haveImage(builtImage + ":" + tag) })
}
