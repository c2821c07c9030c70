package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/rs/zerolog"

	"github.com/lockstep-ha/lockstep/election"
	"github.com/lockstep-ha/lockstep/locks"
	"github.com/lockstep-ha/lockstep/monitor"
	"github.com/lockstep-ha/lockstep/monitor/operation"
	"github.com/lockstep-ha/lockstep/topology"
	"github.com/lockstep-ha/lockstep/topology/gtid"
)

// Options are what one run is made of. A seed expands to them.
type Options struct {
	Servers    int           `json:"servers"`
	Monitors   int           `json:"monitors"`
	Mode       election.Mode `json:"mode"`
	Interval   time.Duration `json:"interval"`
	Timeout    time.Duration `json:"timeout"`
	Floor      time.Duration `json:"floor"`
	SemiSync   bool          `json:"semi_sync"`
	Everywhere bool          `json:"semi_sync_everywhere"` // the primary side is on in every my.cnf
	ReadOnly   bool          `json:"read_only"`            // in every my.cnf
	Drift      float64       `json:"drift"`
	Lag        time.Duration `json:"lag"` // longest time to apply a transaction
	NetTimeout time.Duration `json:"net_timeout"`
	WriteEvery time.Duration `json:"write_every"`
	// Faults happen until Length; then everything heals.
	Length     time.Duration `json:"length"`
	FaultEvery time.Duration `json:"fault_every"`
	// Forged is set where faults include resets that a server has not sent.
	Forged bool `json:"forged"`
	// State has monitors keep what all have to know on the servers.
	State bool `json:"state"`
	// Lossy servers lose the end of their binary log in a crash (sync_binlog=0).
	Lossy bool `json:"lossy"`
	// Chain has all but one replica replicate from that one.
	Chain bool `json:"chain"`
	// Calm leaves out what majority_of_running gives no guarantee for.
	Calm bool `json:"calm"`
}

func (o Options) timing() locks.Timing {
	t, err := locks.Derive(locks.Settings{Interval: o.Interval, Timeout: o.Timeout, Floor: o.Floor})
	if err != nil {
		panic(err)
	}
	return t
}

// expand draws the options of a seed.
func expand(seed uint64) Options {
	r := generator(seed, "options")
	o := Options{
		Servers: 3 + r.IntN(3), Monitors: 2 + r.IntN(3),
		Interval:   []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second, 2 * time.Second, 5 * time.Second}[r.IntN(5)],
		SemiSync:   r.IntN(5) > 0,
		Everywhere: r.IntN(2) == 0,
		ReadOnly:   r.IntN(2) == 0,
		Drift:      r.Float64() * 0.004,
		NetTimeout: time.Duration(2+r.IntN(30)) * time.Second,
		WriteEvery: time.Duration(300+r.IntN(2000)) * time.Millisecond,
		Length:     3 * time.Minute,
		FaultEvery: time.Duration(2+r.IntN(15)) * time.Second,
		Forged:     r.IntN(4) == 0,
		Lossy:      r.IntN(5) == 0,
	}
	o.Timeout = o.Interval * time.Duration(2+r.IntN(4)) / 2
	o.Floor = []time.Duration{time.Second, 5 * time.Second}[r.IntN(2)]
	o.Lag = []time.Duration{2 * time.Millisecond, 20 * time.Millisecond, 300 * time.Millisecond}[r.IntN(3)]
	if r.IntN(4) == 0 {
		o.Mode, o.Calm, o.Forged = election.MajorityOfRunning, true, false
	}
	if o.Servers == 4 && r.IntN(2) == 0 {
		o.Servers = 2
		o.Mode, o.Calm, o.Forged = election.MajorityOfRunning, true, false
	}
	o.State = r.IntN(2) == 0
	o.Chain = r.IntN(6) == 0
	return o
}

// apply is how long a server takes for one transaction.
func (o Options) apply(s *server) time.Duration {
	d := 100*time.Microsecond + time.Duration(s.rng.Int64N(int64(o.Lag)))
	if s.c.slowApply[s.name] > s.c.w.now {
		d += 3 * time.Second
	}
	return d
}

// cluster is the whole world of a run.
type cluster struct {
	w         *world
	opt       Options
	seed      uint64
	net       *network
	servers   []*server
	monitors  []*instance
	check     *checker
	slowApply map[string]time.Duration
	writes    *rand.Rand
	skews     *rand.Rand
	starts    int
	stats     Stats
	log       zerolog.Logger
	thaw      *server  // goes on when another is published
	busy      []func() // end what commands are waiting
}

// Stats count what happened in a run.
type Stats struct {
	Ticks, Writes, Acked, Published int
	Faults                          map[string]int
	Operations                      map[string]int
	// Outages are how long no primary was published after a published one had ended.
	Outages []Outage
}

// Outage is the time from the end of a primary's process to the publication of
// another server.
type Outage struct {
	Took time.Duration
	// Backlog is how many transactions the new primary had received and not applied
	// when the old one ended.
	Backlog int
}

func (c *cluster) byName(name string) *server {
	for _, s := range c.servers {
		if s.name == name {
			return s
		}
	}
	return nil
}

func uintText(n uint64) string { return strconv.FormatUint(n, 10) }

func newCluster(seed uint64, o Options, keep bool) *cluster {
	c := &cluster{w: newWorld(keep), opt: o, seed: seed, slowApply: map[string]time.Duration{}, log: zerolog.Nop(),
		writes: generator(seed, "writes"), skews: generator(seed, "clocks"), stats: Stats{Faults: map[string]int{}, Operations: map[string]int{}}}
	c.net = newNetwork(c, generator(seed, "network"))
	c.check = &checker{c: c, carried: map[*server]time.Duration{}}
	for i := range o.Servers {
		s := &server{node: node{name: fmt.Sprintf("s%d", i+1)}, c: c, index: i, id: uint32(i + 1), up: true, boots: 1,
			rate: c.drift(), sessions: map[uint64]*session{}, locks: map[string]*session{}, place: map[gtid.GTID]int{}, threw: map[gtid.GTID]time.Duration{}, highest: make([]gtid.GTID, o.Servers), killConn: 5,
			rng: generator(seed, fmt.Sprintf("server %d", i))}
		s.cnf.readOnly = o.ReadOnly
		s.cnf.semi = semiSync{primary: o.SemiSync && (i == 0 || o.Everywhere), replica: o.SemiSync}
		s.semi, s.readOnly = s.cnf.semi, i != 0
		if i != 0 {
			s.semi.primary = false
		}
		c.servers = append(c.servers, s)
	}
	for i, s := range c.servers[1:] {
		from := c.servers[0]
		if o.Chain && i > 0 {
			from = c.servers[1]
		}
		l := &source{s: s, host: from.name, from: from, io: true, sql: true}
		s.links = append(s.links, l)
		l.begin()
	}
	for i := range o.Monitors {
		c.monitors = append(c.monitors, nil)
		c.w.at(time.Duration(i)*100*time.Millisecond, func() { c.start(i) })
		c.client(i)
	}
	return c
}

func (c *cluster) drift() float64 { return 1 + c.opt.Drift*(2*c.skews.Float64()-1) }

// start starts a monitor, a new process.
func (c *cluster) start(i int) {
	c.starts++
	o := c.opt
	m := &instance{node: node{name: fmt.Sprintf("m%d", i+1)}, c: c, index: i, rate: c.drift(), timing: o.timing(),
		skew: time.Duration(c.skews.Int64N(int64(time.Hour))) + time.Hour, rng: generator(c.seed, fmt.Sprintf("monitor %d", c.starts))}
	cfg := monitor.Config{Cluster: "sim", Name: m.name, Version: "sim", Quorum: o.Mode, Interval: o.Interval, Timeout: o.Timeout, WaitTimeoutFloor: o.Floor,
		Policy: operation.Policy{ReplicationUser: "repl", ReplicationPassword: "secret", AutoFailover: true, AutoRejoin: true, EnforceReadOnly: true, EnforceWritable: true,
			FailoverBlock: -1, StateSchema: "-"}}
	if o.State {
		cfg.Policy.StateSchema = ""
	}
	m.heldUntil = make([]time.Duration, len(c.servers))
	for i := range m.heldUntil {
		m.heldUntil[i] = -time.Hour
	}
	for _, s := range c.servers {
		cfg.Servers = append(cfg.Servers, monitor.ServerConfig{Name: s.name, Address: s.name + ":3306"})
		m.conns = append(m.conns, &conn{m: m, s: s, former: map[uint64]bool{},
			server: topology.Server{Settings: topology.Settings{Name: s.name, Address: s.name + ":3306", Votes: 1, Promotion: topology.Neutral}},
			row:    locks.Row{Server: s.name}})
	}
	var err error
	m.Monitor, err = monitor.New(cfg, monitor.WithFleet(m), monitor.WithClock(m), monitor.WithRand(m.rng), monitor.WithLogger(c.log))
	if err != nil {
		panic(err)
	}
	c.monitors[i], m.began = m, c.w.now
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel = cancel
	m.ticked = m.Now()
	c.w.logf("%s starts", m.name)
	m.p = spawn(func(*proc) {
		if err := m.Run(ctx); err != nil {
			panic(err)
		}
		c.w.logf("%s has stopped", m.name)
	})
	for _, cn := range m.conns {
		cn.arm()
	}
	m.goOn()
}

// kill ends a monitor's process at once. Where its host goes too, the servers do
// not learn of it.
func (c *cluster) kill(m *instance, host bool) {
	if m == nil || m.gone {
		return
	}
	c.w.logf("%s is killed (with its host: %v)", m.name, host)
	c.count(m)
	m.gone = true
	for _, cn := range m.conns {
		if cn.ses == nil {
			continue
		}
		cn.ses.onEnd = nil
		if !host && c.net.open(&m.node, &cn.s.node) {
			ses, s := cn.ses, cn.s
			c.w.after(c.net.delay(m.name), func() { s.awake(func() { s.end(ses, "its monitor was killed") }) })
		}
	}
	m.cancel()
	m.p.stop()
}

// halt stops a monitor cleanly.
func (c *cluster) halt(m *instance) {
	if m == nil || m.gone {
		return
	}
	c.w.logf("%s is told to stop", m.name)
	c.count(m)
	m.stopping = true
	m.cancel()
	m.Wake()
}

func (c *cluster) count(m *instance) {
	c.stats.Ticks += int(m.View().Tick)
	for _, r := range m.Operations() {
		c.stats.Operations[string(r.Kind)+" "+r.Outcome]++
	}
}

// leader is the monitor with the primary role, nil for none.
func (c *cluster) leader() *instance {
	for _, m := range c.monitors {
		if m != nil && !m.gone {
			if role, _ := m.Role(); role == election.Primary {
				return m
			}
		}
	}
	return nil
}

// primary is the server that the views offer, or the writable one.
func (c *cluster) primary() *server {
	for _, m := range c.monitors {
		if m != nil && !m.gone {
			if p, _, ok := m.Primary(); ok {
				return c.byName(p.Name)
			}
		}
	}
	for _, s := range c.servers {
		if s.up && !s.readOnly {
			return s
		}
	}
	return c.servers[0]
}

// command gives a command to a monitor, as a person does.
func (c *cluster) command(m *instance, cmd monitor.Command) {
	if m == nil || m.gone || m.frozen > c.w.now || m.stopping {
		return
	}
	c.w.logf("%s is asked for %s %s", m.name, cmd.Action, cmd.Server)
	ctx, cancel := context.WithCancel(context.Background())
	m.asked = make(chan struct{}, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = m.Command(ctx, cmd) // what comes of it is seen in the views
	}()
	select {
	case <-m.asked: // it is in the inbox
	case <-done: // one was there already
	}
	m.asked = nil
	c.busy = append(c.busy, func() { cancel(); <-done })
	m.Wake()
}

// end ends every coroutine and goroutine of the run.
func (c *cluster) end() {
	for _, m := range c.monitors {
		if m != nil && !m.gone {
			m.gone = true
			m.cancel()
			m.p.stop()
		}
	}
	for _, f := range c.busy {
		f()
	}
}
