package mariadb

import (
	"fmt"
	"strings"

	"github.com/lockstep-ha/lockstep/internal/sqlrows"
	"github.com/lockstep-ha/lockstep/topology"
)

// ErrNoDisks is the error code of DisksStatement where the plugin is missing.
const ErrNoDisks = 1109

// DisksStatement shows where the server keeps its data and its binary log, and
// the file systems of its host with their sizes in KiB. It needs the plugin disks
// and the privilege FILE: without the latter it shows no file system.
const DisksStatement = "SELECT @@datadir AS datadir, @@log_bin_basename AS binlog;SELECT Path, Total, Available FROM information_schema.DISKS"

// DiskGrant is what DisksStatement needs.
var DiskGrant = Grant{"FILE", "information_schema.DISKS: how full the disks are"}

// ParseDisks finds, of the answer to DisksStatement, the file system with the least
// free space, in percent of its size, of those that hold the data and the binary
// log. ok is false where none is shown.
func ParseDisks(tables []sqlrows.Table) (fullest topology.Disk, ok bool, err error) {
	if len(tables) < 2 || len(tables[0].Rows) == 0 {
		return topology.Disk{}, false, nil
	}
	for _, column := range []string{"datadir", "binlog"} {
		file := tables[0].Row(0).String(column)
		if file == "" {
			continue
		}
		var on topology.Disk
		best := -1
		for i := range tables[1].Rows {
			row := tables[1].Row(i)
			path := row.String("Path")
			if len(path) <= best || (file != path && !strings.HasPrefix(file, strings.TrimSuffix(path, "/")+"/")) {
				continue
			}
			total, _, err := row.Uint("Total")
			if err != nil {
				return topology.Disk{}, false, fmt.Errorf("size of %s: %w", path, err)
			}
			free, _, err := row.Uint("Available")
			if err != nil {
				return topology.Disk{}, false, fmt.Errorf("free space on %s: %w", path, err)
			}
			on, best = topology.Disk{Path: path, TotalKiB: total, FreeKiB: min(free, total)}, len(path)
		}
		if best >= 0 && on.TotalKiB > 0 && (!ok || on.FreePercent() < fullest.FreePercent()) {
			fullest, ok = on, true
		}
	}
	return fullest, ok, nil
}
