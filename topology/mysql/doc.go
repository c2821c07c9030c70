// Package mysql is the place of the MySQL dialect, of the same shape as
// topology/mariadb. Locks and positions of MySQL are ready (packages locks and
// topology/gtid); a server that says it is MySQL is refused with a stated reason
// until its probe is written.
package mysql

// Refusal is the reason given for servers of this flavor.
const Refusal = "MySQL servers cannot be monitored yet"
