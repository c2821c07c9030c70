package sim

import (
	"math/rand/v2"
	"time"

	"github.com/lockstep-ha/lockstep/monitor"
)

// Fault is one thing that goes wrong. A and B choose what it hits, in a way that
// depends on the kind; For is how long it lasts.
type Fault struct {
	At   time.Duration `json:"at"`
	Kind string        `json:"kind"`
	A    int           `json:"a"`
	B    int           `json:"b"`
	For  time.Duration `json:"for"`
}

// fault is what a kind of fault does.
type fault struct {
	kind   string
	weight int
	// split marks faults for which majority_of_running gives no guarantee.
	split bool
	// forged marks resets that no server has sent.
	forged bool
	// lossless marks faults that leave nobody with a transaction that its primary
	// loses in a crash too.
	lossless bool
	do       func(c *cluster, f Fault)
}

// The random faults come first; the aimed ones are named after the sentence of
// the argument for safety that they attack.
var faults = []fault{
	{kind: "server process ends", weight: 4, do: func(c *cluster, f Fault) { c.crash(c.servers[f.A%len(c.servers)], false, f.For) }},
	{kind: "server loses power", weight: 2, do: func(c *cluster, f Fault) { c.crash(c.servers[f.A%len(c.servers)], true, f.For) }},
	{kind: "primary process ends", weight: 4, do: func(c *cluster, f Fault) { c.crash(c.primary(), false, f.For) }},
	{kind: "primary process ends and starts at once", weight: 2, do: func(c *cluster, f Fault) {
		c.crash(c.primary(), false, time.Duration(f.A%2000)*time.Millisecond)
	}},
	{kind: "server stands still", weight: 3, do: func(c *cluster, f Fault) { c.servers[f.A%len(c.servers)].freeze(c.w.now + f.For) }},
	{kind: "primary stands still", weight: 2, do: func(c *cluster, f Fault) { c.primary().freeze(c.w.now + f.For) }},
	{kind: "monitor is killed", weight: 2, do: func(c *cluster, f Fault) {
		c.restart(f.A%len(c.monitors), f.For, func(m *instance) { c.kill(m, false) })
	}},
	{kind: "monitor's host loses power", weight: 2, do: func(c *cluster, f Fault) {
		c.restart(f.A%len(c.monitors), f.For, func(m *instance) { c.kill(m, true) })
	}},
	{kind: "monitor stops", weight: 1, do: func(c *cluster, f Fault) { c.restart(f.A%len(c.monitors), f.For, c.halt) }},
	{kind: "monitor stands still", weight: 3, split: true, do: func(c *cluster, f Fault) { c.freeze(c.monitors[f.A%len(c.monitors)], f.For) }},
	{kind: "path is cut", weight: 3, split: true, do: func(c *cluster, f Fault) {
		m, s := c.monitors[f.A%len(c.monitors)], c.servers[f.B%len(c.servers)]
		if m == nil {
			return
		}
		c.net.cut(m.name, s.name, c.w.now+f.For)
		if f.B%3 > 0 {
			c.net.cut(s.name, m.name, c.w.now+f.For)
		}
	}},
	{kind: "answers are lost", weight: 2, split: true, do: func(c *cluster, f Fault) {
		if m := c.monitors[f.A%len(c.monitors)]; m != nil {
			c.net.cut(c.servers[f.B%len(c.servers)].name, m.name, c.w.now+f.For)
		}
	}},
	{kind: "network splits", weight: 4, split: true, do: func(c *cluster, f Fault) { c.split(uint64(f.A)|uint64(f.B)<<20, f.For) }},
	{kind: "servers lose one another", weight: 2, split: true, do: func(c *cluster, f Fault) {
		a, b := c.servers[f.A%len(c.servers)], c.servers[f.B%len(c.servers)]
		c.net.cut(a.name, b.name, c.w.now+f.For)
		c.net.cut(b.name, a.name, c.w.now+f.For)
	}},
	{kind: "host is slow", weight: 2, do: func(c *cluster, f Fault) {
		name := c.servers[f.B%len(c.servers)].name
		if m := c.monitors[f.A%len(c.monitors)]; m != nil && f.B%2 == 0 {
			name = m.name
		}
		tenths := f.A % 13
		if c.opt.Calm {
			tenths %= 5 // slower than a timeout is cut off
		}
		c.net.slow[name] = slowness{c.w.now + f.For, time.Duration(float64(c.opt.Timeout) * float64(tenths) / 10)}
	}},
	{kind: "connection is killed", weight: 3, do: func(c *cluster, f Fault) {
		s := c.servers[f.A%len(c.servers)]
		if list := s.sorted(); len(list) > 0 && s.running() {
			s.end(list[f.B%len(list)], "killed by a person")
		}
	}},
	{kind: "person takes the server lock", weight: 1, do: func(c *cluster, f Fault) {
		s := c.servers[f.A%len(c.servers)]
		if !s.running() {
			return
		}
		ses := s.connect("person", "app")
		s.take(ses, serverLock)
		c.w.after(f.For, func() { s.awake(func() { s.end(ses, "the person is done") }) })
	}},
	{kind: "person sets read_only", weight: 1, do: func(c *cluster, f Fault) {
		if s := c.servers[f.A%len(c.servers)]; s.running() {
			was := s.readOnly
			s.readOnly = f.B%2 == 0
			s.opened = was && !s.readOnly
			s.logf("a person sets read_only to %v", s.readOnly)
		}
	}},
	{kind: "person stops replication", weight: 1, do: func(c *cluster, f Fault) {
		s := c.servers[f.A%len(c.servers)]
		if !s.running() || len(s.links) == 0 {
			return
		}
		var out answer
		s.threads(false, s.links[0].name, []string{"", "IO_THREAD", "SQL_THREAD"}[f.B%3], &out)
		c.w.after(f.For, func() { c.replicate(s) })
	}},
	{kind: "replica lags", weight: 2, do: func(c *cluster, f Fault) { c.slowApply[c.servers[f.A%len(c.servers)].name] = c.w.now + f.For }},
	{kind: "person asks for a switchover", weight: 3, do: func(c *cluster, f Fault) {
		cmd := monitor.Command{Action: monitor.ActSwitchover}
		if f.B%2 == 0 {
			cmd.Server = c.servers[f.A%len(c.servers)].name
		}
		c.command(c.leader(), cmd)
	}},
	{kind: "switchover meets a fault", weight: 3, do: func(c *cluster, f Fault) {
		l := c.leader()
		c.command(l, monitor.Command{Action: monitor.ActSwitchover})
		c.w.after(time.Duration(f.A%400)*time.Millisecond, func() {
			switch f.B % 4 {
			case 0:
				c.crash(c.primary(), false, f.For)
			case 1:
				c.crash(c.servers[f.A%len(c.servers)], false, f.For)
			case 2:
				if l != nil {
					c.restart(l.index, f.For, func(m *instance) { c.kill(m, f.A%2 == 0) })
				}
			case 3:
				c.command(l, monitor.Command{Action: monitor.ActCancel})
			}
		})
	}},
	{kind: "locks are released by command", weight: 1, do: func(c *cluster, f Fault) {
		if l := c.leader(); l != nil && l.frozen <= c.w.now {
			l.ReleaseLocks(f.For)
		}
	}},
	{kind: "resets are forged", weight: 2, split: true, forged: true, do: func(c *cluster, f Fault) {
		m, s := c.monitors[f.A%len(c.monitors)], c.primary()
		if m != nil {
			c.net.refuse[[2]string{m.name, s.name}] = c.w.now + f.For
		}
	}},
	// "A primary that closed the connection and refuses new ones is dead."
	{kind: "aimed: everybody is told that the primary is dead", weight: 2, split: true, forged: true, do: func(c *cluster, f Fault) {
		p := c.primary()
		for _, m := range c.monitors {
			if m != nil {
				c.net.refuse[[2]string{m.name, p.name}] = c.w.now + f.For
			}
		}
		for _, s := range c.servers {
			if s != p && f.B%2 == 0 {
				c.net.cut(p.name, s.name, c.w.now+f.For)
				c.net.cut(s.name, p.name, c.w.now+f.For)
				for _, l := range s.links {
					if l.from == p && l.connected {
						l.begin()
					}
				}
			}
		}
	}},
	// "A monitor that was frozen wakes up with expired leases."
	{kind: "aimed: late answers, lost sessions and a stall", weight: 2, split: true, do: func(c *cluster, f Fault) {
		l := c.leader()
		if l == nil {
			return
		}
		c.net.slow[l.name] = slowness{c.w.now + 2*c.opt.Interval + c.opt.Timeout, c.opt.Timeout * 8 / 10}
		c.w.after(time.Duration(f.A)*time.Millisecond%(c.opt.Interval+c.opt.Timeout), func() {
			c.endSessions(l, nil)
			c.w.after(time.Duration(f.B)*time.Millisecond%(c.opt.Interval+c.opt.Timeout), func() { c.freeze(l, f.For) })
		})
	}},
	// "The statement travels within the remaining lease."
	{kind: "aimed: a stall before a statement is sent", weight: 2, split: true, do: func(c *cluster, f Fault) {
		p := c.primary()
		for _, m := range c.monitors {
			if m == nil {
				continue
			}
			m.stall = f.For
		}
		c.crash(p, false, 20*time.Second)
		if f.A%2 == 0 {
			c.w.after(time.Duration(f.B%6000)*time.Millisecond, func() { c.endSessions(c.leader(), nil) })
		}
	}},
	// "Losing the majority releases every lock."
	{kind: "aimed: a minority lock is left on the primary's server", weight: 2, split: true, do: func(c *cluster, f Fault) {
		l := c.leader()
		c.endSessions(l, c.primary())
		if f.A%2 == 0 {
			c.freeze(l, f.For)
		}
	}},
	// "A secondary notices within N that the primary lock is gone."
	{kind: "aimed: secondaries stand still just before they would notice", weight: 2, split: true, do: func(c *cluster, f Fault) {
		l := c.leader()
		for _, m := range c.monitors {
			if m != l {
				c.freeze(m, f.For)
			}
		}
		if f.A%2 == 0 {
			c.crash(c.primary(), f.B%2 == 0, f.For)
		} else {
			c.command(l, monitor.Command{Action: monitor.ActSwitchover})
		}
	}},
	// "Sent again until the connection is closed, and not after."
	{kind: "aimed: requests are lost while the answers' way is open", weight: 2, split: true, do: func(c *cluster, f Fault) {
		l := c.leader()
		if l == nil {
			return
		}
		for _, s := range c.servers {
			if f.A>>s.index&1 == 0 {
				c.net.cut(l.name, s.name, c.w.now+f.For)
			}
		}
	}},
	// "Whoever held the majority before has noticed when the next has settled."
	{kind: "aimed: the primary monitor loses one session after the other", weight: 2, split: true, do: func(c *cluster, f Fault) {
		l := c.leader()
		for i, s := range c.servers {
			c.w.after(time.Duration(i)*time.Duration(f.A%5000)*time.Millisecond, func() {
				if l != nil && !l.gone {
					c.net.cut(s.name, l.name, c.w.now+f.For)
					c.endSessions(l, nil, s)
				}
			})
		}
	}},
	// "It counts only where the rest could not acknowledge a commit."
	{kind: "aimed: only the primary monitor is told that the primary is dead", weight: 3, split: true, forged: true, do: func(c *cluster, f Fault) {
		l, p := c.leader(), c.primary()
		if l == nil {
			return
		}
		c.net.refuse[[2]string{l.name, p.name}] = c.w.now + f.For
		for i, s := range c.servers {
			if s == p || f.B>>i&1 == 0 {
				continue
			}
			if f.A%2 == 0 {
				// It reaches a replica that the primary has lost.
				c.net.cut(p.name, s.name, c.w.now+f.For)
				for _, k := range s.links {
					if k.from == p && k.connected {
						k.begin()
					}
				}
			} else {
				c.net.cut(l.name, s.name, c.w.now+f.For)
			}
		}
	}},
	// "Nothing that a candidate has received is thrown away."
	{kind: "aimed: the primary ends while its replicas lag", weight: 3, do: func(c *cluster, f Fault) {
		p := c.primary()
		for _, s := range c.servers {
			c.slowApply[s.name] = c.w.now + 10*time.Second
		}
		c.w.after(5*time.Second, func() { c.crash(p, f.A%2 == 0, f.For+10*time.Second) })
	}},
	// "Server lock and primary lock have the same holder, which may have the majority."
	{kind: "aimed: a replaced primary goes on when its monitor has gone", weight: 2, split: true, do: func(c *cluster, f Fault) {
		l, p := c.leader(), c.primary()
		if l == nil {
			return
		}
		t := c.opt.timing()
		d := t.StaleAfter() + t.FailoverAfter() + 3*time.Second
		p.freeze(c.w.now + d)
		c.w.after(time.Duration(f.A%1000)*time.Millisecond, func() { c.net.cut(l.name, p.name, c.w.now+d) })
		c.w.after(d-time.Duration(f.B%500)*time.Millisecond, func() {
			if c.leader() == l {
				c.restart(l.index, f.For, func(m *instance) { c.kill(m, false) })
			}
		})
	}},
	// "A publication needs both locks of one holder."
	{kind: "aimed: a person opens a server and takes its primary lock", weight: 2, do: func(c *cluster, f Fault) {
		s, p := c.servers[f.A%len(c.servers)], c.primary()
		if s == p || !s.running() || s.locks[primaryLock] != nil {
			return
		}
		s.readOnly, s.opened = false, true
		ses := s.connect("person", "app")
		s.take(ses, primaryLock)
		s.logf("a person sets read_only to false")
		c.w.after(f.For, func() { s.awake(func() { s.end(ses, "the person is done") }) })
	}},
	// "The primary is set read-only first."
	{kind: "aimed: a switchover amid many writes", weight: 2, do: func(c *cluster, f Fault) {
		c.command(c.leader(), monitor.Command{Action: monitor.ActSwitchover})
		for d := time.Duration(0); d < 400*time.Millisecond; d += 3 * time.Millisecond {
			c.w.after(d, func() { c.write(f.A % len(c.monitors)) })
		}
	}},
	// "Relay log that was thrown away is remembered."
	{kind: "aimed: people throw relay log away before the primary ends", weight: 2, lossless: true, do: func(c *cluster, f Fault) {
		p := c.primary()
		for _, s := range c.servers {
			if s != p {
				c.slowApply[s.name] = c.w.now + 12*time.Second
			}
		}
		c.w.after(4*time.Second+c.opt.Interval, func() {
			for _, s := range c.servers {
				if s.running() && len(s.links) > 0 && s.links[0].from == p {
					var out answer
					s.threads(false, s.links[0].name, "", &out)
				}
			}
			c.w.after(time.Duration(f.A%20)*time.Millisecond, func() { c.crash(p, f.B%2 == 0, f.For+20*time.Second) })
			c.w.after(100*time.Millisecond, func() {
				for _, s := range c.servers {
					c.replicate(s)
				}
			})
		})
	}},
	// "A dead primary has closed the connection": a firewall refuses new ones.
	{kind: "aimed: the primary is behind a firewall that refuses", weight: 2, split: true, do: func(c *cluster, f Fault) {
		p := c.primary()
		until := c.w.now + 10*time.Second + f.For
		for i, m := range c.monitors {
			if m == nil || i == f.A%len(c.monitors) && f.B%4 > 0 {
				continue
			}
			c.net.cut(m.name, p.name, until)
			c.net.cut(p.name, m.name, until)
			c.net.reject[[2]string{m.name, p.name}] = until
		}
		for _, s := range c.servers {
			if s != p {
				c.net.cut(p.name, s.name, until)
				c.net.cut(s.name, p.name, until)
				for _, l := range s.links {
					if l.from == p && l.connected {
						l.begin()
					}
				}
			}
		}
	}},
	// "No replica acknowledges what a hung primary still commits."
	{kind: "aimed: a hung primary goes on in the instant in which it is replaced", weight: 2, split: true, do: func(c *cluster, f Fault) {
		p := c.primary()
		for d := time.Duration(0); d < 20*time.Millisecond; d += 2 * time.Millisecond {
			c.w.after(d, func() { c.write(f.A % len(c.monitors)) })
		}
		c.w.after(time.Duration(f.A%20)*time.Millisecond, func() {
			t := c.opt.timing()
			p.freeze(c.w.now + t.StaleAfter() + t.FailoverAfter() + 20*time.Second)
			c.thaw = p
			for i, s := range c.servers {
				if f.B>>i&1 == 1 && s != p {
					c.net.slow[s.name] = slowness{c.w.now + t.StaleAfter() + t.FailoverAfter() + 20*time.Second, c.opt.Timeout / 3}
				}
			}
		})
	}},
	// "Nobody has more when it is promoted."
	{kind: "aimed: a replica that has more comes back during a failover", weight: 2, do: func(c *cluster, f Fault) {
		p := c.primary()
		var best *server
		for i, s := range c.servers {
			switch {
			case s == p:
			case best == nil && (f.A>>i&1 == 1 || i == len(c.servers)-1):
				best = s
			default:
				c.slowApply[s.name] = c.w.now + 15*time.Second
			}
		}
		if best == nil {
			return
		}
		cutFrom := 4 * time.Second
		c.w.after(cutFrom, func() {
			for _, s := range c.servers {
				if s != p && s != best {
					c.net.cut(p.name, s.name, c.w.now+30*time.Second)
				}
			}
			for d := time.Duration(0); d < 20*time.Millisecond; d += 2 * time.Millisecond {
				c.w.after(d, func() { c.write(f.A % len(c.monitors)) })
			}
			c.w.after(60*time.Millisecond, func() {
				c.crash(p, f.B%2 == 0, 40*time.Second)
				c.crash(best, false, c.opt.timing().FailoverAfter()+time.Duration(f.B%4000)*time.Millisecond)
			})
		})
	}},
	// "Killed together, the monitor and the primary."
	{kind: "aimed: primary monitor and primary end together", weight: 2, do: func(c *cluster, f Fault) {
		if l := c.leader(); l != nil {
			p := c.primary()
			c.restart(l.index, f.For, func(m *instance) { c.kill(m, f.A%2 == 0) })
			c.crash(p, f.B%2 == 0, f.For+time.Duration(f.A%7000)*time.Millisecond)
		}
	}},
}

// draw makes the faults of a run.
func draw(seed uint64, o Options) []Fault {
	r := generator(seed, "faults")
	var able []fault
	total := 0
	for _, f := range faults {
		if (f.split && o.Calm) || (f.forged && !o.Forged) || (f.lossless && o.Lossy) {
			continue
		}
		able = append(able, f)
		total += f.weight
	}
	pick := func() string {
		n := r.IntN(total)
		for _, f := range able {
			if n -= f.weight; n < 0 {
				return f.kind
			}
		}
		panic("unreachable")
	}
	var out []Fault
	at := 20 * time.Second
	for {
		at += time.Duration(r.Int64N(int64(2 * o.FaultEvery)))
		if at > o.Length {
			return out
		}
		f := Fault{At: at, Kind: pick(), A: r.IntN(1 << 20), B: r.IntN(1 << 20), For: length(r)}
		out = append(out, f)
	}
}

// length is how long a fault lasts: most are short.
func length(r *rand.Rand) time.Duration {
	most := []time.Duration{time.Second, 5 * time.Second, 15 * time.Second, 40 * time.Second}[r.IntN(4)]
	return time.Duration(r.Int64N(int64(most)))
}

func (c *cluster) inject(f Fault) {
	for _, k := range faults {
		if k.kind == f.Kind {
			c.stats.Faults[f.Kind]++
			c.w.logf("FAULT %s (%d, %d, for %v)", f.Kind, f.A, f.B, f.For)
			k.do(c, f)
			return
		}
	}
	c.w.fail("SIM", "there is no fault %q", f.Kind)
}

func (c *cluster) crash(s *server, power bool, d time.Duration) {
	if !s.up {
		return
	}
	s.off = power
	s.crash("crash")
	boots := s.boots
	c.w.after(d, func() {
		if s.boots == boots {
			s.boot()
		}
	})
}

// restart ends a monitor and starts it again later.
func (c *cluster) restart(i int, d time.Duration, end func(*instance)) {
	m := c.monitors[i]
	if m == nil || m.gone || m.stopping {
		return
	}
	end(m)
	c.w.after(d+c.opt.Timeout+time.Second, func() {
		if c.monitors[i] == m && m.gone && !c.w.ended {
			c.start(i)
		}
	})
}

func (c *cluster) freeze(m *instance, d time.Duration) {
	if m == nil || m.gone {
		return
	}
	m.frozen = max(m.frozen, c.w.now+d)
	c.w.logf("%s stands still until %v", m.name, m.frozen)
}

// endSessions ends those of a monitor on all servers but one, or on some.
func (c *cluster) endSessions(m *instance, except *server, only ...*server) {
	if m == nil || m.gone {
		return
	}
	if len(only) == 0 {
		only = c.servers
	}
	for _, s := range only {
		if s == except || !s.running() {
			continue
		}
		for _, ses := range s.sorted() {
			if ses.owner == m.name {
				s.end(ses, "killed")
			}
		}
	}
}

// split cuts the network in two; the bits of mask say who is on which side.
func (c *cluster) split(mask uint64, d time.Duration) {
	var nodes []string
	for _, s := range c.servers {
		nodes = append(nodes, s.name)
	}
	for _, m := range c.monitors {
		if m != nil {
			nodes = append(nodes, m.name)
		}
	}
	for i, a := range nodes {
		for j, b := range nodes {
			if mask>>i&1 != mask>>j&1 {
				c.net.cut(a, b, c.w.now+d)
			}
		}
	}
}

// replicate starts the threads that a person had stopped.
func (c *cluster) replicate(s *server) {
	if !s.running() {
		return
	}
	for _, l := range s.links {
		if !l.io || !l.sql {
			var out answer
			s.threads(true, l.name, "", &out)
		}
	}
}
