// Package monitor watches one replication cluster of MariaDB servers in step
// with other monitors of the same cluster, through advisory locks on the servers
// alone, and tells at any time which server is the primary.
//
// New makes a Monitor, Run runs it until its context ends and then releases all
// locks, View and Primary tell what is true now, Watch follows changes.
//
// What it promises: with majority_of_all at most one monitor has the role
// primary at any time; a view is never believed for longer than the locks behind
// it can last; a process that was stopped and goes on offers no primary before
// it has looked at the servers again. It changes nothing on the servers but the
// locks of its own connections.
package monitor
