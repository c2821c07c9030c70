package mariadb

import (
	"strings"
	"unicode/utf8"

	"github.com/lockstep-ha/lockstep/internal/sqlrows"
	"github.com/lockstep-ha/lockstep/topology/gtid"
)

// BinlogEvents shows the events of a binary log file.
func BinlogEvents(file string) string { return "SHOW BINLOG EVENTS IN " + literal(file) }

// Transaction is one transaction of a binary log and what it did.
type Transaction struct {
	GTID gtid.GTID
	// Summary is its first statement, or the first table that it changed, shortened;
	// More how many more of these there are.
	Summary string
	More    int
}

// maxSummary bounds a summary, in bytes.
const maxSummary = 120

// Transactions finds, in the answer to BinlogEvents, the transactions that keep
// wants.
func Transactions(t *sqlrows.Table, keep func(gtid.GTID) bool) []Transaction {
	var out []Transaction
	wanted, annotated := false, false
	note := func(text string) {
		last := &out[len(out)-1]
		if last.Summary != "" {
			last.More++
			return
		}
		last.Summary = shorten(text)
	}
	for i := range t.Rows {
		row := t.Row(i)
		info := row.String("Info")
		switch kind := row.String("Event_type"); {
		case kind == "Gtid":
			_, text, _ := strings.Cut(info, "GTID ")
			text, _, _ = strings.Cut(text, " ")
			id, err := gtid.ParseGTID(text)
			wanted, annotated = err == nil && keep(id), false
			if wanted {
				out = append(out, Transaction{GTID: id})
			}
		case !wanted:
		case kind == "Query" || kind == "Annotate_rows":
			if s := strings.TrimSpace(info); s != "COMMIT" && s != "BEGIN" {
				note(s)
			}
			annotated = kind == "Annotate_rows"
		case kind == "Table_map" && !annotated:
			if _, name, ok := strings.Cut(info, "("); ok {
				note("rows of " + strings.TrimSuffix(name, ")"))
			}
		case strings.HasSuffix(kind, "_rows_v1") || strings.HasSuffix(kind, "_rows"):
			annotated = false
		}
	}
	return out
}

// shorten makes one short line of a statement.
func shorten(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) <= maxSummary {
		return text
	}
	cut := maxSummary
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "..."
}
