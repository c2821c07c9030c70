package testdb

import (
	"context"
	"database/sql/driver"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
)

const patience = 30 * time.Second

func always(addr string) Target { return func() (string, bool) { return addr, true } }

// startWriter makes the table on a server and starts a writer, which ends with
// the test at the latest.
func startWriter(t *testing.T, s *Server, target Target, opts WriterOptions) *Writer {
	t.Helper()
	s.MustExec(t, WriterTable(opts.Table))
	opts.Log = t.Logf
	w := StartWriter(t.Context(), target, opts)
	t.Cleanup(func() { w.Stop() })
	return w
}

func waitAcked(t *testing.T, w *Writer, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, w.WaitAcked(ctx, n))
}

// waitRefused waits until n more attempts than now are refused.
func waitRefused(t *testing.T, w *Writer, n int) {
	t.Helper()
	want := w.Snapshot().Refused + n
	require.Eventually(t, func() bool { return w.Snapshot().Refused >= want }, patience, time.Millisecond)
}

// waitOpen waits until an outage goes on.
func waitOpen(t *testing.T, w *Writer) {
	t.Helper()
	require.Eventually(t, func() bool {
		all := w.Snapshot().Outages
		return len(all) > 0 && all[len(all)-1].Open
	}, patience, time.Millisecond)
}

// requireComplete finds all acknowledged writes on a server and nothing that
// should not be there, and returns how many unknown writes are there.
func requireComplete(t *testing.T, w *Writer, s *Server) (extra int) {
	t.Helper()
	lost, twice, extra, err := w.Check(t.Context(), s)
	require.NoError(t, err)
	require.Empty(t, lost)
	require.Empty(t, twice)
	return extra
}

func TestWriterKillAndRestart(t *testing.T) {
	t.Parallel()
	s := New(t, Options{})
	w := startWriter(t, s, always(s.Addr()), WriterOptions{Clients: 3})
	waitAcked(t, w, 20)
	require.Empty(t, w.Snapshot().Outages)

	require.NoError(t, s.Kill())
	waitOpen(t, w)
	down := time.Now()
	waitRefused(t, w, 20)
	up := time.Now()
	require.GreaterOrEqual(t, w.Snapshot().Longest, up.Sub(down))
	require.NoError(t, s.Restart(t.Context()))
	waitAcked(t, w, 20)

	r := w.Stop()
	require.Equal(t, r, w.Stop())
	require.Len(t, r.Outages, 1)
	o := r.Outages[0]
	require.False(t, o.Open)
	require.False(t, o.From.After(down))
	require.True(t, o.To.After(up))
	require.GreaterOrEqual(t, r.Longest, up.Sub(down))
	require.Equal(t, o.Duration(), r.Longest)
	require.Equal(t, s.Addr(), o.FromAddr)
	require.Equal(t, s.Addr(), o.ToAddr)
	require.NotEmpty(t, o.FirstError)

	require.GreaterOrEqual(t, r.Acked, 40)
	require.LessOrEqual(t, r.Unknown, 3, "one a client, each in flight when the server died")
	require.LessOrEqual(t, requireComplete(t, w, s), r.Unknown)
	require.Error(t, w.WaitAcked(t.Context(), 1))
}

func TestWriterReadOnly(t *testing.T) {
	t.Parallel()
	s := New(t, Options{})
	w := startWriter(t, s, always(s.Addr()), WriterOptions{Clients: 2, Table: "app.other"})
	waitAcked(t, w, 10)
	const times = 3
	for range times {
		s.MustExec(t, "SET GLOBAL read_only = 1")
		waitRefused(t, w, 10)
		s.MustExec(t, "SET GLOBAL read_only = 0")
		waitAcked(t, w, 10)
	}
	r := w.Stop()
	require.GreaterOrEqual(t, r.Refused, times*10)
	require.Zero(t, r.Unknown)
	require.Len(t, r.Outages, times)
	for _, o := range r.Outages {
		require.Contains(t, o.FirstError, "read-only")
		require.Positive(t, o.Duration())
		require.GreaterOrEqual(t, r.Longest, o.Duration())
	}
	require.Zero(t, requireComplete(t, w, s))
}

func TestWriterTarget(t *testing.T) {
	t.Parallel()
	s := New(t, Options{})
	closed, err := freePort()
	require.NoError(t, err)
	var target atomic.Value
	target.Store("")
	w := startWriter(t, s, func() (string, bool) {
		addr, ok := target.Load().(string)
		return addr, ok && addr != ""
	}, WriterOptions{})

	// There is no outage as long as nothing was good.
	waitRefused(t, w, 5)
	target.Store(fmt.Sprintf("127.0.0.1:%d", closed))
	waitRefused(t, w, 5)
	r := w.Snapshot()
	require.Zero(t, r.Acked)
	require.Zero(t, r.Unknown)
	require.Empty(t, r.Outages)
	expired, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, w.WaitAcked(expired, 1), context.Canceled)

	target.Store(s.Addr())
	waitAcked(t, w, 5)
	require.Empty(t, w.Snapshot().Outages)

	// A connection is kept for as long as it works.
	target.Store("")
	waitAcked(t, w, 5)
	s.MustExec(t, "SET GLOBAL read_only = 1")
	waitRefused(t, w, 5)
	s.MustExec(t, "SET GLOBAL read_only = 0")
	waitRefused(t, w, 5)
	r = w.Stop()
	require.Len(t, r.Outages, 1)
	require.True(t, r.Outages[0].Open)
	require.Equal(t, s.Addr(), r.Outages[0].FromAddr)
	require.Empty(t, r.Outages[0].ToAddr)
	require.Equal(t, r.Outages[0].Duration(), r.Longest)
	require.Equal(t, r, w.Snapshot())
	require.Zero(t, requireComplete(t, w, s))
}

// TestWriterUnknown kills a server while it has a write.
func TestWriterUnknown(t *testing.T) {
	t.Parallel()
	s := New(t, Options{})
	w := startWriter(t, s, always(s.Addr()), WriterOptions{})
	waitAcked(t, w, 5)
	lock, err := s.Root().Connx(t.Context())
	require.NoError(t, err)
	defer func() { _ = lock.Close() }()
	_, err = lock.ExecContext(t.Context(), "LOCK TABLES app.writes WRITE")
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		waiting, err := s.QueryString(t.Context(), "SELECT COUNT(*) FROM information_schema.processlist "+
			"WHERE user = 'app' AND state LIKE 'Waiting for table metadata lock%'")
		return err == nil && waiting == "1"
	}, patience, time.Millisecond)
	require.NoError(t, s.Kill())
	require.Eventually(t, func() bool { return w.Snapshot().Unknown == 1 }, patience, time.Millisecond)
	require.NoError(t, s.Restart(t.Context()))
	waitAcked(t, w, 5)
	r := w.Stop()
	require.Equal(t, 1, r.Unknown)
	require.Len(t, r.Outages, 1)
	require.Zero(t, requireComplete(t, w, s))
}

func TestWriterContext(t *testing.T) {
	t.Parallel()
	s := New(t, Options{})
	s.MustExec(t, WriterTable(""))
	ctx, cancel := context.WithCancel(t.Context())
	w := StartWriter(ctx, always(s.Addr()), WriterOptions{Clients: 2, Every: -1})
	waitAcked(t, w, 5)
	cancel()
	require.Error(t, w.WaitAcked(t.Context(), 1_000_000))
	r := w.Stop()
	require.Empty(t, r.Outages, "what ctx breaks off is no outage")
	require.LessOrEqual(t, r.Unknown, 2)
	requireComplete(t, w, s)
}

// TestWriterCheck alters the table behind the writer's back.
func TestWriterCheck(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := New(t, Options{})
	s.MustExec(t, WriterTable(""), "INSERT INTO app.writes VALUES (1, 99, NOW(6))")
	w := StartWriter(ctx, always(s.Addr()), WriterOptions{Clients: 3, Every: -1})
	t.Cleanup(func() { w.Stop() })
	waitAcked(t, w, 10)

	// While the writer runs, its new rows are not taken for strange ones.
	for range 10 {
		lost, twice, extra, err := w.Check(ctx, s)
		require.NoError(t, err)
		require.Empty(t, lost)
		require.Equal(t, []int64{1}, twice)
		require.Zero(t, extra)
	}
	s.MustExec(t, "SET GLOBAL read_only = 1")
	waitRefused(t, w, 10) // more than clients, so that the last id is a refused one
	r := w.Stop()
	refused := len(w.copyStates())
	require.Zero(t, r.Unknown)

	s.MustExec(t, "DELETE FROM app.writes WHERE id IN (3, 5)",
		"INSERT INTO app.writes VALUES (-1, 99, NOW(6)), (1000000, 99, NOW(6))",
		fmt.Sprintf("INSERT INTO app.writes VALUES (%d, 1, NOW(6))", refused))
	lost, twice, extra, err := w.Check(ctx, s)
	require.Equal(t, []int64{3, 5}, lost)
	require.Equal(t, []int64{1}, twice)
	require.Zero(t, extra)
	require.ErrorContains(t, err, "3 rows that should not be there")
	require.ErrorContains(t, err, "-1 (never sent)")
	require.ErrorContains(t, err, "1000000 (never sent)")
	require.ErrorContains(t, err, fmt.Sprintf("%d (refused)", refused))

	s.MustExec(t, "DROP TABLE app.writes")
	_, _, _, err = w.Check(ctx, s)
	require.ErrorContains(t, err, "read app.writes")

	// Without the key of its own table a row can be there twice.
	s.MustExec(t, "CREATE TABLE app.writes (id BIGINT)", "INSERT INTO app.writes VALUES (2), (2), (3)")
	lost, twice, _, err = w.Check(ctx, s)
	require.NoError(t, err)
	require.Equal(t, []int64{1, 2}, twice)
	require.NotContains(t, lost, int64(2))
	require.Contains(t, lost, int64(4))
}

// TestWriterSendsOnce looks at what goes over the wire while connections break
// before and after the server has a write.
func TestWriterSendsOnce(t *testing.T) {
	t.Parallel()
	s := New(t, Options{})
	proxy := newCutter(t, s.Addr())
	w := startWriter(t, s, always(proxy.addr), WriterOptions{Clients: 3, Every: -1})
	waitAcked(t, w, 100)
	r := w.Stop()

	proxy.mu.Lock()
	defer proxy.mu.Unlock()
	for statement, times := range proxy.seen {
		require.Equal(t, 1, times, statement)
	}
	require.Len(t, proxy.seen, r.Acked+r.Unknown)
	require.Positive(t, proxy.dropped)
	require.Positive(t, proxy.unanswered)
	require.Equal(t, proxy.dropped+proxy.unanswered, r.Unknown)
	require.Equal(t, proxy.unanswered, requireComplete(t, w, s))
}

// cutter is a proxy that breaks the connection at some of the INSERTs.
type cutter struct {
	addr, upstream string

	mu                  sync.Mutex
	seen                map[string]int // how often a statement was sent
	dropped, unanswered int
}

func newCutter(t *testing.T, upstream string) *cutter {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c := &cutter{addr: l.Addr().String(), upstream: upstream, seen: map[string]int{}}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { c.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		serving.Wait()
	})
	return c
}

func (c *cutter) serve(client net.Conn) {
	defer func() { _ = client.Close() }()
	server, err := net.Dial("tcp", c.upstream)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	// The two sides take turns, beginning with the server's greeting: each
	// packet of one is answered by one of the other.
	for {
		packet, err := readPacket(server)
		if err != nil {
			return
		}
		if _, err := client.Write(packet); err != nil {
			return
		}
		if packet, err = readPacket(client); err != nil {
			return
		}
		drop, swallow := c.fate(string(packet[4:]))
		if drop {
			return
		}
		if _, err := server.Write(packet); err != nil {
			return
		}
		if swallow {
			_, _ = readPacket(server) // so that the write is done
			return
		}
	}
}

// fate says what becomes of a packet of a client.
func (c *cutter) fate(payload string) (drop, swallow bool) {
	if !strings.Contains(payload, "INSERT") {
		return false, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen[payload]++
	switch len(c.seen) % 5 {
	case 0:
		c.dropped++
		return true, false
	case 1:
		c.unanswered++
		return false, true
	default:
		return false, false
	}
}

// readPacket reads a packet of the MariaDB protocol with its header.
func readPacket(r io.Reader) ([]byte, error) {
	header := make([]byte, 4)
	if _, err := io.ReadFull(r, header); err != nil {
		return nil, err
	}
	length := binary.LittleEndian.Uint32([]byte{header[0], header[1], header[2], 0})
	packet := append(header, make([]byte, length)...)
	_, err := io.ReadFull(r, packet[4:])
	return packet, err
}

func TestWriteOutcome(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want writeState
	}{
		{driver.ErrBadConn, writeRefused},
		{fmt.Errorf("broken: %w", driver.ErrBadConn), writeRefused},
		{&mysql.MySQLError{Number: 1290}, writeRefused},
		{&mysql.MySQLError{Number: 1146}, writeRefused},
		{&mysql.MySQLError{Number: 1062}, writeDuplicate},
		{&mysql.MySQLError{Number: 1317}, writeUnknown},
		{&mysql.MySQLError{Number: 1053}, writeUnknown},
		{mysql.ErrInvalidConn, writeUnknown},
		{context.DeadlineExceeded, writeUnknown},
		{errors.New("any other"), writeUnknown},
	} {
		require.Equal(t, c.want, outcome(c.err), c.err)
	}
}

func TestOutageLog(t *testing.T) {
	t.Parallel()
	start := time.Now()
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	// An attempt that began at one time and ended at another, as a Writer tells
	// it; they come in the order of their ends.
	type attempt struct {
		began, ended int
		addr, reason string
	}
	type outage struct {
		from, to         int
		fromAddr, toAddr string
		reason           string
	}
	const open = -1
	for name, c := range map[string]struct {
		attempts []attempt
		want     []outage
	}{
		"nothing was good before": {
			attempts: []attempt{{1, 2, "a", "x"}, {3, 4, "a", ""}},
		},
		"one client": {
			attempts: []attempt{{1, 2, "a", ""}, {3, 5, "a", "x"}, {6, 7, "", "y"}, {8, 10, "b", ""}, {11, 12, "b", ""}},
			want:     []outage{{3, 10, "a", "b", "x"}},
		},
		"two outages": {
			attempts: []attempt{{1, 2, "a", ""}, {3, 4, "a", "x"}, {5, 6, "b", ""}, {7, 8, "b", "y"}},
			want:     []outage{{3, 6, "a", "b", "x"}, {7, open, "b", "", "y"}},
		},
		"a write that was under way before is acknowledged late": {
			attempts: []attempt{{1, 2, "a", ""}, {4, 5, "a", "x"}, {3, 8, "a", ""}, {9, 12, "b", ""}},
			want:     []outage{{4, 12, "a", "b", "x"}},
		},
		"another client went on": {
			attempts: []attempt{{1, 2, "a", ""}, {4, 5, "b", ""}, {3, 9, "a", "x"}, {10, 11, "b", ""}},
		},
		"another client's write was under way at the failure": {
			attempts: []attempt{{1, 2, "a", ""}, {3, 5, "a", "x"}, {4, 9, "b", ""}},
			want:     []outage{{3, 9, "a", "b", "x"}},
		},
		"the first that began is not the first that failed": {
			attempts: []attempt{{1, 2, "a", ""}, {5, 6, "a", "x"}, {4, 7, "c", "y"}, {8, 9, "b", ""}},
			want:     []outage{{4, 9, "c", "b", "y"}},
		},
		"the first that began fails after the end": {
			attempts: []attempt{{1, 2, "a", ""}, {5, 6, "a", "x"}, {8, 9, "b", ""}, {4, 20, "c", "y"}},
			want:     []outage{{4, 9, "c", "b", "y"}},
		},
		"one that began before a good write is not of the outage": {
			attempts: []attempt{{1, 2, "a", ""}, {6, 7, "a", "x"}, {5, 8, "a", ""}, {4, 9, "c", "y"}, {10, 11, "b", ""}},
			want:     []outage{{6, 11, "a", "b", "x"}},
		},
	} {
		var log outageLog
		for _, a := range c.attempts {
			if a.reason == "" {
				log.good(at(a.began), at(a.ended), a.addr)
			} else {
				log.failed(at(a.began), a.addr, a.reason)
			}
		}
		var want []Outage
		for _, o := range c.want {
			full := Outage{From: at(o.from), FromAddr: o.fromAddr, ToAddr: o.toAddr, FirstError: o.reason}
			if o.to == open {
				full.Open = true
			} else {
				full.To = at(o.to)
			}
			want = append(want, full)
		}
		require.Equal(t, want, log.list, name)
	}
}
