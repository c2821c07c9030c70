package integration

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/internal/sqlrows"
	"github.com/lockstep-ha/lockstep/internal/testdb"
	"github.com/lockstep-ha/lockstep/topology"
	"github.com/lockstep-ha/lockstep/topology/mariadb"
)

// mover may look at events and move them.
const mover = "mover"

// eventGrants are the grants of EventGrants, without those that are named.
func eventGrants(without ...string) string {
	var names []string
	for _, g := range mariadb.EventGrants(topology.Version{}) {
		if !strings.Contains(strings.Join(without, ","), g.Privilege) {
			names = append(names, g.Privilege)
		}
	}
	return strings.Join(names, ", ") + " ON *.*"
}

func withMover(o testdb.Options) testdb.Options {
	o.Accounts = append(o.Accounts, account(mover, eventGrants()))
	return o
}

// connectMulti opens one connection as a monitor does.
func connectMulti(t *testing.T, s *testdb.Server, user string) *client {
	t.Helper()
	db, err := sql.Open("mysql", s.DSN(user)+"?multiStatements=true")
	require.NoError(t, err)
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { _ = db.Close() })
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	c := &client{t: t, db: db, conn: conn}
	c.exec("SET SESSION sql_mode=''")
	return c
}

func (c *client) exec(statements ...string) {
	c.t.Helper()
	for _, s := range statements {
		_, err := c.conn.ExecContext(c.t.Context(), s)
		require.NoError(c.t, err, "%s", s)
	}
}

// code is the error code of a statement, 0 for success.
func (c *client) code(statement string) uint16 {
	c.t.Helper()
	_, err := c.conn.ExecContext(c.t.Context(), statement)
	if err == nil {
		return 0
	}
	var my *mysql.MySQLError
	require.ErrorAs(c.t, err, &my, "%s", statement)
	return my.Number
}

func (c *client) table(query string) (*sqlrows.Table, error) {
	c.t.Helper()
	rows, err := c.conn.QueryContext(c.t.Context(), query)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	out := &sqlrows.Table{}
	out.Columns, err = rows.Columns()
	require.NoError(c.t, err)
	for rows.Next() {
		values := make([]*string, len(out.Columns))
		into := make([]any, len(values))
		for i := range values {
			into[i] = &values[i]
		}
		require.NoError(c.t, rows.Scan(into...))
		out.Rows = append(out.Rows, values)
	}
	return out, rows.Err()
}

func (c *client) mustTable(query string) *sqlrows.Table {
	c.t.Helper()
	out, err := c.table(query)
	require.NoError(c.t, err, "%s", query)
	return out
}

func (c *client) events() []mariadb.Event {
	c.t.Helper()
	events, err := mariadb.ParseEvents(c.mustTable(mariadb.EventsStatement))
	require.NoError(c.t, err)
	return events
}

// statuses are the events of a server by schema.name.
func (c *client) statuses() map[string]string {
	c.t.Helper()
	out := map[string]string{}
	for _, e := range c.events() {
		out[e.Schema+"."+e.Name] = e.Status
	}
	return out
}

func (c *client) event(name string) mariadb.Event {
	c.t.Helper()
	for _, e := range c.events() {
		if e.Name == name {
			return e
		}
	}
	require.Fail(c.t, "no event "+name)
	return mariadb.Event{}
}

// settings are the variables of a session that moving an event touches.
func (c *client) settings() *sqlrows.Table {
	c.t.Helper()
	return c.mustTable("SELECT @@session.sql_log_bin, @@session.sql_mode, @@session.character_set_client, @@session.character_set_connection," +
		" @@session.character_set_results, @@session.collation_connection, @@session.lock_wait_timeout, @@session.autocommit, DATABASE()")
}

// kept is all that a server shows of its events but what a move changes.
func kept(t *testing.T, s *testdb.Server) map[string]map[string]string {
	t.Helper()
	rows, err := s.Root().QueryxContext(t.Context(), "SELECT * FROM information_schema.EVENTS")
	require.NoError(t, err)
	defer func() { _ = rows.Close() }()
	out := map[string]map[string]string{}
	for rows.Next() {
		raw := map[string]any{}
		require.NoError(t, rows.MapScan(raw))
		row := map[string]string{}
		for column, v := range raw {
			if column != "STATUS" && column != "LAST_ALTERED" {
				row[column] = fmt.Sprintf("%s", v)
			}
		}
		out[row["EVENT_SCHEMA"]+"."+row["EVENT_NAME"]] = row
	}
	require.NoError(t, rows.Err())
	return out
}

const later = " ON SCHEDULE EVERY 1 DAY STARTS '2020-01-01 00:00:00' DO "

func TestEventsAreKept(t *testing.T) {
	s := testdb.New(t, withMover(testdb.Options{ExtraArgs: []string{"--event-scheduler=ON"}}))
	const odd = "`b``a'\"k\\t;ё日`"
	s.MustExec(t,
		"SET NAMES utf8mb4",
		"CREATE USER 'a'@'%'", "CREATE USER 'q`u\"o''te@x'@'%.example.org'", "CREATE USER 'ü'@'%'", "CREATE USER ''@'localhost'", "CREATE ROLE keeper",
		"CREATE DATABASE `has-dash` CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
		"CREATE DATABASE "+odd+" CHARACTER SET latin1",
		"CREATE DEFINER='a'@'%' EVENT `has-dash`.plain"+later+"SELECT 1",
		"CREATE DEFINER='gone'@'%' EVENT `has-dash`.gone"+later+"SELECT 1",
		"CREATE DEFINER=''@'localhost' EVENT `has-dash`.anonymous"+later+"SELECT 1",
		"CREATE DEFINER=keeper EVENT `has-dash`.role"+later+"SELECT 1",
		"CREATE DEFINER='q`u\"o''te@x'@'%.example.org' EVENT "+odd+"."+odd+later+"SELECT 1",
		"CREATE DEFINER='ü'@'%' EVENT "+odd+".`ü`"+later+"SELECT 1",
		"SET time_zone='+05:30'",
		"CREATE DEFINER='a'@'%' EVENT `has-dash`.once ON SCHEDULE AT '2037-01-01 10:00:00' ON COMPLETION PRESERVE DISABLE COMMENT 'it''s \"ë\"' DO SELECT 1",
		"CREATE DEFINER='a'@'%' EVENT `has-dash`.ends ON SCHEDULE EVERY '1:30' HOUR_MINUTE STARTS '2020-01-01 10:00:00' ENDS '2037-01-01' DISABLE ON SLAVE DO SELECT 1",
		"SET sql_mode='ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH'",
		`CREATE DEFINER='a'@'%' EVENT "has-dash"."ansi"`+later+`SELECT 'a\' AS "b"`,
		"SET sql_mode='ORACLE'",
		"CREATE DEFINER='a'@'%' EVENT `has-dash`.oracle"+later+"SELECT 1",
		"SET sql_mode=DEFAULT",
		"SET NAMES latin1 COLLATE latin1_german2_ci",
		"CREATE DEFINER='a'@'%' EVENT `has-dash`.latin1"+later+"SELECT '\xe4'",
		"SET NAMES utf8mb4 COLLATE utf8mb4_unicode_520_ci",
		"CREATE DEFINER='a'@'%' EVENT "+odd+".`ё`"+later+"SELECT 'ё😀'",
		"SET character_set_client=cp1251, collation_connection=ucs2_general_ci",
		"CREATE DEFINER='a'@'%' EVENT `has-dash`.cp1251"+later+"SELECT '\xb8'",
		"SET character_set_client=binary, collation_connection=binary",
		"CREATE DEFINER='a'@'%' EVENT `has-dash`.octets"+later+"SELECT 1",
	)
	before := kept(t, s)
	require.Len(t, before, 13)
	pos := s.MustQuery(t, "SELECT @@gtid_binlog_pos")
	for _, mode := range []string{"", "ANSI_QUOTES,NO_BACKSLASH_ESCAPES", "TRADITIONAL", "PAD_CHAR_TO_FULL_LENGTH"} {
		c := connectMulti(t, s, mover)
		c.exec("SET SESSION sql_mode='" + mode + "', collation_connection=utf8mb4_bin, lock_wait_timeout=77")
		settings := c.settings()
		for _, e := range c.events() {
			c.exec(e.DisableOnReplica())
			require.Equal(t, "SLAVESIDE_DISABLED", c.event(e.Name).Status, e.Name)
			require.Equal(t, before, kept(t, s), e.Name)
			c.exec(e.Enable())
			require.Equal(t, "ENABLED", c.event(e.Name).Status, e.Name)
			require.Equal(t, before, kept(t, s), e.Name)
			require.Equal(t, settings, c.settings(), e.Name)
		}
		require.Len(t, mariadb.ToDisable(c.events()), 13)
	}

	c := connectMulti(t, s, mover)
	var all []string
	for _, e := range mariadb.ToDisable(c.events()) {
		all = append(all, e.DisableOnReplica())
	}
	c.exec(strings.Join(all, ";"))
	require.Empty(t, mariadb.ToDisable(c.events()))
	require.Len(t, mariadb.ToEnable(c.events(), nil), 13)
	require.Equal(t, before, kept(t, s))
	require.Equal(t, pos, s.MustQuery(t, "SELECT @@gtid_binlog_pos"), "nothing was logged")
}

// TestEventsOfAChangedSchema shows what ALTER EVENT does to DATABASE_COLLATION.
func TestEventsOfAChangedSchema(t *testing.T) {
	s := testdb.New(t, withMover(testdb.Options{}))
	s.MustExec(t, "ALTER DATABASE app CHARACTER SET latin1", "CREATE EVENT app.e"+later+"SELECT 1", "ALTER DATABASE app CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
	before := kept(t, s)
	require.Equal(t, "latin1_swedish_ci", before["app.e"]["DATABASE_COLLATION"])
	c := connectMulti(t, s, mover)
	c.exec(c.event("e").DisableOnReplica())
	before["app.e"]["DATABASE_COLLATION"] = "utf8mb4_bin"
	require.Equal(t, before, kept(t, s))
}

func TestEventsOfAReplica(t *testing.T) {
	c := testdb.NewCluster(t, 2, testdb.ClusterOptions{Server: withMover(testdb.Options{ExtraArgs: []string{"--event-scheduler=ON"}})})
	s1, s2 := c.Servers[0], c.Servers[1]
	s1.MustExec(t,
		"CREATE USER 'runs'@'%'", "GRANT INSERT ON app.* TO 'runs'@'%'", "CREATE TABLE app.t (server_id INT UNSIGNED)",
		"CREATE DEFINER='runs'@'%' EVENT app.active ON SCHEDULE EVERY 1 SECOND DO INSERT INTO app.t VALUES (@@server_id)",
		"CREATE DEFINER='runs'@'%' EVENT app.off ON SCHEDULE EVERY 1 SECOND DISABLE DO INSERT INTO app.t VALUES (0)",
		"CREATE DEFINER='runs'@'%' EVENT app.dropped"+later+"SELECT 1",
		"CREATE DEFINER='runs'@'%' EVENT app.altered"+later+"SELECT 1",
	)
	require.NoError(t, c.WaitSync(t.Context()))
	old, fresh := connectMulti(t, s1, mover), connectMulti(t, s2, mover)
	require.Equal(t, map[string]string{"app.active": "ENABLED", "app.off": "DISABLED", "app.dropped": "ENABLED", "app.altered": "ENABLED"}, old.statuses())
}
