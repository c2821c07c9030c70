package operation

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/topology"
)

var update = flag.Bool("update", false, "write the golden files")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err, "run go test with -update to write it")
	require.Equal(t, string(want), got)
}

// planned makes the plan that a request asks for.
func planned(c Cluster, p Policy, r Request) (Plan, error) {
	switch r.Kind {
	case Switchover:
		return PlanSwitchover(c, p, r)
	case Rejoin:
		return PlanRejoin(c, p, r, History{Known: true})
	case ResetReplication:
		return PlanReset(c, p, r)
	}
	r.Kind = Failover
	return PlanFailover(c, p, r)
}

// printed is a plan as a person reads it, of which nothing shows the password.
func printed(t *testing.T, c Cluster, p Policy, r Request) string {
	t.Helper()
	plan, err := planned(c, p, r)
	require.NoError(t, err)
	text := plan.String()
	data, err := json.Marshal(plan)
	require.NoError(t, err)
	requireNoSecret(t, text, string(data))
	return text
}

type planCase struct {
	servers []topology.Server
	former  []string
	policy  func(*Policy)
	request Request
}

func (x planCase) run(t *testing.T, name string) {
	t.Parallel()
	c := cluster(x.servers...)
	c.Former = x.former
	p := policy()
	if x.policy != nil {
		p = policy(x.policy)
	}
	golden(t, name, printed(t, c, p, x.request))
}

func list(servers ...topology.Server) []topology.Server { return servers }

func TestFailoverPlans(t *testing.T) {
	t.Parallel()
	dead := server(1, down)
	behind := replica(2, 1, lost, received("0-1-107"), applied("0-1-95"))
	for name, x := range map[string]planCase{
		"failover_dead": {servers: list(dead, replica(2, 1, lost), replica(3, 1, lost))},
		// The IO threads of semi-sync replicas take a second to stop: all are stopped at the same time.
		"failover_hung": {servers: list(server(1, silent, strong), replica(2, 1, acknowledges), replica(3, 1, acknowledges),
			replica(4, 1, acknowledges, threads("No", "Yes")), replica(5, 1, acknowledges, maintenance)),
			request: Request{NotBefore: start + 1500*1e6}},
		"failover_write_failed":          {servers: list(server(1, evidence(topology.WriteFailed)), replica(2, 1), replica(3, 1))},
		"failover_write_failed_semisync": {servers: list(server(1, evidence(topology.WriteFailed), strong), replica(2, 1, acknowledges))},
		"failover_backlog_wait":          {servers: list(dead, behind, replica(3, 1, lost))},
		"failover_backlog_abort_forced": {servers: list(dead, behind, replica(3, 1, lost)),
			policy: func(p *Policy) { p.RelayLog = RelayLogAbort }, request: Request{Force: true}},
		"failover_abort_without_backlog": {servers: list(dead, replica(2, 1, lost)), policy: func(p *Policy) { p.RelayLog = RelayLogAbort }},
		"failover_backlog_proceed": {servers: list(dead, behind, replica(3, 1, lost)),
			policy: func(p *Policy) { p.RelayLog = RelayLogProceed }},
		"failover_sql_stopped": {servers: list(dead, replica(2, 1, threads("Connecting", "No")))},
		"failover_semisync_candidate": {servers: list(server(1, down, strong), replica(2, 1, lost, strong)),
			policy: func(p *Policy) { p.PromotionSQL = []string{"SET GLOBAL max_connections=500"} }},
		// s3 goes on to follow s2, from which it replicates already.
		"failover_relay": {servers: list(dead, replica(2, 1, lost), replica(3, 2), replica(4, 1, lost))},
		"failover_cut_short": {servers: list(dead, server(2, func(s *topology.Server) { s.SlavePos = position("0-1-100") }),
			replica(3, 1, lost))},
		"failover_named":  {servers: list(dead, replica(2, 1, lost), replica(3, 1, lost)), request: Request{To: "s3"}},
		"failover_forced": {servers: list(dead, replica(2, 1, lost), replica(3, 1, lost, mustNot)), request: Request{To: "s3", Force: true}},
		"failover_leave_all": {servers: list(server(1, down, strong), replica(2, 1, lost, strong)),
			policy: func(p *Policy) { p.LeaveEvents, p.LeaveSemiSync = true, true }},
		"failover_connection_and_address": {servers: list(server(1, down), replica(2, 1, lost, func(s *topology.Server) {
			s.PrivateAddress, s.Replication[0].Name = "192.168.0.2:3307", "it's"
		}), replica(3, 1, lost)), policy: func(p *Policy) { p.ReplicationTLS = true }},
	} {
		t.Run(name, func(t *testing.T) { x.run(t, name) })
	}
}

func TestSwitchoverPlans(t *testing.T) {
	t.Parallel()
	sql := func(p *Policy) {
		p.PromotionSQL, p.DemotionSQL = []string{"SET GLOBAL max_connections=500", "FLUSH PRIVILEGES"}, []string{"SET GLOBAL max_connections=100"}
	}
	old := version("10.5.12-MariaDB")
	for name, x := range map[string]planCase{
		"switchover_plain":    {servers: list(server(1), replica(2, 1), replica(3, 1))},
		"switchover_semisync": {servers: list(server(1, strong), replica(2, 1, acknowledges), replica(3, 1, acknowledges)), policy: sql},
		"switchover_leave": {servers: list(server(1, strong), replica(2, 1, acknowledges)),
			policy: func(p *Policy) { p.LeaveEvents, p.LeaveSemiSync = true, true }},
		"switchover_without_demote": {servers: list(server(1, old), replica(2, 1, old))},
		"switchover_named":          {servers: list(server(1), replica(2, 1), replica(3, 1)), request: Request{To: "s3"}},
		"switchover_sql_stopped":    {servers: list(server(1), replica(2, 1, threads("Yes", "No")))},
		"switchover_sql":            {servers: list(server(1), replica(2, 1)), policy: sql},
		"switchover_external":       {servers: list(server(1, external("dc2")), replica(2, 1)), request: Request{Force: true}},
		// Nothing is sent to servers that do not answer, or are in maintenance.
		"switchover_others": {servers: list(server(1), replica(2, 1), replica(3, 1, down), replica(4, 1, maintenance), replica(5, 2))},
	} {
		x.request.Kind = Switchover
		t.Run(name, func(t *testing.T) { x.run(t, name) })
	}
}

func TestRejoinPlans(t *testing.T) {
	t.Parallel()
	early := func(s *topology.Server) { s.SentAt, s.DoneAt = start-30*1e6, start-20*1e6 }
	primary := server(1, func(s *topology.Server) {
		s.BinlogState, s.BinlogPos, s.CurrentPos, s.SlavePos = state("0-2-90,0-1-120"), position("0-1-120"), position("0-1-120"), position("0-2-90")
	})
	own := func(s *topology.Server) {
		s.BinlogState, s.BinlogPos, s.CurrentPos = state("0-2-90"), position("0-2-90"), position("0-2-90")
	}
	for name, x := range map[string]planCase{
		"rejoin_old_primary": {servers: list(primary, server(2, early, own, strong)), policy: func(p *Policy) {
			p.DemotionSQL = []string{"SET GLOBAL max_connections=100"}
		}},
		"rejoin_old_primary_10_5": {servers: list(primary, server(2, early, own, version("10.5.12-MariaDB")))},
		"rejoin_leave": {servers: list(primary, server(2, early, own, readOnly, strong)),
			policy: func(p *Policy) { p.LeaveEvents, p.LeaveSemiSync = true, true }},
		"rejoin_orphan":       {servers: list(primary, replica(2, 1, early, alone))},
		"rejoin_wrong_source": {servers: list(primary, replica(2, 3, early), replica(3, 1))},
		"rejoin_former":       {servers: list(primary, replica(2, 3, early, lost), server(3, down)), former: []string{"s3"}},
		"rejoin_stopped":      {servers: list(primary, replica(2, 1, early, threads("No", "No")))},
		"rejoin_maintenance":  {servers: list(primary, replica(2, 1, early, alone, maintenance)), request: Request{Force: true}},
	} {
		x.request.Kind, x.request.To = Rejoin, "s2"
		t.Run(name, func(t *testing.T) { x.run(t, name) })
	}
}

func TestResetPlans(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]planCase{
		"reset_primary": {servers: list(server(1, strong), replica(2, 1, acknowledges), replica(3, 1, external("dc2"))),
			policy: func(p *Policy) { p.PromotionSQL, p.DemotionSQL = []string{"DO 1"}, []string{"DO 0"} }},
		"reset_named":  {servers: list(server(1), replica(2, 1)), request: Request{To: "s2"}},
		"reset_forced": {servers: list(server(1), replica(2, 1, down), replica(3, 1, applied("0-3-7"))), request: Request{Force: true}},
	} {
		x.request.Kind = ResetReplication
		t.Run(name, func(t *testing.T) { x.run(t, name) })
	}
}

// TestGoldenFilesAreUsed keeps files of cases that are gone from staying.
func TestGoldenFilesAreUsed(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("plan_test.go")
	require.NoError(t, err)
	files, err := filepath.Glob("testdata/*.golden")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, f := range files {
		name := strings.TrimSuffix(filepath.Base(f), ".golden")
		require.Contains(t, string(source), `"`+name+`"`)
	}
}

// TestStray says which servers the monitor joins by itself, and why.
func TestStray(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		servers []topology.Server
		former  []string
		want    string
		lasting bool
	}{
		"where it belongs":         {servers: list(server(1), replica(2, 1))},
		"alone":                    {servers: list(server(1), replica(2, 1, alone)), want: "s2 replicates from nobody"},
		"alone, no primary":        {servers: list(server(1, down), replica(2, 1, alone))},
		"alone, in maintenance":    {servers: list(server(1), replica(2, 1, alone, maintenance))},
		"alone, state unknown":     {servers: list(server(1), replica(2, 1, alone, func(s *topology.Server) { s.ReplicationKnown = false }))},
		"down":                     {servers: list(server(1), replica(2, 1, alone, down))},
		"source outside":           {servers: list(server(1), server(2, external("")))},
		"two sources":              {servers: list(server(1), replica(2, 3, external("dc2")), server(3))},
		"behind a relay":           {servers: list(server(1), replica(2, 3), replica(3, 1))},
		"of one that is no relay":  {servers: list(server(1), replica(2, 3), server(3)), want: "s2 replicates from s3, which is not the primary", lasting: true},
		"of one that is down":      {servers: list(server(1), replica(2, 3, lost), server(3, down)), want: "s2 is set to replicate from s3 (connection refused) and cannot", lasting: true},
		"of a former primary":      {servers: list(server(1), replica(2, 3), replica(3, 1)), former: []string{"s3"}, want: "s2 is set to replicate from s3, which was the primary before", lasting: false},
		"stopped by a person":      {servers: list(server(1), replica(2, 3, threads("No", "Yes")), server(3))},
		"stopped, former primary":  {servers: list(server(1), replica(2, 3, threads("No", "No")), server(3)), former: []string{"s3"}, want: "s2 is set to replicate from s3, which was the primary before", lasting: false},
		"the same server as other": {servers: list(server(1), replica(2, 1, alone, func(s *topology.Server) { s.SameAs = "s1" }))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := cluster(x.servers...)
			c.Former = x.former
			reason, lasting := Stray(c, 1)
			require.Equal(t, x.want, reason)
			require.Equal(t, x.lasting, lasting)
		})
	}
}
