package routing

import (
	"cmp"
	"context"
	"crypto/tls"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/lockstep-ha/lockstep/election"
	"github.com/lockstep-ha/lockstep/internal/sqlrows"
	"github.com/lockstep-ha/lockstep/locks"
	"github.com/lockstep-ha/lockstep/topology"
	"github.com/lockstep-ha/lockstep/topology/gtid"
	"github.com/lockstep-ha/lockstep/topology/mariadb"
)

// LocksConfig says how to follow a cluster by its locks alone, with no monitor in
// this process and no daemon.
type LocksConfig struct {
	Servers []LockServer
	// User and Password are an account with the PROCESS privilege on every server,
	// which shows whose the locks are.
	User, Password string
	TLS            *tls.Config
	// Interval, Timeout and Quorum are those of the monitors; their defaults when
	// zero. A primary is believed for Interval + 2 × Timeout after it was seen.
	Interval, Timeout time.Duration
	Quorum            election.Mode
	// WaitTimeoutFloor is that of the monitors, where they set it.
	WaitTimeoutFloor time.Duration
	// ServerLock and PrimaryLock are the lock names; the monitors' defaults when empty.
	ServerLock, PrimaryLock string
	// TrustedUsers are the accounts of the monitors. Locks of any other are ignored.
	TrustedUsers []string
	// OnError is called, if set, with what keeps a server from being asked.
	OnError func(server string, err error)
}

// LockServer is one server of a LocksConfig.
type LockServer struct {
	Name, Address, Site string
	// NoVote is set where the monitors have it set.
	NoVote bool
}

// locksSource looks at the locks on each server.
type locksSource struct {
	cfg    LocksConfig
	timing locks.Timing
	names  locks.Names
	query  string
	dbs    []*sql.DB
	wake   chan struct{}
	once   sync.Once
}

// FromLocks follows a cluster by asking every server, once an interval, who holds its
// locks. It takes no lock and needs no monitor but those that hold them. It knows less
// than a monitor, so FromMonitor and FromURL are the better sources where they can be
// had. MariaDB only.
func FromLocks(cfg LocksConfig) (Source, error) {
	cfg.Interval = cmp.Or(cfg.Interval, 2*time.Second)
	cfg.Timeout = cmp.Or(cfg.Timeout, 3*time.Second)
	if cfg.OnError == nil {
		cfg.OnError = func(string, error) {}
	}
	s := &locksSource{cfg: cfg, wake: make(chan struct{}, 1)}
	var problems []error
	var err error
	s.timing, err = locks.Derive(locks.Settings{Interval: cfg.Interval, Timeout: cfg.Timeout, Floor: cfg.WaitTimeoutFloor})
	problems = append(problems, err)
	s.names, err = locks.NewNames(cfg.ServerLock, cfg.PrimaryLock, locks.Agreement{})
	problems = append(problems, err)
	if len(cfg.Servers) == 0 || len(cfg.Servers) > maxServers {
		problems = append(problems, fmt.Errorf("%d servers: give 1 to %d", len(cfg.Servers), maxServers))
	}
	if cfg.Quorum == election.None {
		problems = append(problems, errors.New("quorum none has no locks to follow: use FromMonitor or FromURL"))
	}
	if len(cfg.TrustedUsers) == 0 {
		problems = append(problems, errors.New("no trusted users: name the accounts of the monitors, since any account can take a lock"))
	}
	seen := map[string]bool{}
	for _, srv := range cfg.Servers {
		if srv.Name == "" || seen[srv.Name] {
			problems = append(problems, fmt.Errorf("server %q at %s: give each a name of its own", srv.Name, srv.Address))
		}
		seen[srv.Name] = true
		if err := checkAddress(srv.Address); err != nil {
			problems = append(problems, fmt.Errorf("server %s: %w", srv.Name, err))
			continue
		}
		db, err := s.open(srv)
		if err != nil {
			problems = append(problems, fmt.Errorf("server %s: %w", srv.Name, err))
			continue
		}
		s.dbs = append(s.dbs, db)
	}
	if err := errors.Join(problems...); err != nil {
		s.close()
		return nil, fmt.Errorf("routing: locks: %w", err)
	}
	s.query = lookStatement(s.names)
	return s, nil
}

func (s *locksSource) open(srv LockServer) (*sql.DB, error) {
	c := mysql.NewConfig()
	c.User, c.Passwd = s.cfg.User, s.cfg.Password
	c.Net, c.Addr = "tcp", srv.Address
	if path, ok := strings.CutPrefix(srv.Address, unixPrefix); ok {
		c.Net, c.Addr = "unix", path
	}
	if c.TLS = s.cfg.TLS; c.TLS != nil {
		c.TLS = c.TLS.Clone()
	}
	c.Logger = &mysql.NopLogger{}
	c.ConnectionAttributes = "program_name:lockstep-routing"
	k, err := mysql.NewConnector(c)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(k)
	db.SetMaxOpenConns(1)
	return db, nil
}

func (s *locksSource) close() {
	for _, db := range s.dbs {
		_ = db.Close() // nothing is held on it
	}
}

// lookStatement shows the locks of a server, whose they are, and its positions, in
// one round trip and one row.
func lookStatement(n locks.Names) string {
	columns := n.ProbeColumns()
	for _, l := range []struct{ column, name string }{{"l_server_user", n.Server}, {"l_primary_user", n.Primary}} {
		columns = append(columns, "(SELECT USER FROM information_schema.PROCESSLIST WHERE ID=IS_USED_LOCK('"+l.name+"')) AS "+l.column)
	}
	columns = append(columns, "@@global.read_only AS read_only", "@@global.server_id AS server_id",
		"@@global.gtid_current_pos AS gtid_current_pos", "@@global.gtid_binlog_pos AS gtid_binlog_pos", "@@global.gtid_slave_pos AS gtid_slave_pos")
	return "SELECT " + strings.Join(columns, ",")
}

// Hurry implements Hurrier.
func (s *locksSource) Hurry() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Watch implements Source.
func (s *locksSource) Watch(ctx context.Context, publish func(View)) {
	defer s.once.Do(s.close)
	m := lockMemory{timing: s.timing, majorityOfAll: s.cfg.Quorum == election.MajorityOfAll, servers: s.cfg.Servers}
	const minLook = 5 * time.Millisecond
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-s.wake:
			timer.Stop()
		}
		began := Now()
		publish(m.decide(s.look(ctx), Now()))
		timer.Reset(max(s.timing.Interval-(Now()-began), minLook))
	}
}

// sighting is what one server said.
type sighting struct {
	server topology.Server
	row    locks.Row
}

// look asks all servers at once; one that does not answer within the timeout is
// not there.
func (s *locksSource) look(ctx context.Context) []sighting {
	out := make([]sighting, len(s.dbs))
	var asked sync.WaitGroup
	for i, db := range s.dbs {
		asked.Go(func() {
			srv := s.cfg.Servers[i]
			sight, err := s.ask(ctx, srv, db)
			if err != nil && ctx.Err() == nil {
				s.cfg.OnError(srv.Name, err)
			}
			out[i] = sight
		})
	}
	asked.Wait()
	return out
}

func (s *locksSource) ask(ctx context.Context, srv LockServer, db *sql.DB) (sighting, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timing.Timeout)
	defer cancel()
	out := sighting{server: topology.Server{Settings: topology.Settings{Name: srv.Name, Address: srv.Address, Site: srv.Site}}}
	out.server.SentAt = Now()
	out.server.Evidence = topology.TimedOut
	table, err := readRow(ctx, db, s.query)
	if err != nil {
		if isRefused(err) {
			out.server.Evidence = topology.Refused
		}
		return out, err
	}
	row := table.Row(0)
	session, _, err := row.Uint("l_session")
	if err != nil {
		return out, err
	}
	if out.row, err = locks.ParseRow(srv.Name, session, row); err != nil {
		return out, err
	}
	out.row.ServerLock.Holder.User, out.row.PrimaryLock.Holder.User = row.String("l_server_user"), row.String("l_primary_user")
	for _, l := range []*locks.Lock{&out.row.ServerLock, &out.row.PrimaryLock} {
		l.Holder.Checked = true
		l.Holder.Trusted = slices.Contains(s.cfg.TrustedUsers, l.Holder.User)
	}
	if id, _, err := row.Uint("server_id"); err == nil {
		out.server.ServerID = id
	}
	for _, p := range []struct {
		column string
		into   *gtid.Position
	}{{"gtid_current_pos", &out.server.CurrentPos}, {"gtid_binlog_pos", &out.server.BinlogPos}, {"gtid_slave_pos", &out.server.SlavePos}} {
		if *p.into, err = gtid.ParsePosition(row.String(p.column)); err != nil {
			return out, fmt.Errorf("%s: %w", p.column, err)
		}
	}
	out.server.ReadOnly = mariadb.ReadOnly(row.String("read_only"))
	out.server.Flavor, out.server.Evidence = topology.MariaDB, topology.Answered
	return out, nil
}

// readRow runs a query and returns its result as text.
func readRow(ctx context.Context, db *sql.DB, query string) (t sqlrows.Table, err error) {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	if t.Columns, err = rows.Columns(); err != nil {
		return t, err
	}
	if !rows.Next() {
		return t, errors.Join(errors.New("the server sent no row"), rows.Err())
	}
	values := make([]sql.NullString, len(t.Columns))
	into := make([]any, len(values))
	for i := range values {
		into[i] = &values[i]
	}
	if err := rows.Scan(into...); err != nil {
		return t, err
	}
	line := make([]*string, len(values))
	for i, v := range values {
		if v.Valid {
			line[i] = &v.String
		}
	}
	t.Rows = append(t.Rows, line)
	return t, rows.Err()
}
