package sim

import (
	"strings"
	"time"

	"github.com/lockstep-ha/lockstep/election"
	"github.com/lockstep-ha/lockstep/monitor/backend"
)

// checker holds the invariants of a run against everything that happens in it.
type checker struct {
	c      *cluster
	writes []*write
	// published is the server that last got the primary lock.
	published   *server
	publishedAt time.Duration
	// away are the servers that the monitor which published it could not ask.
	away   map[*server]bool
	dead   death
	checks int
	// carried is until when a server has carried the primary lock of a monitor beside
	// that monitor's server lock.
	carried map[*server]time.Duration
}

// exclusive reports whether E1 and E2 must hold in this run.
func (k *checker) exclusive() bool {
	return k.c.opt.Mode == election.MajorityOfAll || k.c.opt.Calm
}

// viewed is called whenever a monitor has gone on: E1 and E2.
func (k *checker) viewed(m *instance) {
	c := k.c
	if m.gone {
		return
	}
	k.checks++
	role, _ := m.Role()
	p, _, ok := m.Primary()
	if !ok {
		p.Name = "none"
	}
	if r := role.String(); r != m.role || p.Name != m.offered {
		m.role, m.offered = r, p.Name
		c.w.logf("%s is %s and offers %s: %s", m.name, r, p.Name, m.View().Reason)
	}
	for _, o := range c.monitors {
		if o != nil && !o.gone {
			k.believed(o)
		}
	}
	if !k.exclusive() {
		return
	}
	for _, o := range c.monitors {
		if o == nil || o == m || o.gone {
			continue
		}
		if role == election.Primary {
			if other, left := o.Role(); other == election.Primary {
				c.w.fail("E1", "%s and %s (for another %v) are both primary monitor", m.name, o.name, left)
			}
		}
		if ok && (!c.opt.Forged || !c.opt.SemiSync) {
			if q, left, has := o.Primary(); has && q.Name != p.Name && c.byName(p.Name).writes() && c.byName(q.Name).writes() {
				c.w.fail("E2", "%s offers %s while %s offers %s (for another %v), and both would take a write", m.name, p.Name, o.name, q.Name, left)
			}
		}
	}
}

// believed holds against a monitor what it believes: B1, that it has had a majority
// of the locks within the lease, and B2, that what it offers was published within
// it. A server that was handed over may be offered a little longer.
func (k *checker) believed(m *instance) {
	c, t := k.c, m.timing
	lease := m.real(t.Lease)
	if role, _ := m.Role(); role != election.Secondary && c.opt.Mode == election.MajorityOfAll {
		held := 0
		for _, s := range c.servers {
			if h := s.locks[serverLock]; (h != nil && h.owner == m.name) || c.w.now-m.heldUntil[s.index] < lease {
				held++
			}
		}
		if held < len(c.servers)/2+1 {
			c.w.fail("B1", "%s believes that it is %s, and has had %d of %d locks in the last %v", m.name, role, held, len(c.servers), lease)
		}
	}
	p, _, ok := m.Primary()
	if !ok {
		return
	}
	s := c.byName(p.Name)
	if role, _ := m.Role(); role == election.Secondary && !s.publishes() && c.w.now-k.carried[s] >= lease+m.real(t.Interval/4) {
		c.w.fail("B2", "%s offers %s, which no monitor has published since %v", m.name, p.Name, k.carried[s])
	}
}

// publishes reports whether a server carries both locks of one session of a monitor.
func (s *server) publishes() bool {
	p := s.locks[primaryLock]
	return p != nil && p == s.locks[serverLock] && p.user == "monitor"
}

// freed is called before a session loses a lock.
func (k *checker) freed(s *server, ses *session, name string) {
	if s.publishes() {
		k.carried[s] = k.c.w.now
	}
	if name != serverLock {
		return
	}
	for _, m := range k.c.monitors {
		if m != nil && m.name == ses.owner {
			m.heldUntil[s.index] = k.c.w.now
		}
	}
}

// sent is called when a monitor is about to send a statement of an operation: E3.
func (k *checker) sent(m *instance, a backend.Action) {
	if (a.Kind != backend.Execute && a.Kind != backend.Aside) || m.stopping {
		return
	}
	k.checks++
	proved := 0
	for _, cn := range m.conns {
		if cn.verified != 0 && m.Now() < cn.verified+m.timing.Lease {
			proved++
		}
	}
	if role, _ := m.Role(); role == election.Secondary && proved < len(k.c.servers)/2+1 {
		k.c.w.fail("E3", "%s, which is %s, sends %q to %s", m.name, role, a.SQL, a.Server)
	}
}

// statement is called when a server carries out a statement that changes it: E3.
func (k *checker) statement(s *server, ses *session, sql string) {
	if !strings.HasPrefix(ses.owner, "m") || strings.Contains(sql, "IF(@lockstep_got") || strings.HasPrefix(sql, "SET @") {
		return
	}
	k.checks++
	if s.locks[serverLock] != ses && !ses.got {
		k.c.w.fail("E3", "%s carries out %q of %s, which does not hold its server lock", s.name, sql, ses.owner)
	}
}

// writable is called when a server was set writable: E2 again.
func (k *checker) writable() {
	for _, m := range k.c.monitors {
		if m != nil {
			k.viewed(m)
		}
	}
}

// writes reports whether a server would take a client's write.
// One that its my.cnf has made writable, after it was the primary before, is not
// counted: that is what read_only=1 in my.cnf is for. Nor is one that a person has.
func (s *server) writes() bool { return s.running() && !s.readOnly && !s.opened }

// death is the end of a published primary's process.
type death struct {
	server  *server
	at      time.Duration
	backlog map[*server]int
}

// crashed is called when a server's process has ended.
func (k *checker) crashed(s *server) {
	if k.published != s {
		return
	}
	k.dead = death{s, k.c.w.now, map[*server]int{}}
	for _, o := range k.c.servers {
		for _, l := range o.links {
			k.dead.backlog[o] += len(l.relay)
		}
	}
}

// locked is called when a lock was taken: P1 at each publication.
func (k *checker) locked(s *server, name string) {
	if name != primaryLock {
		return
	}
	c := k.c
	c.stats.Published++
	k.checks++
	by := s.locks[primaryLock].owner
	if !strings.HasPrefix(by, "m") {
		return
	}
	if p := c.thaw; p != nil && p != s {
		c.thaw = nil
		c.w.after(0, p.goOn)
	}
	before := k.published
	if k.published != s {
		k.publishedAt = c.w.now
	}
	k.published = s
	if d := k.dead; d.server != nil && d.server != s {
		c.stats.Outages = append(c.stats.Outages, Outage{c.w.now - d.at, d.backlog[s]})
	}
	k.dead = death{}
	if s.readOnly {
		c.w.fail("P0", "%s publishes %s, which is read-only", by, s.name)
	}
	if before == nil {
		return
	}
	m := c.monitors[int(by[1]-'1')]
	if before != s {
		k.away = map[*server]bool{}
	}
	for _, y := range c.servers {
		if before == s {
			break // it has only been published anew: what it has lost counts all the same
		}
		k.away[y] = !y.running() || !m.conns[y.index].server.Up() || !c.net.open(&m.node, &y.node)
	}
	for _, w := range k.writes {
		if !w.acked || !w.safe || w.lost || s.has(w.gtid) {
			continue
		}
		w.lost = true
		if before == s && (!c.opt.ReadOnly || s.opened) && s.wrote {
			continue // clients have written to it anew, under the same numbers, before anybody could look
		}
		// A monitor that has not looked in between cannot know.
		if at, threw := s.threw[w.gtid]; threw && !c.opt.Lossy && max(m.began, w.at)+2*(m.timing.Interval+m.timing.Timeout) < at {
			c.w.fail("P1", "%s publishes %s, which had received %s and has thrown it away", by, s.name, w.gtid)
			return
		}
		for _, y := range c.servers {
			cn := m.conns[y.index]
			if y == s || y == w.on || y == before || !y.running() || !y.holds(w.gtid) || !cn.server.Up() || !c.net.open(&m.node, &y.node) {
				continue
			}
			if len(y.links) == 0 || m.Now()-cn.upSince < 2*m.timing.Interval+m.timing.Timeout {
				continue
			}
			c.w.fail("P1", "%s publishes %s, which has not got %s, acknowledged by %s after %s had received it; %s has it", by, s.name, w.gtid, w.on.name, y.name, y.name)
			return
		}
		c.w.logf("the write %s of %s is lost: nobody who can be asked has it", w.gtid, w.on.name)
	}
}

// written is called when a client's write is logged: P2.
func (k *checker) written(s *server, w *write) {
	c := k.c
	w.at = c.w.now
	for _, o := range k.writes {
		if c.opt.Lossy && o.gtid == w.gtid {
			o.lost = true // its number is used again: nobody can tell them apart
		}
	}
	k.writes = append(k.writes, w)
	if c.opt.Mode != election.MajorityOfAll || c.opt.Forged || s.opened || c.w.now-w.sent > 100*time.Millisecond {
		return
	}
	k.checks++
	for _, o := range c.servers {
		if h := o.locks[primaryLock]; o != s && h != nil && o.running() && c.owned(o, h) {
			c.w.fail("P2", "%s is written to through the view of %s while %s carries the primary lock of %s", s.name, w.from.name, o.name, h.owner)
		}
	}
}

// owned reports whether a session is one that a monitor still has: the lock of a
// session that its monitor has given up, on a server that stood still, is stale.
func (c *cluster) owned(s *server, ses *session) bool {
	for _, m := range c.monitors {
		if m != nil && !m.gone && m.conns[s.index].ses == ses {
			return true
		}
	}
	return false
}

// acked is called when a client is told that its write is done: P1 for a primary
// that was replaced. Where the write was begun before that it may be told so
// through a replica that the monitor which replaced it could not reach. One that
// its my.cnf has made writable is not counted.
func (k *checker) acked(w *write, by *server) {
	if !k.exclusive() || !w.safe || k.published == nil || k.published == w.on || k.published.holds(w.gtid) || w.on.opened {
		return
	}
	for _, m := range k.c.monitors {
		if m == nil || m.gone {
			continue
		}
		role, _ := m.Role()
		if p, _, ok := m.Primary(); ok && p.Name == w.on.name && role == election.Primary {
			return // it was promoted again, and could not be published: a person had its primary lock
		}
	}
	k.checks++
	w.lost = true
	if by.started > k.publishedAt && w.sent < k.publishedAt {
		return // it was started again, and connected to what it is still told to
	}
	if !k.away[by] || w.sent > k.publishedAt {
		k.c.w.fail("P1", "%s, which was replaced by %s, acknowledges %s through %s", w.on.name, k.published.name, w.gtid, by.name)
	}
}

// converged is called some time after everything has healed: L1.
func (k *checker) converged() {
	c := k.c
	var leaders []string
	offered := map[string]bool{}
	var primary *server
	for _, m := range c.monitors {
		if m.gone {
			continue
		}
		if role, _ := m.Role(); role == election.Primary {
			leaders = append(leaders, m.name)
		}
		p, _, ok := m.Primary()
		if !ok && (c.diverged() || c.ring() || c.several() || c.opt.Lossy) {
			return // a person has to choose
		}
		if !ok {
			c.w.fail("L1", "%s offers no primary: %s", m.name, m.View().Reason)
			return
		}
		offered[p.Name] = true
		primary = c.byName(p.Name)
	}
	if len(leaders) != 1 || len(offered) != 1 {
		c.w.fail("L1", "%v are primary monitor, %v are offered", leaders, offered)
		return
	}
	for _, s := range c.servers {
		if s == primary {
			continue
		}
		if s.follows(primary) && s.readOnly {
			continue
		}
		if c.opt.Lossy && len(s.waiting) > 0 {
			continue // it cannot be set read-only; a person has to stop it
		}
		if c.opt.Lossy && len(s.links) > 0 && s.links[0].from != nil && len(s.links[0].from.links) > 0 && s.links[0].from.links[0].errno == 1236 {
			continue // nor can its source
		}
		if c.opt.Lossy && len(s.links) > 0 && (s.links[0].errno == 1236 || !s.links[0].sql) {
			continue // it has what its source has lost
		}
		errant := false
		for _, g := range s.log {
			errant = errant || !primary.has(g)
		}
		switch {
		case errant:
			if !s.readOnly && len(s.waiting) == 0 {
				c.w.fail("L1", "%s has transactions of its own and is writable", s.name)
			}
		default:
			c.w.fail("L1", "%s is not a read-only replica of %s: %s", s.name, primary.name, s)
		}
	}
}

// follows reports whether a server replicates from another, directly or through a
// relay, and applies what it gets.
func (s *server) follows(primary *server) bool {
	for range s.c.servers {
		if s == primary {
			return true
		}
		if len(s.links) != 1 || !s.links[0].connected || !s.links[0].sql {
			return false
		}
		s = s.links[0].from
	}
	return false
}

// several reports whether more than one server is writable and replicates from
// nobody.
func (c *cluster) several() bool {
	n := 0
	for _, s := range c.servers {
		if !s.readOnly && len(s.links) == 0 {
			n++
		}
	}
	return n > 1
}

// ring reports whether two writable servers replicate from one another.
func (c *cluster) ring() bool {
	for _, s := range c.servers {
		for _, l := range s.links {
			if !s.readOnly && l.from != nil && !l.from.readOnly && len(l.from.links) > 0 && l.from.links[0].from == s {
				return true
			}
		}
	}
	return false
}

// diverged reports whether two servers each have something that the other lacks.
func (c *cluster) diverged() bool {
	lacks := func(a, b *server) bool {
		for _, g := range b.log {
			if !a.has(g) {
				return true
			}
		}
		return false
	}
	for _, a := range c.servers {
		for _, b := range c.servers {
			if lacks(a, b) && lacks(b, a) {
				return true
			}
		}
	}
	return false
}

// left is called after all monitors have stopped cleanly: N1.
func (k *checker) left() {
	for _, s := range k.c.servers {
		for _, ses := range s.sorted() {
			if strings.HasPrefix(ses.owner, "m") {
				k.c.w.fail("N1", "%s has left the connection %d on %s", ses.owner, ses.id, s.name)
			}
		}
		if s.killConn != 5 && !s.cutShort {
			k.c.w.fail("N1", "rpl_semi_sync_slave_kill_conn_timeout of %s was left at %d", s.name, s.killConn)
		}
	}
}
