package backend

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/internal/boottime"
	"github.com/lockstep-ha/lockstep/internal/fakedb"
	"github.com/lockstep-ha/lockstep/locks"
	"github.com/lockstep-ha/lockstep/topology"
)

// fleetOf makes a fleet of one fake server.
func fleetOf(t *testing.T, s *fakedb.Server) (*Fleet, chan struct{}) {
	t.Helper()
	timing, err := locks.Derive(locks.Settings{Interval: 10 * time.Second, Timeout: 5 * time.Second})
	require.NoError(t, err)
	names, err := locks.NewNames("", "", locks.Agreement{Timing: timing})
	require.NoError(t, err)
	wake := make(chan struct{}, 16)
	f, err := New(Config{
		Servers: []Server{{Settings: topology.Settings{Name: "s1", Address: s.Addr(), Votes: 1}, User: "monitor"}},
		Names:   names, Timing: timing, Now: boottime.Now, Wake: func() { wake <- struct{}{} },
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close(context.Background())) })
	return f, wake
}

func TestGaleraIsRefused(t *testing.T) {
	s := fakedb.New(t, fakedb.Options{})
	s.SetVariable("wsrep_on", "ON")
	f, _ := fleetOf(t, s)
	servers, rows := f.Observe(t.Context())
	require.Equal(t, topology.Unsupported, servers[0].Evidence, servers[0].Detail)
	require.Contains(t, servers[0].Detail, "Galera")
	require.False(t, rows[0].Answered)
}

func TestLostSessionLosesItsLocks(t *testing.T) {
	s := fakedb.New(t, fakedb.Options{})
	f, wake := fleetOf(t, s)
	take := func() Result {
		return f.Do(t.Context(), []Action{{Server: "s1", Kind: TakeServerLock}})[0].Result
	}
	f.Observe(t.Context())
	require.Equal(t, Done, take())
	_, rows := f.Observe(t.Context())
	require.Equal(t, locks.Self, rows[0].ServerLock.State)

	// The server ends the session: the engine is woken, long before its interval.
	require.True(t, s.Kill(uint32(rows[0].Session)))
	<-wake
	_, after := f.Observe(t.Context())
	require.NotEqual(t, rows[0].Session, after[0].Session)
	require.Equal(t, locks.Free, after[0].ServerLock.State, "a new session starts from nothing")
	require.Equal(t, Done, take())
	require.Equal(t, Done, f.Do(t.Context(), []Action{{Server: "s1", Kind: TakePrimaryLock}})[0].Result)
	require.Equal(t, Done, f.Do(t.Context(), []Action{{Server: "s1", Kind: ReleaseAll}})[0].Result)
	_, after = f.Observe(t.Context())
	require.Equal(t, locks.Free, after[0].ServerLock.State)
	require.Equal(t, locks.Free, after[0].PrimaryLock.State)
}
