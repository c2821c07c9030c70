package operation

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/topology"
	"github.com/lockstep-ha/lockstep/topology/gtid"
)

// refused is a cluster that an operation is refused for.
type refused struct {
	kind    Kind
	code    string
	servers []topology.Server
	primary int
	policy  func(*Policy)
	to      string
	history History
	had     map[string]gtid.Position
	// text is a part of the reason.
	text string
	// forced is true where a person can override the refusal; plan is true where
	// there is a plan then.
	forced, plan bool
}

func refusals() map[string]refused {
	dead := server(1, down)
	two, three := replica(2, 1, lost), replica(3, 1, lost)
	parted := replica(2, 1, lost, received("0-2-101"), func(s *topology.Server) { s.CurrentPos = position("0-2-101") })
	before := func(s *topology.Server) { s.SentAt, s.DoneAt = start-30*1e6, start-20*1e6 }
	noAccount := func(p *Policy) { p.ReplicationUser = "" }
	unknown := func(s *topology.Server) { s.ReplicationKnown = false }
	return map[string]refused{
		"failover without an account":             {kind: Failover, code: "no_replication_user", servers: list(dead, two), policy: noAccount, text: "no account is configured"},
		"failover of an unknown primary":          {kind: Failover, code: "no_primary", servers: list(dead, two), primary: -1, text: "not known which server"},
		"failover without a candidate":            {kind: Failover, code: "no_candidate", servers: list(dead, replica(2, 1, mustNot), replica(3, 1, down)), text: "s2: its promotion rule is must_not; s3: connection refused"},
		"failover to one of another source":       {kind: Failover, code: "not_a_replica", servers: list(dead, two, server(3, readOnly)), to: "s3", text: "s3 does not replicate from s1"},
		"failover to an unfit one":                {kind: Failover, code: "unfit", servers: list(dead, two, replica(3, 1, lost, mustNot)), to: "s3", text: "s3 should not be promoted: its promotion rule is must_not", forced: true, plan: true},
		"failover to one that is down":            {kind: Failover, code: "target_down", servers: list(dead, two, replica(3, 1, silent)), to: "s3", text: "s3 cannot be promoted: timed out"},
		"failover to another than was promoted":   {kind: Failover, code: "promoted_already", servers: list(dead, server(2), three), to: "s3", text: "s2 was promoted already"},
		"failover, an unfit one has more":         {kind: Failover, code: "replica_ahead", servers: list(dead, two, replica(3, 1, lost, mustNot, received("0-1-105"))), text: "s3 has received more from s1 than s2 has", forced: true, plan: true},
		"switchover with an external default":     {kind: Switchover, code: "external_default", servers: list(server(1, external("")), replica(2, 1)), text: "the default replication connection of s1 leads to 203.0.113.9:3306"},
		"failover while another cluster is ahead": {kind: Failover, code: "elsewhere_ahead", servers: list(dead, two, server(4, readOnly, func(s *topology.Server) { s.SlavePos, s.CurrentPos = position("0-4-900"), position("0-4-900") })), text: "s4, which does not replicate from s1, has replicated 0-4-900, which s2 lacks", forced: true, plan: true},
		"failover to nobody":                      {kind: Failover, code: "no_such_server", servers: list(dead, two), to: "s9", text: "s9 is not a server that could be promoted"},
		"failover to the primary":                 {kind: Failover, code: "no_such_server", servers: list(dead, two), to: "s1", text: "s1 is not a server that could be promoted"},
		"failover, the primary before has more": {kind: Failover, code: "elsewhere_ahead", servers: list(server(1, down, func(s *topology.Server) { s.BinlogState = state("0-9-101,0-1-102") }), two,
			server(4, readOnly, func(s *topology.Server) { s.BinlogState = state("0-9-101") })), text: "s4, which does not replicate from s1, has 0-9-101, which s1 had too and s2 lacks", forced: true, plan: true},
		"failover to one that is behind":           {kind: Failover, code: "behind", servers: list(dead, replica(2, 1, lost, received("0-1-105")), three), to: "s3", text: "s3 has received less than s2", forced: true, plan: true},
		"failover with relay log, abort":           {kind: Failover, code: "relay_log", servers: list(dead, replica(2, 1, lost, applied("0-1-95"))), policy: func(p *Policy) { p.RelayLog = RelayLogAbort }, text: "s2 has yet to apply 5 transactions", forced: true, plan: true},
		"failover after relay log was thrown away": {kind: Failover, code: "thrown_away", servers: list(dead, two, three), had: map[string]gtid.Position{"s3": position("0-1-101")}, text: "s3 had received 0-1-101 from s1 and has thrown it away, and s2 has not got it", forced: true, plan: true},
		"failover, more is on one that is down":    {kind: Failover, code: "replica_ahead_down", servers: list(dead, two, replica(3, 1, down, received("0-1-101"))), text: "s3, which does not answer (connection refused), has received more from s1 than s2 has", forced: true, plan: true},

		"failover to one of two that parted": {kind: Failover, code: "diverged", servers: list(dead, parted, replica(3, 1, lost, received("0-1-101"), applied("0-1-101"))), to: "s3", text: "promoting s3 loses transactions", forced: true, plan: true},

		"switchover without an account":        {kind: Switchover, code: "no_replication_user", servers: list(server(1), replica(2, 1)), policy: noAccount, text: "no account is configured"},
		"switchover without a primary":         {kind: Switchover, code: "no_primary", servers: list(server(1), replica(2, 1)), primary: -1, text: "no primary to switch over from"},
		"switchover of one that is down":       {kind: Switchover, code: "primary_down", servers: list(server(1, silent), replica(2, 1)), text: "the primary s1 does not answer: timed out"},
		"switchover without a binary log":      {kind: Switchover, code: "no_binlog", servers: list(server(1, func(s *topology.Server) { s.LogBin = topology.No }), replica(2, 1)), text: "s1 has no binary log"},
		"switchover of a replica of others":    {kind: Switchover, code: "external_source", servers: list(server(1, external("dc2")), replica(2, 1)), text: "s1 replicates from 203.0.113.9:3306, outside the cluster", forced: true, plan: true},
		"switchover to the primary":            {kind: Switchover, code: "is_primary", servers: list(server(1), replica(2, 1)), to: "s1", text: "s1 is the primary already"},
		"switchover without a candidate":       {kind: Switchover, code: "no_candidate", servers: list(server(1), replica(2, 1, maintenance)), text: "s2: it is in maintenance"},
		"switchover to one of another source":  {kind: Switchover, code: "not_a_replica", servers: list(server(1), replica(2, 1), replica(3, 2)), to: "s3", text: "s3 does not replicate from s1"},
		"switchover to one without IO":         {kind: Switchover, code: "not_receiving", servers: list(server(1), replica(2, 1, lost)), text: "s2 receives nothing from s1: IO thread Connecting"},
		"switchover to one that lags":          {kind: Switchover, code: "lagging", servers: list(server(1), replica(2, 1, link(func(r *topology.Replication) { r.Seconds = 11 }))), text: "s2 is 11 s behind, and switchover_timeout is 10s"},
		"switchover to one with a full disk":   {kind: Switchover, code: "low_disk", servers: list(server(1), replica(2, 1, func(s *topology.Server) { s.LowDisk = "little is free" })), text: "s2: little is free", forced: true, plan: true},
		"switchover to an unfit one":           {kind: Switchover, code: "unfit", servers: list(server(1), replica(2, 1, mustNot)), to: "s2", text: "s2 should not be promoted: its promotion rule is must_not", forced: true, plan: true},
		"switchover to one that is down":       {kind: Switchover, code: "target_down", servers: list(server(1), replica(2, 1, down)), to: "s2", text: "s2 cannot be promoted: connection refused"},
		"switchover to nobody":                 {kind: Switchover, code: "no_such_server", servers: list(server(1), replica(2, 1)), to: "s9", text: `there is no server "s9"`},
		"rejoin without an account":            {kind: Rejoin, code: "no_replication_user", servers: list(server(1), replica(2, 1, before, alone)), to: "s2", policy: noAccount, text: "no account is configured"},
		"rejoin of nobody":                     {kind: Rejoin, code: "no_such_server", servers: list(server(1)), to: "s9", text: `there is no server "s9"`},
		"rejoin of the primary":                {kind: Rejoin, code: "is_primary", servers: list(server(1)), to: "s1", text: "s1 is the primary"},
		"rejoin without a primary":             {kind: Rejoin, code: "no_primary", servers: list(server(1), replica(2, 1, before, alone)), primary: -1, to: "s2", text: "no primary to join it to"},
		"rejoin with a read-only primary":      {kind: Rejoin, code: "no_primary", servers: list(server(1, readOnly), replica(2, 1, before, alone)), to: "s2", text: "no primary to join it to"},
		"rejoin that was looked at last":       {kind: Rejoin, code: "too_early", servers: list(server(1), replica(2, 1, alone)), to: "s2", text: "s1 has to be looked at again after s2"},
		"rejoin of one that is down":           {kind: Rejoin, code: "target_down", servers: list(server(1), replica(2, 1, before, alone, down)), to: "s2", text: "s2 does not answer: connection refused"},
		"rejoin in maintenance":                {kind: Rejoin, code: "maintenance", servers: list(server(1), replica(2, 1, before, alone, maintenance)), to: "s2", text: "s2 is in maintenance", forced: true, plan: true},
		"rejoin in an unknown state":           {kind: Rejoin, code: "replication_unknown", servers: list(server(1), replica(2, 1, before, alone, unknown)), to: "s2", text: "the replication state of s2 cannot be read"},
		"rejoin of one with two sources":       {kind: Rejoin, code: "several_sources", servers: list(server(1), replica(2, 3, before, external("dc2")), server(3)), to: "s2", text: "s2 has 2 replication connections"},
		"rejoin of a member":                   {kind: Rejoin, code: "already_joined", servers: list(server(1), replica(2, 1, before)), to: "s2", text: "s2 replicates from s1 already", forced: true, plan: true},
		"rejoin with transactions of its own":  {kind: Rejoin, code: "errant", servers: list(server(1), server(2, before, func(s *topology.Server) { s.BinlogState, s.CurrentPos = state("0-1-100,0-2-101"), position("0-2-101") })), to: "s2", text: "s2 has transactions that s1 never had, up to 0-2-101 in each domain"},
		"rejoin of one that needs purged logs": {kind: Rejoin, code: "gtid", servers: list(server(1), replica(2, 1, before, alone, applied("0-1-20"))), to: "s2", history: History{Oldest: position("0-1-50"), Known: true}, text: "s2 cannot replicate from s1: the upstream has purged its binlogs up to 0-1-50"},

		"reset without an account":       {kind: ResetReplication, code: "no_replication_user", servers: list(server(1)), policy: noAccount, text: "no account is configured"},
		"reset to nobody":                {kind: ResetReplication, code: "no_such_server", servers: list(server(1)), to: "s9", text: `there is no server "s9"`},
		"reset without a primary":        {kind: ResetReplication, code: "no_primary", servers: list(server(1)), primary: -1, text: "no server is named"},
		"reset to one that is down":      {kind: ResetReplication, code: "target_down", servers: list(server(1, silent)), text: "s1 does not answer: timed out"},
		"reset while one is down":        {kind: ResetReplication, code: "server_down", servers: list(server(1), replica(2, 1, down)), text: "s2 does not answer and would keep its old history", forced: true, plan: true},
		"reset though another has more":  {kind: ResetReplication, code: "data_differ", servers: list(server(1), replica(2, 1, applied("0-1-101"))), text: "s2 has applied 0-1-101, and s1 only 0-1-100", forced: true, plan: true},
		"reset though another is astray": {kind: ResetReplication, code: "data_differ", servers: list(server(1), replica(2, 1, applied("0-2-99"))), text: "s2 has applied 0-2-99, and s1 only 0-1-100", forced: true, plan: true},
	}
}

func (x refused) planned(force bool) (Plan, error) {
	c := cluster(x.servers...)
	c.Primary, c.Had = x.primary, x.had
	p := policy()
	if x.policy != nil {
		p = policy(x.policy)
	}
	r := Request{Kind: x.kind, To: x.to, Force: force}
	if x.kind == Rejoin {
		return PlanRejoin(c, p, r, x.history)
	}
	return planned(c, p, r)
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	for name, x := range refusals() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plan, err := x.planned(false)
			var no *RefusedError
			require.ErrorAs(t, err, &no)
			require.Equal(t, x.kind, no.Kind)
			require.Equal(t, Plan{}, plan)
			require.Contains(t, err.Error(), string(x.kind)+" refused: ")
			i := slices.IndexFunc(no.Refusals, func(r Refusal) bool { return r.Code == x.code })
			require.GreaterOrEqual(t, i, 0, "%v", no)
			require.Contains(t, no.Refusals[i].Text, x.text)
			require.Equal(t, x.forced, no.Refusals[i].Force)

			plan, err = x.planned(true)
			if x.plan {
				require.NoError(t, err)
				require.Len(t, plan.Overrides, 1)
				require.Contains(t, plan.Overrides[0], x.text)
				require.NotEmpty(t, plan.Steps)
				return
			}
			require.ErrorAs(t, err, &no)
			require.True(t, slices.ContainsFunc(no.Refusals, func(r Refusal) bool { return r.Code == x.code }), "%v", no)
		})
	}
}

// TestEveryRefusalIsTested fails where the source has a code without a case.
func TestEveryRefusalIsTested(t *testing.T) {
	t.Parallel()
	type use struct {
		code   string
		forced bool
	}
	cases := map[use]bool{}
	for _, x := range refusals() {
		cases[use{x.code, x.forced}] = true
	}
	entries, err := os.ReadDir(".")
	require.NoError(t, err)
	found := 0
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, e.Name(), nil, 0)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) == 0 {
				return true
			}
			sel, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || (sel.Sel.Name != "refuse" && sel.Sel.Name != "doubt") {
				return true
			}
			where := fset.Position(call.Pos())
			lit, ok := call.Args[0].(*ast.BasicLit)
			require.True(t, ok, "%v: the code is no literal", where)
			code, err := strconv.Unquote(lit.Value)
			require.NoError(t, err)
			require.True(t, cases[use{code, sel.Sel.Name == "doubt"}], "%v: no case for %s", where, code)
			found++
			return true
		})
	}
	require.Greater(t, found, 30)
}

func TestRefusedErrorNamesAllReasons(t *testing.T) {
	t.Parallel()
	failing := link(func(r *topology.Replication) { r.IOError = "no route" })
	_, err := PlanSwitchover(cluster(server(1, silent), replica(2, 1, lost, failing)), Policy{}, Request{})
	require.EqualError(t, err, "switchover refused: no account is configured with which replicas log in to the primary (set replication_user and its password); "+
		"the primary s1 does not answer: timed out (use failover); s2 receives nothing from s1: IO thread Connecting \"no route\" (mend its replication first)")
	var no *RefusedError
	require.ErrorAs(t, err, &no)
	require.Len(t, no.Refusals, 3)
}

// TestAddressWithoutPort covers what the configuration refuses before.
func TestAddressWithoutPort(t *testing.T) {
	t.Parallel()
	bad := func(s *topology.Server) { s.PrivateAddress = "nowhere" }
	for name, x := range map[string]struct {
		servers []topology.Server
		r       Request
	}{
		"failover":   {list(server(1, down), replica(2, 1, lost, bad), replica(3, 1, lost)), Request{To: "s2"}},
		"switchover": {list(server(1, bad), replica(2, 1)), Request{Kind: Switchover}},
		"new one":    {list(server(1), replica(2, 1, bad)), Request{Kind: Switchover}},
		"rejoin":     {list(server(1, bad), replica(2, 1, alone, func(s *topology.Server) { s.DoneAt = 0 })), Request{Kind: Rejoin, To: "s2"}},
		"reset":      {list(server(1, bad), replica(2, 1)), Request{Kind: ResetReplication}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := planned(cluster(x.servers...), policy(), x.r)
			require.ErrorContains(t, err, `address "nowhere"`)
			requireNoSecret(t, err.Error())
		})
	}
}
