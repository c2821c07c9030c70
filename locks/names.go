package locks

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sort"
	"strings"
)

// The names that MaxScale's MariaDB Monitor uses. Keeping them lets Lockstep
// and MaxScale instances over one cluster elect one primary monitor among all.
const (
	DefaultServerLock  = "maxscale_mariadbmonitor"
	DefaultPrimaryLock = "maxscale_mariadbmonitor_master"
)

// MaxNameLength is the longest name in characters that every server accepts
// (MySQL refuses longer ones with error 3057).
const MaxNameLength = 64

// Names are the lock names of one cluster on the wire. MariaDB tells capital from
// small letters in them, MySQL does not: spell them alike at all monitors.
type Names struct {
	// Server is the name of the server lock: one vote.
	Server string
	// Primary is the name of the primary lock: "write here".
	Primary string
	// Marker is held beside the server lock by every Lockstep monitor, whatever
	// its configuration. A holder of the server lock without it is another
	// program (a MaxScale, or a person).
	Marker string
	// Config is held beside the server lock and carries a hash of the settings
	// that all monitors of the cluster must share.
	Config string
}

// Agreement lists the settings that every monitor of a cluster must have in
// common, since monitors that differ in them could each believe in a majority.
type Agreement struct {
	// Mode is the quorum mode.
	Mode string
	// Voters are the names of the servers, each with its number of votes. Sites
	// may reach one server under different addresses, but must name it alike.
	Voters map[string]int
	// Timing are the derived intervals; a monitor that waits for a shorter time
	// than another expects is unsafe.
	Timing Timing
}

// NewNames returns the names for a cluster; empty names mean the defaults.
func NewNames(server, primary string, a Agreement) (Names, error) {
	if server == "" {
		server = DefaultServerLock
	}
	if primary == "" {
		primary = DefaultPrimaryLock
	}
	for _, n := range []string{server, primary} {
		if err := checkName(n); err != nil {
			return Names{}, err
		}
	}
	if strings.EqualFold(server, primary) {
		return Names{}, fmt.Errorf("server lock and primary lock have the same name %q: give them two names", server)
	}
	key := short(server)
	return Names{
		Server:  server,
		Primary: primary,
		Marker:  "lockstep_" + key,
		Config:  "lockstep_" + key + "_" + short(a.text()),
	}, nil
}

func checkName(n string) error {
	if len([]rune(n)) > MaxNameLength {
		return fmt.Errorf("lock name %q has %d characters: servers accept at most %d", n, len([]rune(n)), MaxNameLength)
	}
	for _, r := range n {
		if r < 0x20 || r == 0x7f || r == '\'' || r == '\\' || r == '"' || r == '`' {
			return fmt.Errorf("lock name %q: quotes, backslashes and control characters are not allowed", n)
		}
	}
	return nil
}

// text is the canonical form of what must agree. What sites may have of their
// own (addresses, accounts) is left out on purpose.
func (a Agreement) text() string {
	voters := make([]string, 0, len(a.Voters))
	for name, votes := range a.Voters {
		voters = append(voters, fmt.Sprintf("%s=%d", strings.ToLower(name), votes))
	}
	sort.Strings(voters)
	return fmt.Sprintf("1|%s|%s|%d|%d|%d|%d|%d", a.Mode, strings.Join(voters, ","),
		a.Timing.Interval, a.Timing.Timeout, a.Timing.WaitTimeout, a.Timing.Notice, a.Timing.Settle)
}

func short(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:8])
}

// literal quotes a lock name for SQL. checkName has refused what would need
// escaping.
func literal(name string) string { return "'" + name + "'" }
