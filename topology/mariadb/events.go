package mariadb

import (
	"errors"
	"strings"

	"github.com/lockstep-ha/lockstep/internal/sqlrows"
)

// Event is a scheduled event.
type Event struct {
	Schema, Name, Definer, Status string
	Charset, Collation, SQLMode   string
}

// EventsStatement shows all events that the account may see (EVENT).
const EventsStatement = "SELECT EVENT_SCHEMA, EVENT_NAME, DEFINER, STATUS, CHARACTER_SET_CLIENT, COLLATION_CONNECTION, SQL_MODE FROM information_schema.EVENTS"

// ParseEvents reads the result of EventsStatement.
func ParseEvents(t *sqlrows.Table) ([]Event, error) {
	var out []Event
	for i := range t.Rows {
		r := t.Row(i)
		e := Event{Schema: r.String("EVENT_SCHEMA"), Name: r.String("EVENT_NAME"), Definer: r.String("DEFINER"), Status: r.String("STATUS"),
			Charset: r.String("CHARACTER_SET_CLIENT"), Collation: r.String("COLLATION_CONNECTION"), SQLMode: r.String("SQL_MODE")}
		if e.Schema == "" || e.Name == "" {
			return nil, errors.New("read events: an event without a name")
		}
		out = append(out, e)
	}
	return out, nil
}

func quoted(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

func (e Event) alter(what string) string {
	user, host := e.Definer, "%"
	if i := strings.LastIndexByte(e.Definer, '@'); i >= 0 {
		user, host = e.Definer[:i], e.Definer[i+1:]
	}
	return "SET SESSION sql_log_bin=0, character_set_client=" + literal(e.Charset) + ", collation_connection=" + literal(e.Collation) +
		", sql_mode=" + literal(e.SQLMode) + ";ALTER DEFINER=" + quoted(user) + "@" + quoted(host) + " EVENT " + quoted(e.Schema) + "." + quoted(e.Name) + " " + what +
		";SET SESSION sql_mode='', character_set_client=utf8mb4, collation_connection=utf8mb4_general_ci, sql_log_bin=1"
}

// Enable makes the event run on this server, without logging that.
func (e Event) Enable() string { return e.alter("ENABLE") }

// DisableOnReplica keeps it from running, as on a replica.
func (e Event) DisableOnReplica() string { return e.alter("DISABLE ON SLAVE") }

// ToEnable are the events that replication had disabled and that were enabled on
// the old primary; all that replication had disabled where that is not known.
func ToEnable(events, wasEnabled []Event) []Event {
	was := map[string]bool{}
	for _, e := range wasEnabled {
		was[e.Schema+"\x00"+e.Name] = true
	}
	var out []Event
	for _, e := range events {
		if e.Status == "SLAVESIDE_DISABLED" && (wasEnabled == nil || was[e.Schema+"\x00"+e.Name]) {
			out = append(out, e)
		}
	}
	return out
}

// ToDisable are the events that are enabled.
func ToDisable(events []Event) []Event {
	var out []Event
	for _, e := range events {
		if e.Status == "ENABLED" {
			out = append(out, e)
		}
	}
	return out
}
