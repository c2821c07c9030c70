// Command sqlx uses a router through sqlx: one handle, reads on replicas, writes on
// the primary, a transaction that outlives a failover.
package main

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/lockstep-ha/lockstep/monitor/routing"
)

func main() {
	url := flag.String("lockstepd", "http://127.0.0.1:8990", "URL of lockstepd")
	dsn := flag.String("dsn", "app:secret@/app", "account and database, without an address")
	flag.Parse()
	if err := run(context.Background(), *url, *dsn); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url, dsn string) error {
	source, err := routing.FromURL(routing.URLConfig{URLs: []string{url}})
	if err != nil {
		return err
	}
	r, err := routing.Open(source, routing.Options{DSN: dsn, HoldWrites: 5 * time.Second})
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	total, err := transfer(ctx, r, "alice", "bob", 10)
	if err != nil {
		return err
	}
	fmt.Println("all accounts hold", total)
	return nil
}

// transfer moves money and returns the sum over all accounts, as read from a replica
// that has the transfer.
func transfer(ctx context.Context, r *routing.Router, from, to string, amount int) (total int, err error) {
	token, err := r.Write(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "UPDATE accounts SET money = money - ? WHERE name = ?", amount, from); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, "UPDATE accounts SET money = money + ? WHERE name = ?", amount, to)
		return err
	})
	if err != nil {
		return 0, err
	}
	db := sqlx.NewDb(sql.OpenDB(r.Connector(routing.Session(token))), "mysql")
	defer func() { _ = db.Close() }()
	err = db.GetContext(ctx, &total, "SELECT SUM(money) FROM accounts")
	return total, err
}
