package sim

import (
	"errors"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/lockstep-ha/lockstep/locks"
	"github.com/lockstep-ha/lockstep/monitor/backend"
	"github.com/lockstep-ha/lockstep/topology"
	"github.com/lockstep-ha/lockstep/topology/mariadb"
)

var (
	errNoSession = errors.New("not connected")
	errBusy      = errors.New("the connection is busy")
)

// do hands an action to the connection.
func (c *conn) do(a backend.Action, out func(backend.Outcome)) {
	if a.Kind == backend.Aside {
		c.aside(a, out)
		return
	}
	if c.busy && a.Kind == backend.ReleaseAll {
		// It cannot release its locks by a statement: it is cut.
		cut := c.doomed
		if cut != nil {
			c.drop()
			cut()
		}
		out(backend.Outcome{Err: errBusy})
		return
	}
	limit := c.m.Now() + c.m.limit(a)
	job := func() {
		if c.m.Now() >= limit {
			c.idle() // nobody waits for it any more
			return
		}
		c.busy = true
		c.turn++
		c.perform(a, func(o backend.Outcome) {
			if o.Err != nil && o.Result == backend.ResultUnknown && !errors.Is(o.Err, errNoSession) {
				c.abandon(o.Err)
			}
			out(o)
			c.idle()
		})
	}
	if c.busy {
		c.jobs = append(c.jobs, job)
		return
	}
	job()
}

func (c *conn) perform(a backend.Action, out func(backend.Outcome)) {
	if c.ses == nil {
		out(backend.Outcome{Err: errNoSession})
		return
	}
	m, s, ses := c.m, c.s, c.ses
	sent := m.Now()
	o := backend.Outcome{Session: ses.id, SentAt: sent}
	touched := func() { c.server.LockSentAt = m.Now() }
	switch a.Kind {
	case backend.Verify:
		held := false
		c.call(m.timing.Timeout, func(reply func(func())) {
			held = s.locks[serverLock] == ses
			reply(func() {})
		}, func(err error) {
			if err != nil {
				out(backend.Outcome{Err: err})
				return
			}
			touched()
			if o.Result, c.verified = backend.Done, sent; !held {
				c.verified = 0
				o.Result, o.Err = backend.NotDone, backend.ErrNotHeld
			}
			out(o)
		})
	case backend.Execute, backend.Ask:
		if a.Kind == backend.Execute && (c.row.ServerLock.State != locks.Self || c.row.Session != ses.id || (a.Session != 0 && a.Session != ses.id)) {
			out(backend.Outcome{Result: backend.NotDone, Err: backend.ErrNotHeld})
			return
		}
		limit := a.Limit
		if limit <= 0 {
			limit = m.timing.Timeout
		}
		var got answer
		c.call(limit, func(reply func(func())) {
			s.run(ses, a.SQL, func(an answer) { reply(func() { got = an }) })
		}, func(err error) {
			touched()
			o.Tables = got.tables
			o.Result, o.Err = resultOf(err, got.err)
			out(o)
		})
	default:
		c.act(a, sent, out)
	}
}

func resultOf(lost, refused error) (backend.Result, error) {
	var my *mysql.MySQLError
	switch {
	case lost != nil:
		return backend.ResultUnknown, lost
	case refused == nil:
		return backend.Done, nil
	case errors.As(refused, &my) && mariadb.Classify(my.Number) == topology.OtherFailure:
		return backend.NotDone, refused
	}
	return backend.ResultUnknown, refused
}

// act is an action on locks.
func (c *conn) act(a backend.Action, sent time.Duration, out func(backend.Outcome)) {
	m, s, ses := c.m, c.s, c.ses
	got := true
	c.call(m.timing.Timeout, func(reply func(func())) {
		switch a.Kind {
		case backend.TakeServerLock:
			got = s.take(ses, serverLock)
		case backend.TakePrimaryLock:
			got = s.take(ses, primaryLock)
		case backend.ReleasePrimaryLock:
			s.release(ses, primaryLock)
		case backend.ReleaseAll:
			s.release(ses, primaryLock)
			s.release(ses, serverLock)
		}
		reply(func() {})
	}, func(err error) {
		c.server.LockSentAt = m.Now()
		if err != nil {
			out(backend.Outcome{Err: err})
			return
		}
		own := locks.Lock{State: locks.Self, Holder: locks.Holder{ConnectionID: ses.id, User: "monitor", Host: m.name, Checked: true, Trusted: true}}
		o := backend.Outcome{Result: backend.Done}
		switch {
		case !got:
			o.Result = backend.NotDone
			if a.Kind == backend.TakeServerLock {
				c.row.ServerLock = locks.Lock{State: locks.Other}
			} else {
				c.row.PrimaryLock = locks.Lock{State: locks.Other}
			}
		case a.Kind == backend.TakeServerLock:
			c.row.ServerLock = own
			c.row.Session, c.row.SentAt, c.row.DoneAt = ses.id, max(c.row.SentAt, sent), m.Now()
		case a.Kind == backend.TakePrimaryLock:
			c.row.PrimaryLock = own
		case a.Kind == backend.ReleasePrimaryLock:
			c.row.PrimaryLock = locks.Lock{State: locks.Free}
		case a.Kind == backend.ReleaseAll:
			for _, l := range []*locks.Lock{&c.row.ServerLock, &c.row.PrimaryLock} {
				if l.State == locks.Self {
					*l = locks.Lock{State: locks.Free}
				}
			}
		}
		out(o)
	})
}

// aside carries out statements on a connection of its own.
func (c *conn) aside(a backend.Action, out func(backend.Outcome)) {
	m, w := c.m, c.m.c.w
	over := false
	finish := func(o backend.Outcome) {
		m.live(func() {
			if !over {
				over = true
				out(o)
				m.Wake()
			}
		})
	}
	w.after(2*m.c.net.delay(m.name), func() {
		if !c.s.running() || !m.c.net.open(&m.node, &c.s.node) {
			finish(backend.Outcome{Result: backend.NotDone, Err: errNoSession})
			return
		}
		ses := c.s.connect(m.name, "monitor")
		c.s.touch(ses)
		guard := "SELECT IF(IS_USED_LOCK('" + serverLock + "')<=>" + uintText(a.Session) + ", 1, (SELECT 1 UNION SELECT 2)) AS held"
		c.s.run(ses, guard+";"+a.SQL, func(an answer) {
			c.s.end(ses, "the statements are done")
			result, err := resultOf(nil, an.err)
			w.after(m.c.net.delay(m.name), func() { finish(backend.Outcome{Result: result, Err: err, Tables: an.tables}) })
		})
	})
}

// leave releases all locks by a statement and ends the connection.
func (c *conn) leave(done func()) {
	if c.ses == nil {
		done()
		return
	}
	if c.busy && c.doomed != nil {
		c.doomed()
	}
	job := func() {
		c.busy = true
		if c.ses == nil {
			done()
			return
		}
		c.act(backend.Action{Kind: backend.ReleaseAll}, c.m.Now(), func(backend.Outcome) {
			c.drop()
			done()
		})
	}
	if c.busy {
		c.jobs = append([]func(){job}, c.jobs...)
		return
	}
	job()
}
