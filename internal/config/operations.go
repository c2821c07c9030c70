package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os/exec"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

// maxStatements is the size in bytes above which a file of statements is refused.
const maxStatements = 1 << 16

// operations reads what the monitor may change, and checks it against the rest of
// the cluster.
func (r *reader) operations(v *values, c Cluster) Operations {
	o := Operations{
		ReplicationUser:     v.str("replication_user"),
		ReplicationPassword: r.password(v, "replication_password", false),
		ReplicationTLS:      v.flag("replication_tls"),
		AutoFailover:        v.flag("auto_failover"),
		AutoRejoin:          v.flag("auto_rejoin"),
		EnforceReadOnly:     v.flag("enforce_read_only"),
		EnforceWritable:     v.flag("enforce_writable"),
		DeadPrimaryDelay:    v.dur("dead_primary_delay"),
		TrustEvidence:       v.flag("trust_evidence"),
		RelayLog:            v.str("relay_log"),
		FailoverTimeout:     v.dur("failover_timeout"),
		SwitchoverTimeout:   v.dur("switchover_timeout"),
		FailoverBlock:       v.dur("failover_block"),
		MoveEvents:          v.flag("move_events"),
		MoveSemiSync:        v.flag("move_semi_sync"),
		PromotionSQL:        r.statements(v, "promotion_sql_file"),
		DemotionSQL:         r.statements(v, "demotion_sql_file"),
		FenceCommand:        r.command(v, "fence_command"),
		FenceOnLostMajority: v.flag("fence_on_lost_majority"),
		StateSchema:         v.str("state_schema"),
		WriteProbe:          v.str("write_probe"),
		KeepConnections:     v.strs("keep_connections"),
		MinFreeDisk:         v.num("min_free_disk"),
		DrainOnLowDisk:      v.flag("drain_on_low_disk"),
		SwitchoverOnLowDisk: v.flag("switchover_on_low_disk"),
	}
	r.replicationAccount(v, o)
	r.operationUse(v, c, o)
	return o
}

// replicationAccount checks that the account is complete, and is there if the
// monitor is to use it by itself.
func (r *reader) replicationAccount(v *values, o Operations) {
	if v.bad["replication_user"] {
		return
	}
	given := givenPasswords(v, "replication_password")
	switch {
	case o.ReplicationUser != "" && len(given) == 0:
		r.problem(v.path("replication_user"), v.printed("replication_user"), "this account needs a password",
			`set replication_password, replication_password_file or replication_password_env; write replication_password = "" if the account has none`)
	case o.ReplicationUser == "" && len(given) > 0:
		printed := printFor(find(operationKeys, given[0]), v.raw[given[0]])
		r.problem(v.path(given[0]), printed, "a password is of no use without its account", "set replication_user too")
	}
	for _, k := range []string{"auto_failover", "auto_rejoin"} {
		if v.flag(k) && o.ReplicationUser == "" {
			r.problem(v.path(k), v.printed(k), "no account is given with which replicas log in to the primary", "set replication_user and its password")
		}
	}
}

// operationUse finds settings that are of no use, or unsafe, with others.
func (r *reader) operationUse(v *values, c Cluster, o Operations) {
	if k := "auto_failover"; o.AutoFailover && c.Passive {
		r.warn(v.path(k), v.printed(k), "this has no effect", "a passive monitor changes nothing")
	}
	for _, k := range []string{"drain_on_low_disk", "switchover_on_low_disk"} {
		if v.flag(k) && o.MinFreeDisk == 0 && !v.bad["min_free_disk"] {
			r.problem(v.path(k), v.printed(k), "the disks are not looked at", "set min_free_disk, or leave this out")
		}
	}
	if k := "switchover_on_low_disk"; o.SwitchoverOnLowDisk && o.ReplicationUser == "" && !v.bad["replication_user"] {
		r.problem(v.path(k), v.printed(k), "no account is given with which replicas log in to the primary", "set replication_user and its password")
	}
	if c.Quorum == QuorumMajorityOfAll || v.bad["quorum"] {
		return
	}
	if k := "fence_on_lost_majority"; o.FenceOnLostMajority {
		r.problem(v.path(k), v.printed(k), fmt.Sprintf("with quorum = %q a lost majority does not mean that another monitor may act", c.Quorum),
			`set quorum = "majority_of_all", or leave this out`)
	}
	if k := "trust_evidence"; o.TrustEvidence {
		r.warn(v.path(k), v.printed(k), "this has no effect", `evidence is doubted only with quorum = "majority_of_all"`)
	}
}

// statements reads the statements of a file, one a line; nil if none is given.
func (r *reader) statements(v *values, name string) []string {
	path := r.resolve(v.str(name))
	if path == "" {
		return nil
	}
	refuse := func(text, remedy string) []string {
		r.problem(v.path(name), v.printed(name), text, remedy)
		return nil
	}
	f, err := openRegular(path)
	if err != nil {
		return refuse(err.Error(), "")
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, maxStatements+1))
	switch {
	case err != nil:
		return refuse("this file cannot be read: "+reason(err), "")
	case len(text) > maxStatements:
		return refuse(fmt.Sprintf("this file has more than %d bytes", maxStatements), "is it the right file?")
	case !utf8.Valid(text):
		return refuse("this file is not text in UTF-8", "is it the right file?")
	}
	var out []string
	for i, line := range strings.Split(strings.TrimPrefix(string(text), "\ufeff"), "\n") {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "#") || strings.HasPrefix(line, "--") {
			continue
		}
		if line = strings.TrimRight(line, "; \t"); line == "" {
			continue
		}
		if what := unfinished(line); what != "" {
			return refuse(fmt.Sprintf("line %d of this file %s", i+1, what), "write each statement on one line, and comments on lines of their own")
		}
		out = append(out, line)
	}
	if len(out) == 0 {
		return refuse("this file holds no statement", "write one statement a line, or leave "+name+" out")
	}
	return out
}

// unfinished says why a line would swallow the statement after it when they are
// sent together: it ends in a comment or in a string.
func unfinished(line string) string {
	for i := 0; i < len(line); i++ {
		rest := line[i:]
		switch c := line[i]; {
		case c == '#', rest == "--", strings.HasPrefix(rest, "-- "), strings.HasPrefix(rest, "--\t"):
			return "ends in a comment"
		case strings.HasPrefix(rest, "/*"):
			n := strings.Index(rest[2:], "*/")
			if n < 0 {
				return "has a comment without end"
			}
			i += n + 3
		case c == '\'' || c == '"' || c == '`':
			for i++; i < len(line) && line[i] != c; i++ {
				if line[i] == '\\' && c != '`' {
					i++
				}
			}
			if i >= len(line) {
				return "has a quote without end"
			}
		}
	}
	return ""
}

// command reads a program and its arguments; nil if none is given.
func (r *reader) command(v *values, name string) []Secret {
	list := v.strs(name)
	if len(list) == 0 {
		return nil
	}
	refuse := func(text, remedy string) { r.problem(v.path(name), shownCommand(v.raw[name]), text, remedy) }
	program := list[0]
	if !filepath.IsAbs(program) {
		refuse("the path of the program must be absolute", `write it like ["/usr/local/sbin/fence", "argument"]`)
	} else if _, err := exec.LookPath(program); err != nil {
		if ee, ok := errors.AsType[*exec.Error](err); ok {
			err = ee.Err
		}
		remedy := "give the path of a program that is there"
		switch {
		case errors.Is(err, fs.ErrPermission):
			remedy = "let the user of lockstepd execute it"
		case strings.Contains(program, " "):
			remedy = "write the program and each argument as a string of its own"
		}
		refuse("the program cannot be run: "+reason(err), remedy)
	}
	out := make([]Secret, len(list))
	for i, s := range list {
		out[i] = Secret(s)
	}
	return out
}

// shownCommand is the value of a command for messages: the program only, since an
// argument may be a password.
func shownCommand(raw any) string {
	list, _ := raw.([]any)
	if len(list) == 0 {
		return mask
	}
	first, _ := list[0].(string)
	program, _, more := strings.Cut(first, " ")
	if more || len(list) > 1 {
		return "[" + printValue(program) + ", …]"
	}
	return "[" + printValue(program) + "]"
}
