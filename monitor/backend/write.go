package backend

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/lockstep-ha/lockstep/internal/sqlrows"
)

// ErrWriteStalled reports a write that was not done within the timeout although
// the server had accepted it.
var ErrWriteStalled = errors.New("the write was not done in time")

// Look asks a server on a connection of its own, which holds no lock: for what may
// take long there.
func (f *Fleet) Look(ctx context.Context, server, sql string) ([]sqlrows.Table, error) {
	p := f.byName[server]
	ctx, cancel := context.WithTimeout(ctx, f.cfg.Timing.Timeout)
	defer cancel()
	s, err := openSession(ctx, p.srv, f.cfg.Timing.WaitTimeout, "")
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	tables, err := s.Query(ctx, sql)
	if err != nil {
		s.close()
		return nil, err
	}
	s.goodbye()
	return tables, nil
}

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
	// The server's own limit comes first.
	write, cancel := context.WithTimeout(ctx, f.cfg.Timing.Timeout*3/2)
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
	return fmt.Errorf("%w (%v)", ErrWriteStalled, f.cfg.Timing.Timeout)
}
