package routing_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/lockstep-ha/lockstep/monitor/routing"
)

func Example() {
	source, err := routing.FromURL(routing.URLConfig{URLs: []string{"http://10.0.0.1:8990", "http://10.0.1.1:8990"}})
	if err != nil {
		log.Fatal(err)
	}
	r, err := routing.Open(source, routing.Options{DSN: "app:secret@/shop?parseTime=true", HoldWrites: 5 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	ctx := context.Background()

	// A write that outlives a failover.
	token, err := r.Write(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE stock SET n = n - 1 WHERE item = ?", "anvil")
		return err
	})
	switch {
	case errors.Is(err, routing.ErrOutcomeUnknown):
		log.Fatal("look whether it was done before you do it again")
	case err != nil:
		log.Fatal(err)
	}

	// A read that sees it, on a replica if one has it.
	db, err := r.Replica(ctx, routing.Session(token))
	if err != nil {
		log.Fatal(err)
	}
	var left int
	if err := db.QueryRowContext(ctx, "SELECT n FROM stock WHERE item = ?", "anvil").Scan(&left); err != nil {
		log.Fatal(err)
	}
	fmt.Println(left)
}

// A request whose reads see its writes, and those of the requests before it.
func ExampleWithTracker() {
	serve := func(ctx context.Context, r *routing.Router, db *sql.DB, cookie string) (string, error) {
		before, _ := r.ParseToken(cookie) // what is no token counts as none
		tracker := routing.NewTracker(before)
		ctx = routing.WithTracker(ctx, tracker)
		if _, err := db.ExecContext(ctx, "INSERT INTO notes (text) VALUES (?)", "hello"); err != nil {
			return "", err
		}
		var n int
		err := db.QueryRowContext(ctx, "SELECT COUNT(*) FROM notes").Scan(&n)
		return r.FormatToken(tracker.Token()), err
	}
	_ = serve
}
