package testdb

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"
)

// Target tells where to write now; ok is false for nowhere. It is called by
// several goroutines.
type Target func() (addr string, ok bool)

// WriterOptions say how a [Writer] writes. The zero value is one client.
type WriterOptions struct {
	// Table is the table with its database, "app.writes" by default. It belongs
	// to one writer: a second one needs a table of its own.
	Table string
	// Clients is how many connections write at once, 1 by default.
	Clients int
	// Every is the pause of a client after a good write, 5 ms by default; a
	// negative one is none.
	Every time.Duration
	// Timeout is how long an attempt may take, to connect and to write; 5
	// seconds by default.
	Timeout time.Duration
	// User and Password are the app account by default. An account that read_only
	// does not stop makes the measurement worthless.
	User, Password string
	// Log, if set, is told of outages and of lost answers, by several goroutines.
	Log func(format string, args ...any)
}

// retryPause is the pause of a client after a failed attempt.
const retryPause = time.Millisecond

func (o *WriterOptions) setDefaults() {
	o.Table = writerTableName(o.Table)
	if o.Clients <= 0 {
		o.Clients = 1
	}
	if o.Every == 0 {
		o.Every = 5 * time.Millisecond
	}
	if o.Timeout <= 0 {
		o.Timeout = 5 * time.Second
	}
	if o.User == "" {
		o.User, o.Password = AppUser, AppPassword
	}
	if o.Log == nil {
		o.Log = func(string, ...any) {}
	}
}

func writerTableName(table string) string {
	if table == "" {
		return AppDatabase + ".writes"
	}
	return table
}

// WriterTable returns the statement that creates the table of a [Writer]; ""
// is the default table.
func WriterTable(table string) string {
	return "CREATE TABLE " + writerTableName(table) +
		" (id BIGINT PRIMARY KEY, client INT, written_at DATETIME(6)) ENGINE=InnoDB"
}

// Writer is a load of single-row INSERTs that measures how long nothing could be
// written, and that knows which rows a server must have.
//
// Each client has one connection, and keeps it until an attempt fails; only then
// it asks the [Target] again. Every attempt that gets as far as being sent has an
// id of its own, so that no id is ever sent twice.
type Writer struct {
	target Target
	opts   WriterOptions

	stop     chan struct{}
	stopOnce sync.Once
	done     chan struct{} // closed when all clients have ended

	mu      sync.Mutex
	states  []writeState // by id-1
	acked   int
	unknown int
	refused int
	outages outageLog
	ended   time.Time
	ack     chan struct{} // closed at the next ack; nil when nobody waits
}

type writeState uint8

const (
	writePending   writeState = iota // not answered yet
	writeAcked                       // the server said that it is committed
	writeUnknown                     // sent, and no answer that settles it
	writeRefused                     // certainly not committed
	writeDuplicate                   // the server had this id before
)

// Report is what a [Writer] has done and seen.
type Report struct {
	// Acked counts the writes that a server acknowledged.
	Acked int
	// Unknown counts the writes whose answer was lost: they may have been
	// committed or not.
	Unknown int
	// Refused counts the attempts that certainly wrote nothing, for want of a
	// target or of a connection, or because the server said so.
	Refused int
	// Outages are in the order in which they were noticed. Failures before the
	// first good write are none.
	Outages []Outage
	// Longest is the longest of the outages, also of one that goes on.
	Longest time.Duration
}

// Outage is a time in which no client could write. A failed attempt is none if,
// by the time it fails, another client has had a good write that began after it.
type Outage struct {
	// From is when the first failed attempt began.
	From time.Time
	// To is when the first good write was acknowledged that began after From;
	// for an open outage it is the time of the report.
	To time.Time
	// FromAddr is where the first failed attempt went, "" if nowhere.
	FromAddr string
	// ToAddr is where the good write went.
	ToAddr string
	// FirstError is the error of the first failed attempt.
	FirstError string
	// Open is true while the outage goes on.
	Open bool
}

// Duration is the time from From to To.
func (o Outage) Duration() time.Duration { return o.To.Sub(o.From) }

// StartWriter begins to write into a table that [WriterTable] has made. It ends
// with [Writer.Stop], or with ctx, which also breaks off the writes under way.
func StartWriter(ctx context.Context, target Target, opts WriterOptions) *Writer {
	opts.setDefaults()
	w := &Writer{
		target: target,
		opts:   opts,
		stop:   make(chan struct{}),
		done:   make(chan struct{}),
	}
	var clients sync.WaitGroup
	for n := range opts.Clients {
		clients.Go(func() { w.client(ctx, n+1) })
	}
	go func() {
		clients.Wait()
		w.mu.Lock()
		w.ended = time.Now()
		w.mu.Unlock()
		close(w.done)
	}()
	return w
}

// Stop waits for the writes under way, no longer than [WriterOptions.Timeout],
// and ends the writer. It may be called again.
func (w *Writer) Stop() Report {
	w.stopOnce.Do(func() { close(w.stop) })
	<-w.done
	return w.Snapshot()
}

// Snapshot reports without stopping; after the end, what there was then.
func (w *Writer) Snapshot() Report {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.ended
	if now.IsZero() {
		now = time.Now()
	}
	r := Report{
		Acked:   w.acked,
		Unknown: w.unknown,
		Refused: w.refused,
		Outages: slices.Clone(w.outages.list),
	}
	for i := range r.Outages {
		o := &r.Outages[i]
		if o.Open {
			o.To = now
		}
		r.Longest = max(r.Longest, o.Duration())
	}
	return r
}

// WaitAcked waits until n more writes than now are acknowledged.
func (w *Writer) WaitAcked(ctx context.Context, n int) error {
	w.mu.Lock()
	want := w.acked + n
	w.mu.Unlock()
	for {
		w.mu.Lock()
		missing, ended := want-w.acked, !w.ended.IsZero()
		if w.ack == nil {
			w.ack = make(chan struct{})
		}
		ack := w.ack
		w.mu.Unlock()
		switch {
		case missing <= 0:
			return nil
		case ended:
			return fmt.Errorf("the writer has ended, and %d of %d writes were not acknowledged", missing, n)
		}
		select {
		case <-ack:
		case <-w.done:
		case <-ctx.Done():
			return fmt.Errorf("%d of %d writes were not acknowledged: %w", missing, n, ctx.Err())
		}
	}
}

// Check compares the table on a server with what the writer knows. Lost are the
// ids that were acknowledged and are not there. Twice are the ids that a server
// had when they were sent for what should be the first time, or that are there in
// several rows. Extra is how many of the unknown writes are there, which they
// may be. Any other row is an error, beside which the results are valid.
//
// A replica must have caught up. The writer may still run: writes that are not
// answered yet are left out.
func (w *Writer) Check(ctx context.Context, s *Server) (lost, twice []int64, extra int, err error) {
	// What is acknowledged before the table is read must be there, and what is
	// there must have been sent before it was read.
	before := w.copyStates()
	var ids []int64
	if err := s.Root().SelectContext(ctx, &ids, "SELECT id FROM "+w.opts.Table); err != nil {
		return nil, nil, 0, fmt.Errorf("server %s: read %s: %w", s.Name(), w.opts.Table, err)
	}
	after := w.copyStates()

	rows := make([]int, len(after))
	var wrong []string
	for _, id := range ids {
		if id < 1 || id > int64(len(after)) {
			wrong = append(wrong, strconv.FormatInt(id, 10)+" (never sent)")
			continue
		}
		rows[id-1]++
	}
	for i, state := range after {
		id := int64(i + 1)
		if rows[i] > 1 || state == writeDuplicate {
			twice = append(twice, id)
		}
		if rows[i] == 0 {
			if i < len(before) && before[i] == writeAcked {
				lost = append(lost, id)
			}
			continue
		}
		switch state {
		case writeUnknown:
			extra++
		case writeRefused:
			wrong = append(wrong, strconv.FormatInt(id, 10)+" (refused)")
		}
	}
	if len(wrong) > 0 {
		const show = 10
		err = fmt.Errorf("server %s: %s has %d rows that should not be there: %v",
			s.Name(), w.opts.Table, len(wrong), wrong[:min(show, len(wrong))])
	}
	return lost, twice, extra, err
}

func (w *Writer) copyStates() []writeState {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.states)
}

// client writes until the writer ends.
func (w *Writer) client(ctx context.Context, number int) {
	var conn *writerConn
	defer func() { conn.close() }()
	for {
		pause := w.opts.Every
		if !w.write(ctx, number, &conn) {
			conn.close()
			conn = nil
			pause = retryPause
		}
		select {
		case <-ctx.Done():
			return
		case <-w.stop:
			return
		case <-time.After(pause):
		}
	}
}

var errNowhere = errors.New("there is nowhere to write")

// write makes one attempt, with the connection if there is one.
func (w *Writer) write(ctx context.Context, client int, conn **writerConn) (good bool) {
	began := time.Now()
	attemptCtx, cancel := context.WithTimeout(ctx, w.opts.Timeout)
	defer cancel()

	if *conn == nil {
		addr, ok := w.target()
		if !ok {
			w.notSent(ctx, began, "", errNowhere)
			return false
		}
		var err error
		if *conn, err = w.connect(attemptCtx, addr); err != nil {
			w.notSent(ctx, began, addr, err)
			return false
		}
	}

	id := w.newID()
	err := (*conn).exec(attemptCtx, fmt.Sprintf("INSERT INTO %s (id, client, written_at) VALUES (%d, %d, NOW(6))",
		w.opts.Table, id, client))
	w.answered(ctx, id, began, (*conn).addr, err)
	return err == nil
}

// newID returns an id that was never used.
func (w *Writer) newID() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.states = append(w.states, writePending)
	return int64(len(w.states))
}

// notSent notes an attempt that ended before it had an id. One that ctx has
// broken off says nothing about the servers.
func (w *Writer) notSent(ctx context.Context, began time.Time, addr string, err error) {
	if ctx.Err() != nil {
		return
	}
	w.mu.Lock()
	w.refused++
	opened := w.outages.failed(began, addr, err.Error())
	w.mu.Unlock()
	w.logOpened(opened, addr, err)
}

// answered notes what became of a write.
func (w *Writer) answered(ctx context.Context, id int64, began time.Time, addr string, err error) {
	if err == nil {
		w.ackedNow(id, began, addr)
		return
	}
	state := outcome(err)
	w.mu.Lock()
	w.states[id-1] = state
	if state == writeUnknown {
		w.unknown++
	} else {
		w.refused++
	}
	opened := ctx.Err() == nil && w.outages.failed(began, addr, err.Error())
	w.mu.Unlock()
	if state == writeUnknown {
		w.opts.Log("writer: whether %s has write %d is unknown: %v", addr, id, err)
	}
	w.logOpened(opened, addr, err)
}

func (w *Writer) ackedNow(id int64, began time.Time, addr string) {
	w.mu.Lock()
	w.states[id-1] = writeAcked
	w.acked++
	ended, closed := w.outages.good(began, time.Now(), addr)
	if w.ack != nil {
		close(w.ack)
		w.ack = nil
	}
	w.mu.Unlock()
	if closed {
		w.opts.Log("writer: %s is written to after %v", addr, ended.Duration())
	}
}

func (w *Writer) logOpened(opened bool, addr string, err error) {
	if opened {
		w.opts.Log("writer: nothing can be written: %q: %v", addr, err)
	}
}

// outcome tells what an error means for a write. Only errors that a server gives
// before it commits settle that nothing was written: one that is killed or shut
// down while a commit waits for replicas has it in its binary log.
func outcome(err error) writeState {
	if errors.Is(err, driver.ErrBadConn) {
		return writeRefused // the driver has sent nothing
	}
	if e, ok := errors.AsType[*mysql.MySQLError](err); ok {
		switch e.Number {
		case 1290, 1792, 1836: // read-only
			return writeRefused
		case 1142, 1146: // no permission, no table
			return writeRefused
		case 1062:
			return writeDuplicate
		}
	}
	return writeUnknown
}

// writerConn is a connection of the driver's own, without the pool that would
// send a statement again.
type writerConn struct {
	addr     string
	conn     driver.Conn
	execer   driver.ExecerContext
	resetter driver.SessionResetter
}

func (w *Writer) connect(ctx context.Context, addr string) (*writerConn, error) {
	c := mysql.NewConfig()
	c.User, c.Passwd = w.opts.User, w.opts.Password
	c.Net, c.Addr = "tcp", addr
	c.Logger = &mysql.NopLogger{}
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, err
	}
	conn, err := connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	execer, canExec := conn.(driver.ExecerContext)
	resetter, canReset := conn.(driver.SessionResetter)
	if !canExec || !canReset {
		return nil, errors.Join(fmt.Errorf("the driver's %T lacks a method", conn), conn.Close())
	}
	return &writerConn{addr: addr, conn: conn, execer: execer, resetter: resetter}, nil
}

// exec sends a statement once, or not at all if the connection is seen to be
// broken already.
func (c *writerConn) exec(ctx context.Context, statement string) error {
	if err := c.resetter.ResetSession(ctx); err != nil {
		return fmt.Errorf("the server has closed the connection: %w", err)
	}
	_, err := c.execer.ExecContext(ctx, statement, nil)
	return err
}

func (c *writerConn) close() {
	if c != nil {
		_ = c.conn.Close() // it is broken, or has nothing left to say
	}
}

// outageLog makes outages out of single attempts, which it is told of when they
// have ended.
type outageLog struct {
	list   []Outage
	latest time.Time // when the good write began that began last
	before time.Time // the same of those that began before the last outage
}

// good notes a good write, and returns the outage that it ends.
func (l *outageLog) good(began, acked time.Time, addr string) (ended Outage, ok bool) {
	if began.After(l.latest) {
		l.latest = began
	}
	if len(l.list) == 0 {
		return Outage{}, false
	}
	o := &l.list[len(l.list)-1]
	if !began.After(o.From) {
		if began.After(l.before) {
			l.before = began
		}
		return Outage{}, false
	}
	if !o.Open {
		return Outage{}, false
	}
	o.To, o.ToAddr, o.Open = acked, addr, false
	return *o, true
}

// failed notes a failed attempt, and reports whether an outage begins with it.
func (l *outageLog) failed(began time.Time, addr, reason string) (opened bool) {
	if len(l.list) > 0 {
		o := &l.list[len(l.list)-1]
		if began.Before(o.From) && began.After(l.before) {
			// It took longer to fail than the one that was thought the first.
			o.From, o.FromAddr, o.FirstError = began, addr, reason
			return false
		}
		if o.Open {
			return false
		}
	}
	if l.latest.IsZero() || l.latest.After(began) {
		return false
	}
	l.list = append(l.list, Outage{From: began, FromAddr: addr, FirstError: reason, Open: true})
	l.before = l.latest
	return true
}
