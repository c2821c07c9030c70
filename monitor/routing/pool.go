package routing

import (
	"context"
	"database/sql/driver"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstep-ha/lockstep/topology"
	"github.com/lockstep-ha/lockstep/topology/mariadb"
)

// session is what go-sql-driver's connections can do.
type session interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.SessionResetter
	driver.Validator
	driver.NamedValueChecker
}

// realConn is a connection to one server. It belongs to its pool, or to one conn
// at a time.
type realConn struct {
	session
	pool   *pool
	socket net.Conn
	gen    uint64
	// made and used are instants; used is that of the view of the time.
	made, used time.Duration

	mu     sync.Mutex
	stale  []driver.Stmt // to be closed by whoever uses the connection next
	closed bool
}

func (c *realConn) node() *Node { return c.pool.node }

// close ends the connection.
func (c *realConn) close() {
	c.mu.Lock()
	c.closed, c.stale = true, nil
	c.mu.Unlock()
	c.pool.forget(c)
	// It is broken or not wanted any more; that it cannot say goodbye changes nothing.
	_ = c.Close()
}

// drop closes a statement whose user has gone on to another connection.
func (c *realConn) drop(s driver.Stmt) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.stale = append(c.stale, s)
	}
}

// tidy closes the statements that were dropped.
func (c *realConn) tidy() {
	c.mu.Lock()
	stale := c.stale
	c.stale = nil
	c.mu.Unlock()
	for _, s := range stale {
		// A broken connection shows at the next statement.
		_ = s.Close()
	}
}

// pool is the connections to one server in one role. Connections for reads are in
// sessions that are read-only; those for writes are only made on a server that
// holds its primary lock.
type pool struct {
	node   *Node
	write  bool
	handed atomic.Uint64
	// gen counts revocations; a connection of another gen is not used again.
	gen atomic.Uint64

	mu   sync.Mutex
	idle []*realConn
	all  map[*realConn]struct{}
}

func (p *pool) idleCount() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.idle)
}

// borrow returns an unused connection that still works, or a new one.
func (p *pool) borrow(ctx context.Context) (*realConn, error) {
	for {
		c := p.pop()
		if c == nil {
			break
		}
		if c.ResetSession(ctx) != nil {
			c.close()
			continue
		}
		c.tidy()
		p.out()
		return c, nil
	}
	c, err := p.dial(ctx)
	if err != nil {
		return nil, err
	}
	p.out()
	return c, nil
}

func (p *pool) out() {
	p.handed.Add(1)
	p.node.out.Add(1)
}

func (p *pool) pop() *realConn {
	for {
		p.mu.Lock()
		n := len(p.idle)
		if n == 0 {
			p.mu.Unlock()
			return nil
		}
		c := p.idle[n-1]
		p.idle[n-1] = nil
		p.idle = p.idle[:n-1]
		p.mu.Unlock()
		if c.gen == p.gen.Load() && (p.node.r.opts.MaxLifetime == 0 || !p.aged(c)) {
			return c
		}
		c.close()
	}
}

func (p *pool) aged(c *realConn) bool {
	o := &p.node.r.opts
	if o.MaxLifetime == 0 && o.MaxIdleTime < 0 {
		return false
	}
	now := Now()
	return (o.MaxLifetime > 0 && now-c.made > o.MaxLifetime) || (o.MaxIdleTime > 0 && now-c.used > o.MaxIdleTime)
}

// give takes a connection back.
func (p *pool) give(c *realConn) {
	p.node.out.Add(-1)
	o := &p.node.r.opts
	if !c.IsValid() || (o.MaxLifetime > 0 && Now()-c.made > o.MaxLifetime) {
		c.close()
		return
	}
	c.used = time.Duration(p.node.r.viewed.Load())
	p.mu.Lock()
	// gen is looked at under the lock: revoke empties the list after it has changed it.
	if c.gen == p.gen.Load() && len(p.idle) < o.MaxIdle && !p.node.r.closed.Load() {
		p.idle = append(p.idle, c)
		p.mu.Unlock()
		return
	}
	p.mu.Unlock()
	c.close()
}

// discard ends a connection that was borrowed.
func (p *pool) discard(c *realConn) {
	p.node.out.Add(-1)
	c.close()
}

func (p *pool) forget(c *realConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.all, c)
}

// revoke closes all unused connections and lets none of the others be used again;
// with cut it closes the sockets of those too.
func (p *pool) revoke(cut bool) {
	p.gen.Add(1)
	p.mu.Lock()
	idle := p.idle
	p.idle = nil
	var inUse []net.Conn
	if cut {
		for _, c := range idle {
			delete(p.all, c)
		}
		for c := range p.all {
			inUse = append(inUse, c.socket)
		}
	}
	p.mu.Unlock()
	for _, s := range inUse {
		if s != nil && s.Close() == nil {
			p.node.r.stats.cut.Add(1)
		}
	}
	for _, c := range idle {
		c.close()
	}
}

// prune closes connections that have been unused for too long.
func (p *pool) prune() {
	var old []*realConn
	p.mu.Lock()
	kept := p.idle[:0]
	for _, c := range p.idle {
		if p.aged(c) {
			old = append(old, c)
		} else {
			kept = append(kept, c)
		}
	}
	clear(p.idle[len(kept):])
	p.idle = kept
	p.mu.Unlock()
	for _, c := range old {
		c.close()
	}
}

// dial opens a connection and prepares it for its role.
func (p *pool) dial(ctx context.Context) (*realConn, error) {
	n := p.node
	c := &realConn{pool: p, gen: p.gen.Load()}
	ctx, cancel := context.WithTimeoutCause(ctx, n.r.opts.DialTimeout, fmt.Errorf("no answer within %v", n.r.opts.DialTimeout))
	defer cancel()
	dc, err := n.connector.Connect(context.WithValue(ctx, socketKey{}, &c.socket))
	if err != nil {
		n.r.stats.connectErrors.Add(1)
		if cause := context.Cause(ctx); cause != nil {
			err = fmt.Errorf("%w (%w)", cause, err)
		}
		return nil, fmt.Errorf("connect to server %s at %s: %w", n.name, n.address, err)
	}
	s, ok := dc.(session)
	if !ok {
		_ = dc.Close()
		return nil, fmt.Errorf("connect to server %s: the driver's connection lacks methods", n.name)
	}
	c.session, c.made = s, Now()
	c.used = c.made
	n.r.learnChecker(s)
	if p.write {
		err = c.checkPrimary(ctx)
	} else {
		_, err = c.ExecContext(ctx, "SET SESSION TRANSACTION READ ONLY", nil)
	}
	if err != nil {
		_ = s.Close()
		return nil, fmt.Errorf("server %s: %w", n.name, err)
	}
	p.mu.Lock()
	if p.all == nil {
		p.all = map[*realConn]struct{}{}
	}
	p.all[c] = struct{}{}
	p.mu.Unlock()
	return c, nil
}

// checkPrimary asks the server itself whether it is the primary.
func (c *realConn) checkPrimary(ctx context.Context) error {
	r := c.node().r
	row, err := c.queryRow(ctx, r.checkSQL)
	if err != nil {
		return fmt.Errorf("ask for its primary lock: %w", err)
	}
	if len(row) < 2 {
		return fmt.Errorf("ask for its primary lock: %d columns", len(row))
	}
	_, flavor := topology.ParseVersion(row[1])
	c.node().flavor.Store(uint32(flavor))
	why := ""
	switch {
	case mariadb.ReadOnly(row[0]) != topology.No:
		why = "it is read-only"
	case r.opts.NoLockCheck:
	case len(row) < 4:
		why = "it did not say who holds its locks"
	case row[2] == "":
		why = "nobody holds its primary lock"
	case row[2] != row[3]:
		why = "its primary lock and its server lock are not held by the same connection"
	}
	if why != "" {
		r.stats.refused.Add(1)
		return fmt.Errorf("%w: %s", ErrNotPrimary, why)
	}
	return nil
}

// checkStatement is what checkPrimary asks.
func checkStatement(server, primary string, locks bool) string {
	s := "SELECT @@global.read_only,VERSION()"
	if locks {
		s += ",IS_USED_LOCK('" + primary + "'),IS_USED_LOCK('" + server + "')"
	}
	return s
}

// queryRow returns the first row of a result as text; NULL is "".
func (c *realConn) queryRow(ctx context.Context, query string) ([]string, error) {
	rows, err := c.QueryContext(ctx, query, nil)
	if err != nil {
		return nil, err
	}
	values := make([]driver.Value, len(rows.Columns()))
	err = rows.Next(values)
	out := make([]string, len(values))
	for i, v := range values {
		switch v := v.(type) {
		case nil:
		case []byte:
			out[i] = string(v)
		default:
			out[i] = fmt.Sprint(v)
		}
	}
	if cerr := rows.Close(); err == nil {
		err = cerr
	}
	if err == io.EOF { //nolint:errorlint // the driver's contract is the bare value
		return nil, fmt.Errorf("no row: %w", io.ErrUnexpectedEOF)
	}
	return out, err
}

// token reads what was written last on this connection.
func (c *realConn) token(ctx context.Context) (Token, error) {
	if topology.Flavor(c.node().flavor.Load()) == topology.MySQL {
		row, err := c.queryRow(ctx, "SELECT @@global.gtid_executed,@@global.server_uuid")
		if err != nil {
			return Token{}, err
		}
		return MySQLToken(row[0], row[1])
	}
	row, err := c.queryRow(ctx, "SELECT @@last_gtid")
	if err != nil {
		return Token{}, err
	}
	return MariaDBToken(row[0])
}

// waitStatement waits on a replica until it has what a token asks for; its result
// is 0 then.
func waitStatement(t Token, limit time.Duration) string {
	if t.flavor == topology.MySQL {
		return fmt.Sprintf("SELECT WAIT_FOR_EXECUTED_GTID_SET('%s',%.3f)", t.mysql, limit.Seconds())
	}
	return fmt.Sprintf("SELECT MASTER_GTID_WAIT('%s',%.3f)", t.mariadb, limit.Seconds())
}

// behindFor is how long a replica that was waited for in vain is not waited for
// again: else every read would first wait on it.
const behindFor = 500 * time.Millisecond

// waitFor reports whether the replica has, within the limit, what a token asks for.
func (c *realConn) waitFor(ctx context.Context, t Token, limit time.Duration) (bool, error) {
	st := &c.node().r.stats
	st.waits.Add(1)
	began := Now()
	row, err := c.queryRow(ctx, waitStatement(t, limit))
	st.waitTime.Add(int64(Now() - began))
	if err != nil {
		return false, err
	}
	if row[0] != "0" {
		st.waitTimeouts.Add(1)
		c.node().behind.Store(int64(Now() + behindFor))
		return false, nil
	}
	c.node().learn(t)
	return true, nil
}
