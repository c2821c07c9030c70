package sim

import (
	"time"

	"github.com/lockstep-ha/lockstep/topology/gtid"
)

// write is one write of a client, which asks the view of the monitor at its side
// where to.
type write struct {
	c     *cluster
	from  *instance
	sent  time.Duration
	gtid  gtid.GTID
	on    *server
	boots int
	at    time.Duration // when it was logged
	// acked is set when the client was told that it is done, safe where a replica
	// had it by then.
	acked, safe bool
	lost        bool // already reported, or excused
}

func (w *write) refused(string) {}
func (w *write) unknown()       {}

// done answers the client; by is the replica that has it, nil for none.
func (w *write) done(by *server) {
	w.acked, w.safe = true, by != nil
	w.c.stats.Acked++
	w.c.check.acked(w, by)
}

// client writes from the side of a monitor.
func (c *cluster) client(i int) {
	c.w.after(c.opt.WriteEvery/2+time.Duration(c.writes.Int64N(int64(c.opt.WriteEvery))), func() {
		c.client(i)
		c.write(i)
	})
}

// write has the client at the side of a monitor write once.
func (c *cluster) write(i int) {
	m := c.monitors[i]
	if m == nil || m.gone || m.off || m.frozen > c.w.now {
		return
	}
	p, _, ok := m.Primary()
	if !ok {
		return
	}
	s := c.byName(p.Name)
	wr := &write{c: c, from: m, sent: c.w.now}
	c.stats.Writes++
	c.w.after(c.net.delay("")+time.Millisecond, func() {
		if !c.net.open(&m.node, &s.node) || !s.up {
			return
		}
		s.awake(func() {
			if s.up {
				s.commit(wr)
			}
		})
	})
}
