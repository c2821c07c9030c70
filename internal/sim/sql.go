package sim

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/lockstep-ha/lockstep/internal/sqlrows"
	"github.com/lockstep-ha/lockstep/topology/mariadb"
)

// answer is what came of a batch of statements.
// stateRow is a row of the table in which monitors keep what all have to know.
type stateRow struct {
	value, version string
	at             time.Duration
}

type answer struct {
	tables []sqlrows.Table
	err    error
}

func sqlError(code uint16, format string, args ...any) error {
	return &mysql.MySQLError{Number: code, Message: fmt.Sprintf(format, args...)}
}

var (
	boundedRE = regexp.MustCompile(`^SET STATEMENT lock_wait_timeout=\d+, max_statement_time=([0-9.]+) FOR (.*)$`)
	guardRE   = regexp.MustCompile(`^SELECT IF\(IS_USED_LOCK\('[^']+'\)<=>(\d+), 1, `)
	threadRE  = regexp.MustCompile(`^(STOP|START) SLAVE '([^']*)'(?: (IO_THREAD|SQL_THREAD))?$`)
	resetRE   = regexp.MustCompile(`^RESET SLAVE '([^']*)' ALL$`)
	changeRE  = regexp.MustCompile(`^CHANGE MASTER '([^']*)' TO MASTER_HOST='([^']*)', MASTER_PORT=(\d+), .*MASTER_USE_GTID=(.*)$`)
	semiRE    = regexp.MustCompile(`^SET GLOBAL rpl_semi_sync_(master|slave)_enabled=([01])$`)
	stateRE   = regexp.MustCompile(`^INSERT INTO .* VALUES \('sim', '([^']*)', '([^']*)', (\d+), '\w+', UTC_TIMESTAMP\(6\) - INTERVAL (\d+) MICROSECOND\)`)
	ignoredRE = regexp.MustCompile(`^(SET GLOBAL rpl_semi_sync_master_(timeout|wait_point|wait_no_slave)=\w+|SET SESSION sql_log_bin=0|CREATE (DATABASE|TABLE) IF NOT EXISTS .*|BACKUP STAGE \w+|SET SESSION lock_wait_timeout=\w+)$`)
)

// run carries out a batch of statements of a session, one after the other, and
// calls done with what came of it. It stops at the first that fails. What it
// does not know is a fault of the simulation, which must not pass unnoticed.
func (s *server) run(ses *session, sql string, done func(answer)) {
	var out answer
	statements := strings.Split(sql, ";")
	boots := s.boots
	var next func(i int)
	next = func(i int) {
		if s.boots != boots || !s.up || !ses.alive {
			return // nobody is there to answer
		}
		if i == len(statements) {
			done(out)
			return
		}
		took, finish := s.statement(ses, strings.TrimSpace(statements[i]), &out)
		end := func() {
			if finish != nil {
				finish()
			}
			if out.err != nil {
				done(out)
				return
			}
			next(i + 1)
		}
		if took == 0 {
			end()
			return
		}
		s.c.w.after(took, func() {
			s.awake(func() {
				s.cutShort = s.cutShort || !ses.alive
				if s.boots == boots && s.up && ses.alive {
					end()
				}
			})
		})
	}
	next(0)
}

// statement carries out one statement: at once, or, where it takes a while, when
// the caller calls finish.
func (s *server) statement(ses *session, sql string, out *answer) (took time.Duration, finish func()) {
	table := func(columns []string, rows ...[]string) {
		t := sqlrows.Table{Columns: columns}
		for _, r := range rows {
			var row []*string
			for _, v := range r {
				row = append(row, &v)
			}
			t.Rows = append(t.Rows, row)
		}
		out.tables = append(out.tables, t)
	}
	switch {
	case sql == mariadb.EventsStatement:
		table([]string{"EVENT_SCHEMA"})
		return 0, nil
	case strings.HasPrefix(sql, "SELECT ID, USER, HOST FROM information_schema.PROCESSLIST"):
		table([]string{"ID", "USER", "HOST"})
		return 0, nil
	case sql == mariadb.WaitingCommits:
		table([]string{"Variable_name", "Value"}, []string{"Rpl_semi_sync_master_wait_sessions", strconv.Itoa(len(s.waiting))})
		return 0, nil
	case sql == mariadb.OldestBinlog:
		table([]string{"Log_name", "File_size"}, []string{"bin.000001", "1000"})
		return 0, nil
	case strings.HasPrefix(sql, "SELECT name, value, version, TIMESTAMPDIFF("):
		if s.state == nil {
			out.err = sqlError(1146, "Table 'lockstep.state' doesn't exist")
			return 0, nil
		}
		var rows [][]string
		for _, name := range slices.Sorted(maps.Keys(s.state)) {
			r := s.state[name]
			rows = append(rows, []string{name, r.value, r.version, strconv.FormatInt((s.c.w.now - r.at).Microseconds(), 10)})
		}
		table([]string{"name", "value", "version", "age"}, rows...)
		return 0, nil
	case strings.HasPrefix(sql, "SELECT BINLOG_GTID_POS("):
		table([]string{"pos"}, []string{""})
		return 0, nil
	}
	if m := guardRE.FindStringSubmatch(sql); m != nil {
		if held := s.locks[serverLock]; held == nil || strconv.FormatUint(held.id, 10) != m[1] {
			out.err = sqlError(1242, "Subquery returns more than 1 row")
		}
		// The lock is that of another session of the same monitor.
		for _, o := range s.sessions {
			if strconv.FormatUint(o.id, 10) == m[1] && o.owner == ses.owner {
				ses.got = true
			}
		}
		return 0, nil
	}
	s.c.check.statement(s, ses, sql)
	s.logf("%s: %s", ses.owner, sql)
	wait := time.Duration(0)
	if m := boundedRE.FindStringSubmatch(sql); m != nil {
		seconds, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			panic(err)
		}
		wait, sql = time.Duration(seconds*float64(time.Second)), m[2]
	}
	if m := threadRE.FindStringSubmatch(sql); m != nil {
		return s.threads(m[1] == "START", m[2], m[3], out)
	}
	if m := resetRE.FindStringSubmatch(sql); m != nil {
		switch l := s.link(m[1]); {
		case l == nil:
		case l.io || l.sql:
			out.err = sqlError(1198, "This operation cannot be performed as you have a running slave")
		default:
			s.forget(l)
		}
		return 0, nil
	}
	if m := changeRE.FindStringSubmatch(sql); m != nil {
		s.change(m[1], m[2], strings.Contains(m[4], "DEMOTE") || m[4] == "current_pos", out)
		return 0, nil
	}
	if m := semiRE.FindStringSubmatch(sql); m != nil {
		on := m[2] == "1"
		if m[1] == "slave" {
			s.semi.replica = on
			return 0, nil
		}
		s.semi.primary = on
		if !on {
			s.acknowledge(len(s.log)-1, nil)
		}
		return 0, nil
	}
	if m := stateRE.FindStringSubmatch(sql); m != nil {
		age, err := strconv.ParseInt(m[4], 10, 64)
		if err != nil {
			panic(err)
		}
		if s.state == nil {
			s.state = map[string]stateRow{}
		}
		s.state[m[1]] = stateRow{m[2], m[3], s.c.w.now - time.Duration(age)*time.Microsecond}
		return 0, nil
	}
	switch {
	case sql == "SET GLOBAL read_only=0":
		s.readOnly, s.opened = false, false
		s.c.check.writable()
	case sql == "SET GLOBAL read_only=1", sql == "SET GLOBAL read_only=IF(@lockstep_got=1,1,@@global.read_only)" && ses.got:
		if len(s.waiting) > 0 {
			return wait, func() {
				if len(s.waiting) > 0 {
					out.err = sqlError(1969, "Query execution was interrupted (max_statement_time exceeded)")
					return
				}
				s.readOnly, s.opened = true, false
			}
		}
		s.readOnly, s.opened = true, false
	case sql == "SET GLOBAL read_only=IF(@lockstep_got=1,1,@@global.read_only)":
	case sql == "SET @lockstep_kill=@@global.rpl_semi_sync_slave_kill_conn_timeout":
		ses.kill = s.killConn
	case sql == "SET GLOBAL rpl_semi_sync_slave_kill_conn_timeout=1":
		s.killConn = 1
	case sql == "SET GLOBAL rpl_semi_sync_slave_kill_conn_timeout=@lockstep_kill":
		s.killConn = ses.kill
	case ignoredRE.MatchString(sql):
	default:
		s.c.w.fail("SIM", "the simulated server does not know the statement %q", sql)
	}
	return 0, nil
}

// threads starts or stops replication threads. The IO thread of a semi-sync
// replica takes its time to stop where the source does not answer: it wants to
// end its own connection there.
func (s *server) threads(start bool, name, which string, out *answer) (time.Duration, func()) {
	l := s.link(name)
	if l == nil && name == "" && !start {
		return 0, nil // the default connection is always there
	}
	if l == nil {
		out.err = sqlError(1617, "There is no master connection '%s'", name)
		return 0, nil
	}
	io, sql := which != "SQL_THREAD", which != "IO_THREAD"
	if start {
		if !l.io && !l.sql {
			l.relay, l.received = nil, s.slave
		}
		was := l.io
		l.io, l.sql = l.io || io, l.sql || sql
		if !was && l.io {
			l.begin()
		}
		l.apply()
		return 0, nil
	}
	stop := func() {
		if io && l.io {
			l.io = false
			l.disconnect()
		}
		if sql {
			l.sql = false
		}
		l.dropRelay()
	}
	if io && l.io && l.semi && l.connected && (!l.from.running() || !s.c.net.open(&s.node, &l.from.node) || !s.c.net.open(&l.from.node, &s.node)) {
		if sql {
			l.sql = false
		}
		return time.Duration(s.killConn) * time.Second, stop
	}
	stop()
	return 0, nil
}

// change is CHANGE MASTER. Demoting makes what the server has logged itself part
// of gtid_slave_pos.
func (s *server) change(name, host string, demote bool, out *answer) {
	l := s.link(name)
	if l == nil {
		l = &source{s: s, name: name}
		s.links = append(s.links, l)
	}
	if l.io || l.sql {
		out.err = sqlError(1198, "This operation cannot be performed as you have a running slave")
		return
	}
	if demote {
		s.slave = s.currentPos()
	}
	l.host, l.from, l.sourceID, l.errno, l.errtext = host, s.c.byName(host), 0, 0, ""
	l.relay, l.received = nil, s.slave
	l.disconnect()
}
