package api

import (
	"context"
	"sync"
	"time"

	"github.com/lockstep-ha/lockstep/election"
	"github.com/lockstep-ha/lockstep/monitor"
	"github.com/lockstep-ha/lockstep/monitor/operation"
)

// fake is a monitor whose view a test sets.
type fake struct {
	mu       sync.Mutex
	view     monitor.View
	dead     bool
	watchers map[chan struct{}]bool
	ops      []operation.Record
	commands []monitor.Command
	reply    monitor.Reply
	err      error
	released time.Duration
}

func (f *fake) Cluster() string { return f.View().Cluster }

func (f *fake) View() monitor.View {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.view
}

// set changes the view and tells those who watch.
func (f *fake) set(change func(v *monitor.View)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.view)
	for ch := range f.watchers {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}

func (f *fake) Watch(ctx context.Context, fn func(monitor.View)) {
	ch := make(chan struct{}, 1)
	f.mu.Lock()
	if f.watchers == nil {
		f.watchers = map[chan struct{}]bool{}
	}
	f.watchers[ch] = true
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		delete(f.watchers, ch)
		f.mu.Unlock()
	}()
	for {
		fn(f.View())
		select {
		case <-ctx.Done():
			return
		case <-ch:
		}
	}
}

func (f *fake) watched() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.watchers)
}

func (f *fake) Command(_ context.Context, c monitor.Command) (monitor.Reply, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.commands = append(f.commands, c)
	return f.reply, f.err
}

func (f *fake) ReleaseLocks(d time.Duration) { f.released = d }

func (f *fake) Operations() []operation.Record { return f.ops }

func (f *fake) Operation(id string) (operation.Record, bool) {
	for _, r := range f.ops {
		if r.ID == id {
			return r, true
		}
	}
	return operation.Record{}, false
}

func (f *fake) Live() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.dead
}

func (f *fake) Ready() bool { return f.View().Tick > 0 }

func ptr[T any](v T) *T { return &v }

// shop is a cluster with a primary, a replica, one that lags, one that is drained,
// one in maintenance and one that is down.
func shop() *fake {
	v := monitor.View{
		Cluster: "shop", Primary: &monitor.Endpoint{Name: "s1", Address: "10.0.0.1:3306"}, Reason: "s1 is writable", ValidForMS: 4000, Tick: 7,
		TakenAt: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), TickMS: 1.5,
		Monitor: monitor.MonitorView{Name: "m1", Version: "v1", Primary: true, Role: election.Primary, LeaseLeftMS: 4000, PrimaryLockHeld: true,
			Majority: election.Tally{Mode: election.MajorityOfAll, Held: 3, Needed: 3, Running: 5, Total: 5},
			Timing:   monitor.TimingView{IntervalMS: 2000, LeaseMS: 6000, WaitTimeoutMS: 8000}},
		Faults: []monitor.FaultView{}, Notes: []string{},
		Operations: monitor.OperationsView{Joining: []string{}, Rejected: map[string]string{}},
	}
	add := func(name string, lag *int64, age int64, state ...string) {
		v.Servers = append(v.Servers, monitor.ServerView{Name: name, Address: "10.0.0." + name[1:] + ":3306", State: state, Evidence: "answered",
			LagMS: lag, ProbeAgeMS: age, Votes: 1, Flavor: "mariadb", Version: "10.11.6", Promotion: "neutral", Replication: []monitor.ReplicationView{}})
	}
	add("s1", nil, 10, "Primary", "Running")
	add("s2", ptr(int64(200)), 10, "Replica", "Read-only", "Running")
	add("s3", ptr(int64(30_000)), 10, "Replica", "Lagging", "Read-only", "Running")
	add("s4", ptr(int64(0)), 10, "Replica", "Read-only", "Drained", "Running")
	add("s5", ptr(int64(0)), 10, "Replica", "Read-only", "Maintenance", "Running")
	add("s6", nil, 60_000, "Down")
	add("s7", nil, 10, "Replica", "Read-only", "Running")
	return &fake{view: v}
}

func fakes(list ...*fake) func() []source {
	return func() []source {
		var out []source
		for _, f := range list {
			out = append(out, f)
		}
		return out
	}
}

// given are the commands that came in.
func (f *fake) given() []monitor.Command {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]monitor.Command(nil), f.commands...)
}
