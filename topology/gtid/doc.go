// Package gtid answers, from global transaction identifiers alone, the
// questions a failover depends on: which of two servers has more, whether one
// can replicate from the other, which transactions exist on a replica only.
//
// The two flavours share nothing but the word, so each has its own types.
//
// MariaDB names a transaction domain-server-sequence ([GTID]). A server tells
// of itself in two shapes that must not be mixed up:
//
//   - [Position]: the last GTID of each domain (@@gtid_binlog_pos,
//     @@gtid_slave_pos, @@gtid_current_pos, Gtid_IO_Pos). It says how far, and
//     not by which way: everything before its GTIDs is left out.
//   - [State]: the last GTID of each pair of domain and server id
//     (@@gtid_binlog_state). It sums up the whole history of a binlog, and is
//     what tells an old primary's lost tail from plain lag.
//
// MySQL names a transaction source:number, with the server's UUID and perhaps
// a tag as source ([TSID]), and servers tell of themselves in sets ([Set])
// (@@gtid_executed, @@gtid_purged, Retrieved_Gtid_Set).
//
// What the package promises: values never change once made, so they can be
// shared between goroutines and copied by assignment; zero values are the empty
// position, state and set; results depend on the arguments only and lists come
// in a fixed order; nothing panics on any text.
//
// What it does not: it reads no server, so a verdict is as good as the sampling
// behind it. The functions that compare two servers say in which order these
// have to be read. A sequence number is taken as growing within a domain, which
// MariaDB enforces in gtid_strict_mode only; where that fails, the functions err
// towards refusing, or leave it to the server to refuse.
package gtid
