package config

import (
	"fmt"
	"strings"
)

// duplicates finds servers of a cluster that are one and the same.
func (r *reader) duplicates(v *values, c Cluster) {
	tables := v.sub("server")
	names, addresses, private := map[string]int{}, map[string]int{}, map[string]int{}
	// seen returns the earlier server that has the value, or -1.
	seen := func(in map[string]int, value string, i int) int {
		if first, ok := in[value]; ok {
			return first
		}
		in[value] = i
		return -1
	}
	called := func(i int) string {
		if c.Servers[i].Name == "" {
			return fmt.Sprintf("[%d]", i)
		}
		return c.Servers[i].Name
	}
	for i, s := range c.Servers {
		t := tables[i]
		if s.Name != "" && seen(names, s.Name, i) >= 0 {
			r.problem(t.path("name"), t.printed("name"), "another server of this cluster has the same name", "give each its own")
		}
		if s.Address == "" {
			continue
		}
		if j := seen(addresses, sameAs(s.Address), i); j >= 0 {
			r.problem(t.path("address"), t.printed("address"), "this is also the address of server "+called(j), "list each server once")
		}
		reached := s.PrivateAddress
		if reached == "" {
			reached = s.Address
		}
		j := seen(private, sameAs(reached), i)
		switch {
		case j < 0:
		case s.PrivateAddress != "":
			r.problem(t.path("private_address"), t.printed("private_address"), "replicas reach server "+called(j)+" at the same address", "list each server once")
		case c.Servers[j].PrivateAddress != "":
			r.problem(tables[j].path("private_address"), tables[j].printed("private_address"), "replicas reach server "+called(i)+" at the same address", "list each server once")
		}
		if strings.HasPrefix(s.Address, "unix:") && s.PrivateAddress == "" && len(c.Servers) > 1 && !t.bad["private_address"] {
			r.warn(t.path("address"), t.printed("address"), "no other server can replicate from a socket", "set private_address too")
		}
	}
}

// voters checks that the votes can give a majority, and warns where they give less
// than people expect.
func (r *reader) voters(v *values, c Cluster) {
	n := 0
	for i, t := range v.sub("server") {
		if t.bad["votes"] {
			return
		}
		n += c.Servers[i].Votes
	}
	if len(c.Servers) == 0 || c.Quorum == QuorumNone || v.bad["quorum"] || v.bad["server"] {
		return
	}
	at, printed := v.at, ""
	if v.given("quorum") {
		at, printed = v.path("quorum"), v.printed("quorum")
	}
	switch {
	case n == 0:
		r.problem(at, printed, "no server of this cluster has a vote, so no monitor could ever act", `give a server votes = 1, or set quorum = "none" if this is the only monitor`)
		return
	case c.Quorum == QuorumMajorityOfAll && n <= 2:
		r.warn(at, printed, fmt.Sprintf("with %s no server may fail: the majority of all is %s", plural(n), [...]string{"", "that one", "both"}[n]),
			`give three servers a vote; a small one with promotion = "must_not" will do as the third`)
	case n%2 == 0:
		r.warn(at, printed, fmt.Sprintf("an even number of votes, %d, can be split in two halves, neither of which is a majority", n),
			"add a server, or give one votes = 0")
	}
	if c.Quorum == QuorumMajorityOfRunning && n >= 3 {
		r.warn(at, printed, fmt.Sprintf("with %s majority_of_all is the safer choice: majority_of_running lets both sides of a split network act", plural(n)),
			`set quorum = "majority_of_all"`)
	}
}

func plural(n int) string {
	if n == 1 {
		return "1 vote"
	}
	return fmt.Sprintf("%d votes", n)
}
