package testdb

import (
	"context"
	"errors"
	"os"
	"testing"
)

// New starts a server for a test and closes it when the test ends. When the test
// has failed, the end of the server's log is in its output.
//
// Where no server can be had, the test fails, or with LOCKSTEP_NO_SERVERS=1 it
// is skipped.
func New(t testing.TB, opts Options) *Server {
	t.Helper()
	needServer(t, &opts)
	s, err := Start(t.Context(), opts)
	if err != nil {
		t.Fatalf("testdb: %v", err)
	}
	t.Cleanup(func() { closeServer(t, s) })
	return s
}

// NewCluster starts a cluster for a test and closes it when the test ends, as
// [New] does with one server.
func NewCluster(t testing.TB, n int, opts ClusterOptions) *Cluster {
	t.Helper()
	needServer(t, &opts.Server)
	c, err := StartCluster(t.Context(), n, opts)
	if err != nil {
		t.Fatalf("testdb: %v", err)
	}
	for _, s := range c.Servers {
		t.Cleanup(func() { closeServer(t, s) })
	}
	return c
}

// needServer ends the test if there is nothing to run a server with.
func needServer(t testing.TB, opts *Options) {
	t.Helper()
	switch _, err := opts.backend(t.Context()); {
	case errors.Is(err, ErrNoServer) && os.Getenv("LOCKSTEP_NO_SERVERS") == "1":
		t.Skipf("testdb: %v", err)
	case err != nil:
		t.Fatalf("testdb: %v (or set LOCKSTEP_NO_SERVERS=1 to skip such tests)", err)
	}
}

func closeServer(t testing.TB, s *Server) {
	t.Helper()
	if t.Failed() {
		t.Logf("testdb: the log of server %s ends with:\n%s", s.Name(), s.LogTail(40))
	}
	if err := s.Close(); err != nil {
		t.Errorf("testdb: close server %s: %v", s.Name(), err)
	}
}

// MustExec is [Server.Exec]; an error ends the test.
func (s *Server) MustExec(t testing.TB, statements ...string) {
	t.Helper()
	if err := s.Exec(testContext(t), statements...); err != nil {
		t.Fatal(err)
	}
}

// MustQuery is [Server.QueryString]; an error ends the test.
func (s *Server) MustQuery(t testing.TB, query string, args ...any) string {
	t.Helper()
	value, err := s.QueryString(testContext(t), query, args...)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// testContext returns the test's context, or in its cleanup, when that one has
// ended, one that has not.
func testContext(t testing.TB) context.Context {
	if ctx := t.Context(); ctx.Err() == nil {
		return ctx
	}
	return context.Background()
}
