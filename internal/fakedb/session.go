package fakedb

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"time"
)

// Capabilities and status flags of the protocol.
const (
	capLongPassword     = 1 << 0
	capLongFlag         = 1 << 2
	capConnectWithDB    = 1 << 3
	capProtocol41       = 1 << 9
	capTransactions     = 1 << 13
	capSecureConnection = 1 << 15
	capMultiStatements  = 1 << 16
	capMultiResults     = 1 << 17
	capPluginAuth       = 1 << 19
	capConnectAttrs     = 1 << 20
	capLenencAuth       = 1 << 21

	capabilities = capLongPassword | capLongFlag | capConnectWithDB | capProtocol41 | capTransactions | capSecureConnection |
		capMultiStatements | capMultiResults | capPluginAuth | capConnectAttrs | capLenencAuth

	statusAutocommit  = 1 << 1
	statusMoreResults = 1 << 3

	comQuit  = 0x01
	comInit  = 0x02
	comQuery = 0x03
	comPing  = 0x0e

	charset   = 45      // utf8mb4_general_ci
	maxPacket = 1 << 20 // longer ones end the session
)

// session is one connection.
type session struct {
	srv   *Server
	id    uint32
	conn  net.Conn
	in    *bufio.Reader
	ended chan struct{}
	over  bool // with Server.mu

	// user is written before the session becomes active.
	user   string // with Server.mu
	multi  bool
	seq    byte
	out    []byte
	idle   time.Duration
	vars   map[string]value // session variables that were set
	locals map[string]value // @variables
}

func newSession(s *Server, id uint32, c net.Conn) *session {
	return &session{srv: s, id: id, conn: c, ended: make(chan struct{}), idle: 8 * time.Hour}
}

var readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, 512) }}

func (ss *session) serve() {
	defer func() {
		ss.srv.mu.Lock()
		ss.srv.end(ss)
		ss.srv.mu.Unlock()
	}()
	ss.in, _ = readers.Get().(*bufio.Reader)
	ss.in.Reset(ss.conn)
	defer func() {
		ss.in.Reset(nil)
		readers.Put(ss.in)
	}()
	// An error means that the client has gone or does not know the protocol.
	if ss.gate() != nil || ss.handshake() != nil {
		return
	}
	for {
		if err := ss.await(); err != nil {
			return
		}
		packet, err := ss.read()
		if err != nil || len(packet) == 0 || ss.gate() != nil {
			return
		}
		switch packet[0] {
		case comQuit:
			return
		case comPing, comInit:
			ss.ok(0)
		case comQuery:
			if !ss.queries(string(packet[1:])) {
				_ = ss.flush()
				return
			}
		default:
			ss.fail(&sqlError{1047, "08S01", "Unknown command"})
		}
		if ss.flush() != nil {
			return
		}
	}
}

// gate waits while the server is frozen.
func (ss *session) gate() error {
	for {
		ss.srv.mu.Lock()
		thawed, over := ss.srv.thawed, ss.over
		ss.srv.mu.Unlock()
		switch {
		case over:
			return net.ErrClosed
		case thawed == nil:
			return nil
		}
		select {
		case <-thawed:
		case <-ss.ended:
		}
	}
}

// await waits for the next command, for wait_timeout at most. A frozen server
// does not end a session, and then looks whether a command has come.
func (ss *session) await() error {
	_ = ss.conn.SetReadDeadline(time.Now().Add(ss.idle))
	_, err := ss.in.Peek(1)
	if err == nil || !ss.srv.frozen() {
		return err
	}
	if gerr := ss.gate(); gerr != nil {
		return gerr
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		_ = ss.conn.SetReadDeadline(time.Now().Add(time.Millisecond))
		_, err = ss.in.Peek(1)
	}
	return err
}

func (s *Server) frozen() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.thawed != nil
}

func (ss *session) handshake() error {
	const scramble = "0123456789abcdefghij"
	b := ss.begin()
	b = append(b, 10)
	b = append(b, ss.srv.version...)
	b = append(b, 0)
	b = binary.LittleEndian.AppendUint32(b, ss.id)
	b = append(b, scramble[:8]...)
	b = append(b, 0)
	b = binary.LittleEndian.AppendUint16(b, capabilities&0xffff)
	b = append(b, charset)
	b = binary.LittleEndian.AppendUint16(b, statusAutocommit)
	b = binary.LittleEndian.AppendUint16(b, capabilities>>16)
	b = append(b, byte(len(scramble)+1))
	b = append(b, make([]byte, 10)...)
	b = append(b, scramble[8:]...)
	b = append(b, 0)
	b = append(b, "mysql_native_password\x00"...)
	ss.finish(b)
	if err := ss.flush(); err != nil {
		return err
	}
	_ = ss.conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	p, err := ss.read()
	if err != nil {
		return err
	}
	const fixed = 4 + 4 + 1 + 23
	if len(p) < fixed || binary.LittleEndian.Uint32(p)&capProtocol41 == 0 {
		return errors.New("not a handshake of protocol 4.1")
	}
	ss.multi = binary.LittleEndian.Uint32(p)&capMultiStatements != 0
	user, _, _ := strings.Cut(string(p[fixed:]), "\x00")
	ss.srv.mu.Lock()
	ss.user = user
	ss.srv.mu.Unlock()
	if err := ss.gate(); err != nil {
		return err
	}
	ss.ok(0)
	return ss.flush()
}

// read returns the next packet, which is valid until the next read or write.
func (ss *session) read() ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(ss.in, head[:]); err != nil {
		return nil, err
	}
	n := int(head[0]) | int(head[1])<<8 | int(head[2])<<16
	if n > maxPacket {
		return nil, errors.New("packet too long")
	}
	ss.seq = head[3] + 1
	if cap(ss.out) < n {
		ss.out = make([]byte, n)
	}
	p := ss.out[:n]
	_, err := io.ReadFull(ss.in, p)
	ss.out = ss.out[:0]
	return p, err
}

// begin starts a packet at the end of what is to be written; finish writes its
// header.
func (ss *session) begin() []byte {
	return append(ss.out, 0, 0, 0, ss.seq)
}

func (ss *session) finish(b []byte) {
	start := len(ss.out)
	n := len(b) - start - 4
	b[start], b[start+1], b[start+2] = byte(n), byte(n>>8), byte(n>>16)
	ss.out = b
	ss.seq++
}

func (ss *session) flush() error {
	if len(ss.out) == 0 {
		return nil
	}
	_, err := ss.conn.Write(ss.out)
	ss.out = ss.out[:0]
	return err
}

func (ss *session) ok(status uint16) {
	b := append(ss.begin(), 0, 0, 0)
	b = binary.LittleEndian.AppendUint16(b, statusAutocommit|status)
	ss.finish(append(b, 0, 0))
}

func (ss *session) eof(status uint16) {
	b := append(ss.begin(), 0xfe, 0, 0)
	ss.finish(binary.LittleEndian.AppendUint16(b, statusAutocommit|status))
}

func (ss *session) fail(e *sqlError) {
	b := binary.LittleEndian.AppendUint16(append(ss.begin(), 0xff), e.number)
	b = append(append(b, '#'), e.state...)
	ss.finish(append(b, e.text...))
}

// table writes a result set in the text protocol.
func (ss *session) table(t *table, status uint16) {
	ss.finish(lenenc(ss.begin(), uint64(len(t.columns))))
	for _, c := range t.columns {
		b := append(ss.begin(), "\x03def\x00\x00\x00"...)
		b = lenencString(b, c.name)
		b = append(b, 0, 0x0c, c.kind.charset(), 0)
		b = append(b, 0xff, 0, 0, 0, c.kind.typ())
		b = binary.LittleEndian.AppendUint16(b, c.kind.flags())
		ss.finish(append(b, 0, 0, 0))
	}
	ss.eof(status)
	for _, row := range t.rows {
		b := ss.begin()
		for _, v := range row {
			if v.null {
				b = append(b, 0xfb)
			} else {
				b = lenencString(b, v.text())
			}
		}
		ss.finish(b)
	}
	ss.eof(status)
}

func lenenc(b []byte, n uint64) []byte {
	switch {
	case n < 251:
		return append(b, byte(n))
	case n < 1<<16:
		return append(b, 0xfc, byte(n), byte(n>>8))
	}
	return append(b, 0xfd, byte(n), byte(n>>8), byte(n>>16))
}

func lenencString(b []byte, s string) []byte { return append(lenenc(b, uint64(len(s))), s...) }

// queries runs the statements of one packet. Each answer is sent at once, as the
// real server does. It returns false when the session is over.
func (ss *session) queries(text string) bool {
	stmts, err := prepare(text)
	if err == nil && len(stmts) > 1 && !ss.multi {
		err = syntaxError(text)
	}
	if err != nil {
		ss.fail(err)
		return true
	}
	for i, st := range stmts {
		var status uint16
		if i < len(stmts)-1 {
			status = statusMoreResults
		}
		t, err := st(ss)
		switch {
		case err != nil:
			ss.fail(err)
			return err.number != errKilled
		case t == nil:
			ss.ok(status)
		default:
			ss.table(t, status)
		}
		if ss.flush() != nil {
			return false
		}
	}
	return true
}
