package backend

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/lockstep-ha/lockstep/locks"
	"github.com/lockstep-ha/lockstep/topology"
	"github.com/lockstep-ha/lockstep/topology/mariadb"
)

var errBusy = errors.New("the connection is busy with a query that has not been answered")

// prober owns the connection to one server. Only its goroutine touches sess and
// holders.
type prober struct {
	f      *Fleet
	srv    Server
	query  string
	rounds chan *round
	jobs   chan job
	hungup chan *session
	// deprived is true while a privilege is missing, checked when that was last
	// looked into with another connection.
	deprived bool
	checked  time.Duration
	sess     *session
	holders  map[uint64]locks.Holder
	missing  map[uint64]bool
	// former are the ids of this monitor's own sessions that have ended on its
	// side; the server may not know yet.
	former map[uint64]bool
	// fenceUntil is the instant until which a new connection sets the server
	// read-only at once; zero for not.
	fenceUntil atomic.Int64

	mu     sync.Mutex
	server topology.Server
	row    locks.Row
	// busy is true from the start of a probe or job to its end; stop ends it.
	busy bool
	stop context.CancelFunc
	// doomed asks for the session to be ended as soon as the probe or job is over.
	doomed bool
}

type job struct {
	ctx    context.Context
	action Action
	out    chan Outcome
	bye    bool
}

func newProber(f *Fleet, srv Server) *prober {
	columns := append(f.cfg.Names.ProbeColumns(), mariadb.ProbeColumns()...)
	return &prober{
		f: f, srv: srv,
		query:  "SELECT " + strings.Join(columns, ",") + ";" + mariadb.ReplicationStatement,
		rounds: make(chan *round, 1),
		jobs:   make(chan job),
		hungup: make(chan *session, 1),
		former: map[uint64]bool{},
		server: topology.Server{Settings: srv.Settings},
		row:    locks.Row{Server: srv.Name},
	}
}

// ask requests a probe. A server that is busy since before, or that timed out
// last time, is asked but not waited for.
func (p *prober) ask(r *round) {
	p.mu.Lock()
	wait := !p.busy && p.server.Evidence != topology.TimedOut
	p.mu.Unlock()
	if wait {
		r.left.Add(1)
		select {
		case p.rounds <- r:
			return
		default:
			r.finish()
		}
		return
	}
	late := &round{done: make(chan struct{})}
	late.left.Store(1)
	late.abandoned.Store(true)
	select {
	case p.rounds <- late:
	default:
	}
}

func (p *prober) snapshot() (topology.Server, locks.Row) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.server, p.row
}

// refreshAfter is when a connection is refreshed although no tick asked.
func (p *prober) refreshAfter() time.Duration {
	return min(p.f.cfg.Timing.Interval+p.f.cfg.Timing.Timeout/2, p.f.cfg.Timing.Lease*3/4)
}

func (p *prober) run(ctx context.Context) {
	timer := time.NewTimer(p.refreshAfter())
	defer timer.Stop()
	defer func() { _ = p.drop() }()
	for {
		select {
		case <-ctx.Done():
			return
		case r := <-p.rounds:
			changed := p.probe(ctx)
			late := r.abandoned.Load()
			r.finish()
			p.regrant(ctx)
			if late && changed {
				p.f.cfg.Wake()
			}
		case j := <-p.jobs:
			p.perform(j)
		case s := <-p.hungup:
			if s == p.sess {
				p.probe(ctx)
				p.f.cfg.Wake()
			}
		case <-timer.C:
			if p.f.engineAlive() {
				p.probe(ctx)
			}
		}
		p.mu.Lock()
		doomed := p.doomed
		p.mu.Unlock()
		if doomed {
			p.abandon(nil)
		}
		timer.Reset(p.refreshAfter())
	}
}

// begin marks the connection busy and gives the context of one operation that
// may take as long as limit.
func (p *prober) begin(parent context.Context, limit time.Duration) (context.Context, func()) {
	ctx, cancel := context.WithTimeout(parent, limit)
	p.mu.Lock()
	p.busy, p.stop = true, cancel
	if p.doomed {
		cancel()
	}
	p.mu.Unlock()
	return ctx, func() {
		p.mu.Lock()
		p.busy, p.stop = false, nil
		p.mu.Unlock()
		cancel()
	}
}

// probe looks at the server once and reports whether something changed that a
// tick should know of at once.
func (p *prober) probe(parent context.Context) (changed bool) {
	ctx, end := p.begin(parent, p.f.cfg.Timing.Timeout)
	defer func() { end() }()
	established := p.sess != nil
	sent := p.f.cfg.Now()
	var err error
	if p.sess == nil {
		p.sess, err = openSession(ctx, p.srv, p.f.cfg.Timing.WaitTimeout, p.fence())
		if err == nil {
			p.use(p.sess)
			// The connection may have taken most of the time: the probe has its own.
			end()
			ctx, end = p.begin(parent, p.f.cfg.Timing.Timeout)
		} else {
			p.sess = nil
		}
	}
	var server topology.Server
	var row locks.Row
	if err == nil {
		sent = p.f.cfg.Now()
		server, row, err = p.look(ctx)
	}
	done := p.f.cfg.Now()
	p.mu.Lock()
	before := p.server
	p.mu.Unlock()
	if err != nil {
		if parent.Err() != nil {
			return false
		}
		last := p.drop()
		server = before
		if established {
			server.LockSentAt = last
		}
		server.Evidence, server.Detail = classify(err, established), err.Error()
		switch {
		case errors.Is(err, context.Canceled):
			server.Evidence = topology.TimedOut
			server.Detail = "the connection was cut to release its locks while it did not answer"
		case server.Evidence == topology.Closed && established:
			server.PeerClosed = true
			p.explainClose(parent, &server)
		}
		switch server.Evidence {
		case topology.Closed, topology.Refused, topology.ShuttingDown:
		default:
			server.PeerClosed = false
		}
		server.Faults = faultsOf(p.srv, server, err)
		row = locks.Row{}
	} else {
		server.LockSentAt = done
		server.Settings, server.Evidence, server.EverSeen, server.SeenAt = p.srv.Settings, topology.Answered, true, sent
	}
	server.SentAt, server.DoneAt = sent, done
	row.Server, row.SentAt, row.DoneAt = p.srv.Name, sent, done
	p.mu.Lock()
	p.server, p.row = server, row
	p.mu.Unlock()
	return server.Evidence != before.Evidence
}

// fence is what a new connection sends before all else, "" for nothing.
func (p *prober) fence() string {
	if p.f.cfg.Now() >= time.Duration(p.fenceUntil.Load()) {
		return ""
	}
	return locks.TakeStatement(p.f.cfg.Names, p.f.cfg.Timing.WaitTimeout) + ";" + mariadb.FenceIfHeld(fenceWait)
}

// fenceWait bounds how long a fence waits for running commits.
const fenceWait = time.Second

// use makes a session the one that holds the locks.
func (p *prober) use(s *session) {
	p.sess = s
	p.holders, p.missing = map[uint64]locks.Holder{}, map[uint64]bool{}
	// Ids grow while a server lives: one that is not below this session's is from
	// before a restart, and may be anybody's now.
	maps.DeleteFunc(p.former, func(id uint64, _ bool) bool { return id >= s.id })
	s.startedAt = p.f.cfg.Now() - s.uptime
	s.stop = p.f.hang.add(s.net, func() {
		select {
		case p.hungup <- s:
		default:
		}
	})
}

// privilegeCheck is how often a missing privilege is looked for again.
const privilegeCheck = 5 * time.Second

// regrant looks, now and then while a privilege is missing, whether it was
// granted: that holds for new connections only. If so the session is exchanged,
// which costs the lock on this server until the next tick.
func (p *prober) regrant(parent context.Context) {
	if p.sess == nil || !p.deprived || p.f.cfg.Now()-p.checked < privilegeCheck {
		return
	}
	p.checked = p.f.cfg.Now()
	ctx, end := p.begin(parent, p.f.cfg.Timing.Timeout)
	defer end()
	s, err := openSession(ctx, p.srv, p.f.cfg.Timing.WaitTimeout, "")
	if err != nil {
		return
	}
	if _, err := s.Query(ctx, p.query); err != nil || !s.seesProcesses || (p.f.cfg.Operates && len(s.lacks) > 0) {
		s.goodbye()
		return
	}
	p.abandon(nil)
	p.use(s)
	p.f.cfg.Wake()
}

// explainClose connects once more after the peer closed the connection, so that
// one tick can tell a server that ended from one that lost a connection.
func (p *prober) explainClose(parent context.Context, server *topology.Server) {
	ctx, end := p.begin(parent, p.f.cfg.Timing.Timeout)
	defer end()
	ctx, cancel := context.WithTimeout(ctx, p.f.patience())
	defer cancel()
	s, err := openSession(ctx, p.srv, p.f.cfg.Timing.WaitTimeout, "")
	if err == nil {
		s.goodbye()
		return
	}
	if e := classify(err, false); e != topology.OtherFailure {
		server.Evidence, server.Detail = e, "the connection was closed, then: "+err.Error()
	}
}

// look asks everything in one round trip, and once more for the names of lock
// holders that were not there before.
func (p *prober) look(ctx context.Context) (topology.Server, locks.Row, error) {
	server := topology.Server{Flavor: p.sess.flavor, Version: p.sess.version, PeerIP: p.sess.peerIP, StartedAt: p.sess.startedAt}
	tables, err := p.sess.Query(ctx, p.query)
	if len(tables) == 0 {
		return server, locks.Row{}, fmt.Errorf("probe: %w", errors.Join(err, errNoRows(err)))
	}
	var my *mysql.MySQLError
	if err != nil && (!errors.As(err, &my) || !mariadb.MissingPrivilege(my.Number)) {
		return server, locks.Row{}, fmt.Errorf("probe: %w", err)
	}
	first := tables[0].Row(0)
	row, perr := locks.ParseRow(p.srv.Name, p.sess.id, first)
	if perr != nil {
		return server, row, fmt.Errorf("probe: %w", perr)
	}
	if perr := mariadb.ParseVariables(&server, first); perr != nil {
		return server, row, fmt.Errorf("probe: %w", perr)
	}
	switch {
	case err != nil:
		server.Faults = append(server.Faults, missingPrivilege(p.srv, mariadb.Grants(server.Version)[0]))
	case len(tables) > 1:
		if perr := mariadb.ParseReplication(&server, &tables[1]); perr != nil {
			return server, row, fmt.Errorf("probe: %w", perr)
		}
	default:
		server.ReplicationKnown = true
	}
	if !p.sess.seesProcesses {
		server.Faults = append(server.Faults, missingPrivilege(p.srv, mariadb.Grants(server.Version)[1]))
	}
	if p.f.cfg.Operates && len(p.sess.lacks) > 0 {
		server.Faults = append(server.Faults, cannotOperate(p.srv, p.sess.lacks))
	}
	if err := p.identify(ctx, &row); err != nil {
		return server, row, err
	}
	if err := p.idle(ctx, &row); err != nil {
		return server, row, err
	}
	p.deprived = err != nil || !p.sess.seesProcesses || (p.f.cfg.Operates && len(p.sess.lacks) > 0)
	server.Faults = append(server.Faults, p.lockFaults(row)...)
	return server, row, nil
}

func errNoRows(err error) error {
	if err == nil {
		return errors.New("the server sent no result")
	}
	return nil
}

// identify finds the accounts of lock holders, in one query for those that are new.
func (p *prober) identify(ctx context.Context, row *locks.Row) error {
	own := locks.Holder{User: p.srv.User, Checked: true, Trusted: true}
	var ask []string
	held := []*locks.Lock{&row.ServerLock, &row.PrimaryLock}
	for _, l := range held {
		id := l.Holder.ConnectionID
		if _, ok := p.holders[id]; l.State == locks.Other && !ok {
			ask = append(ask, fmt.Sprint(id))
		}
	}
	if len(ask) > 0 {
		tables, err := p.sess.Query(ctx, "SELECT ID, USER, HOST FROM information_schema.PROCESSLIST WHERE ID IN ("+strings.Join(slices.Compact(ask), ",")+")")
		if err != nil {
			return fmt.Errorf("read process list: %w", err)
		}
		p.remember(ask, tables[0].Rows)
	}
	keep := map[uint64]locks.Holder{}
	for _, l := range held {
		id := l.Holder.ConnectionID
		switch l.State {
		case locks.Self:
			l.Holder = own
			l.Holder.ConnectionID = id
		case locks.Other:
			if h, ok := p.holders[id]; ok {
				keep[id] = h
				h.Former = p.former[id]
				h.Trusted = h.User != "" && p.f.trusts(p.srv.User, h.User)
				l.Holder = h
			}
		case locks.Free, locks.Unknown:
		}
	}
	p.holders = keep
	p.former = kept(p.former, row)
	return nil
}

// idle asks for how long the other holder of the server lock has been silent: it
// tells a holder that ended from one that merely ran into its wait_timeout.
func (p *prober) idle(ctx context.Context, row *locks.Row) error {
	row.Idle = -1
	if row.ServerLock.State != locks.Other || row.ServerLock.Holder.ConnectionID == 0 {
		return nil
	}
	tables, err := p.sess.Query(ctx, fmt.Sprintf("SELECT TIME_MS FROM information_schema.PROCESSLIST WHERE ID=%d", row.ServerLock.Holder.ConnectionID))
	if err != nil {
		return fmt.Errorf("read process list: %w", err)
	}
	if len(tables) == 0 || len(tables[0].Rows) == 0 {
		return nil
	}
	var ms float64
	if _, err := fmt.Sscan(tables[0].Row(0).String("TIME_MS"), &ms); err == nil && ms >= 0 && ms < 1e12 {
		row.Idle = time.Duration(ms * float64(time.Millisecond))
	}
	return nil
}

// remember keeps who was found. A connection that is not in the process list
// has either just gone or belongs to an account that may not be seen; only the
// second time that it is missing is it taken for the latter.
func (p *prober) remember(asked []string, rows [][]*string) {
	found := map[string]bool{}
	for _, r := range rows {
		if len(r) < 3 || r[0] == nil {
			continue
		}
		h := locks.Holder{Checked: true}
		if _, err := fmt.Sscan(*r[0], &h.ConnectionID); err != nil {
			continue
		}
		if r[1] != nil {
			h.User = *r[1]
		}
		if r[2] != nil {
			h.Host = *r[2]
		}
		p.holders[h.ConnectionID] = h
		found[*r[0]] = true
	}
	missing := map[uint64]bool{}
	for _, text := range asked {
		var id uint64
		if _, err := fmt.Sscan(text, &id); err != nil || found[text] {
			continue
		}
		missing[id] = true
		if p.missing[id] {
			p.holders[id] = locks.Holder{ConnectionID: id, Checked: true}
		}
	}
	p.missing = missing
}

// kept are the former sessions that still hold a lock: the others have ended,
// and their ids may be given to anybody after a restart.
func kept(former map[uint64]bool, row *locks.Row) map[uint64]bool {
	out := map[uint64]bool{}
	for _, id := range []uint64{row.ServerLock.Holder.ConnectionID, row.PrimaryLock.Holder.ConnectionID} {
		if former[id] {
			out[id] = true
		}
	}
	return out
}

// drop ends the session, if there is one, and returns the last instant at which
// something may have been sent on it.
func (p *prober) drop() (last time.Duration) {
	last = p.f.cfg.Now()
	if p.sess != nil {
		p.former[p.sess.id] = true
		p.sess.close()
		last -= p.sess.net.quietFor()
		p.sess = nil
	}
	return last
}
