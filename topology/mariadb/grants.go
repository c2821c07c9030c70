package mariadb

import (
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
