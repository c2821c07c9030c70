// Package routing is a database/sql router over the servers of one cluster: writes
// go to the server that is the primary, reads to replicas that are good enough for
// them, and a failover is a pause.
//
// A [Router] follows a [Source]: a monitor in the same process ([FromMonitor]), a
// lockstepd ([FromURL]), or the locks on the servers alone ([FromLocks]). It gives
// handles of type *sql.DB, and a driver.Connector for what makes its own, so that
// sqlx and ORMs work as they are:
//
//   - [Router.Primary] for writes;
//   - [Router.DB] and [Router.Connector] for everything: statements that return rows,
//     and read-only transactions, are reads of a [Level]; Exec and all other
//     transactions go to the primary;
//   - [Router.Replica] for several reads on one server that is chosen now.
//
// SQL is never looked at. A connection to a replica is a read-only session, so that a
// write that strays there fails.
//
// # Levels and tokens
//
// [Strong] reads from the primary. [Session] reads from a replica that has all that a
// [Token] asks for. [Eventual] reads from a replica that is provably not older than
// given. [Any] reads from any replica. Where no replica will do, the primary is read
// from, or with Options.NoFallback the read fails with [ErrNoReplica].
//
// A token comes from a write ([Router.Write], [Router.Exec]), or from a [Tracker] in
// the context of a request: writes made with that context are noted, and reads with
// it see them. The text of a token fits into a cookie; what comes back from a client
// is parsed strictly, and with Options.TokenKey only what was given out is accepted.
//
// # Safety
//
// Nothing is sent to a server that the view does not name as the primary, or once
// the view has expired; this is asked before every statement and commit. Each new
// connection for writes asks the server itself, in one round trip, whether its
// primary lock and server lock are held by one connection and whether it is
// writable; else it is closed again ([ErrNotPrimary]). When the primary changes, the
// idle connections to the old one are closed, and those in use are not used again;
// with Options.HardCut they are cut.
//
// What fails because of that matches [ErrPrimaryChanged]. Where it is not known
// whether the server has carried it out, it matches [ErrOutcomeUnknown] too, and
// nothing but the caller's own word ([RetryUnknown]) makes the router send it again.
// [Router.Retry] begins a transaction again that was certainly not committed.
//
// With Options.HoldWrites what needs the primary waits for one. A statement outside a
// transaction that the old primary refused as read-only is then sent to the new one,
// unseen by the caller.
//
// # Not in here
//
// No parsing of SQL, no sharding, no distributed transactions, no pool that is shared
// between processes. MySQL tokens are written and unit tested, but were never used
// with a server: the monitor does not support MySQL yet.
package routing
