package main

import (
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/examples/internal/trial"
	"github.com/lockstep-ha/lockstep/monitor/routing"
)

func TestTransfer(t *testing.T) {
	c, m := trial.Start(t, "CREATE TABLE app.accounts (name VARCHAR(20) PRIMARY KEY, money INT)", "INSERT INTO app.accounts VALUES ('alice', 100), ('bob', 0)")
	r, err := routing.Open(routing.FromMonitor(m), routing.Options{DSN: trial.DSN, HoldWrites: 20 * time.Second})
	require.NoError(t, err)
	defer func() { require.NoError(t, r.Close()) }()
	for i := range 4 {
		if i == 2 {
			trial.Switchover(t, m, "s3")
		}
		total, err := transfer(t.Context(), r, "alice", "bob", 10)
		require.NoError(t, err)
		require.Equal(t, 100, total)
	}
	require.Equal(t, "40", c.Servers[2].MustQuery(t, "SELECT money FROM app.accounts WHERE name = 'bob'"))

	// Named parameters, prepared statements and structs work as ever.
	db := sqlx.NewDb(r.DB(routing.Strong), "mysql")
	var rows []struct {
		Name  string
		Money int
	}
	st, err := db.PrepareNamedContext(t.Context(), "SELECT name, money FROM accounts WHERE money >= :least ORDER BY name")
	require.NoError(t, err)
	defer func() { require.NoError(t, st.Close()) }()
	require.NoError(t, st.SelectContext(t.Context(), &rows, map[string]any{"least": 1}))
	require.Len(t, rows, 2)
	require.Equal(t, 60, rows[0].Money)
}
