// Package manpages gives a command line a hidden command that writes its manual
// pages, for packages.
package manpages

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// Command returns the command "man DIRECTORY". The pages are of one section and have
// the date of SOURCE_DATE_EPOCH, where that is set, so that they can be made again.
func Command(section string) *cobra.Command {
	return &cobra.Command{
		Use: "man DIRECTORY", Short: "Write the manual pages into a directory", Hidden: true,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return fmt.Errorf("write manual pages: %w", err)
			}
			root := cmd.Root()
			root.DisableAutoGenTag = true
			header := &doc.GenManHeader{Section: section, Source: "Lockstep", Manual: "Lockstep"}
			if os.Getenv("SOURCE_DATE_EPOCH") == "" {
				header.Date = new(time.Unix(0, 0).UTC())
			}
			return doc.GenManTree(root, header, args[0])
		},
	}
}
