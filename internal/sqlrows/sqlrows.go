// Package sqlrows holds result sets in the text form in which a server sends
// them, so that packages that know what a result means need not know database/sql.
package sqlrows

import (
	"fmt"
	"strconv"
)

// Table is one result set. A nil value is SQL NULL.
type Table struct {
	Columns []string
	Rows    [][]*string
}

// Row gives access to one row of a table by column name.
type Row struct {
	table *Table
	index int
}

// Row returns row i. It is empty (every column missing) where there is no such row.
func (t *Table) Row(i int) Row { return Row{table: t, index: i} }

// Value returns the value of a column and whether the column exists and is not NULL.
func (r Row) Value(column string) (string, bool) {
	if r.table == nil || r.index < 0 || r.index >= len(r.table.Rows) {
		return "", false
	}
	for i, c := range r.table.Columns {
		if c != column || i >= len(r.table.Rows[r.index]) {
			continue
		}
		v := r.table.Rows[r.index][i]
		if v == nil {
			return "", false
		}
		return *v, true
	}
	return "", false
}

// String returns the value of a column, "" where it is NULL or missing.
func (r Row) String(column string) string {
	v, _ := r.Value(column)
	return v
}

// Uint returns the value of a column as a number; ok is false where it is NULL or missing.
func (r Row) Uint(column string) (n uint64, ok bool, err error) {
	v, found := r.Value(column)
	if !found {
		return 0, false, nil
	}
	n, err = strconv.ParseUint(v, 10, 64)
	if err != nil {
		return 0, false, fmt.Errorf("column %s: %q is not a whole number", column, v)
	}
	return n, true, nil
}
