package mariadb

import (
	"slices"
	"strings"

	"github.com/lockstep-ha/lockstep/topology"
)

// Process is the privilege to see the connections of other accounts.
const Process = "PROCESS"

// Grant is one global privilege and what it is needed for.
type Grant struct {
	Privilege string
	For       string
}

// Grants lists the privileges that a monitor needs, by version: SHOW ALL SLAVES
// STATUS is under SLAVE MONITOR from 10.5.9 on (REPLICA MONITOR is its synonym).
func Grants(v topology.Version) []Grant {
	replication := Grant{"SLAVE MONITOR", "SHOW ALL SLAVES STATUS: who replicates from whom"}
	if !v.AtLeast(10, 5, 9) {
		replication.Privilege = "REPLICATION SLAVE ADMIN"
	}
	return []Grant{
		replication,
		{Process, "the process list: who holds a lock"},
	}
}

// OperateGrants lists the privileges that a monitor needs beyond Grants in order
// to move the primary. Those of EventGrants are among them if events are moved.
func OperateGrants(v topology.Version, events bool) []Grant {
	out := []Grant{
		{"REPLICATION SLAVE ADMIN", "STOP, START and RESET SLAVE, CHANGE MASTER"},
		{"READ_ONLY ADMIN", "SET GLOBAL read_only"},
		{"REPLICATION MASTER ADMIN", "the primary side of semi-synchronous replication"},
		{"CONNECTION ADMIN", "KILL connections of accounts that may write to a read-only server"},
		{"BINLOG MONITOR", "SHOW BINARY LOGS: what a replica can still fetch"},
		{"RELOAD", "RESET SLAVE, RESET MASTER"},
	}
	if events {
		for _, g := range EventGrants(v) {
			if !slices.ContainsFunc(out, func(h Grant) bool { return h.Privilege == g.Privilege }) {
				out = append(out, g)
			}
		}
	}
	return out
}

// Lacking returns those of the privileges that the result of SHOW GRANTS does not
// hold. SUPER stands in for most of them before 11.0, and for READ_ONLY ADMIN
// before 10.11.
func Lacking(v topology.Version, grants [][]*string, needed []Grant) []Grant {
	super := HasPrivilege(grants, "SUPER")
	var out []Grant
	for _, g := range needed {
		switch {
		case HasPrivilege(grants, g.Privilege):
		case !super || g.Privilege == "RELOAD" || g.Privilege == "EVENT" || v.AtLeast(11, 0, 0):
			out = append(out, g)
		case g.Privilege == "READ_ONLY ADMIN" && v.AtLeast(10, 11, 0):
			out = append(out, g)
		}
	}
	return out
}

// HasPrivilege reports whether the result of SHOW GRANTS holds a global privilege.
func HasPrivilege(grants [][]*string, privilege string) bool {
	for _, r := range grants {
		if len(r) == 0 || r[0] == nil {
			continue
		}
		list, ok := strings.CutPrefix(strings.ToUpper(*r[0]), "GRANT ")
		if !ok {
			continue
		}
		list, _, ok = strings.Cut(list, " ON *.* TO ")
		if !ok {
			continue
		}
		for p := range strings.SplitSeq(list, ",") {
			if p = strings.TrimSpace(p); p == privilege || p == "ALL PRIVILEGES" {
				return true
			}
		}
	}
	return false
}
