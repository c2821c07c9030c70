package routing

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"reflect"
	"slices"
)

// PrepareContext implements driver.ConnPrepareContext. Where the server is chosen
// already, or only the primary can be, the statement is prepared there at once; else
// on each server when it first gets there, since it may be a read or a write.
func (c *conn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	s := &stmt{c: c, query: query, params: -1}
	if c.real == nil && !c.writes() && c.pin == nil {
		return s, nil
	}
	for {
		rc, err := c.ensure(ctx, c.writes())
		if err != nil {
			return nil, err
		}
		if _, err = s.on(ctx, rc); err == nil {
			return s, nil
		}
		if again, err := c.failed(err, true); !again {
			return nil, err
		}
	}
}

// stmt is a prepared statement as database/sql knows it.
type stmt struct {
	c      *conn
	query  string
	params int
	// made are the statements prepared on servers so far.
	made []prepared
}

// prepared is a statement on one connection.
type prepared struct {
	rc   *realConn
	stmt driver.Stmt
}

// on returns the statement as prepared on a connection.
func (s *stmt) on(ctx context.Context, rc *realConn) (driver.Stmt, error) {
	for _, p := range s.made {
		if p.rc == rc {
			return p.stmt, nil
		}
	}
	st, err := rc.PrepareContext(ctx, s.query)
	if err != nil {
		return nil, err
	}
	s.params = st.NumInput()
	s.made = slices.DeleteFunc(s.made, func(p prepared) bool { return !p.rc.IsValid() })
	s.made = append(s.made, prepared{rc, st})
	return st, nil
}

// NumInput implements driver.Stmt.
func (s *stmt) NumInput() int { return s.params }

// CheckNamedValue implements driver.NamedValueChecker.
func (s *stmt) CheckNamedValue(nv *driver.NamedValue) error { return s.c.CheckNamedValue(nv) }

// Close implements driver.Stmt.
func (s *stmt) Close() error {
	var err error
	for _, p := range s.made {
		if p.rc == s.c.real {
			err = p.stmt.Close()
		} else {
			p.rc.drop(p.stmt)
		}
	}
	s.made = nil
	return err
}

// Exec implements driver.Stmt.
func (s *stmt) Exec([]driver.Value) (driver.Result, error) { return nil, errNoContext }

// Query implements driver.Stmt.
func (s *stmt) Query([]driver.Value) (driver.Rows, error) { return nil, errNoContext }

var errNoContext = errors.New("use a statement through database/sql")

// ready returns the statement as prepared on a connection to the right server. Where
// done is true it has failed for good.
func (s *stmt) ready(ctx context.Context, write bool) (st driver.Stmt, done bool, err error) {
	rc, err := s.c.ensure(ctx, write)
	if err != nil {
		return nil, true, err
	}
	if st, err = s.on(ctx, rc); err == nil {
		return st, false, nil
	}
	again, err := s.c.failed(err, true)
	return nil, !again, err
}

// ExecContext implements driver.StmtExecContext.
func (s *stmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	for {
		st, done, err := s.ready(ctx, true)
		if done {
			return nil, err
		}
		e, ok := st.(driver.StmtExecContext)
		if st == nil {
			continue
		}
		if !ok {
			return nil, errNoContext
		}
		res, err := e.ExecContext(ctx, args)
		if err == nil {
			s.c.settled()
			if !s.c.tx {
				s.c.note(ctx)
			}
			return res, nil
		}
		if again, err := s.c.failed(err, false); !again {
			return nil, err
		}
	}
}

// QueryContext implements driver.StmtQueryContext.
func (s *stmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	for {
		st, done, err := s.ready(ctx, s.c.writes())
		if done {
			return nil, err
		}
		q, ok := st.(driver.StmtQueryContext)
		if st == nil {
			continue
		}
		if !ok {
			return nil, errNoContext
		}
		rows, err := q.QueryContext(ctx, args)
		if err == nil {
			s.c.settled()
			return s.c.wrap(ctx, rows), nil
		}
		if again, err := s.c.failed(err, false); !again {
			return nil, err
		}
	}
}

// tx is a transaction.
type tx struct {
	c     *conn
	ctx   context.Context
	real  driver.Tx
	reads bool
}

// Commit implements driver.Tx. Nothing is committed on a server that is not known to
// be the primary any more.
func (t *tx) Commit() error {
	c := t.c
	if !c.real.pool.write {
		err := t.real.Commit()
		c.tx = false
		return err
	}
	if why := c.r.readmit(t.ctx, c.real); why != "" {
		// The transaction ends with its connection, if not by this.
		_ = t.real.Rollback()
		c.tx = false
		return &changedError{server: c.real.node().name, why: "the transaction was not committed: " + why}
	}
	if !c.real.IsValid() {
		c.tx = false
		return &changedError{server: c.real.node().name, why: "the transaction was not committed: its connection was lost before"}
	}
	err := t.real.Commit()
	c.tx = false
	if err == nil {
		if !t.reads {
			c.note(t.ctx)
		}
		return nil
	}
	f := classify(err)
	if f == failNone {
		return err
	}
	c.r.stats.writeErrors.Add(1)
	if f == failReadOnly {
		c.real.pool.revoke(false)
	}
	c.r.suspectPrimary(c.real.node())
	return c.changed(err, f)
}

// Rollback implements driver.Tx.
func (t *tx) Rollback() error {
	t.c.tx = false
	err := t.real.Rollback()
	if classify(err) != failNone && t.c.real.pool.write {
		return &changedError{server: t.c.real.node().name, why: "the transaction was rolled back with its connection: " + err.Error(), err: err}
	}
	return err
}

// fullRows is what the driver's rows can do.
type fullRows interface {
	driver.Rows
	driver.RowsNextResultSet
	driver.RowsColumnTypeDatabaseTypeName
	driver.RowsColumnTypeNullable
	driver.RowsColumnTypePrecisionScale
	driver.RowsColumnTypeScanType
}

// wrap makes errors of rows that are still to be read from the primary tell that it
// was lost.
func (c *conn) wrap(ctx context.Context, rows driver.Rows) driver.Rows {
	if full, ok := rows.(fullRows); ok && c.real.pool.write {
		w := &primaryRows{fullRows: full, c: c}
		if c.writes() && !c.tx {
			w.ctx = ctx
		}
		return w
	}
	return rows
}

// primaryRows are rows from the primary.
type primaryRows struct {
	fullRows
	c *conn
	// ctx is set where the statement may have been a write.
	ctx context.Context
}

// Close implements driver.Rows.
func (r *primaryRows) Close() error {
	err := r.judge(r.fullRows.Close())
	if ctx := r.ctx; ctx != nil && err == nil && r.c.real != nil {
		r.ctx = nil
		r.c.note(ctx)
	}
	return err
}

// Next implements driver.Rows.
func (r *primaryRows) Next(dest []driver.Value) error {
	return r.judge(r.fullRows.Next(dest))
}

// NextResultSet implements driver.RowsNextResultSet.
func (r *primaryRows) NextResultSet() error {
	return r.judge(r.fullRows.NextResultSet())
}

// ColumnTypeScanType implements driver.RowsColumnTypeScanType.
func (r *primaryRows) ColumnTypeScanType(i int) reflect.Type {
	return r.fullRows.ColumnTypeScanType(i)
}

func (r *primaryRows) judge(err error) error {
	if err == nil || err == io.EOF { //nolint:errorlint // the driver's contract is the bare value
		return err
	}
	f := classify(err)
	if f == failNone || r.c.real == nil {
		return err
	}
	r.c.r.stats.writeErrors.Add(1)
	r.c.r.suspectPrimary(r.c.real.node())
	return r.c.changed(err, f)
}
