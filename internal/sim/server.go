package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-ha/lockstep/topology"
	"github.com/lockstep-ha/lockstep/topology/gtid"
)

// session is one connection on a server.
type session struct {
	id     uint64
	owner  string // "m1", or a person
	user   string
	alive  bool
	last   time.Duration // of the last statement
	idle   time.Duration // wait_timeout
	got    bool          // @lockstep_got
	kill   int           // @lockstep_kill
	onEnd  func(why string)
	locked map[string]bool
}

// Names of the locks on a server.
const (
	serverLock  = "server"
	primaryLock = "primary"
)

// node is a host of the network: a server or a monitor.
type node struct {
	name   string
	off    bool          // without power: it answers nothing
	frozen time.Duration // the process stands still until then
}

// semiSync are the variables of semi-synchronous replication.
type semiSync struct{ primary, replica bool }

// server is a MariaDB server as far as monitors, replicas and clients can see.
type server struct {
	node
	c       *cluster
	index   int
	id      uint32
	rate    float64 // of its clock
	up      bool
	boots   int
	started time.Duration

	readOnly bool
	state    map[string]stateRow
	opened   bool // by its my.cnf, or by a person
	wrote    bool // a client has written to it since it was started
	semi     semiSync
	cnf      struct {
		readOnly bool
		semi     semiSync
	}
	cutShort bool // a batch of statements was, by the end of its session
	killConn int  // rpl_semi_sync_slave_kill_conn_timeout

	nextID   uint64
	sessions map[uint64]*session
	locks    map[string]*session

	log      []gtid.GTID       // the binary log
	place    map[gtid.GTID]int // where a transaction is in it
	highest  []gtid.GTID       // of each server, by its id less one
	slave    gtid.GTID         // gtid_slave_pos, the zero value for none
	links    []*source
	threw    map[gtid.GTID]time.Duration // received and thrown away without being applied, and when
	waiting  []*commit                   // that wait for an acknowledgement
	acked    int                         // how much of the log was acknowledged, by place
	deferred []func()                    // what arrived while the process stood still
	pos      positions

	rng *rand.Rand
}

// positions are the GTID variables, computed when they are asked for.
type positions struct {
	n       int
	slave   gtid.GTID
	valid   bool
	binlog  gtid.Position
	state   gtid.State
	current gtid.Position
	applied gtid.Position
}

// commit is a write that a client waits for.
type commit struct {
	place int
	w     *write
}

func (s *server) logf(format string, args ...any) { s.c.w.logf(s.name+": "+format, args...) }

// running reports whether the process takes part in anything now.
func (s *server) running() bool { return s.up && !s.off && s.frozen <= s.c.w.now }

// connect opens a session.
func (s *server) connect(owner, user string) *session {
	s.nextID++
	ses := &session{id: s.nextID, owner: owner, user: user, alive: true, last: s.c.w.now, idle: 28800 * time.Second, locked: map[string]bool{}}
	s.sessions[ses.id] = ses
	return ses
}

// touch begins the idle time of a session anew.
func (s *server) touch(ses *session) {
	ses.last = s.c.w.now
	s.expire(ses, ses.last, ses.idle)
}

func (s *server) expire(ses *session, last, idle time.Duration) {
	s.c.w.after(time.Duration(float64(idle)/s.rate), func() {
		s.awake(func() {
			if ses.alive && ses.last == last && ses.idle == idle {
				s.end(ses, "idle for wait_timeout")
			}
		})
	})
}

// awake runs f as soon as the process does not stand still.
func (s *server) awake(f func()) {
	if s.frozen > s.c.w.now {
		s.deferred = append(s.deferred, f)
		return
	}
	f()
}

// end ends a session and frees its locks.
func (s *server) end(ses *session, why string) {
	if !ses.alive {
		return
	}
	ses.alive = false
	delete(s.sessions, ses.id)
	for _, name := range []string{primaryLock, serverLock} {
		if s.locks[name] == ses {
			s.c.check.freed(s, ses, name)
			delete(s.locks, name)
			s.logf("%s lock of %s is free (%s)", name, ses.owner, why)
		}
	}
	if ses.onEnd != nil {
		ses.onEnd(why)
	}
}

// take is GET_LOCK without waiting.
func (s *server) take(ses *session, name string) bool {
	switch s.locks[name] {
	case nil:
		s.locks[name] = ses
		s.logf("%s lock is taken by %s", name, ses.owner)
		s.c.check.locked(s, name)
		return true
	case ses:
		return true
	}
	return false
}

func (s *server) release(ses *session, name string) {
	if s.locks[name] == ses {
		s.c.check.freed(s, ses, name)
		delete(s.locks, name)
		s.logf("%s lock is released by %s", name, ses.owner)
	}
}

func (s *server) sorted() []*session {
	out := make([]*session, 0, len(s.sessions))
	for _, ses := range s.sessions {
		out = append(out, ses)
	}
	slices.SortFunc(out, func(a, b *session) int { return int(a.id) - int(b.id) })
	return out
}

// crash ends the process.
func (s *server) crash(why string) {
	if !s.up {
		return
	}
	s.logf("ends: %s", why)
	s.c.check.crashed(s)
	s.up, s.frozen = false, 0
	s.deferred = nil
	for _, ses := range s.sorted() {
		s.end(ses, why)
	}
	for _, c := range s.waiting {
		c.w.unknown()
	}
	s.waiting = nil
	if s.c.opt.Lossy && len(s.links) == 0 && !s.readOnly {
		s.loseTail(s.rng.IntN(4))
	}
	for _, l := range s.links {
		l.disconnect()
		// Relay log that was not applied is fetched anew.
		l.relay, l.received = nil, s.slave
	}
	for _, other := range s.c.servers {
		for _, l := range other.links {
			if l.connected && l.from == s {
				l.lost(s.off)
			}
		}
	}
}

// loseTail is what a crash does where the binary log is not synchronised: some of
// the server's own last transactions are gone, on disk and in the tables.
func (s *server) loseTail(n int) {
	for ; n > 0 && len(s.log) > 0 && s.log[len(s.log)-1].Server == s.id; n-- {
		delete(s.place, s.log[len(s.log)-1])
		s.log = s.log[:len(s.log)-1]
	}
	clear(s.highest)
	for _, g := range s.log {
		s.highest[g.Server-1] = g
	}
	s.pos.valid = false
	for _, other := range s.c.servers {
		for _, l := range other.links {
			if l.from == s {
				l.cursor = min(l.cursor, len(s.log))
			}
		}
	}
}

// boot starts the process anew: locks and what was set at run time are gone.
func (s *server) boot() {
	if s.up {
		return
	}
	s.up, s.off, s.frozen = true, false, 0
	s.boots++
	s.started = s.c.w.now
	s.readOnly, s.semi, s.killConn = s.cnf.readOnly, s.cnf.semi, 5
	s.acked = len(s.log)
	s.opened, s.wrote = !s.readOnly, false
	s.logf("starts (read_only %v)", s.readOnly)
	for _, l := range s.links {
		if l.io || l.sql {
			l.io, l.sql = true, true
			l.begin()
		}
	}
}

func (s *server) freeze(until time.Duration) {
	if !s.up || until <= s.frozen {
		return
	}
	s.logf("stands still until %v", until)
	s.frozen = until
	s.c.w.at(until, func() {
		if s.frozen == until {
			s.goOn()
		}
	})
}

// goOn ends a standstill.
func (s *server) goOn() {
	if !s.up || s.frozen == 0 {
		return
	}
	s.frozen = 0
	s.logf("goes on")
	list := s.deferred
	s.deferred = nil
	for _, f := range list {
		f()
	}
	for _, l := range s.links {
		l.pump()
		l.apply()
	}
	for _, other := range s.c.servers {
		for _, l := range other.links {
			if l.from == s {
				l.pump()
			}
		}
	}
}

// append logs a transaction.
func (s *server) append(g gtid.GTID) int {
	s.log = append(s.log, g)
	s.place[g] = len(s.log) - 1
	s.highest[g.Server-1] = g
	for _, other := range s.c.servers {
		for _, l := range other.links {
			if l.from == s {
				l.pump()
			}
		}
	}
	return len(s.log) - 1
}

// has reports whether a transaction is in the binary log.
func (s *server) has(g gtid.GTID) bool {
	_, ok := s.place[g]
	return ok
}

// holds reports whether a transaction is in the binary log or was received.
func (s *server) holds(g gtid.GTID) bool {
	return s.has(g) || slices.ContainsFunc(s.links, func(l *source) bool { return slices.Contains(l.relay, g) })
}

// last is the transaction at the end of the binary log.
func (s *server) last() (gtid.GTID, bool) {
	if len(s.log) == 0 {
		return gtid.GTID{}, false
	}
	return s.log[len(s.log)-1], true
}

// currentPos is @@gtid_current_pos: what this server logged itself if that came
// last, else what it replicated.
func (s *server) currentPos() gtid.GTID {
	if last, ok := s.last(); ok && last.Server == s.id && last.Seq > s.slave.Seq {
		return last
	}
	return s.slave
}

func position(g gtid.GTID) gtid.Position {
	if g.Seq == 0 {
		return gtid.Position{}
	}
	p, err := gtid.NewPosition(g)
	if err != nil {
		panic(err)
	}
	return p
}

func (s *server) positions() positions {
	if s.pos.valid && s.pos.n == len(s.log) && s.pos.slave == s.slave {
		return s.pos
	}
	p := positions{n: len(s.log), slave: s.slave, valid: true, applied: position(s.slave), current: position(s.currentPos())}
	if last, ok := s.last(); ok {
		p.binlog = position(last)
		var list []gtid.GTID
		for id := range uint32(len(s.c.servers)) {
			if g := s.highest[id]; g.Seq != 0 && g != last {
				list = append(list, g)
			}
		}
		state, err := gtid.NewState(append(list, last)...)
		if err != nil {
			panic(err)
		}
		p.state = state
	}
	s.pos = p
	return p
}

// commit is what a client's write does.
func (s *server) commit(w *write) {
	switch {
	case s.readOnly:
		w.refused("read-only")
		return
	case len(s.links) > 0 && s.links[0].sql && s.links[0].io:
		// An application that writes to a replica that is not read-only.
	}
	last, _ := s.last()
	w.gtid = gtid.GTID{Domain: 0, Server: s.id, Seq: max(last.Seq, s.slave.Seq) + 1}
	w.on, w.boots, s.wrote = s, s.boots, true
	s.c.check.written(s, w)
	place := s.append(w.gtid)
	if !s.semi.primary {
		w.done(nil)
		return
	}
	s.waiting = append(s.waiting, &commit{place, w})
}

// acknowledge takes the word of a semi-sync replica that it has received all up
// to a place in the log.
func (s *server) acknowledge(place int, by *server) {
	s.acked = max(s.acked, place+1)
	for len(s.waiting) > 0 && s.waiting[0].place < s.acked {
		c := s.waiting[0]
		s.waiting = s.waiting[1:]
		c.w.done(by)
	}
	for _, l := range s.links {
		l.apply()
	}
}

// fill puts what a probe shows into sv. local is the monitor's clock.
func (s *server) fill(sv *topology.Server, local func(time.Duration) time.Duration) {
	p := s.positions()
	sv.Flavor, sv.Version = topology.MariaDB, simVersion
	sv.ServerID, sv.Instance, sv.PeerIP = uint64(s.id), s.name, s.name
	sv.StartedAt = local(s.started).Truncate(time.Second)
	sv.ReadOnly = topology.TriOf(s.readOnly)
	sv.BinlogPos, sv.BinlogState, sv.SlavePos, sv.CurrentPos = p.binlog, p.state, p.applied, p.current
	sv.StrictMode, sv.LogBin, sv.LogReplicaWrites, sv.BinlogFormat = topology.Yes, topology.Yes, topology.Yes, "ROW"
	sv.SemiSync = topology.SemiSync{Known: true, PrimaryOn: s.semi.primary, ReplicaOn: s.semi.replica, Timeout: 365 * 24 * time.Hour, WaitPoint: "AFTER_SYNC", WaitNoReplica: true}
	sv.ReplicationKnown = true
	sv.Replication = nil
	for _, l := range s.links {
		sv.Replication = append(sv.Replication, l.status())
	}
}

var simVersion, _ = topology.ParseVersion("10.11.6-MariaDB-log")

func (s *server) String() string {
	var b strings.Builder
	last, _ := s.last()
	fmt.Fprintf(&b, "%s up=%v ro=%v semi=%v log=%d last=%s", s.name, s.up, s.readOnly, s.semi, len(s.log), last)
	for _, l := range s.links {
		fmt.Fprintf(&b, " <- %s io=%v sql=%v conn=%v relay=%d err=%d", l.host, l.io, l.sql, l.connected, len(l.relay), l.errno)
	}
	for _, n := range []string{serverLock, primaryLock} {
		if ses := s.locks[n]; ses != nil {
			fmt.Fprintf(&b, " %s:%s", n, ses.owner)
		}
	}
	return b.String()
}
