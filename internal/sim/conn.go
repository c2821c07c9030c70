package sim

import (
	"context"
	"errors"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/lockstep-ha/lockstep/locks"
	"github.com/lockstep-ha/lockstep/topology"
	"github.com/lockstep-ha/lockstep/topology/mariadb"
)

// conn is the connection of one monitor to one server, with what the goroutine
// of package backend that owns it does.
type conn struct {
	m          *instance
	s          *server
	ses        *session
	busy       bool
	want       bool // a probe is wanted as soon as the connection is not busy
	jobs       []func()
	doomed     func() // cuts what is under way; nil for nothing
	server     topology.Server
	row        locks.Row
	former     map[uint64]bool
	fenceUntil time.Duration
	turn       int // counts operations, to know an old timer
	upSince    time.Duration
	verified   time.Duration // when its lock was last asked for and confirmed, on the monitor's clock
	lastSent   time.Duration // in the world: of the last byte, sent again or not
}

func (c *conn) refreshAfter() time.Duration {
	t := c.m.timing
	return min(t.Interval+t.Timeout/2, t.Lease*3/4)
}

// arm begins the time after which the connection is refreshed unasked.
func (c *conn) arm() {
	c.turn++
	turn := c.turn
	c.m.c.w.after(c.m.real(c.refreshAfter()), func() {
		c.m.live(func() {
			if c.turn != turn || c.busy {
				return
			}
			if c.m.Now()-c.m.ticked < c.m.timing.WaitTimeout {
				c.probe(nil)
				return
			}
			c.arm()
		})
	})
}

// idle begins what waits for the connection.
func (c *conn) idle() {
	c.busy = false
	if len(c.jobs) > 0 {
		j := c.jobs[0]
		c.jobs = c.jobs[1:]
		j()
		return
	}
	if c.want {
		c.want = false
		before := c.server.Evidence
		c.probe(func() {
			if c.server.Evidence != before {
				c.m.Wake()
			}
		})
		return
	}
	c.arm()
}

// call sends something on the session and gives back the answer, once: with nil
// for an answer, or the error that the client side gives. The server gets it even
// where the path is cut for a while, as long as the connection is not closed.
func (c *conn) call(limit time.Duration, exec func(reply func(func())), then func(err error)) {
	m, w, ses := c.m, c.m.c.w, c.ses
	over := false
	finish := func(err error) {
		m.live(func() {
			if !over {
				over = true
				c.doomed = nil
				then(err)
			}
		})
	}
	sent := w.now
	c.lastSent = sent
	retry := 200 * time.Millisecond
	var arrive func()
	arrive = func() {
		if over || c.ses != ses {
			return
		}
		switch {
		case m.c.net.refused(&m.node, &c.s.node):
			finish(syscall.ECONNRESET)
			return
		case !m.c.net.open(&m.node, &c.s.node):
			at := w.now + retry
			retry *= 2
			w.at(at, func() {
				if !over && c.ses == ses {
					c.lastSent = w.now
					arrive()
				}
			})
			return
		case !ses.alive || !c.s.up:
			// The host answers with a reset.
			w.after(m.c.net.delay(m.name), func() { finish(io.EOF) })
			return
		}
		c.s.awake(func() {
			// What is in the buffer of a connection that was reset is not read.
			if !ses.alive || (c.ses != ses && m.c.net.open(&m.node, &c.s.node)) {
				return
			}
			c.s.touch(ses)
			exec(func(f func()) {
				c.s.touch(ses)
				var back func()
				wait := 200 * time.Millisecond
				back = func() {
					if over || c.ses != ses {
						return
					}
					if !m.c.net.open(&c.s.node, &m.node) {
						w.after(wait, back)
						wait *= 2
						return
					}
					m.live(func() {
						if !over {
							over = true
							c.doomed = nil
							f()
							then(nil)
						}
					})
				}
				w.after(m.c.net.delay(m.name), back)
			})
		})
	}
	c.doomed = func() { finish(context.Canceled) }
	w.after(m.c.net.delay(m.name), arrive)
	w.after(m.real(limit), func() { finish(context.DeadlineExceeded) })
}

// open makes a connection, and sets the server read-only at once where it has to
// be fenced.
func (c *conn) open(limit time.Duration, then func(*session, error)) {
	m, w := c.m, c.m.c.w
	over := false
	finish := func(s *session, err error) {
		m.live(func() {
			if !over {
				over = true
				c.doomed = nil
				then(s, err)
			} else if s != nil && c.s.up {
				c.s.end(s, "closed while it was opened")
			}
		})
	}
	c.doomed = func() { finish(nil, context.Canceled) }
	w.after(m.real(limit), func() { finish(nil, context.DeadlineExceeded) })
	w.after(2*m.c.net.delay(m.name), func() {
		switch {
		case m.c.net.refused(&m.node, &c.s.node), m.c.net.rejected(&m.node, &c.s.node):
			finish(nil, syscall.ECONNREFUSED)
		case !m.c.net.open(&m.node, &c.s.node) || !m.c.net.open(&c.s.node, &m.node):
		case !c.s.up:
			finish(nil, syscall.ECONNREFUSED)
		default:
			c.s.awake(func() {
				if over {
					return
				}
				s := c.s.connect(m.name, "monitor")
				s.idle = m.timing.WaitTimeout
				c.s.touch(s)
				reply := func() { w.after(2*m.c.net.delay(m.name), func() { finish(s, nil) }) }
				if m.Now() >= c.fenceUntil {
					reply()
					return
				}
				s.got = c.s.take(s, serverLock)
				c.s.run(s, mariadb.FenceIfHeld(time.Second), func(answer) { reply() })
			})
		}
	})
}

// drop closes the connection. The server learns of it only where the path is open.
func (c *conn) drop() (last time.Duration) {
	m := c.m
	last = m.Now()
	if c.ses == nil {
		return last
	}
	ses, s := c.ses, c.s
	c.former[ses.id] = true
	c.ses = nil
	ses.onEnd = nil
	last = m.local(c.lastSent)
	if m.c.net.open(&m.node, &s.node) {
		m.c.w.after(m.c.net.delay(m.name), func() { s.awake(func() { s.end(ses, "closed by its monitor") }) })
	}
	return last
}

// use makes a session the one that holds the locks.
func (c *conn) use(ses *session) {
	c.ses = ses
	ses.onEnd = func(string) {
		// The end of a connection is noticed where the path is open.
		if !c.m.c.net.open(&c.s.node, &c.m.node) {
			return
		}
		c.m.c.w.after(c.m.c.net.delay(c.m.name), func() {
			c.m.live(func() {
				if c.ses != ses || c.busy {
					return
				}
				c.probe(c.m.Wake)
			})
		})
	}
	for id := range c.former {
		if id >= ses.id {
			delete(c.former, id)
		}
	}
}

// probe looks at the server once, and calls then.
func (c *conn) probe(then func()) {
	m := c.m
	c.busy = true
	c.turn++
	established := c.ses != nil
	sent := m.Now()
	end := func() {
		if then != nil {
			then()
		}
		c.idle()
	}
	if established {
		c.look(established, end)
		return
	}
	c.open(m.timing.Timeout, func(ses *session, err error) {
		if err != nil {
			c.failed(err, false, sent, end)
			return
		}
		c.use(ses)
		c.look(false, end)
	})
}

func (c *conn) look(established bool, end func()) {
	m, s, ses := c.m, c.s, c.ses
	sent := m.Now()
	var sv topology.Server
	var row locks.Row
	c.call(m.timing.Timeout, func(reply func(func())) {
		s.fill(&sv, m.local)
		row = c.see(ses)
		reply(func() {})
	}, func(err error) {
		if err != nil {
			c.failed(err, established, sent, end)
			return
		}
		done := m.Now()
		sv.Settings, sv.Evidence, sv.EverSeen, sv.SeenAt = c.server.Settings, topology.Answered, true, sent
		sv.LockSentAt, sv.SentAt, sv.DoneAt = done, sent, done
		row.Server, row.SentAt, row.DoneAt = s.name, sent, done
		if !c.server.Up() {
			c.upSince = done
		}
		c.server, c.row = sv, row
		end()
	})
}

// see is what a probe shows of the locks.
func (c *conn) see(ses *session) locks.Row {
	row := locks.Row{Session: ses.id, Answered: true, Idle: -1}
	state := func(name string) locks.Lock {
		h := c.s.locks[name]
		if h == nil {
			return locks.Lock{State: locks.Free}
		}
		l := locks.Lock{State: locks.Other, Holder: locks.Holder{ConnectionID: h.id, User: h.user, Host: h.owner, Checked: true, Trusted: h.user == "monitor", Former: c.former[h.id]}}
		if h == ses {
			l.State = locks.Self
		}
		return l
	}
	row.ServerLock, row.PrimaryLock = state(serverLock), state(primaryLock)
	if h := c.s.locks[serverLock]; h != nil && h != ses {
		row.Peer = locks.PeerNoLockstep
		if h.user == "monitor" {
			row.Peer, row.Idle = locks.PeerAgrees, time.Duration(float64(c.m.c.w.now-h.last)*c.s.rate)
		}
	}
	return row
}

// failed takes in that a probe was not answered.
func (c *conn) failed(err error, established bool, sent time.Duration, end func()) {
	m := c.m
	last := c.drop()
	sv := c.server
	if established {
		sv.LockSentAt = last
	}
	evidence := classify(err)
	finish := func() {
		switch evidence {
		case topology.Closed, topology.Refused, topology.ShuttingDown:
		default:
			sv.PeerClosed = false
		}
		sv.Evidence, sv.Detail = evidence, err.Error()
		sv.SentAt, sv.DoneAt = sent, m.Now()
		c.server = sv
		c.row = locks.Row{Server: c.s.name, SentAt: sent, DoneAt: sv.DoneAt}
		end()
	}
	if evidence != topology.Closed || !established {
		finish()
		return
	}
	sv.PeerClosed = true
	c.open(min(m.timing.Timeout, m.patience()), func(ses *session, again error) {
		if again == nil {
			c.s.end(ses, "it was only to see")
		} else {
			evidence = classify(again)
		}
		finish()
	})
}

func classify(err error) topology.Evidence {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return topology.Refused
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.Canceled):
		return topology.TimedOut
	}
	return topology.Closed
}

// abandon ends the session after an answer was lost.
func (c *conn) abandon(cause error) {
	closed := c.ses != nil && cause != nil && classify(cause) == topology.Closed
	last := c.drop()
	c.server.LockSentAt = last
	c.server.PeerClosed = c.server.PeerClosed || closed
	c.row = locks.Row{Server: c.s.name, SentAt: c.row.SentAt, DoneAt: c.m.Now()}
}
