package testdb

import (
	"context"
	"strings"
)

var monitorGrants = []string{"REPLICA MONITOR, BINLOG MONITOR, PROCESS ON *.*"}

var operateGrants = []string{
	"REPLICATION SLAVE ADMIN, REPLICATION MASTER ADMIN, READ_ONLY ADMIN, CONNECTION ADMIN, BINLOG ADMIN, EVENT, SET USER, RELOAD ON *.*",
	"CREATE, SELECT, INSERT, UPDATE ON lockstep.*",
}

// accounts returns all accounts but root.
func (o *Options) accounts() []Account {
	if o.NoAccounts {
		return nil
	}
	monitor := Account{MonitorUser, MonitorPassword, monitorGrants}
	if o.Operate {
		monitor.Grants = append(append([]string(nil), monitorGrants...), operateGrants...)
	}
	return append([]Account{
		monitor,
		{ReplUser, ReplPassword, []string{"REPLICATION SLAVE ON *.*"}},
		{AppUser, AppPassword, []string{"CREATE, SELECT, INSERT, UPDATE, DELETE ON " + AppDatabase + ".*"}},
	}, o.Accounts...)
}

// password returns the password of a user.
func (s *Server) password(user string) (string, bool) {
	if user == RootUser {
		return "", true
	}
	for _, a := range s.opts.accounts() {
		if a.User == user {
			return a.Password, true
		}
	}
	return "", false
}

// createAccounts creates the accounts and the database, and keeps them out of
// the binary log, which so starts empty.
func (s *Server) createAccounts(ctx context.Context) error {
	statements := []string{
		"SET SESSION sql_log_bin = 0",
		"CREATE DATABASE IF NOT EXISTS " + AppDatabase,
	}
	for _, a := range s.opts.accounts() {
		name := quote(a.User) + "@'%'"
		statements = append(statements, "CREATE USER "+name+" IDENTIFIED BY "+quote(a.Password))
		for _, grant := range a.Grants {
			statements = append(statements, "GRANT "+grant+" TO "+name)
		}
	}
	return s.Exec(ctx, append(statements, "SET SESSION sql_log_bin = 1")...)
}

// quote makes a string of SQL.
func quote(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `''`).Replace(s) + "'"
}
