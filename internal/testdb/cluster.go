package testdb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
)

// ClusterOptions say what servers to start as a cluster.
type ClusterOptions struct {
	// Server holds what all servers have in common. Its Name, ServerID, Port
	// and Dir are not used.
	Server Options
	// FirstID is the server_id of the first server, 1 by default; the others
	// count up from it.
	FirstID uint32
	// Ports are the servers' ports; a server without one takes a free one.
	Ports []int
	// Dir is where each server gets a directory under its name; "" makes
	// temporary ones.
	Dir string
	// Each, if set, may change the options of the server with index i before it
	// is started.
	Each func(i int, o *Options)
	// NoReplication leaves the servers standing alone and writable.
	NoReplication bool
}

// Cluster is some servers, of which the first was the primary at the start.
type Cluster struct {
	Servers []*Server
}

// StartCluster starts n servers s1, s2, ... at once. The others replicate from
// the first, with GTID, and are read-only; it returns when all of them do.
func StartCluster(ctx context.Context, n int, opts ClusterOptions) (*Cluster, error) {
	if n < 1 {
		return nil, fmt.Errorf("a cluster of %d servers", n)
	}
	c := &Cluster{Servers: make([]*Server, n)}
	firstID := max(opts.FirstID, 1)
	pods := &podGroup{servers: n}
	var starting errgroup.Group // one that fails must not cut off the others
	for i := range n {
		starting.Go(func() error {
			o := opts.Server
			o.Name = "s" + strconv.Itoa(i+1)
			o.ServerID = firstID + uint32(i)
			o.Port, o.Dir = 0, ""
			if i < len(opts.Ports) {
				o.Port = opts.Ports[i]
			}
			if opts.Dir != "" {
				o.Dir = filepath.Join(opts.Dir, o.Name)
			}
			o.pods = pods
			if opts.Each != nil {
				opts.Each(i, &o)
			}
			var err error
			c.Servers[i], err = Start(ctx, o)
			return err
		})
	}
	err := starting.Wait()
	if err == nil && !opts.NoReplication {
		var replicating errgroup.Group
		for _, s := range c.Replicas() {
			replicating.Go(func() error { return Replicate(ctx, c.Primary(), s) })
		}
		err = replicating.Wait()
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// Primary returns the first server, whatever has become of it.
func (c *Cluster) Primary() *Server { return c.Servers[0] }

// Replicas returns all servers but the first.
func (c *Cluster) Replicas() []*Server { return c.Servers[1:] }

// Replicate makes the second server a read-only replica of the first.
func (c *Cluster) Replicate(ctx context.Context, from, to *Server) error {
	return Replicate(ctx, from, to)
}

// WaitSync waits until the servers, or all replicas if none is named, have all
// that the primary has now.
func (c *Cluster) WaitSync(ctx context.Context, servers ...*Server) error {
	if len(servers) == 0 {
		servers = c.Replicas()
	}
	pos, err := c.Primary().QueryString(ctx, "SELECT @@gtid_binlog_pos")
	if err != nil {
		return err
	}
	for _, s := range servers {
		if err := s.WaitGTID(ctx, pos); err != nil {
			return err
		}
	}
	return nil
}

// Close closes all servers at once.
func (c *Cluster) Close() error {
	var closing errgroup.Group
	for _, s := range c.Servers {
		if s != nil {
			closing.Go(s.Close)
		}
	}
	return closing.Wait()
}

// Replicate makes the second server a read-only replica of the first, whatever
// it replicated before, and waits until both of its threads run.
func Replicate(ctx context.Context, from, to *Server) error {
	err := to.Exec(ctx,
		"STOP SLAVE",
		"SET GLOBAL read_only = 1",
		fmt.Sprintf("CHANGE MASTER TO MASTER_HOST = %s, MASTER_PORT = %d, MASTER_USER = %s, MASTER_PASSWORD = %s, "+
			"MASTER_USE_GTID = slave_pos, MASTER_HEARTBEAT_PERIOD = 1, MASTER_CONNECT_RETRY = 1",
			quote(from.Host()), from.Port(), quote(ReplUser), quote(ReplPassword)),
		"START SLAVE",
	)
	if err != nil {
		return err
	}
	return to.WaitReplicating(ctx)
}

// WaitReplicating waits until both threads of a replica run.
func (s *Server) WaitReplicating(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		status, err := s.ReplicaStatus(ctx)
		if err != nil {
			return err
		}
		if status["Slave_IO_Running"] == "Yes" && status["Slave_SQL_Running"] == "Yes" {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("server %s does not replicate: %w (IO %q %q, SQL %q %q)", s.Name(), ctx.Err(),
				status["Slave_IO_Running"], status["Last_IO_Error"],
				status["Slave_SQL_Running"], status["Last_SQL_Error"])
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// WaitGTID waits until a replica has applied a GTID position.
func (s *Server) WaitGTID(ctx context.Context, pos string) error {
	timeout := startTimeout
	if deadline, ok := ctx.Deadline(); ok {
		timeout = min(timeout, time.Until(deadline))
	}
	result, err := s.QueryString(ctx, "SELECT MASTER_GTID_WAIT(?, ?)", pos, timeout.Seconds())
	if err != nil {
		return err
	}
	if result != "0" {
		return fmt.Errorf("server %s has not reached %s in %v", s.Name(), pos, timeout)
	}
	return nil
}

// ReplicaStatus returns what SHOW SLAVE STATUS says, by column; nothing if the
// server is no replica. NULL is "".
func (s *Server) ReplicaStatus(ctx context.Context) (_ map[string]string, err error) {
	rows, err := s.root.QueryxContext(ctx, "SHOW SLAVE STATUS")
	if err != nil {
		return nil, fmt.Errorf("server %s: SHOW SLAVE STATUS: %w", s.Name(), err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	status := map[string]string{}
	columns, err := rows.Columns()
	if err != nil || !rows.Next() {
		return status, errors.Join(err, rows.Err())
	}
	values := make([]sql.NullString, len(columns))
	into := make([]any, len(columns))
	for i := range values {
		into[i] = &values[i]
	}
	if err := rows.Scan(into...); err != nil {
		return nil, err
	}
	for i, column := range columns {
		status[column] = values[i].String
	}
	return status, rows.Err()
}
