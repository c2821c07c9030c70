package operation

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/internal/sqlrows"
	"github.com/lockstep-ha/lockstep/topology"
	"github.com/lockstep-ha/lockstep/topology/gtid"
	"github.com/lockstep-ha/lockstep/topology/mariadb"
)

var errTest = errors.New("no luck")

// rule changes the answers to statements of one server that contain a text.
type rule struct {
	server, sql string
	times       int // 0 for always
	answer      Answer
	effect      bool // whether it has its effect all the same
	before      func()
}

// fake are servers in virtual time that do what they are told.
type fake struct {
	t        testing.TB
	at       time.Duration
	servers  []topology.Server
	events   map[string][]mariadb.Event
	sessions map[string][]uint64
	// committing are the connections to s1 that wait to commit.
	committing []uint64
	immortal   bool   // connections that are ended come back
	waiting    string // commits that wait for an acknowledgement
	frozen     bool   // nothing is replicated

	rules  []*rule
	refuse int // number of the verification that fails, from 1; 0 for none
	log    []string
	// batches are the calls of each Execute.
	batches [][]Call
	// verified is true between a verification and the next change; unverified are
	// the changes that had none of their own.
	verified   bool
	verifies   int
	unverified []string
}

var _ Servers = (*fake)(nil)

func newFake(t testing.TB, servers ...topology.Server) *fake {
	return &fake{t: t, at: start, servers: servers, events: map[string][]mariadb.Event{}, sessions: map[string][]uint64{}}
}

func (f *fake) Now() time.Duration { return f.at }

func (f *fake) Wall() time.Time { return time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC).Add(f.at) }

func (f *fake) Verify(context.Context) error {
	f.at += time.Millisecond
	f.verifies++
	f.log = append(f.log, "verify")
	f.verified = f.verifies != f.refuse
	if !f.verified {
		return errors.New("the majority is gone")
	}
	return nil
}

func (f *fake) Execute(_ context.Context, calls []Call) []Answer {
	f.at += time.Millisecond
	f.batches = append(f.batches, slices.Clone(calls))
	out := make([]Answer, len(calls))
	changed := false
	for i, c := range calls {
		f.log = append(f.log, c.Server+": "+brief(c.SQL))
		if !c.Reads {
			changed = true
			if !f.verified {
				f.unverified = append(f.unverified, c.Server+": "+brief(c.SQL))
			}
		}
		out[i] = f.answer(c)
	}
	f.verified = f.verified && !changed
	return out
}

func (f *fake) answer(c Call) Answer {
	for _, r := range f.rules {
		if r.times < 0 || (r.server != "" && r.server != c.Server) || !strings.Contains(c.SQL, r.sql) {
			continue
		}
		if r.times == 1 {
			r.times = -1
		} else if r.times > 1 {
			r.times--
		}
		if r.before != nil {
			r.before()
		}
		if r.effect {
			f.run(c)
		}
		return r.answer
	}
	return f.run(c)
}

func (f *fake) rule(r rule) { f.rules = append(f.rules, &r) }

func (f *fake) server(name string) *topology.Server {
	i := slices.IndexFunc(f.servers, func(s topology.Server) bool { return s.Name == name })
	require.GreaterOrEqual(f.t, i, 0, name)
	return &f.servers[i]
}

func text(rows ...[]string) []sqlrows.Table {
	t := sqlrows.Table{Columns: rows[0]}
	for _, r := range rows[1:] {
		var row []*string
		for _, v := range r {
			row = append(row, new(v))
		}
		t.Rows = append(t.Rows, row)
	}
	return []sqlrows.Table{t}
}

func (f *fake) run(c Call) Answer {
	s := f.server(c.Server)
	if !s.Up() && !s.Evidence.Reachable() {
		return Answer{Known: true, Err: errors.New("server " + c.Server + " does not answer")}
	}
	switch {
	case c.SQL == mariadb.EventsStatement:
		rows := [][]string{{"EVENT_SCHEMA", "EVENT_NAME", "DEFINER", "STATUS", "CHARACTER_SET_CLIENT", "COLLATION_CONNECTION", "OVERDUE"}}
		for _, e := range f.events[c.Server] {
			overdue := "0"
			if e.Overdue {
				overdue = "1"
			}
			rows = append(rows, []string{e.Schema, e.Name, "root@localhost", e.Status, "utf8mb4", "utf8mb4_general_ci", overdue})
		}
		return Answer{Known: true, Tables: text(rows...)}
	case strings.Contains(c.SQL, "PROCESSLIST"):
		rows := [][]string{{"ID", "USER", "HOST"}}
		list := f.sessions[c.Server]
		if strings.Contains(c.SQL, "backup lock") {
			list = f.committing
		}
		for _, id := range list {
			rows = append(rows, []string{strconv.FormatUint(id, 10), "app", "10.1.1.1:5000"})
		}
		return Answer{Known: true, Tables: text(rows...)}
	case c.SQL == mariadb.WaitingCommits:
		return Answer{Known: true, Tables: text([]string{"Variable_name", "Value"}, []string{"x", f.waiting})}
	}
	require.False(f.t, c.Reads, "a change that says it reads: %s", c.SQL)
	if event, status, ok := altered(c.SQL); ok {
		for i, e := range f.events[c.Server] {
			if e.Name == event {
				f.events[c.Server][i].Status = map[string]string{"ENABLE": "ENABLED", "DISABLE ON SLAVE": "SLAVESIDE_DISABLED"}[status]
			}
		}
		return Answer{Known: true}
	}
	for statement := range strings.SplitSeq(c.SQL, ";") {
		f.statement(s, statement)
	}
	return Answer{Known: true}
}

var (
	eventPattern  = regexp.MustCompile("EVENT `[^`]*`\\.`([^`]*)` (ENABLE|DISABLE ON SLAVE);")
	slavePattern  = regexp.MustCompile(`^(STOP|START|RESET) SLAVE '[^']*' ?(IO_THREAD|SQL_THREAD|ALL)?$`)
	sourcePattern = regexp.MustCompile(`^CHANGE MASTER '[^']*' TO MASTER_HOST='([^']*)', MASTER_PORT=(\d+)`)
	killPattern   = regexp.MustCompile(`^KILL SOFT CONNECTION (\d+)$`)
)

func altered(sql string) (event, status string, ok bool) {
	m := eventPattern.FindStringSubmatch(sql)
	if m == nil {
		return "", "", false
	}
	return m[1], m[2], true
}

// statement has the effect of one statement that a plan may contain.
func (f *fake) statement(s *topology.Server, sql string) {
	if m := slavePattern.FindStringSubmatch(sql); m != nil {
		for i := range s.Replication {
			f.threads(&s.Replication[i], m[1], m[2])
		}
		if m[1] == "RESET" {
			s.Replication = nil
		}
		return
	}
	if m := sourcePattern.FindStringSubmatch(sql); m != nil {
		port, err := strconv.Atoi(m[2])
		require.NoError(f.t, err)
		s.Replication = []topology.Replication{{Host: m[1], Port: port, IO: "No", SQL: "No", Received: s.SlavePos, UsesGTID: true}}
		return
	}
	if m := killPattern.FindStringSubmatch(sql); m != nil {
		if !f.immortal {
			f.sessions[s.Name] = slices.DeleteFunc(f.sessions[s.Name], func(id uint64) bool { return strconv.FormatUint(id, 10) == m[1] })
		}
		return
	}
	switch {
	case strings.HasSuffix(sql, "SET GLOBAL read_only=1"):
		s.ReadOnly = topology.Yes
	case sql == "SET GLOBAL read_only=0":
		s.ReadOnly = topology.No
	case sql == mariadb.SemiSyncPrimaryOff:
		s.SemiSync.PrimaryOn = false
	case sql == mariadb.SemiSyncPrimaryOn:
		s.SemiSync.PrimaryOn = true
	case sql == "RESET MASTER":
		s.BinlogState, s.BinlogPos, s.CurrentPos = gtid.State{}, gtid.Position{}, s.SlavePos
	case sql == "SET GLOBAL gtid_slave_pos=''":
		s.SlavePos, s.CurrentPos = gtid.Position{}, gtid.Position{}
	case strings.HasPrefix(sql, "SET "), strings.HasPrefix(sql, "DO "), strings.HasPrefix(sql, "BACKUP STAGE "):
	default:
		f.t.Fatalf("statement on %s that no plan should contain: %s", s.Name, sql)
	}
}

func (f *fake) threads(r *topology.Replication, verb, which string) {
	value := map[string]string{"STOP": "No", "START": "Yes"}[verb]
	if value == "" {
		require.Equal(f.t, "NoNo", r.IO+r.SQL, "a connection that runs cannot be reset")
		return
	}
	if which != "SQL_THREAD" {
		r.IO = value
	}
	if which != "IO_THREAD" {
		r.SQL = value
	}
}

// brief is a statement without what varies or is long.
func brief(sql string) string {
	if event, status, ok := altered(sql); ok {
		return "event " + event + " " + status
	}
	switch {
	case sql == mariadb.EventsStatement:
		return "events?"
	case strings.Contains(sql, "backup lock"):
		return "blocked?"
	case strings.HasPrefix(sql, "SET SESSION lock_wait_timeout=1"):
		return "block commits"
	case sql == mariadb.UnblockCommits:
		return "BACKUP STAGE END"
	case strings.Contains(sql, "USER_PRIVILEGES"):
		return "privileged?"
	case strings.Contains(sql, "PROCESSLIST"):
		return "clients?"
	case sql == mariadb.WaitingCommits:
		return "waiting?"
	}
	var parts []string
	for p := range strings.SplitSeq(sql, ";") {
		if m := sourcePattern.FindStringSubmatch(p); m != nil {
			p = "CHANGE MASTER " + m[1]
		}
		if i := strings.Index(p, "FOR SET "); i >= 0 {
			p = p[i+4:]
		}
		parts = append(parts, p)
	}
	return strings.Join(parts, "; ")
}

// look is an observation: replicas that run have what their source has.
func (f *fake) look() Cluster {
	for i := range f.servers {
		s := &f.servers[i]
		for k := range s.Replication {
			f.replicate(s, &s.Replication[k])
		}
	}
	seen := slices.Clone(f.servers)
	for i := range seen {
		seen[i].SentAt, seen[i].DoneAt = f.at, f.at
		seen[i].Replication = slices.Clone(seen[i].Replication)
	}
	return Cluster{Now: f.at, Servers: seen, Graph: topology.NewGraph(seen)}
}

func (f *fake) replicate(s *topology.Server, r *topology.Replication) {
	from := slices.IndexFunc(f.servers, func(o topology.Server) bool { return o.Address == fmt.Sprintf("%s:%d", r.Host, r.Port) })
	if f.frozen || !s.Up() || from < 0 {
		return
	}
	source := f.servers[from]
	if r.IO != "No" {
		r.IO = "Connecting"
		if source.Up() || source.Evidence.Reachable() {
			r.IO, r.SourceServerID, r.Received = "Yes", source.ServerID, source.BinlogPos
		}
	}
	if r.SQL == "Yes" && !r.Received.IsEmpty() {
		s.SlavePos, s.CurrentPos, s.BinlogPos = r.Received, r.Received, r.Received
		st, err := gtid.ParseState(r.Received.String())
		require.NoError(f.t, err)
		s.BinlogState = st
	}
}

// start plans and begins an operation.
func (f *fake) start(p Policy, r Request) *Run {
	f.t.Helper()
	plan, err := planned(f.look(), p, r)
	require.NoError(f.t, err)
	return Start("op-1", plan, p, r, f)
}

// sent are the statements of the log from an index on that change something.
func (f *fake) sent(from int) []string {
	return slices.DeleteFunc(slices.Clone(f.log[from:]), func(l string) bool { return l == "verify" || strings.HasSuffix(l, "?") })
}

// requireVerified fails where a change was sent without a verification of its
// own. Events, connections of one round, and what follows on replicas share one.
func (f *fake) requireVerified() {
	f.t.Helper()
	for _, l := range f.unverified {
		require.Regexp(f.t, `^s\d: (event|KILL|STOP SLAVE ''; CHANGE MASTER) `, l)
		require.NotContains(f.t, l, backToS1)
	}
}

// drive advances a run until it ends or until says so.
func (f *fake) drive(r *Run, until func() bool) {
	f.t.Helper()
	for range 20_000 {
		if r.Ended() || (until != nil && until()) {
			return
		}
		again := r.Advance(context.Background(), f.look(), f)
		require.True(f.t, again > 0 || r.Ended())
		f.at += again
	}
	require.Fail(f.t, "the run does not end", "%+v", r.Record)
}
