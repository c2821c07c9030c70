package backend

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/lockstep-ha/lockstep/topology/mariadb"
)

// ErrWriteStalled reports a write that was not done within the timeout although
// the server had accepted it and no commit waits for a replica.
var ErrWriteStalled = errors.New("the write was not done in time")

// ProbeWrite writes one row on a connection of its own, which holds no lock. Only
// ErrWriteStalled and errors of the server itself speak of the server's storage.
func (f *Fleet) ProbeWrite(ctx context.Context, server, sql string) error {
	p := f.byName[server]
	connect, cancel := context.WithTimeout(ctx, f.cfg.Timing.Timeout)
	defer cancel()
	s, err := openSession(connect, p.srv, f.cfg.Timing.WaitTimeout, "")
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	write, cancel := context.WithTimeout(ctx, f.cfg.Timing.Timeout)
	defer cancel()
	_, err = s.Query(write, sql)
	if err == nil {
		s.goodbye()
		return nil
	}
	s.close()
	if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, os.ErrDeadlineExceeded) && write.Err() == nil {
		return err
	}
	if waiting := f.waitingCommits(ctx, p); waiting != "" && waiting != "0" {
		return fmt.Errorf("%s commits wait for a semi-sync acknowledgement: no replica is connected", waiting)
	}
	return fmt.Errorf("%w (%v)", ErrWriteStalled, f.cfg.Timing.Timeout)
}

// waitingCommits counts the commits that wait for an acknowledgement, "" where
// that cannot be asked.
func (f *Fleet) waitingCommits(ctx context.Context, p *prober) string {
	ctx, cancel := context.WithTimeout(ctx, f.cfg.Timing.Timeout)
	defer cancel()
	s, err := openSession(ctx, p.srv, f.cfg.Timing.WaitTimeout, "")
	if err != nil {
		return ""
	}
	defer s.goodbye()
	tables, err := s.Query(ctx, mariadb.WaitingCommits)
	if err != nil || len(tables) == 0 {
		return ""
	}
	return tables[0].Row(0).String("Value")
}
