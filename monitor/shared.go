package monitor

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-ha/lockstep/election"
	"github.com/lockstep-ha/lockstep/internal/sqlrows"
	"github.com/lockstep-ha/lockstep/locks"
	"github.com/lockstep-ha/lockstep/monitor/operation"
	"github.com/lockstep-ha/lockstep/topology"
)

// What all monitors of a cluster have to know, and what has to outlive each of
// them, is kept in one table on each server: which server was made the primary, the
// last failover and whether a person has acknowledged it, a pause of automatic
// operations, and settings of servers made at run time. The primary monitor writes
// it on every server whose lock it holds, outside of the binary log: so it needs no
// primary, waits for no acknowledgement, leaves no transaction behind, and does not
// depend on who replicates from whom. Every monitor reads it on all servers; of
// each row the newest version counts.

// Names of rows.
const (
	rowFailover = "failover"
	rowPause    = "pause"
	rowMove     = "switchover"
	rowPrimary  = "primary"
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
	// primary is the server that was made the primary last.
	primary string
	// rows are the newest rows by name, as read or as this monitor set them; stale
	// are the servers that lack one of them.
	rows    map[string]row
	stale   map[string]bool
	writeAt time.Duration
	problem string
}

// row is one row of the table. Its version is one more than that of the row before:
// only the primary monitor writes, and it has read before.
type row struct {
	value   string
	version uint64
	// at is when it was set, on the clock of this monitor.
	at time.Duration
}

type primaryRow struct {
	Server string `json:"server"`
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
				SQL: "SELECT name, value, version, TIMESTAMPDIFF(MICROSECOND, at, UTC_TIMESTAMP(6)) AS age FROM " + table + " WHERE cluster=" + text(m.cluster)})
		}
	}
	if len(calls) == 0 {
		return 0
	}
	found := make(map[string]map[string]row, len(calls))
	problem := ""
	for i, a := range h.Execute(ctx, calls) {
		switch {
		case a.Code == codeNoDatabase || a.Code == codeNoTable:
			found[calls[i].Server] = map[string]row{}
		case a.Code == codeDeniedTable || a.Code == codeDeniedSchema || a.Code == codeDenied:
			problem = fmt.Sprintf("the table %s on %s may not be read: a failover by another monitor does not block this one's", table, calls[i].Server)
			found[calls[i].Server] = map[string]row{}
		case a.Err != nil || len(a.Tables) == 0:
		default:
			found[calls[i].Server] = readRows(&a.Tables[0], now)
		}
	}
	m.shared.read = len(found) > 0
	m.shared.problem = problem
	m.take(found)
	return 0
}

// readRows are the rows that one server has.
func readRows(t *sqlrows.Table, now time.Duration) map[string]row {
	out := map[string]row{}
	for k := range t.Rows {
		r := t.Row(k)
		var age int64
		version, _, err := r.Uint("version")
		if _, scan := fmt.Sscan(r.String("age"), &age); scan == nil && err == nil {
			out[r.String("name")] = row{r.String("value"), version, now - time.Duration(age)*time.Microsecond}
		}
	}
	return out
}

// take puts the newest rows into force, and notes which servers lack them.
func (m *Monitor) take(found map[string]map[string]row) {
	for _, rows := range found {
		for name, r := range rows {
			was, ok := m.shared.rows[name]
			if ok && (was.version > r.version || (was.version == r.version && was.at >= r.at)) {
				continue
			}
			if !ok || was.version != r.version || was.value != r.value {
				m.enforceRow(name, r)
			}
			m.shared.rows[name] = r
		}
	}
	for server, rows := range found {
		delete(m.shared.stale, server)
		for name, r := range m.shared.rows {
			if rows[name].version < r.version {
				m.shared.stale[server] = true
			}
		}
	}
}

// enforceRow puts one row into force.
func (m *Monitor) enforceRow(name string, r row) {
	var err error
	switch server, isServer := strings.CutPrefix(name, rowServer); {
	case name == rowFailover:
		var f failoverRow
		if err = json.Unmarshal([]byte(r.value), &f); err == nil {
			m.shared.failover, m.shared.failoverAt = f, r.at
		}
	case name == rowPrimary:
		var p primaryRow
		if err = json.Unmarshal([]byte(r.value), &p); err == nil {
			m.shared.primary = p.Server
		}
	case name == rowMove:
		var mv moveRow
		if err = json.Unmarshal([]byte(r.value), &mv); err == nil && m.ops.current == nil {
			m.shared.moving = mv
		}
	case name == rowPause:
		var p pauseRow
		if err = json.Unmarshal([]byte(r.value), &p); err == nil {
			m.pause(p.Paused)
		}
	case isServer:
		var s serverRow
		if err = json.Unmarshal([]byte(r.value), &s); err == nil {
			m.shared.servers[server] = s
		}
	}
	if err != nil {
		m.log.Warn().Str("event", "state_unreadable").Str("row", name).AnErr("error", err).Msg("a row of the state table is not understood and has no effect")
	}
}

func (m *Monitor) pause(on bool) {
	m.shared.paused = ""
	if on {
		m.shared.paused = "automatic operations are paused: resume them with lockstepctl call resume"
	}
}

// keep sets a row, which is to be written to every server.
func (m *Monitor) keep(name string, value any) {
	b, err := json.Marshal(value)
	if err != nil {
		panic(err) // of fixed types that can be marshalled
	}
	m.shared.rows[name] = row{string(b), m.shared.rows[name].version + 1, m.clock.Now()}
	for _, s := range m.d.servers {
		m.shared.stale[s.Name] = true
	}
	m.shared.writeAt = 0
}

// writeState writes the rows to the servers that lack one, as far as their locks
// are this monitor's.
func (m *Monitor) writeState(ctx context.Context, h *hands) {
	table, now := m.stateTable(), h.Now()
	if table == "" || len(m.shared.stale) == 0 || len(m.shared.rows) == 0 || now < m.shared.writeAt || m.foreground() {
		return
	}
	var servers []string
	for i, s := range h.s.servers {
		if m.shared.stale[s.Name] && s.Up() && s.SameAs == "" && (h.s.d.Tally.Mode == election.None || h.s.rows[i].ServerLock.State == locks.Self) {
			servers = append(servers, s.Name)
		}
	}
	if len(servers) == 0 || h.Verify(ctx) != nil {
		return
	}
	m.shared.writeAt = now + m.timing.Settle
	create := []string{
		"CREATE DATABASE IF NOT EXISTS " + strings.TrimSuffix(table, ".`state`"),
		"CREATE TABLE IF NOT EXISTS " + table + " (cluster VARCHAR(64), name VARCHAR(128), value TEXT, version BIGINT UNSIGNED, monitor VARCHAR(255), at DATETIME(6), PRIMARY KEY (cluster, name)) ENGINE=InnoDB",
	}
	var statements []string
	for _, name := range slices.Sorted(maps.Keys(m.shared.rows)) {
		r := m.shared.rows[name]
		statements = append(statements, fmt.Sprintf("INSERT INTO %s (cluster, name, value, version, monitor, at) VALUES (%s, %s, %s, %d, %s, UTC_TIMESTAMP(6) - INTERVAL %d MICROSECOND)"+
			" ON DUPLICATE KEY UPDATE value=VALUES(value), version=VALUES(version), monitor=VALUES(monitor), at=VALUES(at)",
			table, text(m.cluster), text(name), text(r.value), r.version, text(m.d.cfg.Name), max(now-r.at, 0).Microseconds()))
	}
	// On connections of their own, in which sql_log_bin can be off.
	write := func(server string, statements ...string) operation.Call {
		return operation.Call{Server: server, SQL: "SET SESSION sql_log_bin=0;" + strings.Join(statements, ";"), Limit: m.timing.Timeout, Aside: true, Patience: m.timing.Interval / 4}
	}
	var calls []operation.Call
	for _, s := range servers {
		calls = append(calls, write(s, statements...))
	}
	answers := h.Execute(ctx, calls)
	var missing []operation.Call
	var at []int
	for i, a := range answers {
		if a.Code == codeNoDatabase || a.Code == codeNoTable {
			missing, at = append(missing, write(servers[i], append(create, statements...)...)), append(at, i)
		}
	}
	if len(missing) > 0 {
		for k, a := range h.Execute(ctx, missing) {
			answers[at[k]] = a
		}
	}
	m.shared.problem = ""
	for i, a := range answers {
		switch {
		case a.Err == nil:
			delete(m.shared.stale, servers[i])
		case a.Code != 0:
			m.shared.problem = fmt.Sprintf("what other monitors have to know could not be written to %s on %s: %v", table, servers[i], a.Err)
		}
		// What was not answered in time is seen to be there, or not, when the table is read.
	}
}

// noteFailover remembers a failover, which blocks the next automatic one.
func (m *Monitor) noteFailover(now time.Duration, p operation.Plan) {
	m.shared.failover, m.shared.failoverAt = failoverRow{From: p.From, To: p.To}, now
	m.keep(rowFailover, m.shared.failover)
}

// notePrimary remembers which server was made the primary, or was found to be it.
func (m *Monitor) notePrimary(server string) {
	if m.shared.primary != server {
		m.shared.primary = server
		m.keep(rowPrimary, primaryRow{server})
	}
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
