package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// valid is a configuration without fault, which tests add to.
const valid = `
[cluster.main]
user = "lockstep"
password = "hunter2"
[[cluster.main.server]]
name = "s1"
address = "10.0.0.1"
[[cluster.main.server]]
name = "s2"
address = "10.0.0.2"
[[cluster.main.server]]
name = "s3"
address = "10.0.0.3"
`

func environment(pairs ...string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1], true
			}
		}
		return "", false
	}
}

// in puts lines into the valid configuration: into [cluster.main], from line 5 on.
func in(lines ...string) string {
	return strings.Replace(valid, "hunter2\"\n", "hunter2\"\n"+strings.Join(lines, "\n")+"\n", 1)
}

// server is a cluster with lines in its only server, from line 8 on.
func server(lines ...string) string {
	return "[cluster.main]\nuser = \"u\"\npassword = \"hunter2\"\nquorum = \"none\"\n[[cluster.main.server]]\nname = \"s1\"\naddress = \"h\"\n" + strings.Join(lines, "\n")
}

func TestProblems(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		require.NoError(t, os.Chmod(filepath.Join(dir, name), mode))
	}
	write("open", "hunter2\n", 0o644)
	write("empty", "\n", 0o600)
	write("pem", "x", 0o600)
	withPassword := func(line string) string { return strings.Replace(valid, `password = "hunter2"`, line, 1) }

	tests := map[string]struct {
		text string
		want []string
	}{
		"empty file": {"", []string{`F: cluster: there is no cluster: write a table [cluster.NAME]`}},
		"empty cluster": {"[cluster.main]", []string{
			`F:1: cluster.main.user: this key is required`,
			`F:1: cluster.main.password: this key is required, or else password_file or password_env: write password = "" if the account has none`,
			`F:1: cluster.main: the cluster has no server: write a table [[cluster.main.server]]`,
		}},
		"syntax":               {"a = 1\nb = \n", []string{`F:2: this is not valid TOML: expected value but found '\n' instead`}},
		"syntax of a password": {"[cluster.main]\npassword = 12__34\n", []string{`F:2: cluster.main.password: this is not valid TOML: look at this line and at the one above`}},
		"bare number":          {in(`interval = 2`), []string{`F:5: cluster.main.interval = 2: a duration needs a unit: write "2s"`}},
		"bare fraction":        {in(`interval = 2.5`), []string{`F:5: cluster.main.interval = 2.5: a duration needs a unit: write "2.5s"`}},
		"number as string":     {in(`interval = "2"`), []string{`F:5: cluster.main.interval = "2": a duration needs a unit: write "2s"`}},
		"duration with space":  {in(`interval = "2 s"`), []string{`F:5: cluster.main.interval = "2 s": this is not a duration: write it like "2s", "500ms" or "1h30m"; the units are ms, s, m and h`}},
		"duration of type":     {in(`interval = true`), []string{`F:5: cluster.main.interval = true: a duration is expected, not true or false: write it like "2s" or "500ms"`}},
		"negative durations": {in(`interval = "-2s"`, `timeout = -1`), []string{
			`F:5: cluster.main.interval = "-2s": a duration cannot be negative`,
			`F:6: cluster.main.timeout = -1: a duration cannot be negative`,
		}},
		"bounds": {in(`interval = "99ms"`, `timeout = "6m"`, `wait_timeout_floor = "9h"`, `failcount = -1`), []string{
			`F:5: cluster.main.interval = "99ms": out of range: between "100ms" and "10m"`,
			`F:6: cluster.main.timeout = "6m": out of range: between "100ms" and "5m"`,
			`F:7: cluster.main.wait_timeout_floor = "9h": out of range: between "1s" and "8h"`,
			`F:8: cluster.main.failcount = -1: out of range: between 0 and 1000`,
		}},
		"unknown keys": {in(`intervall = "2s"`, `Timeout = "3s"`, `zzzzzzzzzz = 1`, `listen = ""`) + "nam = \"x\"\ncolour = \"hunter2\"\n", []string{
			`F:5: cluster.main.intervall: unknown key: did you mean "interval"?`,
			`F:6: cluster.main.Timeout: unknown key: keys are in lower case: write "timeout"`,
			`F:7: cluster.main.zzzzzzzzzz: unknown key: the keys here are flavor, user, password, password_file, password_env, interval, timeout, failcount, allow_unsafe_failcount, wait_timeout_floor, lag_limit, quorum, server_lock, primary_lock, trusted_lock_users, passive, monitor_name, tls, tls_ca, tls_cert, tls_key, tls_server_name, replication_user, replication_password, replication_password_file, replication_password_env, replication_tls, auto_failover, auto_rejoin, enforce_read_only, enforce_writable, dead_primary_delay, trust_evidence, relay_log, failover_timeout, switchover_timeout, failover_block, move_events, move_semi_sync, promotion_sql_file, demotion_sql_file, fence_command, fence_on_lost_majority, state_schema, keep_connections, min_free_disk, drain_on_low_disk, switchover_on_low_disk, write_probe, server`,
			`F:8: cluster.main.listen: unknown key: "listen" belongs in [http]`,
			`F:18: cluster.main.server[2].nam: unknown key: did you mean "name"?`,
			`F:19: cluster.main.server[2].colour: unknown key: the keys here are name, address, private_address, votes, promotion, maintenance, drain, site, user, password, password_file, password_env, tls`,
		}},
		"unknown tables": {valid + "[htttp]\n[[server]]\n", []string{
			`F:14: htttp: unknown key: did you mean "http"?`,
			`F:15: server: unknown key: "server" belongs in [cluster.NAME]`,
		}},
		"same key twice": {"log_level = 3\nhttp = 1\n" + in(`passive = "yes"`, `failcount = "3"`, `trusted_lock_users = "maxscale"`, `quorum = "all"`, `user = 1`)[1:], []string{
			`F:10: this is not valid TOML: Key 'cluster.main.user' has already been defined.`,
		}},
		"types": {"log_level = 3\nhttp = 1\n" + in(`passive = "yes"`, `failcount = "3"`, `trusted_lock_users = "maxscale"`, `quorum = "all"`, `monitor_name = [1, "a"]`)[1:], []string{
			`F:1: log_level = 3: a string is expected, not a whole number`,
			`F:2: http = 1: a table [http] is expected, not a whole number`,
			`F:6: cluster.main.passive = "yes": true or false is expected, not a string`,
			`F:7: cluster.main.failcount = "3": a whole number is expected, not a string`,
			`F:8: cluster.main.trusted_lock_users = "maxscale": an array of strings is expected, not a string`,
			`F:9: cluster.main.quorum = "all": not one of the values of this key: the values are none, majority_of_running, majority_of_all`,
			`F:10: cluster.main.monitor_name = [1, "a"]: a string is expected, not an array`,
		}},
		"strings of other types": {in(`trusted_lock_users = ["a", 1]`), []string{
			`F:5: cluster.main.trusted_lock_users = ["a", 1]: element 1: a string is expected, not a whole number`,
		}},
		"cluster is no table": {"cluster = 1\n", []string{`F:1: cluster = 1: a table [cluster.NAME] is expected, not a whole number`}},
		"cluster without name": {"[cluster]\nuser = \"u\"\ncolour = 1\n", []string{
			`F:2: cluster.user: this key belongs to one cluster: write it below a line [cluster.NAME]`,
			`F:3: cluster.colour: a table [cluster.NAME] is expected, not a whole number`,
		}},
		"server is one table":   {"[cluster.main]\nuser=\"u\"\npassword=\"\"\n[cluster.main.server]\nname = \"s1\"", []string{`F:4: cluster.main.server = {…}: a list of tables [[cluster.main.server]] is expected, not a table`}},
		"name of a cluster":     {strings.ReplaceAll(valid, "cluster.main", `cluster."a b"`), []string{`F:2: cluster."a b": this cannot be a name: use 1 to 63 letters, digits, _ . and -, with a letter or digit first`}},
		"name of a server":      {strings.ReplaceAll(valid, "s3", `-s3`), []string{`F:12: cluster.main.server[2].name = "-s3": this cannot be a name: use 1 to 63 letters, digits, _ . and -, with a letter or digit first`}},
		"remote listener":       {"[http]\nlisten = \":8990\"" + valid, []string{`F:2: http.listen = ":8990": other hosts can reach this address: listen on 127.0.0.1, or set allow_remote = true, and token_file and tls_cert with it`}},
		"listener without port": {"[http]\nlisten = \"127.0.0.1\"" + valid, []string{`F:2: http.listen = "127.0.0.1": this is not an address to listen on: write it like "127.0.0.1:8990" or "[::1]:8990", or "" for none`}},
		"no password":           {withPassword(""), []string{`F:2: cluster.main.password: this key is required, or else password_file or password_env: write password = "" if the account has none`}},
		"two passwords":         {in(`password_env = "X"`), []string{`F:5: cluster.main.password_env: the password is given more than once: keep one of password and password_env`}},
		"password of type":      {withPassword(`password = 12345678`), []string{`F:4: cluster.main.password = *****: a string is expected, not a whole number`}},
		"password from unset":   {withPassword(`password = "${NONE}"`), []string{`F:4: cluster.main.password = *****: the environment variable NONE is not set: set it, or write $${ for the characters themselves`}},
		"password from empty":   {withPassword(`password = "${EMPTY}"`), []string{`F:4: cluster.main.password = *****: the password is empty once its variables are filled in: write password = "" if the account has none`}},
		"password unexpanded":   {withPassword(`password = "hunter${2"`), []string{`F:4: cluster.main.password = *****: ${ begins the name of an environment variable, and none follows: write ${NAME}, or $${ for the characters themselves`}},
		"unset variable":        {withPassword(`password_env = "NONE"`), []string{`F:4: cluster.main.password_env = "NONE": this environment variable is not set`}},
		"empty variable":        {withPassword(`password_env = "EMPTY"`), []string{`F:4: cluster.main.password_env = "EMPTY": this environment variable is empty: write password = "" instead if the account has no password`}},
		"no variable":           {withPassword(`password_env = "hunter-2"`), []string{`F:4: cluster.main.password_env = *****: this is not the name of an environment variable`}},
		"no file":               {withPassword(`password_file = "none"`), []string{`F:4: cluster.main.password_file = "none": this file cannot be read: no such file or directory`}},
		"directory":             {withPassword(`password_file = "."`), []string{`F:4: cluster.main.password_file = ".": this is not a regular file`}},
		"file for all":          {withPassword(`password_file = "open"`), []string{`F:4: cluster.main.password_file = "open": others than its owner have access to this file: its mode is 0644: chmod 600 D/open`}},
		"empty file of secrets": {withPassword(`password_file = "empty"`), []string{`F:4: cluster.main.password_file = "empty": this file is empty: write password = "" instead if the account has no password`}},
		"variables": {in(`monitor_name = "${NONE}"`, `server_lock = "a${"`), []string{
			`F:5: cluster.main.monitor_name = "${NONE}": the environment variable NONE is not set: set it, or write $${ for the characters themselves`,
			`F:6: cluster.main.server_lock = "a${": ${ begins the name of an environment variable, and none follows: write ${NAME}, or $${ for the characters themselves`,
		}},
		"lock names": {in(`server_lock = ""`, `primary_lock = "it's"`), []string{
			`F:5: cluster.main.server_lock = "": the name of a lock has 1 to 64 characters`,
			`F:6: cluster.main.primary_lock = "it's": the name of a lock has printable ASCII characters only, and no quote or backslash`,
		}},
		"same lock names": {in(`server_lock = "MaxScale_MariaDBMonitor_Master"`), []string{
			`F:5: cluster.main.server_lock = "MaxScale_MariaDBMonitor_Master": server_lock and primary_lock are the same name to a server, which disregards case: give them two names`,
		}},
		"tls": {in(`tls = "verify_ca"`, `tls_ca = "none"`, `tls_cert = "pem"`), []string{
			`F:5: cluster.main.tls = "verify_ca": not one of the values of this key: the values are disabled, preferred, required, verify-ca, verify-identity`,
			`F:6: cluster.main.tls_ca = "none": this file cannot be read: no such file or directory`,
			`F:7: cluster.main.tls_cert = "pem": a certificate is of no use without its key: set tls_key too`,
		}},
		"key without certificate": {in(`tls_key = "pem"`), []string{`F:5: cluster.main.tls_key = "pem": a key is of no use without its certificate: set tls_cert too`}},
		"server": {server(`votes = 2`, `promotion = "always"`, `private_address = "unix:/x"`, `tls = ""`, `password_env = "NONE"`), []string{
			`F:8: cluster.main.server[0].votes = 2: out of range: between 0 and 1`,
			`F:9: cluster.main.server[0].promotion = "always": not one of the values of this key: the values are prefer, neutral, must_not`,
			`F:10: cluster.main.server[0].private_address = "unix:/x": replicas cannot use a socket of another server: give host:port`,
			`F:11: cluster.main.server[0].tls = "": not one of the values of this key: the values are disabled, preferred, required, verify-ca, verify-identity`,
			`F:12: cluster.main.server[0].password_env = "NONE": this environment variable is not set`,
		}},
		"duplicates": {strings.NewReplacer(`"s2"`, `"s1"`, "10.0.0.1", "LocalHost", "10.0.0.3", "127.0.0.1:3306").Replace(valid), []string{
			`F:9: cluster.main.server[1].name = "s1": another server of this cluster has the same name: give each its own`,
			`F:13: cluster.main.server[2].address = "127.0.0.1:3306": this is also the address of server s1: list each server once`,
		}},
		"duplicate private addresses": {strings.NewReplacer(`"10.0.0.1"`, "\"h:1\"\nprivate_address = \"p\"", `"10.0.0.2"`, "\"h:2\"\nprivate_address = \"P:3306\"", `"10.0.0.3"`, `"p"`).Replace(valid), []string{
			`F:8: cluster.main.server[0].private_address = "p": replicas reach server s3 at the same address: list each server once`,
			`F:12: cluster.main.server[1].private_address = "P:3306": replicas reach server s1 at the same address: list each server once`,
		}},
		"no votes": {strings.Replace(server("votes = 0"), "none", "majority_of_all", 1), []string{
			`F:4: cluster.main.quorum = "majority_of_all": no server of this cluster has a vote, so no monitor could ever act: give a server votes = 1, or set quorum = "none" if this is the only monitor`,
		}},
		"inline tables": {"cluster.main = { user = \"u\", password = \"hunter2\", server = [\n  {name = \"a\", address = \"a\"},\n  {name = \"b\",\n   address = \"b:x\"}, # ]\n] }", []string{
			`F:4: cluster.main.server[1].address = "b:x": the port must be a number from 1 to 65535`,
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(dir, "lockstep.toml")
			f, err := Parse(path, []byte(tt.text), environment("EMPTY", ""))
			require.Error(t, err)
			require.Nil(t, f)
			var problems Problems
			require.ErrorAs(t, err, &problems)
			got := strings.ReplaceAll(strings.ReplaceAll(err.Error(), path, "F"), dir, "D")
			require.Equal(t, strings.Join(tt.want, "\n"), got)
			require.NotContains(t, got, "hunter")
			require.NotContains(t, got, "12__34")
		})
	}
}

func TestWarnings(t *testing.T) {
	four := valid + "[[cluster.main.server]]\nname = \"s4\"\naddress = \"10.0.0.4\"\n"
	tests := map[string]struct {
		text string
		want []string
	}{
		"three":   {valid, nil},
		"none":    {strings.Replace(four, "[cluster.main]", "[cluster.main]\nquorum = \"none\"", 1), nil},
		"four":    {four, []string{`F:2: cluster.main: an even number of votes, 4, can be split in two halves, neither of which is a majority: add a server, or give one votes = 0`}},
		"running": {in(`quorum = "majority_of_running"`), []string{`F:5: cluster.main.quorum = "majority_of_running": with 3 votes majority_of_all is the safer choice: majority_of_running lets both sides of a split network act: set quorum = "majority_of_all"`}},
		"one":     {strings.Replace(server(), "none", "majority_of_all", 1), []string{`F:4: cluster.main.quorum = "majority_of_all": with 1 vote no server may fail: the majority of all is that one: give three servers a vote; a small one with promotion = "must_not" will do as the third`}},
		"two":     {valid + "votes = 0", []string{`F:2: cluster.main: with 2 votes no server may fail: the majority of all is both: give three servers a vote; a small one with promotion = "must_not" will do as the third`}},
		"tls":     {in(`tls = "required"`, `tls_server_name = "x"`), []string{`F:6: cluster.main.tls_server_name = "x": this has no effect: names are verified only with tls = "verify-identity"`}},
		"socket":  {strings.Replace(valid, "10.0.0.1", "unix:/run/x", 1), []string{`F:7: cluster.main.server[0].address = "unix:/run/x": no other server can replicate from a socket: set private_address too`}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f, err := Parse("F", []byte(tt.text), nil)
			require.NoError(t, err)
			var got []string
			for _, w := range f.Warnings {
				got = append(got, w.String())
			}
			require.Equal(t, tt.want, got)
		})
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"", valid, in("interval = 2"), server(`site = "${X}"`), "a = [[{b = '''x''''}]]\n\"q\\u0041\".'z' = 1", "[[a]]\n[[a.b]]\n[a.b.c]\nd=\"\"\"\\\"\"\"\"\"", "\ufeff[http]\nlisten = \"\""} {
		f.Add(s)
	}
	for _, name := range []string{"minimal.toml", "two-sites.toml"} {
		text, err := os.ReadFile(filepath.Join(examples, name))
		require.NoError(f, err)
		f.Add(string(text))
	}
	f.Fuzz(func(t *testing.T, text string) {
		scanLines(text)
		c, err := Parse(filepath.Join(t.TempDir(), "f.toml"), []byte(text), environment("X", "x"))
		if (c == nil) == (err == nil) {
			t.Fatalf("either a result or an error: %v, %v", c, err)
		}
		if err != nil && err.Error() == "" {
			t.Fatal("an error without text")
		}
	})
}
