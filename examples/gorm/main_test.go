package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"github.com/lockstep-ha/lockstep/examples/internal/trial"
	"github.com/lockstep-ha/lockstep/monitor/routing"
)

func TestProducts(t *testing.T) {
	_, m := trial.Start(t, "CREATE TABLE app.products (id INT AUTO_INCREMENT PRIMARY KEY, code VARCHAR(20), price INT)")
	r, err := routing.Open(routing.FromMonitor(m), routing.Options{DSN: trial.DSN + "?parseTime=true", HoldWrites: 20 * time.Second})
	require.NoError(t, err)
	defer func() { require.NoError(t, r.Close()) }()
	require.NoError(t, r.Ready(t.Context()))
	db, err := open(r)
	require.NoError(t, err)
	for i := range 20 {
		if i == 10 {
			trial.Switchover(t, m, "s2")
		}
		p, err := create(t.Context(), db, fmt.Sprint("P", i), 7)
		require.NoError(t, err)
		require.Equal(t, uint(7), p.Price)
	}
	// A locking read belongs into a transaction, which is on the primary.
	require.NoError(t, db.Transaction(func(tx *gorm.DB) error {
		var p Product
		if err := tx.Clauses(clause.Locking{Strength: "UPDATE"}).First(&p, "code = ?", "P3").Error; err != nil {
			return err
		}
		return tx.Model(&p).Update("price", 8).Error
	}))
	var n int64
	require.NoError(t, db.WithContext(routing.WithLevel(t.Context(), routing.Strong)).Model(&Product{}).Where("price = 8").Count(&n).Error)
	require.Equal(t, int64(1), n)
	reads := uint64(0)
	for _, p := range r.Stats().Picks {
		if p.Role == "replica" {
			reads += p.Count
		}
	}
	require.GreaterOrEqual(t, reads, uint64(10), "%+v", r.Stats())
}
