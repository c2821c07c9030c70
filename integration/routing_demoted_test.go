package integration

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/internal/testdb"
	"github.com/lockstep-ha/lockstep/monitor/routing"
)

// TestRoutingFrozenPrimary freezes the primary under load until another has taken its
// place: when it goes on, often writable as it was, nothing is written to it.
func TestRoutingFrozenPrimary(t *testing.T) {
	c, m, r := routed(t, holding(30*time.Second), func(o *routing.Options) { o.HardCut = true })
	s := open(t, r, 8)
	s.more(t, 200)
	require.NoError(t, c.Servers[0].Freeze())
	v := until(t, m, 30*time.Second, "another primary", otherThan("s1"))
	next := v.Primary.Name
	primaryIs(t, r, next)
	s.more(t, 100)
	require.NoError(t, c.Servers[0].Thaw())
	s.more(t, 500)
	// A commit that waits for an acknowledgement keeps the monitor from setting it read-only.
	t.Logf("read_only on the old primary: %s", c.Servers[0].MustQuery(t, "SELECT @@global.read_only"))
	s.stop()
	for _, err := range s.errs {
		require.ErrorIs(t, err, routing.ErrPrimaryChanged)
		require.ErrorIs(t, err, routing.ErrOutcomeUnknown)
	}
	inSyncExcept(t, c, next, 0)
	for _, server := range c.Servers[1:] {
		s.check(t, server)
	}
	// What s1 has beyond the others was under way when it froze.
	has := map[string]bool{}
	for _, id := range ids(t, byName(t, c, next)) {
		has[id] = true
	}
	beyond := 0
	for _, id := range ids(t, c.Servers[0]) {
		if !has[id] {
			beyond++
		}
	}
	require.LessOrEqual(t, beyond, len(s.unknown))
	t.Logf("%d writes, %d of unknown outcome, of which the old primary has %d; longest pause %v", len(s.acked), len(s.unknown), beyond, s.longest.Round(time.Millisecond))
}

// ids are the rows on a server.
func ids(t *testing.T, s *testdb.Server) (list []string) {
	t.Helper()
	require.NoError(t, s.Root().SelectContext(t.Context(), &list, "SELECT id FROM app.orders"))
	return list
}
