package gtid

import (
	"fmt"
	"slices"
	"strings"
)

// MySQLSource is what has to be known of a MySQL server to tell who can replicate
// from it by auto-positioning.
type MySQLSource struct {
	// UUID is @@server_uuid. If it is zero, [MoreThanSource] is not noticed here,
	// and only the server can refuse for it.
	UUID UUID
	// Executed is @@gtid_executed, which includes Purged.
	Executed Set
	// Purged is @@gtid_purged: what is no longer in its binlogs.
	Purged Set
}

// MySQLProblem is one reason against a MySQL server replicating from another.
type MySQLProblem struct {
	Kind ProblemKind
	// Set holds the transactions that the problem is about: those missing and no
	// longer to be had for [Purged], and otherwise those that the replica has and
	// the source lacks.
	Set Set
	// Text says it in a sentence for an operator.
	Text string
}

// MySQLVerdict says whether a MySQL server can replicate from another.
type MySQLVerdict struct {
	// OK is set if there is no problem. Errant transactions are not one: replication
	// works in spite of them, until their owner is promoted.
	OK bool
	// Problems come in the order of their kinds.
	Problems []MySQLProblem
	// Errant is what the replica has and the source lacks, the set that decides
	// whether both may call themselves the same database.
	Errant Set
}

// ServerAccepts reports whether the source itself would accept the connection,
// regardless of what this package refuses beyond that.
func (v MySQLVerdict) ServerAccepts() bool {
	return !slices.ContainsFunc(v.Problems, func(p MySQLProblem) bool { return p.Kind.RefusedByServer() })
}

// String returns the texts of the problems, or "ok", and the errant transactions.
func (v MySQLVerdict) String() string {
	texts := make([]string, 0, len(v.Problems)+1)
	for _, p := range v.Problems {
		texts = append(texts, p.Text)
	}
	if v.OK {
		texts = append(texts, "ok")
	}
	if !v.Errant.IsEmpty() {
		texts = append(texts, fmt.Sprintf("errant: %s", v.Errant))
	}
	return strings.Join(texts, "; ")
}

// CanReplicateMySQL says whether a replica that has the transactions have, executed
// or received, can replicate from a source by auto-positioning.
//
// It follows the check that a MySQL source makes at connect: it refuses if it has
// purged something that the replica lacks, and if the replica has transactions
// under the source's own UUID that the source lacks. Other transactions that the
// source lacks it accepts without a word; they are in Errant. Beyond that,
// [UpstreamEmpty] is refused: a source that has nothing at all.
//
// have must be read before the source's sets. The other way round, what was
// replicated in between looks errant.
func CanReplicateMySQL(source MySQLSource, have Set) MySQLVerdict {
	v := MySQLVerdict{Errant: have.Subtract(source.Executed)}
	if gone := source.Purged.Subtract(have); !gone.IsEmpty() {
		v.Problems = append(v.Problems, MySQLProblem{Purged, gone, fmt.Sprintf(
			"the source has purged %s, which the replica lacks", gone)})
	}
	if more := v.Errant.ForUUID(source.UUID); !source.UUID.IsZero() && !more.IsEmpty() {
		v.Problems = append(v.Problems, MySQLProblem{MoreThanSource, more, fmt.Sprintf(
			"the replica has %s, which the source lacks though it bears its UUID", more)})
	}
	if source.Executed.IsEmpty() && !have.IsEmpty() {
		v.Problems = append(v.Problems, MySQLProblem{UpstreamEmpty, have, fmt.Sprintf(
			"the replica has %s, and the source has executed nothing", have)})
	}
	v.OK = len(v.Problems) == 0
	return v
}

// MySQLProgress is how far a MySQL replica has come.
type MySQLProgress struct {
	// Retrieved is what was received into the relay log since that was last reset:
	// Retrieved_Gtid_Set of every channel.
	Retrieved Set
	// Executed is @@gtid_executed.
	Executed Set
}

// Have returns what the replica can reach without its source: all that it has
// executed or received.
func (p MySQLProgress) Have() Set { return p.Executed.Union(p.Retrieved) }

// Backlog returns the transactions that were received and not executed.
func (p MySQLProgress) Backlog() Set { return p.Retrieved.Subtract(p.Executed) }

func (p MySQLProgress) forUUID(uuids []UUID) MySQLProgress {
	return MySQLProgress{Retrieved: p.Retrieved.ForUUID(uuids...), Executed: p.Executed.ForUUID(uuids...)}
}

// CompareMySQLProgress says how the progress of replica a stands to that of b. What
// they have decides, received or executed; if that is the same, what they have
// executed does.
func CompareMySQLProgress(a, b MySQLProgress) Relation {
	if r := CompareSets(a.Have(), b.Have()); r != Equal {
		return r
	}
	return CompareSets(a.Executed, b.Executed)
}

// MostAdvancedMySQL says which MySQL replica has the most, by
// [CompareMySQLProgress]. If no one has all that the others have, and UUIDs are
// given, only the transactions under those are compared: the UUIDs of the primary
// and of those before it are the natural choice. The one chosen has to execute what
// it has received before it is promoted.
func MostAdvancedMySQL(candidates []MySQLProgress, uuids ...UUID) Choice {
	compare := func(i, j int) Relation { return CompareMySQLProgress(candidates[i], candidates[j]) }
	if len(uuids) == 0 {
		return choose(len(candidates), compare, nil)
	}
	return choose(len(candidates), compare, func(i, j int) Relation {
		return CompareMySQLProgress(candidates[i].forUUID(uuids), candidates[j].forUUID(uuids))
	})
}
