package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/election"
	"github.com/lockstep-ha/lockstep/locks"
	"github.com/lockstep-ha/lockstep/monitor"
	"github.com/lockstep-ha/lockstep/monitor/operation"
)

var update = flag.Bool("update", false, "write the golden files")

func TestMain(m *testing.M) {
	_ = os.Unsetenv(serverEnv)
	os.Exit(m.Run())
}

// shop is a cluster with all kinds of servers.
func shop(t *testing.T) monitor.View {
	t.Helper()
	timing, err := locks.Derive(locks.Settings{Interval: 2 * time.Second, Timeout: 3 * time.Second})
	require.NoError(t, err)
	self := &monitor.OwnerView{ConnectionID: 41, User: "lockstep", Host: "10.0.0.1", Self: true, Trusted: true, Kind: "this monitor"}
	other := &monitor.OwnerView{ConnectionID: 77, User: "lockstep", Host: "10.0.0.2", Trusted: true, Kind: "lockstep"}
	forged := &monitor.OwnerView{ConnectionID: 99, User: "eve", Host: "10.0.0.9", Kind: "other program"}
	replica := func(source string) []monitor.ReplicationView {
		return []monitor.ReplicationView{{Source: source, SourceID: 1, IO: "Yes", SQL: "Yes", Received: "0-1-120", SecondsBehind: new(int64)}}
	}
	broken := replica("10.1.0.1:3306")
	broken[0].SQL, broken[0].SecondsBehind = "No", nil
	broken[0].SQLError = "Duplicate entry '7' for key 'PRIMARY'\non table t"
	return monitor.View{
		Cluster: "shop", Primary: &monitor.Endpoint{Name: "s1", Address: "10.1.0.1:3306"},
		Reason: "s1 is the only writable server with replicas", ValidForMS: 6200,
		Monitor: monitor.MonitorView{
			Name: "m1", Version: "1.0.0", Primary: true, Role: election.Primary, Reason: "has the majority", PrimaryLockHeld: true,
			Majority:    election.Tally{Mode: election.MajorityOfAll, Held: 3, Needed: 3, Free: 0, Others: 1, Running: 4, Total: 5},
			LeaseLeftMS: 6150, Timing: timingView(timing),
		},
		Servers: []monitor.ServerView{
			{Name: "s1", Address: "10.1.0.1:3306", State: []string{"Primary", "Running"}, Evidence: "answered",
				LockHeld: new(true), LockOwner: self, PrimaryLockHeld: new(true), PrimaryLockOwner: self,
				Flavor: "mariadb", Version: "11.4.2-MariaDB", ServerID: 1, ReadOnly: new(false), CurrentPos: "0-1-120", BinlogPos: "0-1-120",
				Votes: 1, Promotion: "neutral", Replication: []monitor.ReplicationView{}, ProbeAgeMS: 150},
			{Name: "s2", Address: "10.1.0.2:3306", State: []string{"Replica", "Relay", "Running"}, Evidence: "answered",
				LockHeld: new(true), LockOwner: self, PrimaryLockHeld: new(false), Flavor: "mariadb", Version: "11.4.2-MariaDB", ServerID: 2,
				ReadOnly: new(true), CurrentPos: "0-1-120", BinlogPos: "0-1-120", LagMS: new(int64(0)), LagSource: "gtid",
				Votes: 1, Promotion: "prefer", Site: "north", Replication: replica("10.1.0.1:3306"), Source: "s1", ProbeAgeMS: 150},
			{Name: "s3", Address: "10.1.0.3:3306", State: []string{"Replica", "Lagging", "Running"}, Evidence: "answered",
				LockHeld: new(false), LockOwner: other, PrimaryLockHeld: new(false), Flavor: "mariadb", Version: "11.4.2-MariaDB", ServerID: 3,
				ReadOnly: new(true), CurrentPos: "0-1-90", BinlogPos: "0-1-90", LagMS: new(int64(42500)), LagSource: "heartbeat",
				Votes: 1, Promotion: "neutral", Replication: replica("10.1.0.2:3306"), Source: "s2", ProbeAgeMS: 150},
			{Name: "s4", Address: "10.1.0.4:3306", State: []string{"Down"}, Evidence: "connection refused", Detail: "dial tcp 10.1.0.4:3306: connect: connection refused",
				Votes: 1, Promotion: "must_not", Replication: []monitor.ReplicationView{}, ProbeAgeMS: -1},
			{Name: "s5", Address: "10.1.0.5:3306", State: []string{"Running"}, Evidence: "answered",
				LockHeld: new(false), LockOwner: forged, PrimaryLockHeld: new(false), Flavor: "mariadb", Version: "11.4.2-MariaDB", ServerID: 5,
				ReadOnly: new(false), CurrentPos: "0-1-80", BinlogPos: "0-1-80", Votes: 1, Promotion: "neutral", Replication: broken, Source: "s1", ProbeAgeMS: 150},
		},
		Faults: []monitor.FaultView{
			{Code: "forged_server_lock", Server: "s5", Text: "server s5: the server lock is held by eve@10.0.0.9, connection 99, which is not a trusted account", Remedy: "KILL 99 on s5, or add the account to trusted_lock_users"},
			{Code: "external_source", Server: "s3", Text: "s3 replicates from 10.9.9.9:3306, which is not in the configuration"},
		},
		Operations: monitor.OperationsView{
			Joining: []string{}, AutoFailover: true, Next: "s2", Why: "s2 has received and applied the most of 2 servers that can be promoted",
			Rejected: map[string]string{"s4": "it does not answer: connection refused", "s5": "its replication has stopped with error 1062: Duplicate entry"},
		},
		Notes: []string{"a failover can lose acknowledged writes: on s1 rpl_semi_sync_master_enabled is OFF"},
		Tick:  12, TakenAt: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), TickMS: 3.5,
	}
}

// depot is a cluster without a primary whose monitor has just gained the majority.
func depot(t *testing.T) monitor.View {
	t.Helper()
	v := shop(t)
	v.Cluster, v.Primary, v.ValidForMS, v.Faults, v.Notes = "depot", nil, 0, nil, nil
	v.Reason = "the view has expired: the monitor has not looked at the servers for too long"
	v.Monitor.Role, v.Monitor.SettlesInMS, v.Monitor.PrimaryLockHeld = election.Settling, 3500, false
	v.Monitor.Majority = election.Tally{Mode: election.MajorityOfRunning, Held: 1, Needed: 1, Running: 1, Total: 1}
	v.Servers = v.Servers[1:2]
	v.Servers[0].Source, v.Servers[0].PrimaryLockHeld = "", nil
	v.Operations = monitor.OperationsView{Joining: []string{}, AutoFailover: true, Why: "no server is the primary", Rejected: map[string]string{},
		Blocked: "there was a failover from s1 to s2 5m0s ago; automatic failover is blocked for another 55m0s: acknowledge it with lockstepctl call ack"}
	return v
}

// lone is a cluster whose only monitor takes no locks and follows nobody.
func lone(t *testing.T) monitor.View {
	t.Helper()
	v := shop(t)
	v.Cluster, v.Faults, v.Notes = "lone", nil, nil
	v.Monitor.Majority = election.Tally{Mode: election.None}
	v.Monitor.Timing.Failcount = 2
	v.Servers = v.Servers[:1]
	v.Operations = monitor.OperationsView{Joining: []string{}, Why: "no server can take the place of s1", Rejected: map[string]string{}}
	return v
}

// mill is a cluster whose primary has failed and is being replaced.
func mill(t *testing.T) monitor.View {
	t.Helper()
	v := shop(t)
	v.Cluster, v.Primary, v.ValidForMS, v.Faults, v.Notes = "mill", nil, 0, nil, nil
	v.Reason = "the primary s1 cannot take writes: connection refused"
	v.Servers = v.Servers[:3]
	v.Servers[0].State, v.Servers[0].Evidence, v.Servers[0].Replication = []string{"Down"}, "connection refused", []monitor.ReplicationView{}
	v.Operations = monitor.OperationsView{
		Running: &monitor.RunningView{ID: "20260301T120000-m1-7", Kind: operation.Failover, From: "s1", To: "s2", Step: "s2: apply relay log"},
		Joining: []string{"s3"}, AutoFailover: true, AutoRejoin: true, Failed: true,
		Pending: "s1 is dead: it closed the connection, refuses new ones, and its replicas have lost it",
		Next:    "s2", Why: "s2 has received and applied the most of 1 servers that can be promoted",
		Rejected: map[string]string{"s3": "it may not be promoted (promotion = \"must_not\")"},
	}
	return v
}

// records are operations of a monitor, the newest first.
func records() []operation.Record {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	later := func(ms int) *time.Time { t := at.Add(time.Duration(ms) * time.Millisecond); return &t }
	return []operation.Record{
		{ID: "20260301T120100-m1-3", Kind: operation.Rejoin, To: "s1", Automatic: true, StartedAt: at.Add(time.Minute), Outcome: operation.Running,
			Steps: []operation.StepRecord{{Name: "set read-only", Server: "s1", Statement: "SET GLOBAL read_only=1", StartedAt: at.Add(time.Minute), Outcome: operation.Running}}},
		{ID: "20260301T120000-m1-2", Kind: operation.Failover, From: "s1", To: "s2", Reason: "named by a person", Overrides: []string{"s2 has received less than s3"},
			StartedAt: at, TurnedAt: later(310), EndedAt: later(1250), Outcome: operation.Done, Warnings: []string{"repoint on s3: it does not answer"},
			Steps: []operation.StepRecord{
				{Name: "apply relay log", Server: "s2", Statement: "all that it has received is applied", StartedAt: at, TookMS: 250.04, Outcome: operation.Done},
				{Name: "promote", Server: "s2", Statement: "STOP SLAVE;\nSET GLOBAL read_only=0", StartedAt: *later(251), TookMS: 58.7, Outcome: operation.Done},
				{Name: "repoint", Server: "s3", Statement: "CHANGE MASTER TO ...", StartedAt: *later(311), TookMS: 938, Outcome: operation.Failed, Detail: "it does not\nanswer"},
			}},
		{ID: "20260301T110000-m1-1", Kind: operation.Switchover, From: "s2", To: "s1", StartedAt: at.Add(-time.Hour), EndedAt: later(-3599995), Outcome: operation.Undone,
			Detail: "step set read-only on s2: lock wait timeout; undone: events off on s2", Steps: []operation.StepRecord{}},
	}
}

// daemon serves views as lockstepd does.
func daemon(t *testing.T, views ...monitor.View) string {
	t.Helper()
	send := func(w http.ResponseWriter, status int, body any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(body)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/clusters", func(w http.ResponseWriter, _ *http.Request) {
		send(w, http.StatusOK, map[string]any{"clusters": append([]monitor.View{}, views...)})
	})
	mux.HandleFunc("GET /v1/clusters/{name}", func(w http.ResponseWriter, r *http.Request) {
		for _, v := range views {
			if v.Cluster == r.PathValue("name") {
				send(w, http.StatusOK, v)
				return
			}
		}
		send(w, http.StatusNotFound, map[string]string{"error": "no cluster \"" + r.PathValue("name") + "\" here"})
	})
	mux.HandleFunc("GET /v1/clusters/{name}/operations", func(w http.ResponseWriter, _ *http.Request) {
		send(w, http.StatusOK, map[string]any{"operations": records()})
	})
	mux.HandleFunc("GET /v1/clusters/{name}/operations/{id}", func(w http.ResponseWriter, r *http.Request) {
		for _, rec := range records() {
			if rec.ID == r.PathValue("id") {
				send(w, http.StatusOK, rec)
				return
			}
		}
		send(w, http.StatusNotFound, map[string]string{"error": "this monitor has no operation \"" + r.PathValue("id") + "\": the history of each monitor is its own"})
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL
}

type result struct {
	code           int
	stdout, stderr string
}

func ctl(t *testing.T, args ...string) result {
	t.Helper()
	var out, errs bytes.Buffer
	code := run(context.Background(), args, strings.NewReader(""), &out, &errs)
	return result{code, out.String(), errs.String()}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err, "run go test with -update to write it")
	require.Equal(t, string(want), got)
}
