// Package operation moves the primary: failover, switchover, rejoin and
// reset-replication.
//
// A planner is a pure function from what is known of a cluster to a Plan or to
// refusals. A plan is data: ordered steps, each with its server, its statement,
// a time limit, what takes it back and what is true after it; so that it can be
// printed before it is run. A Run carries a plan out, a part a tick: it asks a
// majority of the servers whether the locks are still its own before every
// statement that changes a server, and records each step with its times.
//
// The package promises that a plan never throws away relay log that the new
// primary has received and not applied (unless told to), that a server is
// changed only over the connection that holds its server lock, and that a
// statement whose answer was lost is neither taken as done nor repeated: what
// was seen afterwards decides. It does not decide when a failover is due because
// of locks; Detector says from which instant on that is safe.
package operation
