package manpages

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

func TestPages(t *testing.T) {
	root := &cobra.Command{Use: "prog", Short: "Do things", Run: func(*cobra.Command, []string) {}}
	root.AddCommand(&cobra.Command{Use: "sub", Short: "A part", Run: func(*cobra.Command, []string) {}}, Command("8"))
	dir := filepath.Join(t.TempDir(), "man")
	root.SetArgs([]string{"man", dir})
	require.NoError(t, root.Execute())
	page, err := os.ReadFile(filepath.Join(dir, "prog.8"))
	require.NoError(t, err)
	require.Contains(t, string(page), "Do things")
	require.FileExists(t, filepath.Join(dir, "prog-sub.8"))
	require.NoFileExists(t, filepath.Join(dir, "prog-man.8"), "hidden commands have no page")
}
