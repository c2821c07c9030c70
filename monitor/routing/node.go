package routing

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstep-ha/lockstep/topology"
	"github.com/lockstep-ha/lockstep/topology/gtid"
)

// Node is one server as filters and pickers see it.
type Node struct {
	r             *Router
	name, address string
	site          string
	weight        int
	tags          []string
	// key is what the node was made from; another key makes another node.
	key       string
	connector driver.Connector
	reads     pool
	writes    pool
	db        func() *sql.DB

	out    atomic.Int64
	flavor atomic.Uint32
	waits  atomic.Int32

	// Instants on the clock of Now, zero for not.
	backAt    atomic.Int64 // since when it may be chosen
	openUntil atomic.Int64 // the circuit is open until then
	fails     atomic.Int32 // failures in a row
	opens     atomic.Int32 // openings in a row
	behind    atomic.Int64 // no token is waited for until then

	// suspect is set where the server, though named as the primary, could not be
	// reached or refused; then one caller at a time tries.
	suspect atomic.Bool
	probing atomic.Bool

	mu    sync.Mutex
	known atomic.Pointer[gtid.Position]
}

// Name returns the server's name in the view.
func (n *Node) Name() string { return n.name }

// Address returns the address to which connections go.
func (n *Node) Address() string { return n.address }

// Site returns the server's site, "" for none.
func (n *Node) Site() string { return n.site }

// Weight returns the server's weight, 0 for a standby.
func (n *Node) Weight() int { return n.weight }

// Outstanding returns how many connections of the router are in use on it.
func (n *Node) Outstanding() int { return int(n.out.Load()) }

// HasTag reports whether the server has a tag.
func (n *Node) HasTag(tag string) bool { return slices.Contains(n.tags, tag) }

// newNode makes the node of a server.
func (r *Router) newNode(s Server, key string) (*Node, error) {
	o := r.opts.Servers[s.Name]
	n := &Node{r: r, name: s.Name, address: cmp.Or(o.Address, s.Address), site: cmp.Or(o.Site, s.Site), weight: o.Weight, tags: o.Tags, key: key}
	if n.weight == 0 && !o.Standby {
		n.weight = 1
	}
	if err := checkAddress(n.address); err != nil {
		return nil, fmt.Errorf("server %s: %w", s.Name, err)
	}
	cfg := r.base.Clone()
	baseHost, _, _ := net.SplitHostPort(cfg.Addr)
	cfg.Net, cfg.Addr = "tcp", n.address
	if path, ok := strings.CutPrefix(n.address, unixPrefix); ok {
		cfg.Net, cfg.Addr = "unix", path
	}
	if o.User != "" {
		cfg.User, cfg.Passwd = o.User, o.Password
	}
	if o.TLS != nil {
		cfg.TLS = o.TLS.Clone()
	}
	if cfg.TLS != nil && (cfg.TLS.ServerName == "" || (o.TLS == nil && cfg.TLS.ServerName == baseHost)) {
		cfg.TLS.ServerName, _, _ = net.SplitHostPort(n.address)
	}
	cfg.DialFunc = dialInto
	var err error
	if n.connector, err = r.connect(s.Name, cfg); err != nil {
		return nil, fmt.Errorf("server %s: %w", s.Name, err)
	}
	n.reads = pool{node: n}
	n.writes = pool{node: n, write: true}
	n.db = sync.OnceValue(func() *sql.DB { return r.handle(connector{r: r, level: Any, pin: n}) })
	return n, nil
}

// socketKey is under which the context of a dial carries where to put the socket.
type socketKey struct{}

// dialInto dials and leaves the socket where the context says, so that it can be
// cut while a statement is under way.
func dialInto(ctx context.Context, network, addr string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	if into, ok := ctx.Value(socketKey{}).(*net.Conn); ok {
		*into = c
	}
	return c, nil
}

// failed notes a failure of a connection for reads. Enough in a row take the
// server out of the choice for a while; when that is over, one failure does again.
func (n *Node) failed() {
	n.known.Store(nil)
	if int(n.fails.Add(1)) < n.r.opts.CircuitAfter && n.opens.Load() == 0 {
		return
	}
	now := Now()
	if n.circuitOpen(now) {
		return
	}
	wait := min(n.r.opts.CircuitWait<<min(n.opens.Add(1)-1, 10), maxCircuitWait)
	n.openUntil.Store(int64(now + wait))
	n.backAt.Store(int64(now + wait))
	n.fails.Store(0)
	n.r.stats.circuits.Add(1)
}

// worked notes a success.
func (n *Node) worked() {
	if n.fails.Load() != 0 {
		n.fails.Store(0)
	}
	if n.opens.Load() != 0 {
		n.opens.Store(0)
	}
}

func (n *Node) circuitOpen(now time.Duration) bool { return int64(now) < n.openUntil.Load() }

// Ramps are in thousandths.
const (
	fullRamp  = 1000
	firstRamp = 100
)

// ramp is the part of its share that a server gets after it has come back.
func (n *Node) ramp(now time.Duration) uint64 {
	back := time.Duration(n.backAt.Load())
	if back == 0 || n.r.opts.SlowStart <= 0 {
		return fullRamp
	}
	since := now - back
	if since >= n.r.opts.SlowStart {
		n.backAt.CompareAndSwap(int64(back), 0)
		return fullRamp
	}
	return firstRamp + uint64(max(since, 0)*(fullRamp-firstRamp)/n.r.opts.SlowStart)
}

// knows reports whether the server is known to have what a token asks for.
func (n *Node) knows(t Token, own uint32) bool {
	p := n.known.Load()
	return p != nil && t.reachedBy(*p, own)
}

// learn notes that the server has all that a token asks for.
func (n *Node) learn(t Token) {
	if t.flavor != topology.MariaDB {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	p := t.mariadb
	if old := n.known.Load(); old != nil {
		p = later(*old, p)
	}
	n.known.Store(&p)
}

// close ends all connections that are not in use; the others end when they are
// given back.
func (n *Node) close() {
	n.reads.revoke(false)
	n.writes.revoke(false)
}
