package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/lockstep-ha/lockstep/internal/testdb"
)

// Of the clients that write.
const (
	writeClients = 2
	writeEvery   = 2 * time.Millisecond
	writeTimeout = 2 * time.Second
	// offerFor is for how long an answer of a lockstepd counts after it was asked.
	offerFor   = 50 * time.Millisecond
	offerEvery = 5 * time.Millisecond
)

// offer is an answer to the question where to write.
type offer struct {
	address string
	asked   time.Time
}

// finder asks each lockstepd where to write, over and over, so that one that is
// killed or frozen is missed by nobody while the other answers.
type finder struct {
	wg     sync.WaitGroup
	mu     sync.Mutex
	offers []offer
}

func (f *finder) start(ctx context.Context, monitors []*daemon) {
	f.offers = make([]offer, len(monitors))
	for i, m := range monitors {
		f.wg.Go(func() {
			for ctx.Err() == nil {
				o := m.offer(ctx)
				f.mu.Lock()
				f.offers[i] = o
				f.mu.Unlock()
				pause(ctx, offerEvery)
			}
		})
	}
}

// offer asks the daemon for the primary; without one the address is "".
func (m *daemon) offer(ctx context.Context) offer {
	ctx, cancel := context.WithTimeout(ctx, offerFor)
	defer cancel()
	asked := time.Now()
	var answer struct {
		Primary struct {
			Address string `json:"address"`
		} `json:"primary"`
	}
	if status, err := m.get(ctx, "/primary", &answer); err != nil || status != http.StatusOK {
		return offer{}
	}
	return offer{answer.Primary.Address, asked}
}

// target returns the newest answer that still counts.
func (f *finder) target() (string, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var newest offer
	for _, o := range f.offers {
		if o.asked.After(newest.asked) {
			newest = o
		}
	}
	return newest.address, newest.address != "" && time.Since(newest.asked) < offerFor
}

// load is the clients that write.
type load struct {
	finder finder
	writer *testdb.Writer
	cancel context.CancelFunc
}

func (d *demo) startWriting(ctx context.Context) error {
	l := &load{}
	ctx, l.cancel = context.WithCancel(ctx)
	l.finder.start(ctx, d.monitors)
	l.writer = testdb.StartWriter(ctx, l.finder.target, testdb.WriterOptions{Clients: writeClients, Every: writeEvery, Timeout: writeTimeout})
	d.load = l
	if err := l.goesOn(ctx); err != nil {
		return err
	}
	d.say("two clients write rows, one by one, to the server that GET /v1/clusters/demo/primary names")
	return nil
}

// goesOn waits until writes are acknowledged.
func (l *load) goesOn(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := l.writer.WaitAcked(ctx, 20); err != nil {
		report := l.writer.Snapshot()
		return fmt.Errorf("the clients cannot write: %w; %+v", err, report)
	}
	return nil
}

// outage says for how long no client could write since then.
func (l *load) outage(since time.Time) string {
	var sum time.Duration
	n := 0
	for _, o := range l.writer.Snapshot().Outages {
		if o.To.After(since) {
			sum += o.Duration()
			n++
		}
	}
	text := fmt.Sprintf("%d ms", sum.Milliseconds())
	if n > 1 {
		text += fmt.Sprintf(" in %d parts", n)
	}
	return text
}

func (l *load) close() {
	l.cancel()
	l.writer.Stop()
	l.finder.wg.Wait()
}

// checkWrites looks on every server for the writes that were acknowledged.
func (d *demo) checkWrites(ctx context.Context) error {
	report := d.load.writer.Stop()
	d.say("the clients stop; waiting until all servers have what %s has", d.primary)
	primary, err := d.server(d.primary)
	if err != nil {
		return err
	}
	pos, err := primary.QueryString(ctx, "SELECT @@gtid_binlog_pos")
	if err != nil {
		return err
	}
	wait, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var problems []string
	lostAll, twiceAll := map[int64]bool{}, map[int64]bool{}
	for _, s := range d.cluster.Servers {
		if s != primary {
			if err := s.WaitGTID(wait, pos); err != nil {
				return err
			}
		}
		lost, twice, extra, err := d.load.writer.Check(ctx, s)
		if err != nil {
			problems = append(problems, err.Error())
		}
		for _, id := range lost {
			lostAll[id] = true
		}
		for _, id := range twice {
			twiceAll[id] = true
		}
		if len(lost)+len(twice) > 0 {
			problems = append(problems, fmt.Sprintf("%s lacks %d acknowledged writes and has %d twice: lost %v, twice %v", s.Name(), len(lost), len(twice), lost, twice))
		}
		d.say("%s has all up to %s: %d acknowledged writes lost, %d there twice, %d of %d there whose answer was lost", s.Name(), pos, len(lost), len(twice), extra, report.Unknown)
	}
	d.figure("acknowledged writes", "%d", report.Acked)
	d.figure("acknowledged writes lost", "%d", len(lostAll))
	d.figure("writes there twice", "%d", len(twiceAll))
	if len(problems) > 0 {
		for _, m := range d.monitors {
			problems = append(problems, fmt.Sprintf("the log of %s:\n%s", m.name, m.log()))
		}
		return fmt.Errorf("the rows are not what they should be:\n%s", strings.Join(problems, "\n"))
	}
	return nil
}
