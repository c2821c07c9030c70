// Package topology judges servers: what one is, who replicates from whom, which
// server is the primary and why, which labels fit, how far a replica is behind.
// It is pure: no I/O, no clock, no SQL. The words of a dialect are in
// topology/mariadb and topology/mysql, positions in topology/gtid.
//
// Instants are time.Durations since a fixed moment of the monitor's monotonic
// clock; see package locks.
package topology
