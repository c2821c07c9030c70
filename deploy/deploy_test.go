// Package deploy holds what packages are made of; its tests check that.
package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// The unit gives the daemon as few rights as it can do with.
func TestUnit(t *testing.T) {
	path, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("SKIPPED: systemd-analyze is not installed")
	}
	out, err := exec.Command(path, "security", "--offline=yes", "--threshold=15", "systemd/lockstepd.service").CombinedOutput()
	require.NoError(t, err, string(out))
	out, _ = exec.Command(path, "verify", "systemd/lockstepd.service").CombinedOutput()
	for _, line := range strings.Split(string(out), "\n") {
		if strings.Contains(line, "lockstepd.service") {
			// The program is not installed where this is tested.
			require.Regexp(t, `not executable|No such file|Failed to (create|load)|man lockstepd`, line)
		}
	}
}

// Every file that a package is made of exists.
func TestPackageFiles(t *testing.T) {
	text, err := os.ReadFile("package/nfpm.yaml")
	require.NoError(t, err)
	var doc struct {
		Contents []struct{ Src, Dst string }
		Scripts  map[string]string
	}
	require.NoError(t, yaml.Unmarshal(text, &doc))
	require.NotEmpty(t, doc.Contents)
	for _, c := range doc.Contents {
		if c.Src != "" && !strings.HasPrefix(c.Src, "${STAGE}") {
			_, err := os.Stat(filepath.Join("..", c.Src))
			require.NoError(t, err, c.Dst)
		}
	}
	for _, script := range doc.Scripts {
		info, err := os.Stat(filepath.Join("..", script))
		require.NoError(t, err)
		require.NotZero(t, info.Mode()&0o100, script)
		out, err := exec.Command("sh", "-n", filepath.Join("..", script)).CombinedOutput()
		require.NoError(t, err, string(out))
	}
	dist, err := os.ReadFile("dist.sh")
	require.NoError(t, err)
	require.Regexp(t, `nfpm@v\d+\.\d+\.\d+\n`, string(dist), "the version is pinned")
}
