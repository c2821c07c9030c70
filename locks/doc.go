// Package locks knows the advisory locks by which monitors agree: their names,
// how they are asked for, taken and released on one server, for how long an
// answer may be believed, and the timing that makes stale locks safe.
//
// On every server there are two locks that matter to all monitors, Lockstep or
// MaxScale: the server lock (one vote) and the primary lock ("write here").
// Two more tell Lockstep monitors apart from others and show whether they run
// with the same configuration; see Names.
//
// All locks of a monitor on a server belong to one dedicated connection. The
// package promises nothing about who holds a majority (package election) and
// opens no connection: it reaches the server through Querier.
//
// # Instants
//
// An instant is a time.Duration since some fixed moment of a monotonic clock
// that goes on while the machine is suspended. Instants of two processes are
// never compared.
//
// # Why a lease is safe
//
// A lock is believed held until Timing.Lease after the moment before the last
// query that showed it held was sent. A monitor becomes primary only on the
// strength of locks that it has held, on unbroken sessions, for Timing.Settle.
// Two majorities of the same servers share one server k. If both monitors A and
// B believed at instant T that they are primary, both held k without a break
// from T-Settle until their last proof of it, which is later than T-Lease.
//
// Invariant: Lease < Settle. So both would have held k at the same time, which
// the server rules out. Clocks are not compared; their rates may differ by the
// share that Timing.Margin allows.
package locks
