package integration

import (
	"errors"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/internal/testdb"
	"github.com/lockstep-ha/lockstep/monitor"
)

// linkMode is what a link does with what passes through it.
type linkMode int

const (
	linkPass  linkMode = iota // forward
	linkDrop                  // forward nothing, not even a close; keep all connections
	linkReset                 // reset all connections, and each new one
)

// link is the network between one monitor and some servers: one TCP proxy for
// each, which all change at the same instant.
type link struct {
	mu     sync.Mutex
	cond   *sync.Cond
	mode   linkMode
	closed bool
	conns  map[net.Conn]bool
	wg     sync.WaitGroup
}

func newLink(t testing.TB) *link {
	t.Helper()
	l := &link{conns: map[net.Conn]bool{}}
	l.cond = sync.NewCond(&l.mu)
	t.Cleanup(func() {
		l.mu.Lock()
		l.closed = true
		l.hangUp()
		l.mu.Unlock()
		l.wg.Wait()
	})
	return l
}

// to opens a port that leads to an address, and returns its own.
func (l *link) to(t testing.TB, target string) string {
	t.Helper()
	var lc net.ListenConfig
	in, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = in.Close() }) // before the link itself ends
	l.wg.Go(func() {
		for {
			c, err := in.Accept()
			if err != nil {
				return
			}
			l.wg.Go(func() { l.serve(c, target) })
		}
	})
	return in.Addr().String()
}

// through makes a monitor use the link to reach its servers.
func (l *link) through(t testing.TB) func(*monitor.Config) {
	return func(cfg *monitor.Config) {
		for i := range cfg.Servers {
			cfg.Servers[i].Address = l.to(t, cfg.Servers[i].Address)
		}
	}
}

func (l *link) set(m linkMode) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mode = m
	if m == linkReset {
		l.hangUp()
	}
	l.cond.Broadcast()
}

// hangUp resets all connections; the caller holds the lock.
func (l *link) hangUp() {
	for c := range l.conns {
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = c.Close()
	}
	clear(l.conns)
	l.cond.Broadcast()
}

// open waits until the link passes something, and reports whether it does so
// at all. The connection is closed by hangUp from then on.
func (l *link) open(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c != nil {
		l.conns[c] = true
	}
	for l.mode == linkDrop && !l.closed {
		l.cond.Wait()
	}
	return l.mode == linkPass && !l.closed
}

func (l *link) end(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

func (l *link) serve(in net.Conn, target string) {
	defer l.end(in)
	if !l.open(in) {
		return
	}
	out, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer l.end(out)
	if !l.open(out) {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { l.copy(out, in) })
	both.Go(func() { l.copy(in, out) })
	both.Wait()
}

// copy forwards one direction until it ends, and then ends both.
func (l *link) copy(to, from net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		passes := l.open(nil)
		if passes && n > 0 {
			if _, werr := to.Write(buf[:n]); werr != nil {
				err = errors.Join(err, werr)
			}
		}
		if !passes || err != nil {
			_ = to.Close()
			_ = from.Close()
			return
		}
	}
}

// linked returns the configuration of a monitor that reaches the servers through
// a link of its own.
func linked(t testing.TB, c *testdb.Cluster, name string, change ...func(*monitor.Config)) (monitor.Config, *link) {
	t.Helper()
	l := newLink(t)
	change = append([]func(*monitor.Config){named(name), l.through(t)}, change...)
	return configOf(c, change...), l
}

func named(name string) func(*monitor.Config) {
	return func(cfg *monitor.Config) { cfg.Name = name }
}
