package operation

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-ha/lockstep/topology"
	"github.com/lockstep-ha/lockstep/topology/gtid"
	"github.com/lockstep-ha/lockstep/topology/mariadb"
)

// Limits of single steps.
const (
	statementLimit = 3 * time.Second
	asideLimit     = 8 * time.Second
	resetLimit     = 60 * time.Second
	sqlFileLimit   = 3 * time.Second
	eventsLimit    = 10 * time.Second
	confirmLimit   = 30 * time.Second
)

// planner is what all plans are made with.
type planner struct {
	c Cluster
	p Policy
}

// Planner makes plans for a cluster under a policy.
func newPlanner(c Cluster, p Policy) planner { return planner{c, p} }

func step(name, server string, limit time.Duration, after string, statements ...string) Step {
	return Step{Name: name, Server: server, LimitMS: limit.Milliseconds(), After: after,
		Statement: strings.Join(statements, ";\n"), sql: strings.Join(statements, ";")}
}

// waitStep only looks.
func waitStep(name, server, what string, limit time.Duration, after string, ok func(c Cluster, since time.Duration) (bool, string)) Step {
	return Step{Name: name, Server: server, LimitMS: limit.Milliseconds(), Statement: "wait: " + what, After: after, wait: ok}
}

// linkFrom is the connection of server i that leads to server source, nil for none.
func (c Cluster) linkFrom(i, source int) *topology.Replication {
	return topology.LinkTo(c.Servers, c.Graph, source, i)
}

// readOnlyStep sets a server read-only.
func readOnlyStep(server string) Step {
	ro := step("set read-only", server, readOnlyWait+statementLimit, "no ordinary account writes to "+server, mariadb.SetReadOnly(readOnlyWait))
	ro.waits = readOnlyWait
	return ro
}

// drained waits until a server has applied all that it has received from a
// source, as seen after the step began. Unless lossy is set that includes what was
// seen to be received before.
func drained(server, source string, lossy bool) func(Cluster, time.Duration) (bool, string) {
	return func(c Cluster, since time.Duration) (bool, string) {
		i, p := c.Index(server), c.Index(source)
		s := c.Servers[i]
		if !s.Up() || s.SentAt < since {
			return false, fmt.Sprintf("%s has not answered since (%s)", server, s.Why())
		}
		link := c.linkFrom(i, p)
		if link == nil {
			return false, fmt.Sprintf("%s does not replicate from %s any more", server, source)
		}
		c.Primary = p
		if id := c.lacks(i, server); id != "" && !lossy {
			return false, fmt.Sprintf("%s had received %s and has thrown it away: its replication was stopped", server, id)
		}
		// What it has logged it has applied, though it may have written it itself: a
		// former primary before 10.10 asks for what follows its own transactions.
		if n := gtid.Backlog(link.Received.Without(s.BinlogState), s.SlavePos); n > 0 {
			return false, fmt.Sprintf("%s has yet to apply %d transactions (received %s, applied %s); SQL thread: %s %s", server, n, link.Received, s.SlavePos, link.SQL, link.SQLError)
		}
		return true, ""
	}
}

// caughtUp waits until a replica has applied all that a read-only primary has
// logged, and the primary has logged nothing in between two looks.
func caughtUp(target, primary string) func(Cluster, time.Duration) (bool, string) {
	var last gtid.Position
	var looked time.Duration
	return func(c Cluster, since time.Duration) (bool, string) {
		t, p := c.Servers[c.Index(target)], c.Servers[c.Index(primary)]
		switch {
		case !p.Up():
			return false, fmt.Sprintf("%s has stopped answering: %s", primary, p.Why())
		case !t.Up():
			return false, fmt.Sprintf("%s has stopped answering: %s", target, t.Why())
		case p.SentAt < since || t.SentAt < since:
			return false, "no new answer yet"
		case p.ReadOnly != topology.Yes:
			return false, primary + " is writable again"
		}
		stable := looked != 0 && p.SentAt > looked && last.Equal(p.BinlogPos)
		last, looked = p.BinlogPos, p.SentAt
		if !covers(t, p.BinlogPos) {
			return false, fmt.Sprintf("%s has applied %s of %s", target, t.CurrentPos, p.BinlogPos)
		}
		if !stable {
			return false, fmt.Sprintf("%s has to be seen twice with the same position (%s); a privileged account may be writing to it", primary, p.BinlogPos)
		}
		return true, ""
	}
}

// covers reports whether a server has logged or applied every transaction of a position.
func covers(s topology.Server, pos gtid.Position) bool {
	for id := range pos.All() {
		cur, ok := s.CurrentPos.Get(id.Domain)
		if !s.BinlogState.Contains(id) && (!ok || cur != id) {
			return false
		}
	}
	return true
}

// replicatesFrom waits until a server is seen to replicate from the right source.
func replicatesFrom(server, source string) func(Cluster, time.Duration) (bool, string) {
	return func(c Cluster, since time.Duration) (bool, string) {
		i, p := c.Index(server), c.Index(source)
		s := c.Servers[i]
		if !s.Up() || s.SentAt < since {
			return false, fmt.Sprintf("%s has not answered since (%s)", server, s.Why())
		}
		link := c.linkFrom(i, p)
		switch {
		case link == nil:
			return false, fmt.Sprintf("%s does not replicate from %s", server, source)
		case link.IO == "Yes" && link.SQL == "Yes" && link.SourceServerID == c.Servers[p].ServerID:
			return true, ""
		case link.IOErrno != 0:
			return false, fmt.Sprintf("%s cannot replicate from %s: error %d: %s", server, source, link.IOErrno, link.IOError)
		case link.SQLErrno != 0:
			return false, fmt.Sprintf("%s cannot apply what %s sends: error %d: %s", server, source, link.SQLErrno, link.SQLError)
		}
		return false, fmt.Sprintf("%s: IO %s, SQL %s", server, link.IO, link.SQL)
	}
}

// hasReplica waits until a server is replicated from.
func hasReplica(server string) func(Cluster, time.Duration) (bool, string) {
	return func(c Cluster, _ time.Duration) (bool, string) {
		return len(c.Graph.Replicas(c.Index(server), true)) > 0, "no replica is connected to " + server
	}
}

// away reports whether the IO thread of s may take seconds to stop: a semi-sync
// replica connects to its source once more in order to end its own connection
// there, and waits for that.
func away(s, source topology.Server) bool { return s.SemiSync.ReplicaOn && !source.Up() }

// hurried wraps statements that stop such an IO thread.
func hurried(statements ...string) []string {
	return append(append([]string{mariadb.HurryStop}, statements...), mariadb.StopHurry)
}

// addressFor is the address by which replicas reach a server.
func addressFor(s topology.Server) string {
	if s.PrivateAddress != "" {
		return s.PrivateAddress
	}
	return s.Address
}

// leadsTo reports whether a connection of s is set to an address.
func leadsTo(s topology.Server, address string) bool {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	for _, r := range s.Replication {
		if strings.EqualFold(r.Host, host) && strconv.Itoa(r.Port) == port {
			return true
		}
	}
	return false
}

// repoint makes a replica follow another source over the connection that it has
// to its old one.
func (pl planner) repoint(i int, connection string, to topology.Server, demote bool, first ...string) ([]Step, error) {
	s := pl.c.Servers[i]
	change, masked, err := mariadb.ChangeSource(s.Version, mariadb.Source{Connection: connection, Address: addressFor(to),
		User: pl.p.ReplicationUser, Password: pl.p.ReplicationPassword, TLS: pl.p.ReplicationTLS, Demote: demote})
	if err != nil {
		return nil, err
	}
	source := to
	if list := pl.c.Graph.Sources(i); len(list) > 0 {
		source = pl.c.Servers[list[0]]
	}
	before := append(first, mariadb.StopReplica(connection))
	aside := away(s, source)
	if aside {
		before = hurried(before...)
	}
	start := mariadb.StartReplica(connection)
	statements := append(slices.Clone(before), change, start)
	shown := append(slices.Clone(before), masked, start)
	st := step("replicate from "+to.Name, s.Name, statementLimit, s.Name+" replicates from "+to.Name, statements...)
	st.Statement = strings.Join(shown, ";\n")
	if st.aside = aside || slices.Contains(first, mariadb.SemiSyncPrimaryOff) && mariadb.SemiSyncOffLingers(s.Version); st.aside {
		st.LimitMS = asideLimit.Milliseconds()
	}
	address := addressFor(to)
	st.seen = func(s topology.Server) bool { return leadsTo(s, address) }
	return []Step{st, waitStep("confirm", s.Name, "both threads run, connected to the server id of "+to.Name, confirmLimit, "replication was seen to run", replicatesFrom(s.Name, to.Name))}, nil
}

// otherReplicas are the plans that repoint the replicas of a former primary.
func (pl planner) otherReplicas(from int, to topology.Server) ([][]Step, error) {
	var lanes [][]Step
	for _, i := range pl.c.Graph.Replicas(from, false) {
		s := pl.c.Servers[i]
		if s.Name == to.Name || s.SameAs != "" || s.Maintenance || !s.Up() {
			continue
		}
		link := pl.c.linkFrom(i, from)
		if link == nil {
			continue
		}
		lane, err := pl.repoint(i, link.Name, to, false)
		if err != nil {
			return nil, err
		}
		lanes = append(lanes, lane)
	}
	return lanes, nil
}

// promotion makes the statements that turn a replica into the primary. The
// server is writable before its connection to the old primary is forgotten, so
// that what is seen half-way is a primary and not an orphan.
func (pl planner) promotion(to, from topology.Server, connection string) Step {
	statements := []string{mariadb.StopReplica(connection)}
	if !pl.p.LeaveSemiSync && from.SemiSync.PrimaryOn {
		statements = append(statements, mariadb.SemiSyncLike(from.SemiSync)...)
	}
	statements = append(statements, mariadb.SetWritable(), mariadb.ForgetSource(connection))
	st := step("promote", to.Name, statementLimit, to.Name+" accepts writes and replicates from nobody", statements...)
	st.turn = true
	st.seen = func(s topology.Server) bool { return s.ReadOnly == topology.No }
	return st
}

// afterPromotion is what follows on the new primary.
func (pl planner) afterPromotion(to topology.Server, semiSync bool) []Step {
	var out []Step
	if !pl.p.LeaveEvents {
		out = append(out, Step{Name: "enable events", Server: to.Name, LimitMS: eventsLimit.Milliseconds(), special: eventsOn, soft: true,
			Statement: "ALTER EVENT ... ENABLE for each event that replication had disabled here", After: "scheduled events run on " + to.Name})
	}
	if len(pl.p.PromotionSQL) > 0 {
		if semiSync {
			out = append(out, waitStep("wait for a replica", to.Name, "a replica that can acknowledge is connected", confirmLimit, "writes are acknowledged", hasReplica(to.Name)))
		}
		st := step("promotion SQL", to.Name, sqlFileLimit, "the statements of promotion_sql_file have run", pl.p.PromotionSQL...)
		st.soft = true
		out = append(out, st)
	}
	return out
}

// eventsStep keeps scheduled events from running on a server.
func eventsStep(server string) Step {
	return Step{Name: "disable events", Server: server, LimitMS: eventsLimit.Milliseconds(), special: eventsOff, soft: true,
		Statement: "ALTER EVENT ... DISABLE ON SLAVE for each enabled event", After: "scheduled events do not run on " + server}
}

// afterDemotion is what happens on a former primary before it replicates.
func (pl planner) afterDemotion(s topology.Server) []Step {
	var out []Step
	if !pl.p.LeaveEvents {
		out = append(out, eventsStep(s.Name))
	}
	return append(out, pl.demotionSQL(s)...)
}

func (pl planner) demotionSQL(s topology.Server) []Step {
	if len(pl.p.DemotionSQL) == 0 {
		return nil
	}
	st := step("demotion SQL", s.Name, sqlFileLimit, "the statements of demotion_sql_file have run", pl.p.DemotionSQL...)
	st.soft = true
	return []Step{st}
}

// demotedSemiSync are the statements that leave a former primary on the replica
// side of semi-synchronous replication only.
func (pl planner) demotedSemiSync(s topology.Server) []string {
	if pl.p.LeaveSemiSync || !s.SemiSync.Known || !s.SemiSync.PrimaryOn {
		return nil
	}
	return []string{mariadb.SemiSyncPrimaryOff, mariadb.SemiSyncReplicaOn}
}

func (pl planner) needAccount(k *checks) {
	if pl.p.ReplicationUser == "" {
		k.refuse("no_replication_user", "set replication_user and its password", "no account is configured with which replicas log in to the primary")
	}
}
