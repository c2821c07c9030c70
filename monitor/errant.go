package monitor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lockstep-ha/lockstep/monitor/operation"
	"github.com/lockstep-ha/lockstep/topology"
	"github.com/lockstep-ha/lockstep/topology/gtid"
	"github.com/lockstep-ha/lockstep/topology/mariadb"
)

// Of the search for errant transactions in binary logs.
const (
	// maxBinlog is the size above which a file is not looked through.
	maxBinlog = 16 << 20
	// maxFiles is how many files are, the newest first.
	maxFiles = 3
	// maxErrant is how many transactions are named.
	maxErrant = 5
	// errantPatience is for how long a tick waits for the search.
	errantPatience = 500 * time.Millisecond
)

// errant is what was found in the binary log of a server that is not joined.
type errant struct {
	state string // its gtid_binlog_state at the time
	text  string
	done  chan string // buffered; nil while no search is under way
}

// nameErrant adds to the refusal of a server with errant transactions what its
// binary log says of them. What cannot be found in time is there the next time.
func (m *Monitor) nameErrant(ctx context.Context, h *hands, c operation.Cluster, name string, err error) {
	var refused *operation.RefusedError
	f, able := h.fleet.(looker)
	i := c.Index(name)
	if !able || i < 0 || c.Primary < 0 || !errors.As(err, &refused) || refused.Refusals[0].Code != "errant" {
		return
	}
	s, had := c.Servers[i], c.Servers[c.Primary].BinlogState
	e := m.ops.errant[name]
	if e.state != s.BinlogState.String() {
		e = errant{state: s.BinlogState.String()}
	}
	if e.text == "" && e.done == nil {
		done := make(chan string, 1)
		e.done = done
		go func() { done <- searchBinlogs(ctx, f, s, had) }()
	}
	if e.done != nil {
		patience := time.NewTimer(min(errantPatience, m.timing.Interval/4))
		defer patience.Stop()
		select {
		case e.text = <-e.done:
			e.done = nil
		case <-patience.C:
		}
	}
	m.ops.errant[name] = e
	if e.text != "" {
		refused.Refusals[0].Text += "; " + e.text
	}
}

// searchBinlogs names the transactions in the newest binary logs of a server that
// are not in the history of another.
func searchBinlogs(ctx context.Context, f looker, s topology.Server, had gtid.State) string {
	unread := func(why string) string { return "what they did is not shown: " + why }
	tables, err := f.Look(ctx, s.Name, mariadb.OldestBinlog)
	if err != nil || len(tables) == 0 {
		return unread(fmt.Sprintf("its binary logs cannot be listed: %v", err))
	}
	var found []mariadb.Transaction
	files := &tables[0]
	for k := len(files.Rows) - 1; k >= max(len(files.Rows)-maxFiles, 0); k-- {
		row := files.Row(k)
		size, _, err := row.Uint("File_size")
		if err != nil || size > maxBinlog {
			if len(found) == 0 {
				return unread(fmt.Sprintf("its binary log %s has %d MiB", row.String("Log_name"), size>>20))
			}
			break
		}
		events, err := f.Look(ctx, s.Name, mariadb.BinlogEvents(row.String("Log_name")))
		if err != nil || len(events) == 0 {
			return unread(fmt.Sprintf("its binary log %s cannot be read: %v", row.String("Log_name"), err))
		}
		found = append(mariadb.Transactions(&events[0], func(id gtid.GTID) bool { return !had.Contains(id) }), found...)
	}
	if len(found) == 0 {
		return unread(fmt.Sprintf("they are not in its newest %d binary logs", min(maxFiles, len(files.Rows))))
	}
	shown := found[max(len(found)-maxErrant, 0):]
	parts := make([]string, len(shown))
	for i, t := range shown {
		parts[i] = fmt.Sprintf("%s %q", t.GTID, t.Summary)
		if t.More > 0 {
			parts[i] += fmt.Sprintf(" and %d more", t.More)
		}
	}
	text := fmt.Sprintf("its binary log has %d of them: %s", len(found), strings.Join(parts, ", "))
	if len(shown) < len(found) {
		text = fmt.Sprintf("its binary log has %d of them, the last are %s", len(found), strings.Join(parts, ", "))
	}
	return text
}
