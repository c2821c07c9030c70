package backend

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"sync"
	"syscall"
	"time"
)

// socket is a TCP or unix connection.
type socket interface {
	net.Conn
	syscall.Conn
}

// lockConn is a connection that resets on close, so that the kernel does
// not go on sending for it, and that reads the connection id from the server's
// greeting as it passes.
type lockConn struct {
	socket

	mu       sync.Mutex
	head     []byte
	done     bool
	threadID uint32
	known    bool
	// quiet is for how long nothing had been sent when the connection was closed.
	quiet  time.Duration
	closed bool
}

// maxGreeting bounds what is kept of the first packet while looking for the id.
const maxGreeting = 512

func dialLock(ctx context.Context, network, addr string) (*lockConn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	s, ok := c.(socket)
	if !ok {
		_ = c.Close()
		return nil, &net.OpError{Op: "dial", Net: network, Err: net.UnknownNetworkError(network)}
	}
	out := &lockConn{socket: s}
	out.linger(0)
	return out, nil
}

// linger sets what a close does with unsent bytes: 0 resets, -1 sends them. A
// unix socket has no such setting, and no need of it.
func (c *lockConn) linger(seconds int) {
	if tcp, ok := c.socket.(*net.TCPConn); ok {
		// It does not fail on an open socket in a way that matters: without it the
		// close is merely slower.
		_ = tcp.SetLinger(seconds)
	}
}

// Close ends the connection and notes when it last sent something.
func (c *lockConn) Close() error {
	c.mu.Lock()
	if !c.closed {
		c.closed, c.quiet = true, sentAgo(c.socket)
	}
	c.mu.Unlock()
	return c.socket.Close()
}

// quietFor is for how long nothing had been sent when the connection was closed;
// zero while it is open.
func (c *lockConn) quietFor() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.quiet
}

// Read passes on what the server sends and picks the id out of its greeting.
func (c *lockConn) Read(p []byte) (int, error) {
	n, err := c.socket.Read(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.done && n > 0 {
		c.head = append(c.head, p[:n]...)
		c.parseGreeting()
	}
	return n, err
}

// parseGreeting reads protocol version 10: four bytes of packet header, the
// version byte, the version text ended by NUL, the thread id.
func (c *lockConn) parseGreeting() {
	const header = 4
	if len(c.head) > header && c.head[header] != 10 {
		c.done, c.head = true, nil
		return
	}
	if len(c.head) <= header {
		return
	}
	end := bytes.IndexByte(c.head[header+1:], 0)
	if end >= 0 && len(c.head) >= header+1+end+1+4 {
		c.threadID = binary.LittleEndian.Uint32(c.head[header+1+end+1:])
		c.known, c.done, c.head = true, true, nil
		return
	}
	if len(c.head) > maxGreeting {
		c.done, c.head = true, nil
	}
}

// greetedAs returns the id in the greeting; ok is false where there was none.
func (c *lockConn) greetedAs() (id uint32, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.threadID, c.known
}
