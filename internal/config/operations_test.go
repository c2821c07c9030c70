package config

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// operationFiles makes a directory with the files that operations name.
func operationFiles(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, f := range map[string]struct {
		text string
		mode os.FileMode
	}{
		"pw":        {"from file\n", 0o600},
		"open":      {"hunter2\n", 0o644},
		"empty":     {"\n", 0o600},
		"up.sql":    {"\ufeff# SELECT 0\r\n\n  SET GLOBAL a=1; ;\r\n-- SELECT 0\n--\n;\nSELECT '#;''\\'' /* -- ' */, \"-- \", `\\`; SELECT 5--2", 0o600},
		"down.sql":  {"DO 1;\n", 0o600},
		"none.sql":  {"# nothing\n\n;\n", 0o600},
		"big.sql":   {strings.Repeat("DO 1\n", maxStatements/5+1), 0o600},
		"bin.sql":   {"DO 1\xff\n", 0o600},
		"rem.sql":   {"DO 1\nSET PASSWORD = 'hunter2' -- so\n", 0o600},
		"hash.sql":  {"DO 1 # so", 0o600},
		"dash.sql":  {"DO 1; --", 0o600},
		"long.sql":  {"DO 'a\nb'", 0o600},
		"open.sql":  {"DO 1 /* a", 0o600},
		"fence":     {"#!/bin/sh\n", 0o700},
		"not-fence": {"#!/bin/sh\n", 0o600},
	} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(f.text), 0o600))
		require.NoError(t, os.Chmod(path, f.mode))
	}
	return dir
}

func TestOperations(t *testing.T) {
	dir := operationFiles(t)
	fence := filepath.Join(dir, "fence")
	text := in(`replication_user = "${WHO}"`, `replication_password = "hunter2"`, `replication_tls = true`,
		`auto_failover = true`, `auto_rejoin = true`, `enforce_read_only = true`, `enforce_writable = true`,
		`dead_primary_delay = "5m"`, `trust_evidence = true`, `relay_log = "proceed"`, `failover_timeout = "1s"`,
		`switchover_timeout = "1s"`, `failover_block = "0s"`, `move_events = false`, `move_semi_sync = false`,
		`promotion_sql_file = "up.sql"`, `demotion_sql_file = "`+dir+`/down.sql"`,
		`fence_command = ["`+fence+`", "-p", "${PW}", ""]`, `fence_on_lost_majority = true`, `state_schema = "a$1_"`, `write_probe = "A.0$"`,
		`keep_connections = ["backup"]`, `min_free_disk = 10`, `drain_on_low_disk = true`, `switchover_on_low_disk = true`)
	f, err := Parse(filepath.Join(dir, "x.toml"), []byte(text), environment("WHO", "repl", "PW", "from env"))
	require.NoError(t, err)
	require.Empty(t, f.Warnings)
	require.Equal(t, Operations{
		ReplicationUser: "repl", ReplicationPassword: "hunter2", ReplicationTLS: true,
		AutoFailover: true, AutoRejoin: true, EnforceReadOnly: true, EnforceWritable: true,
		DeadPrimaryDelay: 5 * time.Minute, TrustEvidence: true, RelayLog: RelayLogProceed, FailoverTimeout: time.Second, SwitchoverTimeout: time.Second,
		PromotionSQL: []string{"SET GLOBAL a=1", "SELECT '#;''\\'' /* -- ' */, \"-- \", `\\`; SELECT 5--2"}, DemotionSQL: []string{"DO 1"},
		FenceCommand: []Secret{Secret(fence), "-p", "from env", ""}, FenceOnLostMajority: true, StateSchema: "a$1_", WriteProbe: "A.0$",
		KeepConnections: []string{"backup"}, MinFreeDisk: 10, DrainOnLowDisk: true, SwitchoverOnLowDisk: true,
	}, f.Clusters[0].Operations)
}

func TestOperationsThatAreNone(t *testing.T) {
	f, err := Parse("x.toml", []byte(in(`replication_user = ""`, `dead_primary_delay = "0s"`, `fence_command = []`, `promotion_sql_file = ""`,
		`state_schema = ""`, `write_probe = ""`, `relay_log = "abort"`)), nil)
	require.NoError(t, err)
	require.Equal(t, Operations{RelayLog: RelayLogAbort, FailoverTimeout: 90 * time.Second, SwitchoverTimeout: 10 * time.Second,
		FailoverBlock: time.Hour, MoveEvents: true, MoveSemiSync: true, KeepConnections: []string{}}, f.Clusters[0].Operations)
}

func TestReplicationPassword(t *testing.T) {
	dir := operationFiles(t)
	for line, want := range map[string]string{
		`replication_password = ""`: "", `replication_password = "a b"`: "a b", `replication_password_file = "pw"`: "from file", `replication_password_env = "PW"`: "from env",
	} {
		f, err := Parse(filepath.Join(dir, "x.toml"), []byte(in(`replication_user = "repl"`, line, `auto_rejoin = true`)), environment("PW", "from env"))
		require.NoError(t, err, line)
		require.Equal(t, want, f.Clusters[0].Operations.ReplicationPassword.Reveal(), line)
	}

	path := filepath.Join(dir, "x.toml")
	require.NoError(t, os.WriteFile(path, []byte(strings.Replace(in(`replication_user = "repl"`, `replication_password = "hunter3"`), `"hunter2"`, `""`, 1)), 0o600))
	require.NoError(t, os.Chmod(path, 0o644))
	f, err := Load(path, nil)
	require.NoError(t, err)
	require.Len(t, f.Warnings, 1)
	require.Equal(t, path+":6: cluster.main.replication_password = *****: every user of this host may read the password: the mode of the file is 0644: chmod o= "+path+", or use replication_password_file", f.Warnings[0].String())
}

// What a file holds is a part of the cluster, so that a reload notices a change.
func TestContentOfFilesIsCompared(t *testing.T) {
	dir := operationFiles(t)
	load := func() Cluster {
		f, err := Parse(filepath.Join(dir, "x.toml"), []byte(in(`replication_user = "repl"`, `replication_password_file = "pw"`, `promotion_sql_file = "down.sql"`)), nil)
		require.NoError(t, err)
		return f.Clusters[0]
	}
	for _, name := range []string{"pw", "down.sql"} {
		before := load()
		require.Equal(t, before, load(), name)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("other\n"), 0o600))
		require.NotEqual(t, before, load(), name)
	}
}

func TestOperationSecretsDoNotLeak(t *testing.T) {
	dir := operationFiles(t)
	f, err := Parse("x.toml", []byte(in(`replication_user = "repl"`, `replication_password = "hunter3"`, `fence_command = ["`+dir+`/fence", "hunter4"]`)), nil)
	require.NoError(t, err)
	for _, v := range []any{f, *f, f.Clusters[0], f.Clusters[0].Operations, &f.Clusters[0].Operations} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
			require.NotContains(t, fmt.Sprintf(verb, v), "hunter", verb)
		}
		text, err := json.Marshal(v)
		require.NoError(t, err)
		require.NotContains(t, string(text), "hunter")
	}
}

func TestOperationProblems(t *testing.T) {
	dir := operationFiles(t)
	const repl = `replication_user = "repl"`
	tests := map[string]struct {
		lines []string
		want  []string
	}{
		"user without password": {[]string{repl}, []string{
			`F:5: cluster.main.replication_user = "repl": this account needs a password: set replication_password, replication_password_file or replication_password_env; write replication_password = "" if the account has none`,
		}},
		"password without user":      {[]string{`replication_password = "hunter2"`}, []string{`F:5: cluster.main.replication_password = *****: a password is of no use without its account: set replication_user too`}},
		"password file without user": {[]string{`replication_password_file = "pw"`}, []string{`F:5: cluster.main.replication_password_file = "pw": a password is of no use without its account: set replication_user too`}},
		"variable without user":      {[]string{`replication_password_env = "PW"`, `replication_user = ""`}, []string{`F:5: cluster.main.replication_password_env = *****: a password is of no use without its account: set replication_user too`}},
		"two passwords":              {[]string{repl, `replication_password_file = "pw"`, `replication_password_env = "PW"`}, []string{`F:7: cluster.main.replication_password_env: the password is given more than once: keep one of replication_password_file and replication_password_env`}},
		"password of type":           {[]string{repl, `replication_password = 12345678`}, []string{`F:6: cluster.main.replication_password = *****: a string is expected, not a whole number`}},
		"password from empty":        {[]string{repl, `replication_password = "${EMPTY}"`}, []string{`F:6: cluster.main.replication_password = *****: the password is empty once its variables are filled in: write replication_password = "" if the account has none`}},
		"unset variable":             {[]string{repl, `replication_password_env = "NONE"`}, []string{`F:6: cluster.main.replication_password_env = "NONE": this environment variable is not set`}},
		"empty variable":             {[]string{repl, `replication_password_env = "EMPTY"`}, []string{`F:6: cluster.main.replication_password_env = "EMPTY": this environment variable is empty: write replication_password = "" instead if the account has no password`}},
		"no variable":                {[]string{repl, `replication_password_env = "hunter-2"`}, []string{`F:6: cluster.main.replication_password_env = *****: this is not the name of an environment variable`}},
		"no file":                    {[]string{repl, `replication_password_file = "none"`}, []string{`F:6: cluster.main.replication_password_file = "none": this file cannot be read: no such file or directory`}},
		"file for all":               {[]string{repl, `replication_password_file = "open"`}, []string{`F:6: cluster.main.replication_password_file = "open": others than its owner have access to this file: its mode is 0644: chmod 600 D/open`}},
		"empty file":                 {[]string{repl, `replication_password_file = "empty"`}, []string{`F:6: cluster.main.replication_password_file = "empty": this file is empty: write replication_password = "" instead if the account has no password`}},
		"user of type":               {[]string{`replication_user = 1`, `replication_password = "x"`, `auto_failover = true`}, []string{`F:5: cluster.main.replication_user = 1: a string is expected, not a whole number`}},
		"automatic without user": {[]string{`auto_failover = true`, `auto_rejoin = true`}, []string{
			`F:5: cluster.main.auto_failover = true: no account is given with which replicas log in to the primary: set replication_user and its password`,
			`F:6: cluster.main.auto_rejoin = true: no account is given with which replicas log in to the primary: set replication_user and its password`,
		}},
		"types": {[]string{`replication_tls = 1`, `auto_failover = 1`, `auto_rejoin = 1`, `enforce_read_only = 1`, `enforce_writable = 1`, `trust_evidence = 1`, `move_events = 1`, `move_semi_sync = 1`, `fence_on_lost_majority = 1`, `promotion_sql_file = 1`, `demotion_sql_file = 1`, `state_schema = 1`, `write_probe = 1`}, []string{
			`F:5: cluster.main.replication_tls = 1: true or false is expected, not a whole number`,
			`F:6: cluster.main.auto_failover = 1: true or false is expected, not a whole number`,
			`F:7: cluster.main.auto_rejoin = 1: true or false is expected, not a whole number`,
			`F:8: cluster.main.enforce_read_only = 1: true or false is expected, not a whole number`,
			`F:9: cluster.main.enforce_writable = 1: true or false is expected, not a whole number`,
			`F:10: cluster.main.trust_evidence = 1: true or false is expected, not a whole number`,
			`F:11: cluster.main.move_events = 1: true or false is expected, not a whole number`,
			`F:12: cluster.main.move_semi_sync = 1: true or false is expected, not a whole number`,
			`F:13: cluster.main.fence_on_lost_majority = 1: true or false is expected, not a whole number`,
			`F:14: cluster.main.promotion_sql_file = 1: a string is expected, not a whole number`,
			`F:15: cluster.main.demotion_sql_file = 1: a string is expected, not a whole number`,
			`F:16: cluster.main.state_schema = 1: a string is expected, not a whole number`,
			`F:17: cluster.main.write_probe = 1: a string is expected, not a whole number`,
		}},
		"durations": {[]string{`dead_primary_delay = "5m1s"`, `failover_timeout = "999ms"`, `switchover_timeout = "0s"`, `failover_block = 3600`}, []string{
			`F:5: cluster.main.dead_primary_delay = "5m1s": out of range: between "0s" and "5m"`,
			`F:6: cluster.main.failover_timeout = "999ms": out of range: at least "1s"`,
			`F:7: cluster.main.switchover_timeout = "0s": out of range: at least "1s"`,
			`F:8: cluster.main.failover_block = 3600: a duration needs a unit: write "3600s"`,
		}},
		"negative durations": {[]string{`dead_primary_delay = "-1s"`, `failover_block = "-1s"`}, []string{
			`F:5: cluster.main.dead_primary_delay = "-1s": a duration cannot be negative`,
			`F:6: cluster.main.failover_block = "-1s": a duration cannot be negative`,
		}},
		"relay log": {[]string{`relay_log = ""`}, []string{`F:5: cluster.main.relay_log = "": not one of the values of this key: the values are wait, abort, proceed`}},
		"no files": {[]string{`promotion_sql_file = "none"`, `demotion_sql_file = "."`}, []string{
			`F:5: cluster.main.promotion_sql_file = "none": this file cannot be read: no such file or directory`,
			`F:6: cluster.main.demotion_sql_file = ".": this is not a regular file`,
		}},
		"files without statement": {[]string{`promotion_sql_file = "empty"`, `demotion_sql_file = "none.sql"`}, []string{
			`F:5: cluster.main.promotion_sql_file = "empty": this file holds no statement: write one statement a line, or leave promotion_sql_file out`,
			`F:6: cluster.main.demotion_sql_file = "none.sql": this file holds no statement: write one statement a line, or leave demotion_sql_file out`,
		}},
		"other files": {[]string{`promotion_sql_file = "big.sql"`, `demotion_sql_file = "bin.sql"`}, []string{
			`F:5: cluster.main.promotion_sql_file = "big.sql": this file has more than 65536 bytes: is it the right file?`,
			`F:6: cluster.main.demotion_sql_file = "bin.sql": this file is not text in UTF-8: is it the right file?`,
		}},
		"comments at the end": {[]string{`promotion_sql_file = "rem.sql"`, `demotion_sql_file = "hash.sql"`}, []string{
			`F:5: cluster.main.promotion_sql_file = "rem.sql": line 2 of this file ends in a comment: write each statement on one line, and comments on lines of their own`,
			`F:6: cluster.main.demotion_sql_file = "hash.sql": line 1 of this file ends in a comment: write each statement on one line, and comments on lines of their own`,
		}},
		"statement of two lines": {[]string{`promotion_sql_file = "long.sql"`, `demotion_sql_file = "open.sql"`}, []string{
			`F:5: cluster.main.promotion_sql_file = "long.sql": line 1 of this file has a quote without end: write each statement on one line, and comments on lines of their own`,
			`F:6: cluster.main.demotion_sql_file = "open.sql": line 1 of this file has a comment without end: write each statement on one line, and comments on lines of their own`,
		}},
		"bare comment at the end": {[]string{`demotion_sql_file = "dash.sql"`}, []string{
			`F:5: cluster.main.demotion_sql_file = "dash.sql": line 1 of this file ends in a comment: write each statement on one line, and comments on lines of their own`,
		}},
		"fence is no list":       {[]string{`fence_command = "/sbin/fence hunter2"`}, []string{`F:5: cluster.main.fence_command = *****: an array of strings is expected, not a string`}},
		"fence of types":         {[]string{`fence_command = ["/bin/sh", "hunter2", 1]`}, []string{`F:5: cluster.main.fence_command = *****: element 2: a string is expected, not a whole number`}},
		"fence syntax":           {[]string{`fence_command = ["/bin/sh", hunter2]`}, []string{`F:5: cluster.main.fence_command: this is not valid TOML: look at this line and at the one above`}},
		"fence of relative path": {[]string{`fence_command = ["fence", "hunter2"]`}, []string{`F:5: cluster.main.fence_command = ["fence", …]: the path of the program must be absolute: write it like ["/usr/local/sbin/fence", "argument"]`}},
		"fence without program":  {[]string{`fence_command = [""]`}, []string{`F:5: cluster.main.fence_command = [""]: the path of the program must be absolute: write it like ["/usr/local/sbin/fence", "argument"]`}},
		"fence is not there":     {[]string{`fence_command = ["D/none"]`}, []string{`F:5: cluster.main.fence_command = ["D/none"]: the program cannot be run: no such file or directory: give the path of a program that is there`}},
		"fence is a directory":   {[]string{`fence_command = ["/", "hunter2"]`}, []string{`F:5: cluster.main.fence_command = ["/", …]: the program cannot be run: is a directory: give the path of a program that is there`}},
		"fence in one string":    {[]string{`fence_command = ["D/fence -p hunter2"]`}, []string{`F:5: cluster.main.fence_command = ["D/fence", …]: the program cannot be run: no such file or directory: write the program and each argument as a string of its own`}},
		"fence is no program":    {[]string{`fence_command = ["D/not-fence", "hunter2"]`}, []string{`F:5: cluster.main.fence_command = ["D/not-fence", …]: the program cannot be run: permission denied: let the user of lockstepd execute it`}},
		"fence without majority": {[]string{`quorum = "majority_of_running"`, `fence_on_lost_majority = true`}, []string{`F:6: cluster.main.fence_on_lost_majority = true: with quorum = "majority_of_running" a lost majority does not mean that another monitor may act: set quorum = "majority_of_all", or leave this out`}},
		"fence without quorum":   {[]string{`quorum = "none"`, `fence_on_lost_majority = true`}, []string{`F:6: cluster.main.fence_on_lost_majority = true: with quorum = "none" a lost majority does not mean that another monitor may act: set quorum = "majority_of_all", or leave this out`}},
		"quorum unknown":         {[]string{`quorum = "all"`, `fence_on_lost_majority = true`}, []string{`F:5: cluster.main.quorum = "all": not one of the values of this key: the values are none, majority_of_running, majority_of_all`}},
		"schema": {[]string{"state_schema = \"a`b\"", `write_probe = "probe"`}, []string{
			"F:5: cluster.main.state_schema = \"a`b\": this cannot be the name of a database: use 1 to 64 letters, digits, _ and $",
			`F:6: cluster.main.write_probe = "probe": this is not the name of a table with its database: write it like "lockstep.probe", each part with 1 to 64 letters, digits, _ and $`,
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(dir, "lockstep.toml")
			text := strings.ReplaceAll(in(tt.lines...), `"D/`, `"`+dir+"/")
			f, err := Parse(path, []byte(text), environment("EMPTY", "", "PW", "x"))
			require.Error(t, err)
			require.Nil(t, f)
			got := strings.ReplaceAll(strings.ReplaceAll(err.Error(), path, "F"), dir, "D")
			require.Equal(t, strings.Join(tt.want, "\n"), got)
			require.NotContains(t, got, "hunter")
		})
	}
}

func TestIdentifiers(t *testing.T) {
	long := strings.Repeat("a", 64)
	for name, ok := range map[string]bool{"": true, "a": true, "_": true, "A$9": true, long: true, long + "a": false, "a.b": false, "a-b": false, "a b": false, "ä": false, "a\n": false} {
		_, f := checkSchema(name)
		require.Equal(t, ok, f == nil, "%q", name)
	}
	for name, ok := range map[string]bool{"a.b": true, long + "." + long: true, long + "a.b": false, "a." + long + "a": false, "a.": false, ".a": false, "a.b.c": false, "a": false, "a.b ": false} {
		_, f := checkTable(name)
		require.Equal(t, ok, f == nil, "%q", name)
	}
}

func TestLowDiskNeedsDisks(t *testing.T) {
	_, err := Parse("F", []byte(in(`drain_on_low_disk = true`, `switchover_on_low_disk = true`)), nil)
	require.EqualError(t, err, strings.Join([]string{
		`F:5: cluster.main.drain_on_low_disk = true: the disks are not looked at: set min_free_disk, or leave this out`,
		`F:6: cluster.main.switchover_on_low_disk = true: the disks are not looked at: set min_free_disk, or leave this out`,
		`F:6: cluster.main.switchover_on_low_disk = true: no account is given with which replicas log in to the primary: set replication_user and its password`,
	}, "\n"))
}

func TestOperationWarnings(t *testing.T) {
	account := []string{`replication_user = "repl"`, `replication_password = "x"`}
	running := `F:7: cluster.main.quorum = "majority_of_running": with 3 votes majority_of_all is the safer choice: majority_of_running lets both sides of a split network act: set quorum = "majority_of_all"`
	tests := map[string]struct {
		lines []string
		want  []string
	}{
		"all":     {[]string{`auto_failover = true`, `auto_rejoin = true`, `trust_evidence = true`, `fence_on_lost_majority = true`}, nil},
		"passive": {[]string{`passive = true`, `auto_failover = true`}, []string{`F:8: cluster.main.auto_failover = true: this has no effect: a passive monitor changes nothing`}},
		"none":    {[]string{`quorum = "none"`, `trust_evidence = true`}, []string{`F:8: cluster.main.trust_evidence = true: this has no effect: evidence is doubted only with quorum = "majority_of_all"`}},
		"running": {[]string{`quorum = "majority_of_running"`, `trust_evidence = true`}, []string{running, `F:8: cluster.main.trust_evidence = true: this has no effect: evidence is doubted only with quorum = "majority_of_all"`}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f, err := Parse("F", []byte(in(append(account, tt.lines...)...)), nil)
			require.NoError(t, err)
			var got []string
			for _, w := range f.Warnings {
				got = append(got, w.String())
			}
			require.Equal(t, tt.want, got)
		})
	}
}
