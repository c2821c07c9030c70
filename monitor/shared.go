package monitor

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/lockstep-ha/lockstep/monitor/operation"
	"github.com/lockstep-ha/lockstep/topology"
	"github.com/lockstep-ha/lockstep/topology/mariadb"
)

// What all monitors of a cluster have to know, and what has to outlive each of
// them, is kept in one table on the cluster itself: the last failover and whether
// a person has acknowledged it, a pause of automatic operations, and settings of
// servers made at run time. The primary monitor writes it on the primary;
// replication takes it to every server, and every monitor reads it there.

// Names of rows.
const (
	rowFailover = "failover"
	rowPause    = "pause"
	rowMove     = "switchover"
	rowServer   = "server " // followed by the server's name
)

// stateInterval is how often the table is read.
const stateInterval = 10 * time.Second

// Error codes that mean that there is no table, or that it may not be read.
const (
	codeNoDatabase   = 1049
	codeNoTable      = 1146
	codeDeniedTable  = 1142
	codeDeniedSchema = 1044
	codeDenied       = 1045
)

// shared is what was read, and what has yet to be written.
type shared struct {
	readAt time.Duration
	read   bool
	// failover is the last one, with its instant on this monitor's clock; at is
	// zero for none.
	failover   failoverRow
	failoverAt time.Duration
	// moving is a switchover or reset-replication that was begun and not ended by
	// anybody.
	moving  moveRow
	paused  string
	servers map[string]serverRow
	// unwritten are rows to write, by name.
	unwritten map[string]unwritten
	writeAt   time.Duration
	problem   string
}

// unwritten is a row that this monitor has yet to write, and since when.
type unwritten struct {
	value string
	at    time.Duration
}

type failoverRow struct {
	From         string `json:"from"`
	To           string `json:"to"`
	Acknowledged bool   `json:"acknowledged"`
}

// moveRow is written before a switchover or reset-replication sets the primary
// read-only, so that whoever comes after a monitor that dies in the middle can take
// that back.
type moveRow struct {
	From  string `json:"from"`
	To    string `json:"to"`
	Ended bool   `json:"ended"`
}

type serverRow struct {
	Maintenance *bool  `json:"maintenance,omitempty"`
	Drain       *bool  `json:"drain,omitempty"`
	Promotion   string `json:"promotion,omitempty"`
}

type pauseRow struct {
	Paused bool `json:"paused"`
}

func (m *Monitor) stateTable() string {
	if s := m.d.cfg.Policy.StateSchema; s != "-" && m.d.cfg.Policy.ReplicationUser != "" {
		return "`" + s + "`.`state`"
	}
	return ""
}

// text makes a string of SQL for sessions with sql_mode = ”.
func text(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `''`).Replace(s) + "'"
}

// readState reads the table now and then, on every server that answers: the
// newest row of each name counts.
func (m *Monitor) readState(ctx context.Context, h *hands) time.Duration {
	table, now := m.stateTable(), h.Now()
	if table == "" || (m.shared.read && now-m.shared.readAt < stateInterval) {
		return 0
	}
	m.shared.readAt = now
	var calls []operation.Call
	for _, s := range h.s.servers {
		if s.Up() && s.SameAs == "" {
			calls = append(calls, operation.Call{Server: s.Name, Reads: true, Limit: m.timing.Timeout, Patience: m.timing.Interval / 4,
				SQL: "SELECT name, value, at, TIMESTAMPDIFF(MICROSECOND, at, UTC_TIMESTAMP(6)) AS age FROM " + table + " WHERE cluster=" + text(m.cluster)})
		}
	}
	if len(calls) == 0 {
		return 0
	}
	newest, values, ages := map[string]string{}, map[string]string{}, map[string]time.Duration{}
	problem, answered := "", false
	for i, a := range h.Execute(ctx, calls) {
		switch {
		case a.Code == codeNoDatabase || a.Code == codeNoTable:
			answered = true
		case a.Code == codeDeniedTable || a.Code == codeDeniedSchema || a.Code == codeDenied:
			problem = fmt.Sprintf("the table %s on %s may not be read: a failover by another monitor does not block this one's", table, calls[i].Server)
			answered = true
		case a.Err != nil || len(a.Tables) == 0:
		default:
			answered = true
			for k := range a.Tables[0].Rows {
				row := a.Tables[0].Row(k)
				var age int64
				if _, err := fmt.Sscan(row.String("age"), &age); err != nil {
					continue
				}
				// By the time that the writer gave, not by the clocks of those who replicate it.
				name, at := row.String("name"), row.String("at")
				if was, ok := newest[name]; !ok || at > was {
					newest[name], values[name], ages[name] = at, row.String("value"), time.Duration(age)*time.Microsecond
				}
			}
		}
	}
	m.shared.read = answered
	if problem != "" || len(m.shared.unwritten) == 0 {
		m.shared.problem = problem
	}
	m.take(values, ages, now)
	return 0
}

// take puts rows into force, but for those that are older than what this monitor
// has yet to write.
func (m *Monitor) take(values map[string]string, age map[string]time.Duration, now time.Duration) {
	for name, value := range values {
		if ours, ok := m.shared.unwritten[name]; ok && ours.at > now-age[name] {
			continue
		}
		delete(m.shared.unwritten, name)
		var err error
		switch server, isServer := strings.CutPrefix(name, rowServer); {
		case name == rowFailover:
			var f failoverRow
			if err = json.Unmarshal([]byte(value), &f); err == nil {
				m.shared.failover, m.shared.failoverAt = f, now-age[name]
			}
		case name == rowMove:
			var mv moveRow
			if err = json.Unmarshal([]byte(value), &mv); err == nil && m.ops.current == nil {
				m.shared.moving = mv
			}
		case name == rowPause:
			var p pauseRow
			if err = json.Unmarshal([]byte(value), &p); err == nil {
				m.pause(p.Paused)
			}
		case isServer:
			var s serverRow
			if err = json.Unmarshal([]byte(value), &s); err == nil {
				m.shared.servers[server] = s
			}
		}
		if err != nil {
			m.log.Warn().Str("event", "state_unreadable").Str("row", name).AnErr("error", err).Msg("a row of the state table is not understood and has no effect")
		}
	}
}

func (m *Monitor) pause(on bool) {
	m.shared.paused = ""
	if on {
		m.shared.paused = "automatic operations are paused: resume them with lockstepctl call resume"
	}
}

// keep notes a row to be written to the primary as soon as that cannot block.
func (m *Monitor) keep(name string, value any) {
	b, err := json.Marshal(value)
	if err != nil {
		panic(err) // of fixed types that can be marshalled
	}
	m.shared.unwritten[name] = unwritten{string(b), m.clock.Now()}
	m.shared.writeAt = 0
}

// writeState writes what is to be kept. It waits until a commit on the primary
// cannot hang for lack of an acknowledgement.
func (m *Monitor) writeState(ctx context.Context, h *hands) {
	table, now := m.stateTable(), h.Now()
	p := indexOf(h.s.servers, m.mem.chosen)
	if len(m.shared.unwritten) == 0 || table == "" || p < 0 || !h.s.servers[p].Writable() || now < m.shared.writeAt || m.foreground() {
		if table == "" {
			clear(m.shared.unwritten)
		}
		return
	}
	if h.s.servers[p].SemiSync.PrimaryOn && len(h.s.graph.Replicas(p, true)) == 0 {
		return
	}
	m.shared.writeAt = now + m.timing.Settle
	statements := []string{
		"CREATE DATABASE IF NOT EXISTS " + strings.TrimSuffix(table, ".`state`"),
		"CREATE TABLE IF NOT EXISTS " + table + " (cluster VARCHAR(64), name VARCHAR(128), value TEXT, monitor VARCHAR(255), at DATETIME(6), PRIMARY KEY (cluster, name)) ENGINE=InnoDB",
	}
	for name, row := range m.shared.unwritten {
		statements = append(statements, fmt.Sprintf("INSERT INTO %s (cluster, name, value, monitor, at) VALUES (%s, %s, %s, %s, UTC_TIMESTAMP(6)) ON DUPLICATE KEY UPDATE value=VALUES(value), monitor=VALUES(monitor), at=VALUES(at)",
			table, text(m.cluster), text(name), text(row.value), text(m.d.cfg.Name)))
	}
	if err := h.Verify(ctx); err != nil {
		return
	}
	// On a connection of its own: a commit can wait for an acknowledgement, and the
	// lock connection must not.
	write := func(statements []string) operation.Answer {
		return h.Execute(ctx, []operation.Call{{Server: h.s.servers[p].Name, SQL: strings.Join(statements, ";"), Limit: m.timing.Timeout, Aside: true, Patience: m.timing.Interval / 2}})[0]
	}
	a := write(append(mariadb.LogStatements(), statements...))
	if mariadb.MissingPrivilege(a.Code) {
		a = write(statements)
	}
	if a.Err != nil {
		m.shared.problem = fmt.Sprintf("what other monitors have to know could not be written to %s on %s: %v", table, h.s.servers[p].Name, a.Err)
		return
	}
	clear(m.shared.unwritten)
	m.shared.problem = ""
}

// noteFailover remembers a failover, which blocks the next automatic one.
func (m *Monitor) noteFailover(now time.Duration, p operation.Plan) {
	m.shared.failover, m.shared.failoverAt = failoverRow{From: p.From, To: p.To}, now
	m.keep(rowFailover, m.shared.failover)
}

// noteMove remembers that an operation that sets the primary read-only has begun or
// ended.
func (m *Monitor) noteMove(p operation.Plan, ended bool) {
	m.shared.moving = moveRow{From: p.From, To: p.To, Ended: ended}
	m.keep(rowMove, m.shared.moving)
}

// interrupted reports whether a server was left read-only by a switchover whose
// monitor did not end it.
func (m *Monitor) interrupted(server string) bool {
	return m.shared.moving.From == server && !m.shared.moving.Ended
}

// blocked says why no automatic failover may start because of the last one.
func (m *Monitor) blocked(now time.Duration) string {
	f, block := m.shared.failover, m.d.cfg.Policy.FailoverBlock
	if m.shared.failoverAt == 0 || f.Acknowledged || block < 0 || now >= m.shared.failoverAt+block {
		return ""
	}
	return fmt.Sprintf("there was a failover from %s to %s %v ago; automatic failover is blocked for another %v: acknowledge it with lockstepctl call ack",
		f.From, f.To, (now - m.shared.failoverAt).Round(time.Second), (m.shared.failoverAt + block - now).Round(time.Second))
}

// setShared changes what all monitors have to know.
func (m *Monitor) setShared(h *hands, c Command) (Reply, error) {
	switch c.Action {
	case ActAcknowledge:
		m.brake.release(m.cluster)
		if m.shared.failoverAt == 0 {
			return Reply{Text: "there is no failover to acknowledge"}, nil
		}
		m.shared.failover.Acknowledged = true
		m.keep(rowFailover, m.shared.failover)
		return Reply{Text: fmt.Sprintf("the failover from %s to %s is acknowledged; automatic failover is not blocked by it any more", m.shared.failover.From, m.shared.failover.To)}, nil
	case ActPause, ActResume:
		on := c.Action == ActPause
		m.pause(on)
		m.keep(rowPause, pauseRow{on})
		return Reply{Text: map[bool]string{true: "automatic operations are paused", false: "automatic operations go on"}[on]}, nil
	}
	i := indexOf(h.s.servers, c.Server)
	if i < 0 {
		return Reply{}, fmt.Errorf("%w: there is no server %q", ErrInvalid, c.Server)
	}
	row := m.shared.servers[c.Server]
	flag := func() (*bool, error) {
		switch c.Value {
		case "":
			return nil, nil
		case "on", "off":
			on := c.Value == "on"
			return &on, nil
		}
		return nil, fmt.Errorf("%w: %s %q: it must be on, off or empty", ErrInvalid, c.Action, c.Value)
	}
	var err error
	switch c.Action {
	case ActMaintenance:
		if i == indexOf(h.s.servers, m.mem.chosen) && c.Value == "on" && !c.Force {
			return Reply{}, &operation.RefusedError{Kind: "maintenance", Refusals: []operation.Refusal{{Code: "is_primary", Force: true,
				Text: c.Server + " is the primary: in maintenance it would not be replaced when it fails", Remedy: "switch over first"}}}
		}
		row.Maintenance, err = flag()
	case ActDrain:
		row.Drain, err = flag()
	default:
		switch p := topology.Promotion(c.Value); p {
		case "", topology.Prefer, topology.Neutral, topology.MustNot:
			row.Promotion = c.Value
		default:
			err = fmt.Errorf("%w: promotion %q: it must be prefer, neutral, must_not or empty", ErrInvalid, c.Value)
		}
	}
	if err != nil {
		return Reply{}, err
	}
	m.shared.servers[c.Server] = row
	m.keep(rowServer+c.Server, row)
	value := c.Value
	if value == "" {
		value = "as configured"
	}
	return Reply{Text: fmt.Sprintf("%s of %s is %s", c.Action, c.Server, value)}, nil
}

// apply puts what was set at run time over the configuration of a server.
func (r serverRow) apply(s *topology.Settings) {
	if r.Maintenance != nil {
		s.Maintenance = *r.Maintenance
	}
	if r.Drain != nil {
		s.Drain = *r.Drain
	}
	if r.Promotion != "" {
		s.Promotion = topology.Promotion(r.Promotion)
	}
}
