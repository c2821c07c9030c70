package testdb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jmoiron/sqlx"
)

// lastID is the server_id given last.
var lastID atomic.Uint32

// Server is one MariaDB server. Its methods may be called at the same time from
// several goroutines, but those that start and stop it wait for one another.
type Server struct {
	opts    Options
	backend Backend

	mu       sync.Mutex // held while the server is started, stopped or frozen
	inst     instance
	root     *sqlx.DB
	closed   bool
	closeErr error
}

// instance is what a backend makes of a server.
type instance interface {
	// start starts the stopped server with these arguments.
	start(ctx context.Context, args []string) error
	// kill ends it at once and waits for that.
	kill() error
	// stop asks it to end and waits for that.
	stop(ctx context.Context) error
	freeze() error
	thaw() error
	// exited is closed when the server has ended; it is another channel after
	// each start.
	exited() <-chan struct{}
	pid() int
	// socket is the socket's path, or "" where there is none.
	socket() string
	logPath() string
	logTail(n int) string
	// remove removes all traces of the stopped server.
	remove() error
}

// Start starts a server, waits until it accepts connections, and creates its
// accounts. The server outlives ctx, which bounds the start alone; end it with
// [Server.Close].
func Start(ctx context.Context, opts Options) (*Server, error) {
	backend, err := opts.backend(ctx)
	if err != nil {
		return nil, err
	}
	if opts.ServerID == 0 {
		opts.ServerID = lastID.Add(1)
	}
	if opts.Name == "" {
		opts.Name = "s" + strconv.FormatUint(uint64(opts.ServerID), 10)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()

	// A free port can be lost to someone else before the server takes it.
	const attempts = 4
	wantPort := opts.Port
	for attempt := 1; ; attempt++ {
		opts.Port = wantPort
		s, err := startOnce(ctx, opts, backend)
		if err == nil {
			return s, nil
		}
		if wantPort != 0 || attempt == attempts || !strings.Contains(err.Error(), "Address already in use") {
			return nil, fmt.Errorf("start server %s (%s): %w", opts.Name, backend, err)
		}
	}
}

// StartContainer is [Start] with the Docker backend.
func StartContainer(ctx context.Context, opts Options) (*Server, error) {
	opts.Backend = BackendDocker
	return Start(ctx, opts)
}

func startOnce(ctx context.Context, opts Options, backend Backend) (*Server, error) {
	s := &Server{backend: backend}
	var err error
	switch backend {
	case BackendDocker:
		s.inst, err = newContainer(ctx, &opts)
	default:
		s.inst, err = newProcess(ctx, &opts)
	}
	if err != nil {
		return nil, err
	}
	s.opts = opts
	if s.root, err = s.open(RootUser, ""); err == nil {
		err = s.up(ctx, nil)
	}
	if err == nil && !opts.NoAccounts {
		err = s.createAccounts(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// up starts the server and waits until root can log in.
func (s *Server) up(ctx context.Context, extra []string) error {
	args := s.opts.serverArgs()
	args = append(args, s.opts.ExtraArgs...)
	args = append(args, extra...)
	if err := s.inst.start(ctx, args); err != nil {
		return err
	}
	exited := s.inst.exited()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := s.root.PingContext(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-exited:
			return fmt.Errorf("the server ended while it started; its log ends with:\n%s", s.inst.logTail(25))
		case <-ctx.Done():
			return fmt.Errorf("the server does not accept connections: %w (last: %w); its log ends with:\n%s",
				ctx.Err(), err, s.inst.logTail(25))
		case <-tick.C:
		}
	}
}

// Name returns the server's name.
func (s *Server) Name() string { return s.opts.Name }

// ServerID returns the server_id.
func (s *Server) ServerID() uint32 { return s.opts.ServerID }

// Backend returns how the server is run; it is never BackendAuto.
func (s *Server) Backend() Backend { return s.backend }

// Host returns the address without the port.
func (s *Server) Host() string { return "127.0.0.1" }

// Port returns the TCP port.
func (s *Server) Port() int { return s.opts.Port }

// Addr returns the address with the port, "127.0.0.1:3306".
func (s *Server) Addr() string { return net.JoinHostPort(s.Host(), strconv.Itoa(s.opts.Port)) }

// Socket returns the path of the Unix socket; in a container there is none to
// be reached, and it is "".
func (s *Server) Socket() string { return s.inst.socket() }

// Pid returns the process id of the server, or 0 when it does not run.
func (s *Server) Pid() int { return s.inst.pid() }

// Running reports whether the server's process is there, even frozen.
func (s *Server) Running() bool {
	select {
	case <-s.inst.exited():
		return false
	default:
		return true
	}
}

// Log returns the path of the error log, or for a container what shows it.
func (s *Server) Log() string { return s.inst.logPath() }

// LogTail returns the last n lines of the error log.
func (s *Server) LogTail(n int) string { return s.inst.logTail(n) }

// DSN returns the data source name for a user: over TCP, or for root over the
// socket where there is one. It panics for a user that the server does not
// have.
func (s *Server) DSN(user string) string {
	password, ok := s.password(user)
	if !ok {
		panic(fmt.Sprintf("testdb: server %s has no user %q", s.opts.Name, user))
	}
	return s.config(user, password).FormatDSN()
}

func (s *Server) config(user, password string) *mysql.Config {
	c := mysql.NewConfig()
	c.User = user
	c.Passwd = password
	c.Net, c.Addr = "tcp", s.Addr()
	if user == RootUser && s.Socket() != "" {
		c.Net, c.Addr = "unix", s.Socket()
	}
	if user == AppUser {
		c.DBName = AppDatabase
	}
	c.Timeout = 5 * time.Second
	return c
}

// open makes a small pool whose driver writes no messages: that the server goes
// away is what the tests are about.
func (s *Server) open(user, password string) (*sqlx.DB, error) {
	c := s.config(user, password)
	c.Logger = &mysql.NopLogger{}
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, err
	}
	db := sqlx.NewDb(sql.OpenDB(connector), "mysql")
	db.SetMaxOpenConns(4)
	db.SetMaxIdleConns(2)
	return db, nil
}

// Root returns the pool of root's connections, at most four of them. It belongs
// to the server: do not close it.
func (s *Server) Root() *sqlx.DB { return s.root }

// Exec runs statements as root, all in one connection, so that SET SESSION holds
// for the statements after it.
func (s *Server) Exec(ctx context.Context, statements ...string) (err error) {
	conn, err := s.root.Connx(ctx)
	if err != nil {
		return fmt.Errorf("server %s: %w", s.opts.Name, err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	for _, statement := range statements {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("server %s: %s: %w", s.opts.Name, statement, err)
		}
	}
	return nil
}

// QueryString returns the first column of the first row as root sees it; NULL
// is "".
func (s *Server) QueryString(ctx context.Context, query string, args ...any) (string, error) {
	var value sql.NullString
	if err := s.root.QueryRowxContext(ctx, query, args...).Scan(&value); err != nil {
		return "", fmt.Errorf("server %s: %s: %w", s.opts.Name, query, err)
	}
	return value.String, nil
}

// Kill ends the server at once, as kill -9 does, and waits until it is gone. It
// does nothing to a server that does not run.
func (s *Server) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inst.kill()
}

// Stop shuts the server down in order and waits until it is gone. A server that
// takes longer than a minute, or longer than ctx, is killed and is an error.
func (s *Server) Stop(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stop(ctx)
}

func (s *Server) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	return s.inst.stop(ctx)
}

// Freeze makes the server hang: its connections stay, and nobody answers.
func (s *Server) Freeze() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inst.freeze()
}

// Thaw ends what [Server.Freeze] began.
func (s *Server) Thaw() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inst.thaw()
}

// Restart starts the server again at the same port with the same data, after it
// was shut down in order if it still ran. The arguments are put after those of
// [Options.ExtraArgs], for this run alone.
func (s *Server) Restart(ctx context.Context, args ...string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("restart server %s: it is closed", s.opts.Name)
	}
	if err := s.stop(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := s.up(ctx, args); err != nil {
		return fmt.Errorf("restart server %s: %w", s.opts.Name, err)
	}
	return nil
}

// Close kills the server and removes all it has written.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return s.closeErr
	}
	s.closed = true
	killErr := s.inst.kill()
	if s.root != nil {
		_ = s.root.Close() // its connections are broken now
	}
	s.closeErr = errors.Join(killErr, s.inst.remove())
	return s.closeErr
}

var _ io.Closer = (*Server)(nil)
