package mariadb

import (
	"fmt"
	"strings"

	"github.com/lockstep-ha/lockstep/internal/sqlrows"
	"github.com/lockstep-ha/lockstep/topology"
)

// Error codes of statements about scheduled events.
const (
	// ErrEventMissing is the code for an event that does not exist.
	ErrEventMissing = 1539
	// ErrEventsDisabled is the code for everything about events on a server that
	// was started with event_scheduler=DISABLED.
	ErrEventsDisabled = 1577
)

// EventsUnavailable reports whether the code means that a server runs no events,
// and can neither show nor alter any, until it is started in another way.
func EventsUnavailable(code uint16) bool { return code == ErrEventsDisabled }

// Event is a scheduled event as a server has it.
type Event struct {
	Schema, Name string
	// Definer is user@host, or role@ for a role. A role that has been dropped cannot
	// be kept as the definer: role@% takes its place.
	Definer string
	// Status is ENABLED, DISABLED, or SLAVESIDE_DISABLED.
	Status string
	// Charset is the character_set_client of the event, Collation its collation_connection.
	Charset, Collation string
	// Overdue is set for an event that is to run once, at a time that has passed, and
	// that has not run on this server. It runs at once when it is enabled.
	Overdue bool
}

// EventsStatement shows the events of all schemas in which the account has the
// EVENT privilege. It does not fail for the others: it leaves them out.
const EventsStatement = "SELECT EVENT_SCHEMA, EVENT_NAME, DEFINER, STATUS, CHARACTER_SET_CLIENT, COLLATION_CONNECTION," +
	" EVENT_TYPE='ONE TIME' AND LAST_EXECUTED IS NULL AND COALESCE(EXECUTE_AT<=CONVERT_TZ(UTC_TIMESTAMP(),'+00:00',TIME_ZONE),1) AS OVERDUE" +
	" FROM information_schema.EVENTS ORDER BY EVENT_SCHEMA, EVENT_NAME"

// ParseEvents reads the result of EventsStatement. The result is not nil where
// there are no events.
func ParseEvents(t *sqlrows.Table) ([]Event, error) {
	events := make([]Event, 0, len(t.Rows))
	for i := range t.Rows {
		row := t.Row(i)
		e := Event{
			Schema:    row.String("EVENT_SCHEMA"),
			Name:      row.String("EVENT_NAME"),
			Definer:   row.String("DEFINER"),
			Status:    row.String("STATUS"),
			Charset:   row.String("CHARACTER_SET_CLIENT"),
			Collation: row.String("COLLATION_CONNECTION"),
			Overdue:   row.String("OVERDUE") == "1",
		}
		switch {
		case e.Schema == "" || e.Name == "":
			return nil, fmt.Errorf("event %q of schema %q: a name is missing", e.Name, e.Schema)
		case !strings.Contains(e.Definer, "@"):
			return nil, fmt.Errorf("event %q of schema %q: definer %q is not user@host", e.Name, e.Schema, e.Definer)
		case e.Status == "" || e.Charset == "" || e.Collation == "":
			return nil, fmt.Errorf("event %q of schema %q: status %q, character set %q, collation %q", e.Name, e.Schema, e.Status, e.Charset, e.Collation)
		}
		events = append(events, e)
	}
	return events, nil
}

// Enable lets the event run on this server. See DisableOnReplica.
func (e Event) Enable() string { return e.alter("ENABLE") }

// DisableOnReplica gives the event the status that replication would give it on
// this server. A run that has begun goes on.
//
// It is one compound statement. It keeps the definer, the character set and the
// collation, which ALTER EVENT would take from the session, and stays out of the
// binary log. Only DATABASE_COLLATION becomes what the schema has now. It waits
// two seconds for each lock, then fails with code 1205. The session gets its
// settings back, also after errors. It must not have sql_mode ORACLE, must have
// character_set_client utf8mb4 or utf8mb3, and must not be in a transaction.
func (e Event) DisableOnReplica() string { return e.alter("DISABLE ON SLAVE") }

// alter makes a compound statement because the server reads the text of all of
// it before character_set_client changes: an event whose character set is latin1
// can have a name that latin1 has not.
func (e Event) alter(status string) string {
	const restore = "SET lock_wait_timeout=w, character_set_client=c, collation_connection=k, sql_log_bin=l; "
	return "BEGIN NOT ATOMIC" +
		" DECLARE w, l INT UNSIGNED;" +
		" DECLARE c, k VARCHAR(64);" +
		" DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN " + restore + "RESIGNAL; END;" +
		" SET w=@@session.lock_wait_timeout, l=@@session.sql_log_bin, c=@@session.character_set_client, k=@@session.collation_connection;" +
		" SET lock_wait_timeout=2, character_set_client=" + literal(e.Charset) + ", collation_connection=" + literal(e.Collation) + ", sql_log_bin=0;" +
		" ALTER DEFINER=" + e.definer() + " EVENT " + backquoted(e.Schema) + "." + backquoted(e.Name) + " " + status + "; " +
		restore + "END"
}

func (e Event) definer() string {
	at := strings.LastIndex(e.Definer, "@")
	if at < 0 || at == len(e.Definer)-1 {
		return backquoted(strings.TrimSuffix(e.Definer, "@"))
	}
	return backquoted(e.Definer[:at]) + "@" + backquoted(e.Definer[at+1:])
}

func backquoted(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

func (e Event) replicaSide() bool {
	return e.Status == "SLAVESIDE_DISABLED" || e.Status == "REPLICA_SIDE_DISABLED"
}

// ToEnable selects the events to enable on a promoted server: those that
// replication had disabled there and that were enabled on the old primary.
//
// wasEnabled are the events of the old primary, of which those that are not
// ENABLED do not count. Where it is nil, the old primary was not seen, and all
// that replication had disabled are selected, including those that were DISABLED
// on the primary (replication gives both the same status) and those that are
// Overdue, which may have run there.
func ToEnable(events, wasEnabled []Event) []Event {
	type name struct{ schema, name string }
	enabled := map[name]bool{}
	for _, e := range wasEnabled {
		if e.Status == "ENABLED" {
			enabled[name{e.Schema, e.Name}] = true
		}
	}
	var out []Event
	for _, e := range events {
		if e.replicaSide() && (wasEnabled == nil || enabled[name{e.Schema, e.Name}]) {
			out = append(out, e)
		}
	}
	return out
}

// ToDisable selects the events to disable on a demoted server: those that are
// enabled there.
func ToDisable(events []Event) []Event {
	var out []Event
	for _, e := range events {
		if e.Status == "ENABLED" {
			out = append(out, e)
		}
	}
	return out
}

// EventGrants lists the privileges that a monitor needs to move events, in
// addition to Grants. They have the same names in all versions from 10.5.2 on.
// SUPER includes SET USER and BINLOG ADMIN before 11.0, and READ_ONLY ADMIN
// before 10.11. Without EVENT a statement fails with code 1044, without SET USER
// or BINLOG ADMIN with 1227, without READ_ONLY ADMIN with 1290.
func EventGrants(topology.Version) []Grant {
	return []Grant{
		{"EVENT", "information_schema.EVENTS and ALTER EVENT, in every schema"},
		{"SET USER", "ALTER EVENT with the definer kept, where that is another account"},
		{"BINLOG ADMIN", "sql_log_bin: events are altered on one server only"},
		{"READ_ONLY ADMIN", "ALTER EVENT on a server that is read-only"},
	}
}
