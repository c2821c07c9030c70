package routing

import (
	"context"
	"database/sql/driver"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/topology"
	"github.com/lockstep-ha/lockstep/topology/gtid"
)

// stub is a server without a network.
type stub struct {
	name string
	mu   sync.Mutex
	// fail, if set, is asked before each statement, BEGIN and COMMIT among them.
	fail     func(query string) error
	dialErr  error
	check    []driver.Value // what it says of itself
	sent     []string
	wait     int64 // result of a wait for a token
	sessions int
}

func (s *stub) Connect(context.Context) (driver.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dialErr != nil {
		return nil, s.dialErr
	}
	s.sessions++
	return &stubConn{s: s}, nil
}

func (s *stub) Driver() driver.Driver { return nil }

func (s *stub) run(query string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		if err := s.fail(query); err != nil {
			return err
		}
	}
	s.sent = append(s.sent, query)
	return nil
}

func (s *stub) failing(f func(string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = f
}

// count is how often a statement was carried out.
func (s *stub) count(query string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.sent {
		if q == query {
			n++
		}
	}
	return n
}

type stubConn struct {
	s    *stub
	dead bool
}

func (c *stubConn) do(query string) error {
	err := c.s.run(query)
	if f := classify(err); f == failLost || f == failUnsent {
		c.dead = true
	}
	return err
}

func (c *stubConn) Prepare(string) (driver.Stmt, error)      { return nil, driver.ErrSkip }
func (c *stubConn) Close() error                             { return nil }
func (c *stubConn) Begin() (driver.Tx, error)                { return nil, driver.ErrSkip }
func (c *stubConn) Ping(context.Context) error               { return c.do("PING") }
func (c *stubConn) ResetSession(context.Context) error       { return nil }
func (c *stubConn) IsValid() bool                            { return !c.dead }
func (c *stubConn) CheckNamedValue(*driver.NamedValue) error { return nil }
func (c *stubConn) BeginTx(_ context.Context, o driver.TxOptions) (driver.Tx, error) {
	return stubTx{c}, c.do("BEGIN")
}

func (c *stubConn) PrepareContext(_ context.Context, query string) (driver.Stmt, error) {
	return nil, c.do("PREPARE " + query)
}

func (c *stubConn) ExecContext(_ context.Context, query string, _ []driver.NamedValue) (driver.Result, error) {
	if strings.HasPrefix(query, "SET SESSION TRANSACTION") {
		return driver.RowsAffected(0), nil
	}
	return driver.RowsAffected(1), c.do(query)
}

func (c *stubConn) QueryContext(_ context.Context, query string, _ []driver.NamedValue) (driver.Rows, error) {
	c.s.mu.Lock()
	check, wait := c.s.check, c.s.wait
	c.s.mu.Unlock()
	switch {
	case strings.HasPrefix(query, "SELECT @@global.read_only,VERSION()"):
		return &stubRows{values: check}, nil
	case query == "SELECT @@last_gtid":
		return &stubRows{values: []driver.Value{"0-1-42"}}, c.do(query)
	case strings.HasPrefix(query, "SELECT MASTER_GTID_WAIT"):
		return &stubRows{values: []driver.Value{wait}}, c.do(query)
	case query == "SELECT 1":
		// The one of benchmarks costs nothing.
		if c.s.fail == nil {
			return &stubRows{values: one}, nil
		}
	}
	return &stubRows{values: []driver.Value{c.s.name}}, c.do(query)
}

var one = []driver.Value{int64(1)}

type stubTx struct{ c *stubConn }

func (t stubTx) Commit() error   { return t.c.do("COMMIT") }
func (t stubTx) Rollback() error { return t.c.do("ROLLBACK") }

type stubRows struct {
	values []driver.Value
	done   bool
}

var stubColumns = []string{"a", "b", "c", "d"}

func (r *stubRows) Columns() []string { return stubColumns[:len(r.values)] }
func (r *stubRows) Close() error      { return nil }
func (r *stubRows) Next(dest []driver.Value) error {
	if r.done {
		return io.EOF
	}
	r.done = true
	copy(dest, r.values)
	return nil
}

// manual is a source that a test drives.
type manual struct{ publish chan func(View) }

func (m *manual) Watch(ctx context.Context, publish func(View)) {
	m.publish <- publish
	<-ctx.Done()
}

// bed is a router over stubs.
type bed struct {
	*Router
	t     testing.TB
	stubs map[string]*stub
	view  View
	give  func(View)
}

var primarySays = []driver.Value{int64(0), "10.11.19-MariaDB", int64(7), int64(7)}

// newBed makes a router over servers s1 to sn, of which the first is the primary.
func newBed(t testing.TB, n int, change ...func(*Options)) *bed {
	t.Helper()
	o := Options{DSN: "app:secret@/shop", SlowStart: -1}
	for _, f := range change {
		f(&o)
	}
	m := &manual{publish: make(chan func(View), 1)}
	r, err := Open(m, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	b := &bed{Router: r, t: t, stubs: map[string]*stub{}, give: <-m.publish}
	r.connect = func(name string, _ *mysql.Config) (driver.Connector, error) { return b.stubs[name], nil }
	for i := range n {
		name := "s" + string(rune('1'+i))
		b.stubs[name] = &stub{name: name, check: primarySays}
		b.view.Servers = append(b.view.Servers, Server{Name: name, Address: name + ":3306", Flavor: topology.MariaDB, ServerID: uint32(i + 1)})
	}
	b.primary("s1")
	return b
}

// show publishes the view.
func (b *bed) show() {
	v := b.view
	v.Servers = append([]Server(nil), b.view.Servers...)
	b.give(v)
}

// primary publishes a view in which a server is the primary and all others are
// replicas.
func (b *bed) primary(name string) {
	b.view.Primary, b.view.Until, b.view.Reason = name, Now()+time.Hour, "by the test"
	for i := range b.view.Servers {
		b.view.Servers[i].Readable = b.view.Servers[i].Name != name
	}
	b.show()
}

// server changes a server of the view; show publishes it.
func (b *bed) server(name string, change func(*Server)) {
	for i := range b.view.Servers {
		if b.view.Servers[i].Name == name {
			change(&b.view.Servers[i])
		}
	}
}

func (b *bed) position(name, pos string) {
	p, err := gtid.ParsePosition(pos)
	require.NoError(b.t, err)
	b.server(name, func(s *Server) { s.Position = p })
}

// where runs a query and says which server answered.
func (b *bed) where(ctx context.Context, l Level) string {
	b.t.Helper()
	var name string
	require.NoError(b.t, b.DB(l).QueryRowContext(ctx, "WHO").Scan(&name))
	return name
}
