package integration

import (
	"database/sql"
	"errors"
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
	cfg, err := mysql.ParseDSN(s.DSN(user))
	require.NoError(t, err)
	cfg.MultiStatements = true
	connector, err := mysql.NewConnector(cfg)
	require.NoError(t, err)
	db := sql.OpenDB(connector)
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

// table sends statements as a monitor does, and reads the rows of all of them.
func (c *client) table(statements string) (*sqlrows.Table, error) {
	c.t.Helper()
	rows, err := c.conn.QueryContext(c.t.Context(), statements)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	out := &sqlrows.Table{}
	out.Columns, err = rows.Columns()
	require.NoError(c.t, err)
	for more := true; more; more = rows.NextResultSet() {
		for rows.Next() {
			values := make([]*string, len(out.Columns))
			into := make([]any, len(values))
			for i := range values {
				into[i] = &values[i]
			}
			require.NoError(c.t, rows.Scan(into...))
			out.Rows = append(out.Rows, values)
		}
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
	require.Len(t, before, 14)
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
		require.Len(t, mariadb.ToDisable(c.events()), 14)
	}

	c := connectMulti(t, s, mover)
	var all []string
	for _, e := range mariadb.ToDisable(c.events()) {
		all = append(all, e.DisableOnReplica())
	}
	_, err := c.table(strings.Join(all, ";"))
	require.NoError(t, err)
	require.Empty(t, mariadb.ToDisable(c.events()))
	require.Len(t, mariadb.ToEnable(c.events(), nil), 14)
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

func TestEventsMoveWithThePrimary(t *testing.T) {
	c := testdb.NewCluster(t, 2, testdb.ClusterOptions{Server: withMover(testdb.Options{ExtraArgs: []string{"--event-scheduler=ON"}})})
	s1, s2 := c.Servers[0], c.Servers[1]
	s1.MustExec(t,
		"CREATE USER 'runs'@'%'", "GRANT EVENT, INSERT ON app.* TO 'runs'@'%'", "CREATE TABLE app.t (server_id INT UNSIGNED)",
		"CREATE DEFINER='runs'@'%' EVENT app.active ON SCHEDULE EVERY 1 SECOND DO INSERT INTO app.t VALUES (@@server_id)",
		"CREATE DEFINER='runs'@'%' EVENT app.off ON SCHEDULE EVERY 1 SECOND DISABLE DO INSERT INTO app.t VALUES (0)",
		"CREATE DEFINER='runs'@'%' EVENT app.altered"+later+"SELECT 1",
		"CREATE DEFINER='runs'@'%' EVENT app.dropped"+later+"SELECT 1",
	)
	require.NoError(t, c.WaitSync(t.Context()))
	old, fresh := connectMulti(t, s1, mover), connectMulti(t, s2, mover)
	const enabled, disabled, replica = "ENABLED", "DISABLED", "SLAVESIDE_DISABLED"
	require.Equal(t, map[string]string{"app.active": enabled, "app.off": disabled, "app.altered": enabled, "app.dropped": enabled}, old.statuses())
	require.Equal(t, map[string]string{"app.active": replica, "app.off": replica, "app.altered": replica, "app.dropped": replica}, fresh.statuses(),
		"replication gives the status to events that are disabled on the primary too")
	wasEnabled := old.events()
	require.Len(t, mariadb.ToEnable(fresh.events(), nil), 4)
	require.Len(t, mariadb.ToEnable(fresh.events(), wasEnabled), 3)

	// What the primary does to an event that is enabled on the replica still applies.
	fresh.exec(fresh.event("altered").Enable(), fresh.event("dropped").Enable())
	require.Equal(t, map[string]string{"app.active": replica, "app.off": replica, "app.altered": enabled, "app.dropped": enabled}, fresh.statuses())
	s1.MustExec(t, "DROP EVENT app.dropped", "ALTER DEFINER='runs'@'%' EVENT app.altered COMMENT 'altered'")
	require.NoError(t, c.WaitSync(t.Context()))
	require.Equal(t, map[string]string{"app.active": replica, "app.off": replica, "app.altered": replica}, fresh.statuses(),
		"an ALTER EVENT that is replicated disables the event again")
	require.NoError(t, s2.WaitReplicating(t.Context()))

	s1.MustExec(t, "SET GLOBAL read_only=1")
	pos := s1.MustQuery(t, "SELECT @@gtid_binlog_pos")
	for _, e := range mariadb.ToDisable(old.events()) {
		old.exec(e.DisableOnReplica())
	}
	require.Equal(t, map[string]string{"app.active": replica, "app.off": disabled, "app.altered": replica}, old.statuses())
	require.Equal(t, pos, s1.MustQuery(t, "SELECT @@gtid_binlog_pos"))
	require.NoError(t, c.WaitSync(t.Context()))

	s2.MustExec(t, "STOP SLAVE", "RESET SLAVE ALL", "SET GLOBAL read_only=0")
	require.Equal(t, "0", s2.MustQuery(t, "SELECT COUNT(*) FROM app.t WHERE server_id=2"))
	for _, e := range mariadb.ToEnable(fresh.events(), wasEnabled) {
		fresh.exec(e.Enable())
	}
	require.Equal(t, map[string]string{"app.active": enabled, "app.off": replica, "app.altered": enabled}, fresh.statuses())
	require.Eventually(t, func() bool { return s2.MustQuery(t, "SELECT COUNT(*) FROM app.t WHERE server_id=2") != "0" }, 10*time.Second, 10*time.Millisecond)

	require.NoError(t, c.Replicate(t.Context(), s2, s1))
	require.NoError(t, s1.WaitGTID(t.Context(), s2.MustQuery(t, "SELECT @@gtid_binlog_pos")))
	require.NotEqual(t, "0", s1.MustQuery(t, "SELECT COUNT(*) FROM app.t WHERE server_id=2"))
	require.Equal(t, map[string]string{"app.active": replica, "app.off": disabled, "app.altered": replica}, old.statuses())
	require.Equal(t, "0", s1.MustQuery(t, "SELECT COUNT(*) FROM app.t WHERE server_id=0"))
}

func TestEventsThatRunOnce(t *testing.T) {
	s := testdb.New(t, withMover(testdb.Options{ExtraArgs: []string{"--event-scheduler=ON"}}))
	s.MustExec(t, "CREATE TABLE app.t (name VARCHAR(64))",
		"CREATE EVENT app.local ON SCHEDULE AT NOW() + INTERVAL 1 HOUR DISABLE ON SLAVE DO INSERT INTO app.t VALUES ('local')",
		"SET time_zone='-09:00'",
		"CREATE EVENT app.past ON SCHEDULE AT NOW() + INTERVAL 1 SECOND ON COMPLETION PRESERVE DISABLE ON SLAVE DO INSERT INTO app.t VALUES ('past')",
		"CREATE EVENT app.future ON SCHEDULE AT NOW() + INTERVAL 1 HOUR ON COMPLETION PRESERVE DISABLE ON SLAVE DO INSERT INTO app.t VALUES ('future')",
		"SET time_zone='+09:00'",
		"CREATE EVENT app.ahead ON SCHEDULE AT NOW() + INTERVAL 1 HOUR DISABLE ON SLAVE DO INSERT INTO app.t VALUES ('ahead')",
		"CREATE EVENT app.often ON SCHEDULE EVERY 1 DAY STARTS '2020-01-01' DISABLE ON SLAVE DO SELECT 1",
	)
	c := connectMulti(t, s, mover)
	require.Eventually(t, func() bool { return c.event("past").Overdue }, 10*time.Second, 50*time.Millisecond)
	for _, name := range []string{"local", "future", "ahead", "often"} {
		require.False(t, c.event(name).Overdue, name)
	}
	c.exec(c.event("past").Enable())
	require.Eventually(t, func() bool { return s.MustQuery(t, "SELECT GROUP_CONCAT(name) FROM app.t") == "past" }, 10*time.Second, 10*time.Millisecond)
	require.Eventually(t, func() bool { return !c.event("past").Overdue && c.event("past").Status == "DISABLED" }, 10*time.Second, 10*time.Millisecond)
}

func TestEventPrivileges(t *testing.T) {
	lacking := map[string]string{"noevent": "EVENT", "nouser": "SET USER", "nolog": "BINLOG ADMIN", "noreadonly": "READ_ONLY ADMIN"}
	o := withMover(testdb.Options{})
	for user, privilege := range lacking {
		o.Accounts = append(o.Accounts, account(user, eventGrants(privilege)))
	}
	s := testdb.New(t, o)
	require.Len(t, mariadb.EventGrants(topology.Version{}), len(lacking))
	for _, g := range mariadb.EventGrants(topology.Version{}) {
		require.True(t, mariadb.HasPrivilege(connectMulti(t, s, mover).mustTable("SHOW GRANTS").Rows, g.Privilege), g.Privilege)
	}
	s.MustExec(t, "CREATE USER 'a'@'%'", "CREATE DEFINER='a'@'%' EVENT app.e"+later+"SELECT 1")
	c := connectMulti(t, s, mover)
	e := c.event("e")
	require.Equal(t, "a@%", e.Definer)
	require.Equal(t, "ENABLED", e.Status)
	before := kept(t, s)
	code := func(user string) uint16 {
		c := connectMulti(t, s, user)
		settings := c.settings()
		got := c.code(e.DisableOnReplica())
		require.Equal(t, settings, c.settings(), user)
		return got
	}

	// An account that may not see events sees none, and no error.
	require.Empty(t, connectMulti(t, s, "noevent").events())
	require.Equal(t, uint16(1044), code("noevent"))
	require.Equal(t, uint16(1227), code("nouser"))
	require.Equal(t, uint16(1227), code("nolog"))
	s.MustExec(t, "SET GLOBAL read_only=1")
	require.Equal(t, uint16(1290), code("noreadonly"))
	require.Equal(t, "ENABLED", c.event("e").Status)
	require.Zero(t, code(mover))
	require.Equal(t, "SLAVESIDE_DISABLED", c.event("e").Status)
	s.MustExec(t, "SET GLOBAL read_only=0")
	require.Zero(t, code("noreadonly"))
	require.Equal(t, before, kept(t, s))
}

func TestEventErrorsLeaveTheSessionAsItWas(t *testing.T) {
	s := testdb.New(t, withMover(testdb.Options{}))
	s.MustExec(t, "CREATE USER 'a'@'%'", "CREATE DEFINER='a'@'%' EVENT app.e"+later+"SELECT 1", "CREATE DEFINER='a'@'%' EVENT app.f"+later+"SELECT 1")
	c := connectMulti(t, s, mover)
	c.exec("SET NAMES utf8mb4 COLLATE utf8mb4_bin")
	settings := c.settings()
	events := c.events()
	require.Len(t, events, 2)
	before := kept(t, s)
	pos := func() string { return s.MustQuery(t, "SELECT @@gtid_binlog_pos") }

	s.MustExec(t, "DROP EVENT app.e")
	at := pos()
	require.Equal(t, uint16(mariadb.ErrEventMissing), c.code(events[0].DisableOnReplica()))
	require.Equal(t, settings, c.settings())
	require.Equal(t, uint16(mariadb.ErrEventMissing), c.code(events[0].Enable()+";"+events[1].DisableOnReplica()))
	require.Equal(t, map[string]string{"app.f": "ENABLED"}, c.statuses(), "an error ends the statements after it")
	require.Equal(t, settings, c.settings())

	gone := events[1]
	gone.Schema = "no such schema"
	require.Equal(t, uint16(1049), c.code(gone.Enable()))
	odd := events[1]
	odd.Charset = `no'such\charset`
	require.Equal(t, uint16(1115), c.code(odd.Enable()))
	require.Equal(t, settings, c.settings())

	locked := mustConnect(t, s, testdb.RootUser)
	_, err := locked.conn.ExecContext(t.Context(), "FLUSH TABLES WITH READ LOCK")
	require.NoError(t, err)
	began := time.Now()
	require.Equal(t, uint16(1205), c.code(events[1].DisableOnReplica()))
	require.Greater(t, time.Since(began), time.Second)
	require.Less(t, time.Since(began), 10*time.Second)
	require.Equal(t, settings, c.settings())
	c.exec("SET max_statement_time=0.2")
	require.Equal(t, uint16(1969), c.code(events[1].DisableOnReplica()))
	c.exec("SET max_statement_time=0")
	require.Equal(t, settings, c.settings())
	id := c.mustTable("SELECT CONNECTION_ID() AS id").Row(0).String("id")
	killed := make(chan error, 1)
	go func() {
		for {
			waits, err := s.QueryString(t.Context(), "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE ID=? AND STATE LIKE 'Waiting for%'", id)
			if err != nil || waits != "0" {
				killed <- errors.Join(err, s.Exec(t.Context(), "KILL QUERY "+id))
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	require.Equal(t, uint16(1317), c.code(events[1].DisableOnReplica()))
	require.NoError(t, <-killed)
	require.Equal(t, settings, c.settings())
	locked.close()

	c.exec("BEGIN")
	require.Equal(t, uint16(1694), c.code(events[1].DisableOnReplica()), "sql_log_bin is not set in transactions")
	c.exec("ROLLBACK")
	require.Equal(t, settings, c.settings())

	delete(before, "app.e")
	require.Equal(t, before, kept(t, s))
	require.Equal(t, at, pos())
	c.exec("ALTER EVENT app.f COMMENT 'logged'")
	require.NotEqual(t, at, pos(), "the session logs again")
}

func TestEventSchedulerOffAndDisabled(t *testing.T) {
	s := testdb.New(t, withMover(testdb.Options{ExtraArgs: []string{"--event-scheduler=OFF"}}))
	s.MustExec(t, "CREATE EVENT app.e"+later+"SELECT 1")
	c := connectMulti(t, s, mover)
	e := c.event("e")
	c.exec(e.DisableOnReplica(), e.Enable(), e.DisableOnReplica())
	require.Equal(t, "SLAVESIDE_DISABLED", c.event("e").Status)

	require.NoError(t, s.Restart(t.Context(), "--event-scheduler=DISABLED"))
	c = connectMulti(t, s, mover)
	settings := c.settings()
	got := c.code(mariadb.EventsStatement)
	require.Equal(t, uint16(mariadb.ErrEventsDisabled), got)
	require.True(t, mariadb.EventsUnavailable(got))
	require.Equal(t, got, c.code(e.Enable()))
	require.Equal(t, got, c.code(e.DisableOnReplica()))
	require.Equal(t, settings, c.settings())
}
