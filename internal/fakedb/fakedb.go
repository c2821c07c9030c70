// Package fakedb is a MariaDB server in memory for tests and benchmarks that
// need many servers or servers in a state that is hard to bring about. It speaks
// the MySQL protocol on a loopback port and knows what a monitor asks for:
// advisory locks, session and global variables, the state of replication, the
// process list and KILL. There is no data and no replication: what a server
// shows is what the test has set.
//
// Its tests run the same assertions against a real server, so that the two do
// not drift apart. Where a fact about MariaDB itself is at stake, use package
// testdb instead.
//
// Not as in MariaDB: any account and password is accepted, there is no TLS, and
// GET_LOCK that waits does not notice that its client has gone.
package fakedb

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"
)

// DefaultVersion is what VERSION() says by default.
const DefaultVersion = "10.11.19-MariaDB-fakedb-log"

// Options say what server to start. The zero value is a writable server.
type Options struct {
	// ServerID is the server_id; 0 means the port.
	ServerID uint32
	// Addr is where to listen; "" takes a free port on 127.0.0.1.
	Addr string
	// Version is what VERSION() says; "" means DefaultVersion.
	Version string
	// ReadOnly is the read_only at the start.
	ReadOnly bool
	// GTID is the position at the start, as by SetGTID.
	GTID string
	// Replication are the replication connections at the start.
	Replication []Replication
	// Grants are the global privileges of every account; none means
	// DefaultGrants.
	Grants []string
}

// DefaultGrants are what a monitor needs.
func DefaultGrants() []string { return []string{"PROCESS", "BINLOG MONITOR", "SLAVE MONITOR"} }

// Replication is one replication connection of a server, a row of SHOW ALL
// SLAVES STATUS.
type Replication struct {
	Name     string
	Host     string
	Port     int
	ServerID uint32
	// IO and SQL are the states of the threads; "" means Yes.
	IO, SQL string
	// IOPos is the Gtid_IO_Pos.
	IOPos string
	// Behind is Seconds_Behind_Master; negative for NULL.
	Behind int
	// Columns overrides the text of further columns by name.
	Columns map[string]string
}

// Server is a running or stopped server. Its methods may be called from any
// goroutine.
type Server struct {
	addr    string
	port    int
	version string

	mu          sync.Mutex
	listener    net.Listener // nil while stopped
	vars        map[string]variable
	replication []Replication
	grants      []string
	sessions    map[uint32]*session
	lastID      uint32
	started     time.Time        // of Start, for Uptime
	locks       map[string]*lock // by name; MariaDB does not fold case
	freed       chan struct{}    // closed and replaced when a lock is freed
	thawed      chan struct{}    // nil while not frozen, closed by Thaw
	wg          sync.WaitGroup
}

// lock is an advisory lock that is held.
type lock struct {
	owner *session
	count int
}

// Start starts a server. Close ends it.
func Start(opts Options) (*Server, error) {
	s := &Server{
		addr: opts.Addr, version: opts.Version, vars: defaults(), replication: opts.Replication, grants: opts.Grants,
		sessions: map[uint32]*session{}, locks: map[string]*lock{}, freed: make(chan struct{}),
	}
	if len(s.grants) == 0 {
		s.grants = DefaultGrants()
	}
	if s.addr == "" {
		s.addr = "127.0.0.1:0"
	}
	if s.version == "" {
		s.version = DefaultVersion
	}
	if err := s.Start(); err != nil {
		return nil, err
	}
	id := int64(opts.ServerID)
	if id == 0 {
		id = int64(s.port)
	}
	s.mu.Lock()
	s.vars["server_id"] = variable{value: unsigned(id)}
	s.vars["port"] = variable{value: unsigned(int64(s.port))}
	s.mu.Unlock()
	s.SetReadOnly(opts.ReadOnly)
	if opts.GTID != "" {
		s.SetGTID(opts.GTID)
	}
	return s, nil
}

// New starts a server for a test and closes it when the test ends.
func New(t testing.TB, opts Options) *Server {
	t.Helper()
	s, err := Start(opts)
	if err != nil {
		t.Fatalf("fakedb: %v", err)
	}
	t.Cleanup(s.Stop)
	return s
}

// Start makes a stopped server listen again, on the same port and with the state
// that was set; no lock and no session is left from before.
func (s *Server) Start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener != nil {
		return errors.New("the fake server runs already")
	}
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), "tcp", s.addr)
	if err != nil {
		return fmt.Errorf("start fake server: %w", err)
	}
	s.addr = l.Addr().String()
	_, port, err := net.SplitHostPort(s.addr)
	if err == nil {
		s.port, err = strconv.Atoi(port)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("start fake server: address %q: %w", s.addr, err), l.Close())
	}
	s.listener, s.started = l, time.Now()
	s.wg.Go(func() { s.accept(l) })
	return nil
}

func (s *Server) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			if s.listens(l) {
				time.Sleep(10 * time.Millisecond) // out of files, as a rule
				continue
			}
			return
		}
		s.mu.Lock()
		if s.listener != l {
			s.mu.Unlock()
			_ = c.Close()
			return
		}
		s.lastID++
		ss := newSession(s, s.lastID, c)
		s.sessions[ss.id] = ss
		s.wg.Go(ss.serve)
		s.mu.Unlock()
	}
}

func (s *Server) listens(l net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listener == l
}

// Stop closes all connections and refuses new ones. It returns when all sessions
// have ended. A frozen server is not frozen any more.
func (s *Server) Stop() {
	s.mu.Lock()
	if s.listener != nil {
		_ = s.listener.Close()
		s.listener = nil
	}
	for _, ss := range s.sessions {
		s.end(ss)
	}
	s.thaw()
	s.mu.Unlock()
	s.wg.Wait()
}

// Freeze makes the server hang: connections stay and can be made, and nobody
// answers. Locks stay too.
func (s *Server) Freeze() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.thawed == nil && s.listener != nil {
		s.thawed = make(chan struct{})
	}
}

// Thaw ends what Freeze began.
func (s *Server) Thaw() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.thaw()
}

func (s *Server) thaw() {
	if s.thawed != nil {
		close(s.thawed)
		s.thawed = nil
	}
}

// Addr is host and port.
func (s *Server) Addr() string { return s.addr }

// Port is the TCP port.
func (s *Server) Port() int { return s.port }

// SetReadOnly sets read_only.
func (s *Server) SetReadOnly(on bool) {
	n := "0"
	if on {
		n = "1"
	}
	s.SetVariable("read_only", n)
}

// SetGTID sets all positions and the state of the binary log to one position.
func (s *Server) SetGTID(pos string) {
	for _, name := range []string{"gtid_slave_pos", "gtid_current_pos", "gtid_binlog_pos", "gtid_binlog_state"} {
		s.SetVariable(name, pos)
	}
}

// SetVariable sets a global variable. One that the server does not know is added.
// A number stays one unless the new value is none.
func (s *Server) SetVariable(name, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.vars[name]
	n, err := strconv.ParseInt(text, 10, 64)
	if v.value.kind.number() && err == nil {
		v.value.n = n
	} else {
		v.value = str(text)
	}
	s.vars[name] = v
}

// SetReplication replaces the replication connections.
func (s *Server) SetReplication(r ...Replication) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replication = r
}

// SetGrants replaces the global privileges of every account. PROCESS and SLAVE
// MONITOR have an effect.
func (s *Server) SetGrants(privileges ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.grants = privileges
}

// may reports whether accounts have a privilege. s.mu is held.
func (s *Server) may(privilege string) bool { return slices.Contains(s.grants, privilege) }

// Kill ends a session as KILL does; false means that there is none.
func (s *Server) Kill(id uint32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	ss := s.sessions[id]
	if ss == nil {
		return false
	}
	s.end(ss)
	return true
}

// Sessions is the number of connections.
func (s *Server) Sessions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sessions)
}

// Owner returns the connection that holds a lock, 0 for none.
func (s *Server) Owner(name string) uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.locks[name]; l != nil {
		return l.owner.id
	}
	return 0
}

// end takes a session's locks away and closes its connection. s.mu is held.
func (s *Server) end(ss *session) {
	if ss.over {
		return
	}
	ss.over = true
	close(ss.ended)
	delete(s.sessions, ss.id)
	s.freeAll(ss)
	_ = ss.conn.Close()
}

// freeAll frees the locks of a session and counts them. s.mu is held.
func (s *Server) freeAll(ss *session) (n int64) {
	for name, l := range s.locks {
		if l.owner == ss {
			n += int64(l.count)
			delete(s.locks, name)
		}
	}
	if n > 0 {
		s.wakeWaiters()
	}
	return n
}

func (s *Server) wakeWaiters() {
	close(s.freed)
	s.freed = make(chan struct{})
}

// take is GET_LOCK. ok is false when the session ended meanwhile.
func (s *Server) take(ss *session, name string, wait time.Duration) (got, ok bool) {
	var timer <-chan time.Time
	for {
		s.mu.Lock()
		if ss.over {
			s.mu.Unlock()
			return false, false
		}
		l := s.locks[name]
		if l == nil {
			l = &lock{owner: ss}
			s.locks[name] = l
		}
		if l.owner == ss {
			l.count++
			s.mu.Unlock()
			return true, true
		}
		freed := s.freed
		s.mu.Unlock()
		if wait <= 0 {
			return false, true
		}
		if timer == nil {
			timer = time.After(wait)
		}
		select {
		case <-freed:
		case <-timer:
			return false, true
		case <-ss.ended:
			return false, false
		}
	}
}

// release is RELEASE_LOCK: 1, 0 for another's lock, NULL for none.
func (s *Server) release(ss *session, name string) value {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.locks[name]
	switch {
	case l == nil:
		return null(kindInt)
	case l.owner != ss:
		return integer(0)
	}
	if l.count--; l.count == 0 {
		delete(s.locks, name)
		s.wakeWaiters()
	}
	return integer(1)
}
