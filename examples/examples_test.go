// Package examples holds small programs and configurations. They are compiled
// and read by tests.
package examples

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReadmeShowsTheProgramThatCompiles(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	program, err := os.ReadFile("embed/main.go")
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(readme), "```go\n")
	require.True(t, ok, "README.md has no Go example")
	shown, _, _ := strings.Cut(rest, "```")
	_, code, _ := strings.Cut(string(program), "\n") // the comment above the package clause
	require.Equal(t, code, shown)
}

func TestReadmeIsShort(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	require.Less(t, strings.Count(string(readme), "\n"), 120)
}
