package backend

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jmoiron/sqlx"

	"github.com/lockstep-ha/lockstep/internal/sqlrows"
	"github.com/lockstep-ha/lockstep/locks"
	"github.com/lockstep-ha/lockstep/topology"
	"github.com/lockstep-ha/lockstep/topology/mariadb"
	mysqldialect "github.com/lockstep-ha/lockstep/topology/mysql"
)

// session is the dedicated connection to one server. It is never pooled and
// never reconnects: when it is broken a new one starts from nothing.
type session struct {
	db      *sqlx.DB
	conn    *sqlx.Conn
	net     *lockConn
	id      uint64
	peerIP  string
	flavor  topology.Flavor
	version topology.Version
	// raw are the cells that rows are read into.
	raw []any
	// uptime is that of the server when the session began.
	uptime time.Duration
	// startedAt is the instant that follows from it.
	startedAt time.Duration
	// seesProcesses is true where the account may see whose connections there are.
	seesProcesses bool
	// lacks are the privileges that operations need and the account has not.
	lacks []mariadb.Grant
	stop  func()
}

var _ locks.Querier = (*session)(nil)

// openSession connects, sets the session's wait_timeout at once and makes sure
// that it talks to the server itself. ctx bounds all of it. What is in first is
// sent before all else; that the server refuses it is no reason to give up.
func openSession(ctx context.Context, srv Server, w time.Duration, first string) (*session, error) {
	s := &session{}
	cfg := mysql.NewConfig()
	cfg.User, cfg.Passwd = srv.User, srv.Password
	cfg.Net, cfg.Addr = "tcp", srv.Address
	if path, ok := strings.CutPrefix(srv.Address, "unix:"); ok {
		cfg.Net, cfg.Addr = "unix", path
	}
	cfg.MultiStatements = true
	cfg.AllowNativePasswords = true
	cfg.TLS = srv.TLS
	cfg.AllowFallbackToPlaintext = srv.TLSOptional
	cfg.Logger = &mysql.NopLogger{}
	cfg.ConnectionAttributes = "program_name:lockstep"
	cfg.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dialLock(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		s.net = c
		return c, nil
	}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	s.db = sqlx.NewDb(sql.OpenDB(connector), "mysql")
	s.db.SetMaxOpenConns(1)
	if s.conn, err = s.db.Connx(ctx); err != nil {
		_ = s.db.Close()
		return nil, fmt.Errorf("connect: %w", err)
	}
	if first != "" {
		if _, err := s.Query(ctx, first); err != nil && Code(err) == 0 {
			s.close()
			return nil, fmt.Errorf("fence: %w", err)
		}
	}
	if err := s.greet(ctx, w, srv.Flavor); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *session) greet(ctx context.Context, w time.Duration, want topology.Flavor) error {
	tables, err := s.Query(ctx, locks.SetWaitTimeout(w)+";SET SESSION sql_mode=''"+
		";SELECT CONNECTION_ID() AS id, VERSION() AS version, @@session.wait_timeout AS wait_timeout"+
		";SHOW GLOBAL VARIABLES LIKE 'wsrep_on';SHOW GRANTS;SHOW GLOBAL STATUS LIKE 'Uptime'")
	if err != nil {
		return fmt.Errorf("start session: %w", err)
	}
	if len(tables) == 0 {
		return fmt.Errorf("start session: %w: no answer to the first query", errUnsupported)
	}
	row := tables[0].Row(0)
	id, ok, err := row.Uint("id")
	if err != nil || !ok {
		return fmt.Errorf("start session: connection id: %w", errors.Join(err, errUnsupported))
	}
	s.id = id
	if greeted, known := s.net.greetedAs(); known && greeted != uint32(id) {
		return fmt.Errorf("start session: greeted as connection %d, answered as %d: %w", greeted, id, locks.ErrSessionChanged)
	}
	if got, _, err := row.Uint("wait_timeout"); err != nil || time.Duration(got)*time.Second != w {
		return fmt.Errorf("start session: %w: asked for %v, it is %d s", locks.ErrWaitTimeout, w, got)
	}
	s.version, s.flavor = topology.ParseVersion(row.String("version"))
	if host, _, err := net.SplitHostPort(s.net.RemoteAddr().String()); err == nil {
		s.peerIP = host
	}
	if want != topology.FlavorUnknown && want != s.flavor {
		return fmt.Errorf("%w: the server is %s (version %s), the configuration says flavor = %s", errUnsupported, s.flavor, s.version.Text, want)
	}
	if s.flavor == topology.MySQL {
		return fmt.Errorf("%w: %s (version %s)", errUnsupported, mysqldialect.Refusal, s.version.Text)
	}
	if err := mariadb.CheckVersion(s.version); err != nil {
		return fmt.Errorf("%w: %w", errUnsupported, err)
	}
	if len(tables) > 3 {
		up, _, err := tables[3].Row(0).Uint("Value")
		if err != nil {
			return fmt.Errorf("start session: uptime: %w", err)
		}
		s.uptime = time.Duration(min(up, 1<<31)) * time.Second
	}
	if len(tables) > 2 {
		s.seesProcesses = mariadb.HasPrivilege(tables[2].Rows, mariadb.Process)
		s.lacks = mariadb.Lacking(s.version, tables[2].Rows, mariadb.OperateGrants(s.version, true))
	}
	if len(tables) > 1 && tables[1].Row(0).String("Value") == "ON" {
		return fmt.Errorf("%w: wsrep_on=ON: Galera nodes have no use for advisory locks, and none for failover", errUnsupported)
	}
	return nil
}

// Query implements locks.Querier.
func (s *session) Query(ctx context.Context, query string) ([]sqlrows.Table, error) {
	rows, err := s.conn.QueryxContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var out []sqlrows.Table
	for {
		t, err := s.readTable(rows)
		if err != nil {
			return out, err
		}
		if len(t.Columns) > 0 {
			out = append(out, t)
		}
		if !rows.NextResultSet() {
			return out, rows.Err()
		}
	}
}

func (s *session) readTable(rows *sqlx.Rows) (sqlrows.Table, error) {
	columns, err := rows.Columns()
	if err != nil {
		return sqlrows.Table{}, err
	}
	t := sqlrows.Table{Columns: columns}
	for len(s.raw) < len(columns) {
		s.raw = append(s.raw, new(sql.RawBytes))
	}
	dest := s.raw[:len(columns)]
	for rows.Next() {
		if err := rows.Scan(dest...); err != nil {
			return t, err
		}
		values := make([]*string, len(columns))
		for i, d := range dest {
			if b, ok := d.(*sql.RawBytes); ok && *b != nil {
				v := string(*b)
				values[i] = &v
			}
		}
		t.Rows = append(t.Rows, values)
	}
	return t, rows.Err()
}

// close resets the connection; the server releases what it held.
func (s *session) close() {
	if s.stop != nil {
		s.stop()
	}
	if s.net != nil {
		_ = s.net.Close()
	}
	if s.conn != nil {
		_ = s.conn.Close()
	}
	_ = s.db.Close()
}

// goodbye ends the session in an orderly way after its locks were released.
func (s *session) goodbye() {
	if s.net != nil {
		s.net.linger(-1)
	}
	if s.stop != nil {
		s.stop()
	}
	_ = s.conn.Close()
	_ = s.db.Close()
}
