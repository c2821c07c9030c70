// Command gorm uses a router through gorm, with one handle for everything: what gorm
// does in transactions and by Exec goes to the primary, its queries go to replicas,
// and the context of a request makes them see what it has written.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"gorm.io/driver/mysql"
	"gorm.io/gorm"

	"github.com/lockstep-ha/lockstep/monitor/routing"
)

// Product is a row.
type Product struct {
	ID    uint
	Code  string
	Price uint
}

func main() {
	url := flag.String("lockstepd", "http://127.0.0.1:8990", "URL of lockstepd")
	dsn := flag.String("dsn", "app:secret@/app?parseTime=true", "account and database, without an address")
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
	db, err := open(r)
	if err != nil {
		return err
	}
	p, err := create(ctx, db, "D42", 100)
	if err != nil {
		return err
	}
	fmt.Printf("%+v\n", p)
	return nil
}

func open(r *routing.Router) (*gorm.DB, error) {
	return gorm.Open(mysql.New(mysql.Config{Conn: r.DB(routing.Eventual(10 * time.Second))}), &gorm.Config{})
}

// create writes a product and reads it back, from a replica that has it.
func create(ctx context.Context, db *gorm.DB, code string, price uint) (Product, error) {
	db = db.WithContext(routing.WithTracker(ctx, routing.NewTracker(routing.Token{})))
	var p Product
	if err := db.Create(&Product{Code: code, Price: price}).Error; err != nil {
		return p, err
	}
	err := db.First(&p, "code = ?", code).Error
	return p, err
}
