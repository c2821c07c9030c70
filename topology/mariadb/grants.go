package mariadb

import "github.com/lockstep-ha/lockstep/topology"

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
		{"PROCESS", "the process list: who holds a lock"},
	}
}
