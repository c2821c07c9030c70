package mariadb

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/internal/sqlrows"
	"github.com/lockstep-ha/lockstep/topology"
)

func eventRow(change map[string]string) map[string]string {
	r := map[string]string{
		"EVENT_SCHEMA": "app", "EVENT_NAME": "purge", "DEFINER": "owner@%", "STATUS": "ENABLED",
		"CHARACTER_SET_CLIENT": "utf8mb4", "COLLATION_CONNECTION": "utf8mb4_general_ci", "OVERDUE": "0",
	}
	for k, v := range change {
		r[k] = v
	}
	return r
}

func TestParseEvents(t *testing.T) {
	events, err := ParseEvents(result(eventRow(nil), eventRow(map[string]string{"EVENT_NAME": "once", "STATUS": "SLAVESIDE_DISABLED", "OVERDUE": "1"})))
	require.NoError(t, err)
	purge := Event{Schema: "app", Name: "purge", Definer: "owner@%", Status: "ENABLED", Charset: "utf8mb4", Collation: "utf8mb4_general_ci"}
	once := purge
	once.Name, once.Status, once.Overdue = "once", "SLAVESIDE_DISABLED", true
	require.Equal(t, []Event{purge, once}, events)

	events, err = ParseEvents(&sqlrows.Table{})
	require.NoError(t, err)
	require.NotNil(t, events, "a server without events was seen all the same")
	require.Empty(t, events)

	for column := range eventRow(nil) {
		if column == "OVERDUE" {
			continue
		}
		for _, v := range []string{"", "NULL"} {
			_, err := ParseEvents(result(eventRow(nil), eventRow(map[string]string{column: v})))
			require.ErrorContains(t, err, `event "`, "%s=%s", column, v)
		}
	}
	_, err = ParseEvents(result(eventRow(map[string]string{"DEFINER": "nobody"})))
	require.ErrorContains(t, err, `definer "nobody"`)
	require.ErrorContains(t, err, `event "purge" of schema "app"`)
}

func TestAlterEvent(t *testing.T) {
	e := Event{Schema: "a-b`c", Name: "d'e\"f\\", Definer: "u`x@y@%.example.org", Charset: "latin1", Collation: "latin1_german2_ci"}
	require.Contains(t, e.Enable(), "ALTER DEFINER=`u``x@y`@`%.example.org` EVENT `a-b``c`.`d'e\"f\\` ENABLE;")
	require.Contains(t, e.DisableOnReplica(), "ALTER DEFINER=`u``x@y`@`%.example.org` EVENT `a-b``c`.`d'e\"f\\` DISABLE ON SLAVE;")
	require.Contains(t, e.Enable(), "character_set_client='latin1', collation_connection='latin1_german2_ci'")
	e.Charset = `x'; DROP DATABASE app; -- \`
	require.Contains(t, e.Enable(), `character_set_client='x''; DROP DATABASE app; -- \\', `)

	for definer, want := range map[string]string{
		"a@%":         "`a`@`%`",
		"@localhost":  "``@`localhost`",
		"keeper@":     "`keeper`",
		"a@b@":        "`a@b`",
		"` or ``@`@`": "``` or ````@```@````",
	} {
		require.Contains(t, Event{Definer: definer}.Enable(), "DEFINER="+want+" EVENT", "%s", definer)
	}
}

func names(events []Event) []string {
	var out []string
	for _, e := range events {
		out = append(out, e.Schema+"."+e.Name)
	}
	return out
}

func TestEventsToMove(t *testing.T) {
	event := func(schema, name, status string) Event {
		return Event{Schema: schema, Name: name, Status: status, Definer: "here@%"}
	}
	replica := []Event{
		event("app", "a", "SLAVESIDE_DISABLED"), event("app", "b", "SLAVESIDE_DISABLED"), event("app", "c", "REPLICA_SIDE_DISABLED"),
		event("app", "d", "ENABLED"), event("app", "e", "DISABLED"), event("other", "a", "SLAVESIDE_DISABLED"),
	}
	primary := []Event{event("app", "a", "ENABLED"), event("app", "b", "DISABLED"), event("app", "c", "ENABLED"), event("app", "d", "ENABLED"), event("app", "e", "ENABLED"), event("app", "gone", "ENABLED")}
	for i := range primary {
		primary[i].Definer = "there@%"
	}
	require.Equal(t, []string{"app.a", "app.c"}, names(ToEnable(replica, primary)))
	require.Equal(t, "here@%", ToEnable(replica, primary)[0].Definer, "an event is altered as the promoted server has it")
	require.Equal(t, []string{"app.a", "app.b", "app.c", "other.a"}, names(ToEnable(replica, nil)))
	require.Empty(t, ToEnable(replica, []Event{}), "an old primary without events is not an unknown one")
	require.Empty(t, ToEnable(nil, primary))
	require.Equal(t, []string{"app.d"}, names(ToDisable(replica)))
	require.Equal(t, []string{"app.a", "app.c", "app.d", "app.e", "app.gone"}, names(ToDisable(primary)))
	require.Empty(t, ToDisable(nil))
}

func TestEventGrants(t *testing.T) {
	for _, text := range []string{"10.5.2-MariaDB", "10.11.19-MariaDB", "11.8.9-MariaDB"} {
		v, _ := topology.ParseVersion(text)
		var privileges []string
		for _, g := range EventGrants(v) {
			privileges = append(privileges, g.Privilege)
			require.NotEmpty(t, g.For)
		}
		require.Equal(t, []string{"EVENT", "SET USER", "BINLOG ADMIN", "READ_ONLY ADMIN"}, privileges, text)
	}
}

func TestEventsUnavailable(t *testing.T) {
	for code := range uint16(5000) {
		require.Equal(t, code == 1577, EventsUnavailable(code), "%d", code)
	}
}
