package routing

import (
	"context"
	"database/sql/driver"
	"errors"

	"github.com/go-sql-driver/mysql"
)

// connector makes conns of one level.
type connector struct {
	r     *Router
	level Level
	// pin is the only server that the conns go to.
	pin *Node
	// fixed keeps a context from changing the level.
	fixed bool
}

// Connect implements driver.Connector. It connects to no server but for the first
// time, which shows whether one can be had.
func (k connector) Connect(ctx context.Context) (driver.Conn, error) {
	if k.r.closed.Load() {
		return nil, ErrClosed
	}
	if err := k.level.check(); err != nil {
		return nil, err
	}
	c := &conn{connector: k}
	if k.r.checker.Load() == nil {
		// Arguments are converted before it is known where they go.
		_, err := c.ensure(ctx, k.writes())
		c.release()
		if err != nil {
			return nil, err
		}
	}
	return c, nil
}

// Driver implements driver.Connector.
func (k connector) Driver() driver.Driver { return mysql.MySQLDriver{} }

// writes reports whether the handle is for the primary alone.
func (k connector) writes() bool { return k.pin == nil && k.level.kind == kindStrong && k.fixed }

// conn is a connection as database/sql knows it. It goes to a server only from the
// first statement after it is taken from the pool until it is put back: then the
// server is chosen anew.
type conn struct {
	connector
	real *realConn
	// used counts statements on real.
	used int
	// attempts counts failed attempts at the first statement, hold how long it may wait.
	attempts int
	hold     patience
	tx       bool
}

var _ session = (*conn)(nil)

// maxAttempts bounds how often a first statement is sent again after connections
// that turned out to be dead.
const maxAttempts = 10

// release gives the connection to the server back.
func (c *conn) release() {
	if c.real != nil {
		c.real.pool.give(c.real)
	}
	c.real, c.used, c.attempts, c.hold, c.tx = nil, 0, 0, patience{}, false
}

// discard ends the connection to the server.
func (c *conn) discard() {
	if c.real != nil {
		c.real.pool.discard(c.real)
		c.real = nil
	}
}

// ResetSession implements driver.SessionResetter.
func (c *conn) ResetSession(context.Context) error {
	c.release()
	if c.r.closed.Load() {
		return driver.ErrBadConn
	}
	return nil
}

// IsValid implements driver.Validator. database/sql asks when it puts the
// connection back.
func (c *conn) IsValid() bool {
	c.release()
	return !c.r.closed.Load()
}

// Close implements driver.Conn.
func (c *conn) Close() error {
	c.release()
	return nil
}

// ensure returns the connection to the server for the next statement, which may
// only go to the primary if write is set.
func (c *conn) ensure(ctx context.Context, write bool) (*realConn, error) {
	if c.real != nil && write && !c.real.pool.write && c.pin == nil && c.used == 0 && !c.tx {
		c.real.pool.give(c.real)
		c.real = nil
	}
	if c.real != nil {
		if !c.real.pool.write {
			return c.real, nil
		}
		if c.used > 0 || c.tx {
			if why := c.r.readmit(ctx, c.real); why != "" {
				return nil, &changedError{server: c.real.node().name, why: "nothing was sent: " + why}
			}
			return c.real, nil
		}
		if c.r.admits(c.real) == "" {
			return c.real, nil
		}
		// It was chosen, and perhaps a statement prepared on it, but nothing was done.
		c.real.pool.give(c.real)
		c.real = nil
	}
	var err error
	c.real, err = c.bind(ctx, write)
	return c.real, err
}

// bind chooses a server and takes a connection to it.
func (c *conn) bind(ctx context.Context, write bool) (*realConn, error) {
	if err := c.r.looked(ctx); err != nil {
		return nil, err
	}
	if c.pin != nil {
		return c.bindPin(ctx)
	}
	if !write {
		what, level := callOf(ctx), c.level
		if what.leveled && !c.fixed {
			level = what.level
			if err := level.check(); err != nil {
				return nil, err
			}
		}
		b, err := c.r.bindRead(ctx, level, what, false)
		if err != nil || b.conn != nil {
			return b.conn, err
		}
	} else {
		c.r.stats.picks[pickWrite].Add(1)
	}
	return c.r.bindWrite(ctx, &c.hold)
}

func (c *conn) bindPin(ctx context.Context) (*realConn, error) {
	rc, err := c.pin.reads.borrow(ctx)
	if err != nil && ctx.Err() == nil {
		c.pin.failed()
	}
	return rc, err
}

// settled notes a statement that was answered.
func (c *conn) settled() {
	c.used++
	c.attempts, c.hold = 0, patience{}
	if !c.real.pool.write {
		c.real.node().worked()
	}
}

// failed judges an error of a statement, and reports whether to send it again. Only
// the first statement after the choice of the server is: it depends on nothing that
// the session was told before. Outside a read it is if it was certainly not carried
// out. harmless is set for what changes nothing.
func (c *conn) failed(err error, harmless bool) (again bool, _ error) {
	if errors.Is(err, driver.ErrSkip) {
		return false, err
	}
	rc, f := c.real, classify(err)
	if f == failNone || (f == failReadOnly && !rc.pool.write) {
		c.settled()
		return false, err
	}
	first := c.used == 0 && !c.tx && c.attempts < maxAttempts
	if f == failLost && harmless {
		f = failUnsent
	}
	if !rc.pool.write {
		c.r.stats.readErrors.Add(1)
		rc.node().failed()
		if first && c.pin == nil {
			c.discard()
			c.attempts++
			c.r.stats.resent.Add(1)
			return true, nil
		}
		c.used++
		return false, err
	}
	c.r.stats.writeErrors.Add(1)
	if f == failReadOnly {
		// All connections to it are as useless.
		rc.pool.revoke(false)
	}
	if f != failUnsent {
		c.r.suspectPrimary(rc.node())
	}
	if first && (f == failUnsent || f == failReadOnly && c.hold.start(c.r)) {
		c.discard()
		if f == failUnsent {
			c.attempts++
		}
		c.r.stats.resent.Add(1)
		return true, nil
	}
	c.used++
	return false, c.changed(err, f)
}

// changed makes the error of a statement on a primary that was lost.
func (c *conn) changed(err error, f failure) error {
	e := &changedError{server: c.real.node().name, why: err.Error(), err: err, unknown: f == failLost && !c.tx}
	if e.unknown {
		c.r.stats.unknown.Add(1)
	}
	return e
}

// note keeps the token of a write for the tracker of its context.
func (c *conn) note(ctx context.Context) {
	t := callOf(ctx).tracker
	if t == nil || !c.real.pool.write {
		return
	}
	// The request may end in this moment; the token is wanted all the same.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.r.opts.DialTimeout)
	defer cancel()
	token, err := c.real.token(ctx)
	if err != nil {
		t.lost()
		return
	}
	t.Add(token)
}

// CheckNamedValue implements driver.NamedValueChecker.
func (c *conn) CheckNamedValue(nv *driver.NamedValue) error {
	if k := c.r.checker.Load(); k != nil {
		return (*k).CheckNamedValue(nv)
	}
	return driver.ErrSkip
}

// Ping implements driver.Pinger.
func (c *conn) Ping(ctx context.Context) error {
	for {
		rc, err := c.ensure(ctx, c.writes())
		if err != nil {
			return err
		}
		if err = rc.Ping(ctx); err == nil {
			return nil
		}
		if again, err := c.failed(err, true); !again {
			return err
		}
	}
}

// QueryContext implements driver.QueryerContext.
func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	for {
		rc, err := c.ensure(ctx, c.writes())
		if err != nil {
			return nil, err
		}
		rows, err := rc.QueryContext(ctx, query, args)
		if err == nil {
			c.settled()
			return c.wrap(ctx, rows), nil
		}
		if again, err := c.failed(err, false); !again {
			return nil, err
		}
	}
}

// ExecContext implements driver.ExecerContext.
func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	for {
		rc, err := c.ensure(ctx, true)
		if err != nil {
			return nil, err
		}
		res, err := rc.ExecContext(ctx, query, args)
		if err == nil {
			c.settled()
			if !c.tx {
				c.note(ctx)
			}
			return res, nil
		}
		if again, err := c.failed(err, false); !again {
			return nil, err
		}
	}
}

// Begin implements driver.Conn.
func (c *conn) Begin() (driver.Tx, error) {
	return c.BeginTx(context.Background(), driver.TxOptions{})
}

// BeginTx implements driver.ConnBeginTx.
func (c *conn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	for {
		rc, err := c.ensure(ctx, !opts.ReadOnly || c.writes())
		if err != nil {
			return nil, err
		}
		t, err := rc.BeginTx(ctx, opts)
		if err == nil {
			c.settled()
			c.tx = true
			return &tx{c: c, ctx: ctx, real: t, reads: opts.ReadOnly}, nil
		}
		if again, err := c.failed(err, true); !again {
			return nil, err
		}
	}
}

// Prepare implements driver.Conn.
func (c *conn) Prepare(query string) (driver.Stmt, error) {
	return c.PrepareContext(context.Background(), query)
}
