package testdb

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
)

// SemiSyncArgs are arguments to mariadbd, for [Options.ExtraArgs], of a server
// that can be either side of semi-synchronous replication and that never falls
// back to asynchronous replication. The primary side is off at the start, until
// [Cluster.EnableSemiSync] or someone else switches it on.
//
// The role is that of a server that comes back as a replica: after a crash it
// cuts off the end of its binary log that it had not committed, and that perhaps
// no replica has.
func SemiSyncArgs() []string {
	return []string{
		"--rpl-semi-sync-slave-enabled=ON",
		"--rpl-semi-sync-master-enabled=OFF",
		"--rpl-semi-sync-master-timeout=18446744073709551615", // ms, the maximum
		"--rpl-semi-sync-master-wait-point=AFTER_SYNC",
		"--rpl-semi-sync-master-wait-no-slave=ON",
		"--slave-net-timeout=8",
		"--loose-init-rpl-role=SLAVE",
	}
}

// EnableSemiSync makes the replication semi-synchronous: it switches the primary
// side on at the first server, restarts the IO threads of the replicas, and waits
// until all of them acknowledge. The servers must have been started with
// [SemiSyncArgs], and the others must replicate from the first.
func (c *Cluster) EnableSemiSync(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for _, s := range c.Replicas() {
		switch on, err := s.QueryString(ctx, "SELECT @@rpl_semi_sync_slave_enabled"); {
		case err != nil:
			return err
		case on != "1":
			return fmt.Errorf("server %s is no semi-synchronous replica: start it with SemiSyncArgs", s.Name())
		}
	}
	if err := c.Primary().Exec(ctx, "SET GLOBAL rpl_semi_sync_master_enabled = ON"); err != nil {
		return err
	}
	var restarting errgroup.Group
	for _, s := range c.Replicas() {
		restarting.Go(func() error {
			if err := s.Exec(ctx, "STOP SLAVE IO_THREAD", "START SLAVE IO_THREAD"); err != nil {
				return err
			}
			return s.WaitReplicating(ctx)
		})
	}
	if err := restarting.Wait(); err != nil {
		return err
	}
	return c.Primary().waitSemiSyncClients(ctx, len(c.Replicas()))
}

// waitSemiSyncClients waits until a primary has that many semi-synchronous
// replicas.
func (s *Server) waitSemiSyncClients(ctx context.Context, want int) error {
	for {
		clients, err := s.globalStatus(ctx, "Rpl_semi_sync_master_clients")
		if err != nil {
			return err
		}
		if clients == strconv.Itoa(want) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("server %s has %s semi-synchronous replicas, not %d: %w", s.Name(), clients, want, ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// globalStatus returns one of the values of SHOW GLOBAL STATUS.
func (s *Server) globalStatus(ctx context.Context, name string) (string, error) {
	return s.QueryString(ctx, "SELECT variable_value FROM information_schema.global_status WHERE variable_name = ?", name)
}
