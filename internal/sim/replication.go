package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/lockstep-ha/lockstep/topology"
	"github.com/lockstep-ha/lockstep/topology/gtid"
)

// source is one replication connection of a server: where it leads, its two
// threads, and what was received and not yet applied.
type source struct {
	s         *server // the replica
	name      string
	host      string
	from      *server // the server at host, nil for none
	io, sql   bool
	connected bool
	semi      bool // acknowledges
	relay     []gtid.GTID
	received  gtid.GTID
	cursor    int // place in the source's log of the next transaction
	errno     uint64
	errtext   string
	sourceID  uint64
	beats     uint64
	epoch     int // of the connection
	flying    bool
	applying  bool
}

const reconnect = time.Second // MASTER_CONNECT_RETRY

func (l *source) disconnect() {
	l.connected, l.flying = false, false
	l.epoch++
}

// begin makes the IO thread connect.
func (l *source) begin() {
	l.disconnect()
	l.apply()
	if !l.io {
		return
	}
	epoch := l.epoch
	l.s.c.w.after(l.s.c.net.delay(l.s.name), func() { l.try(epoch) })
}

func (l *source) try(epoch int) {
	s := l.s
	if l.epoch != epoch || !l.io || !s.up {
		return
	}
	again := func() { s.c.w.after(reconnect, func() { l.try(epoch) }) }
	if l.from == nil || !s.running() || !l.from.running() || !s.c.net.open(&s.node, &l.from.node) || !s.c.net.open(&l.from.node, &s.node) {
		again()
		return
	}
	cursor := 0
	if l.received.Seq != 0 {
		at, ok := l.from.place[l.received]
		if !ok {
			l.io, l.errno, l.errtext = false, 1236, fmt.Sprintf("the source has not got %s", l.received)
			s.logf("cannot replicate from %s: %s", l.host, l.errtext)
			l.dropRelay()
			return
		}
		cursor = at + 1
	}
	l.connected, l.cursor, l.semi, l.sourceID, l.errno, l.errtext = true, cursor, s.semi.replica, uint64(l.from.id), 0, ""
	s.logf("replicates from %s", l.host)
	l.pump()
	l.beat(l.epoch)
	if l.semi && cursor > 0 {
		l.acknowledge(cursor - 1) // what it asks to go on from is what it has
	}
}

// beat is the heartbeat of an idle connection.
func (l *source) beat(epoch int) {
	l.s.c.w.after(time.Second, func() {
		if l.epoch != epoch || !l.connected {
			return
		}
		if l.s.running() && l.from.running() && l.s.c.net.open(&l.from.node, &l.s.node) {
			l.beats++
		}
		l.beat(epoch)
	})
}

// lost is what a replica notices when its source's process ends: at once, or,
// where the source says nothing any more, after slave_net_timeout.
func (l *source) lost(silent bool) {
	epoch, s := l.epoch, l.s
	d := s.c.net.delay(s.name)
	if silent || !s.c.net.open(&l.from.node, &s.node) {
		d = s.c.opt.NetTimeout
	}
	s.c.w.after(d, func() {
		s.awake(func() {
			if l.epoch == epoch && l.connected {
				l.begin()
			}
		})
	})
}

// pump sends the next transaction to the replica.
func (l *source) pump() {
	s := l.s
	if !l.connected || l.flying || !l.io || !s.running() || !l.from.running() || l.cursor >= len(l.from.log) {
		return
	}
	l.flying = true
	epoch, boots, sent := l.epoch, l.from.boots, s.c.w.now
	var arrive func()
	arrive = func() {
		if l.epoch != epoch || !l.connected {
			return
		}
		if l.from.boots != boots || !l.from.up {
			l.flying = false // the rest of it never came; lost() has been told
			return
		}
		if !s.running() {
			s.awake(func() { s.c.w.after(0, arrive) })
			return
		}
		if !s.c.net.open(&l.from.node, &s.node) {
			if s.c.w.now-sent > s.c.opt.NetTimeout {
				l.begin()
				return
			}
			s.c.w.after(200*time.Millisecond, arrive)
			return
		}
		l.flying = false
		if l.cursor >= len(l.from.log) {
			return
		}
		g := l.from.log[l.cursor]
		l.cursor++
		l.received = g
		if !s.has(g) {
			l.relay = append(l.relay, g)
		}
		if l.semi {
			l.acknowledge(l.cursor - 1)
		}
		l.apply()
		l.pump()
	}
	s.c.w.after(s.c.net.delay(s.name), arrive)
}

// acknowledge tells the source that all up to a place was received.
func (l *source) acknowledge(place int) {
	s, epoch, boots := l.s, l.epoch, l.from.boots
	var arrive func()
	arrive = func() {
		if l.epoch != epoch || l.from.boots != boots || !l.from.up {
			return
		}
		if !s.c.net.open(&s.node, &l.from.node) {
			s.c.w.after(200*time.Millisecond, arrive)
			return
		}
		l.from.awake(func() {
			if l.from.boots == boots && l.from.up {
				l.from.acknowledge(place, s)
			}
		})
	}
	s.c.w.after(s.c.net.delay(s.name), arrive)
}

// apply applies the next transaction of the relay log.
func (l *source) apply() {
	s := l.s
	if !l.sql || l.applying || len(l.relay) == 0 || !s.running() {
		return
	}
	l.applying = true
	boots := s.boots
	s.c.w.after(s.c.opt.apply(s), func() {
		l.applying = false
		if s.boots != boots || !s.running() || !l.sql || len(l.relay) == 0 {
			return
		}
		g := l.relay[0]
		if last, ok := s.last(); ok && last.Seq >= g.Seq {
			l.sql, l.errno = false, 1950
			s.logf("cannot apply %s after %s", g, last)
			l.dropRelay()
			return
		}
		if s.semi.primary && s.acked < len(s.log) {
			return // its last commit waits for an acknowledgement
		}
		l.relay = l.relay[1:]
		s.slave = g
		s.append(g)
		l.apply()
	})
}

// dropRelay is what a server does once both threads are stopped: what it has
// received and not applied is fetched anew.
func (l *source) dropRelay() {
	if !l.io && !l.sql && len(l.relay) > 0 {
		l.s.logf("throws away %d received transactions", len(l.relay))
		for _, g := range l.relay {
			l.s.threw[g] = l.s.c.w.now
		}
		l.relay, l.received = nil, l.s.slave
	}
}

func (l *source) status() topology.Replication {
	r := topology.Replication{Name: l.name, Host: l.host, Port: 3306, SourceServerID: l.sourceID, IO: "No", SQL: "No",
		Received: position(l.received), UsesGTID: true, IOErrno: l.errno, IOError: l.errtext, Heartbeats: l.beats}
	if l.errno == 1950 {
		r.SQLErrno, r.IOErrno = l.errno, 0
	}
	switch {
	case l.io && l.connected:
		r.IO = "Yes"
	case l.io:
		r.IO = "Connecting"
	}
	if l.sql {
		r.SQL = "Yes"
	}
	if l.connected && l.sql {
		r.SecondsBehind = topology.Yes
		r.Seconds = uint64(len(l.relay)) / 10
	}
	return r
}

func (s *server) link(name string) *source {
	for _, l := range s.links {
		if l.name == name {
			return l
		}
	}
	return nil
}

func (s *server) forget(l *source) {
	l.io, l.sql = false, false
	l.disconnect()
	s.links = slices.DeleteFunc(s.links, func(o *source) bool { return o == l })
}
