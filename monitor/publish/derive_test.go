package publish

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/election"
	"github.com/lockstep-ha/lockstep/monitor"
	"github.com/lockstep-ha/lockstep/monitor/operation"
)

// calm is a cluster in which all is well.
func calm() monitor.View {
	v := monitor.View{Cluster: "shop", Tick: 1, Primary: &monitor.Endpoint{Name: "s1", Address: "10.0.0.1:3306"}, Reason: "why", ValidForMS: 4000,
		Monitor: monitor.MonitorView{Name: "m1", Primary: true, Role: election.Primary, Reason: "3 of 3", Timing: monitor.TimingView{IntervalMS: 10, LeaseMS: 6000}}}
	for i, state := range [][]string{{"Primary", "Running"}, {"Replica", "Read-only", "Running"}, {"Replica", "Read-only", "Running"}} {
		n := string(rune('1' + i))
		v.Servers = append(v.Servers, monitor.ServerView{Name: "s" + n, Address: "10.0.0." + n + ":3306", State: state})
	}
	return v
}

// copyOf returns a copy that shares nothing with v.
func copyOf(t *testing.T, v monitor.View) monitor.View {
	t.Helper()
	raw, err := json.Marshal(v)
	require.NoError(t, err)
	var out monitor.View
	require.NoError(t, json.Unmarshal(raw, &out))
	return out
}

// short prints events as "name server from>to outcome code".
func short(events []Event) []string {
	out := []string{}
	for _, e := range events {
		s := e.Name
		if e.Server != "" {
			s += " " + e.Server
		}
		if e.From != "" || e.To != "" {
			s += " " + e.From + ">" + e.To
		}
		for _, word := range []string{e.Outcome, e.Code} {
			if word != "" {
				s += " " + word
			}
		}
		out = append(out, s)
	}
	return out
}

func TestDerive(t *testing.T) {
	var d Deriver
	v := calm()
	var ops []operation.Record
	seen := map[string]bool{}
	ids := map[string]bool{}
	step := func(what string, change func(), want ...string) {
		t.Helper()
		change()
		events := d.Next(copyOf(t, v), slices.Clone(ops))
		require.Equal(t, append([]string{}, want...), short(events), what)
		for _, e := range events {
			seen[e.Name] = true
			require.False(t, ids[e.ID])
			ids[e.ID] = true
			require.Equal(t, "shop", e.Cluster)
			require.Equal(t, "m1", e.Monitor)
			require.Equal(t, v.Monitor.Primary, e.PrimaryMonitor)
			require.Equal(t, v.Primary, e.Primary)
			if e.Server != "" {
				require.Equal(t, "10.0.0."+e.Server[1:]+":3306", e.ServerAddress)
			}
		}
		require.Empty(t, d.Next(copyOf(t, v), slices.Clone(ops)), "nothing happens twice")
	}
	state := func(i int, labels ...string) { v.Servers[i].State = labels }

	step("not looked yet", func() { v.Tick = 0 })
	step("found", func() { v.Tick = 1 }, "majority_gained", "monitor_settled", "primary_found s1 >s1")
	step("fails", func() {
		v.Operations.Failed, v.Operations.Pending = true, "waiting"
		state(0, "Down")
		state(1, "Running", "Read-only")
		v.Servers[1].Replication = []monitor.ReplicationView{{IOError: "cannot connect"}}
		v.Primary = nil
	}, "primary_lost s1 s1>", "server_down s1", "replication_stopped s2", "primary_failed")
	step("failover", func() {
		ops = append([]operation.Record{{ID: "1", Kind: operation.Failover, From: "s1", To: "s2", Outcome: operation.Running}}, ops...)
	}, "failover_started s2 s1>s2")
	step("done", func() {
		ops[0].Outcome = operation.Done
		v.Operations.Failed, v.Operations.Blocked = false, "for 1h"
		v.Primary = &monitor.Endpoint{Name: "s2", Address: "10.0.0.2:3306"}
		state(1, "Primary", "Running")
	}, "primary_changed s2 s1>s2", "failover_done s2 s1>s2 done", "primary_recovered", "failover_blocked")
	step("comes back", func() {
		state(0, "Running")
		v.Faults = []monitor.FaultView{{Code: "not_joined", Server: "s1", Text: "errant"}, {Code: "not_joined", Server: "s1", Text: "another"}}
	}, "server_up s1", "fault_raised s1 not_joined")
	step("another text", func() { v.Faults[0].Text = "errant now" })
	step("joined", func() {
		v.Faults = nil
		state(0, "Replica", "Lagging", "Running")
		v.Servers[0].LagMS = new(int64(12_000))
		ops = append([]operation.Record{
			{ID: "3", Kind: operation.Rejoin, To: "s1", Outcome: operation.Done},
			{ID: "2", Kind: operation.Rejoin, To: "s3", Outcome: operation.Failed},
		}, ops...)
	}, "rejoin_started s3 >s3", "rejoin_started s1 >s1", "rejoin_failed s3 >s3 failed", "rejoin_done s1 >s1 done",
		"replica_lagging s1", "fault_cleared s1 not_joined")
	step("a person", func() {
		state(0, "Replica", "Running")
		state(2, "Replica", "Maintenance", "Drained", "Running")
		v.Operations.Paused, v.Operations.Blocked = "by a person", ""
	}, "replica_caught_up s1", "maintenance_set s3", "drain_set s3", "paused", "failover_unblocked")
	step("and back", func() {
		state(2, "Running")
		v.Operations.Paused = ""
	}, "maintenance_cleared s3", "drain_cleared s3", "replication_stopped s3", "resumed")
	step("replicates", func() { state(2, "Replica", "Running") }, "replication_runs s3")
	step("expired", func() { v.Primary, v.Monitor.Primary, v.Monitor.Role = nil, false, election.Secondary }, "majority_lost", "primary_lost s2 s2>")
	step("the same again", func() { v.Primary = &monitor.Endpoint{Name: "s2"} }, "primary_found s2 >s2")
	step("at once", func() { v.Primary = &monitor.Endpoint{Name: "s1"} }, "primary_changed s1 s2>s1")
	step("one after an interval without", func() { v.Primary = nil }, "primary_lost s1 s1>")
	step("changed", func() { v.Primary = &monitor.Endpoint{Name: "s3"} }, "primary_changed s3 s1>s3")
	step("switchover and reset", func() {
		ops = []operation.Record{{ID: "5", Kind: operation.ResetReplication, To: "s2", Outcome: operation.Cancelled}, {ID: "4", Kind: operation.Switchover, To: "s2", Outcome: operation.Undone}}
	}, "switchover_started s2 >s2", "reset_replication_started s2 >s2", "switchover_failed s2 >s2 undone", "reset_replication_failed s2 >s2 cancelled")
	step("stops", func() {
		v.Tick, v.Primary = 0, nil
		for i := range v.Servers {
			v.Servers[i].State = nil
		}
	}, "primary_lost s3 s3>")

	for name := range seen {
		require.Contains(t, Names(), name)
	}
	var never []string
	for _, name := range Names() {
		if !seen[name] {
			never = append(never, name)
		}
	}
	require.Equal(t, []string{"failover_failed", "reset_replication_done", "switchover_done"}, never)
}

// The page describes every event and no other.
func TestHooksPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/hooks.md")
	require.NoError(t, err)
	_, table, ok := strings.Cut(string(page), "## Events")
	require.True(t, ok)
	table, _, _ = strings.Cut(table, "\n## ")
	got := map[string]bool{}
	for _, line := range strings.Split(table, "\n") {
		first, _, _ := strings.Cut(strings.TrimPrefix(line, "|"), "|")
		if strings.HasPrefix(line, "|") {
			for _, m := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(first, -1) {
				got[m[1]] = true
			}
		}
	}
	require.Equal(t, Names(), slices.Sorted(maps.Keys(got)))
	for _, v := range environment(Event{}) {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "LOCKSTEP_") {
			require.Contains(t, string(page), "`"+name+"`")
		}
	}
}

// changing is a monitor whose view a test sets.
type changing struct {
	mu   sync.Mutex
	view monitor.View
	ops  []operation.Record
	wake chan struct{}
}

func newChanging(v monitor.View) *changing { return &changing{view: v, wake: make(chan struct{}, 1)} }

func (c *changing) set(change func(v *monitor.View)) {
	c.mu.Lock()
	change(&c.view)
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *changing) View() monitor.View {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.view
}

func (c *changing) Operations() []operation.Record { return c.ops }

func (c *changing) Watch(ctx context.Context, fn func(monitor.View)) {
	for {
		fn(c.View())
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
		}
	}
}

func TestFollow(t *testing.T) {
	src := newChanging(calm())
	ctx, cancel := context.WithCancel(t.Context())
	events := make(chan Event, 100)
	done := make(chan struct{})
	log := &buffer{}
	go func() {
		defer close(done)
		Follow(ctx, src, zerolog.New(log), func(e Event) { events <- e })
	}()
	next := func(want string) {
		t.Helper()
		select {
		case e := <-events:
			require.Equal(t, want, e.Name)
		case <-time.After(5 * time.Second):
			t.Fatal("no event " + want)
		}
	}
	next(MajorityGained)
	next(MonitorSettled)
	next(PrimaryFound)
	// Nobody is woken for a view that merely expires.
	src.mu.Lock()
	src.view.Primary = nil
	src.mu.Unlock()
	next(PrimaryLost)
	src.set(func(v *monitor.View) { v.Primary = &monitor.Endpoint{Name: "s2"} })
	next(PrimaryChanged)
	cancel()
	src.mu.Lock()
	src.view.Tick, src.view.Primary = 0, nil
	src.mu.Unlock()
	<-done
	next(PrimaryLost)
	require.Empty(t, events)
	require.Contains(t, log.String(), `"event":"primary_changed"`)
	require.Contains(t, log.String(), `"from":"s1"`)
}
