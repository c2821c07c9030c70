package locks

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDeriveTable(t *testing.T) {
	for _, c := range []struct {
		name                    string
		in                      Settings
		wait, notice, settle    time.Duration
		safe, failcount         int
		after, worst, staleness time.Duration
	}{
		{"i=2s t=3s", Settings{Interval: 2 * time.Second, Timeout: 3 * time.Second},
			8 * time.Second, 8 * time.Second, 10 * time.Second, 5, 5, 10 * time.Second, 25 * time.Second, 16 * time.Second},
		{"i=5s t=10s", Settings{Interval: 5 * time.Second, Timeout: 10 * time.Second},
			25 * time.Second, 25 * time.Second, 30 * time.Second, 6, 6, 30 * time.Second, 90 * time.Second, 50 * time.Second},
		{"rounded up", Settings{Interval: 2500 * time.Millisecond, Timeout: 2600 * time.Millisecond},
			8 * time.Second, 7700 * time.Millisecond, 12500 * time.Millisecond, 5, 5, 12500 * time.Millisecond, 25500 * time.Millisecond, 15700 * time.Millisecond},
		{"default floor", Settings{Interval: time.Second, Timeout: time.Second},
			5 * time.Second, 3 * time.Second, 4 * time.Second, 4, 4, 4 * time.Second, 8 * time.Second, 8 * time.Second},
		{"own floor", Settings{Interval: 200 * time.Millisecond, Timeout: 400 * time.Millisecond, Floor: time.Second},
			time.Second, time.Second, 1200 * time.Millisecond, 6, 6, 1200 * time.Millisecond, 3600 * time.Millisecond, 2 * time.Second},
		{"larger failcount", Settings{Interval: 2 * time.Second, Timeout: 3 * time.Second, Failcount: 9},
			8 * time.Second, 8 * time.Second, 18 * time.Second, 5, 9, 18 * time.Second, 45 * time.Second, 16 * time.Second},
		{"unsafe but allowed settles for the notice time", Settings{Interval: 2 * time.Second, Timeout: 3 * time.Second, Failcount: 1, AllowUnsafe: true},
			8 * time.Second, 8 * time.Second, 8 * time.Second, 5, 1, 2 * time.Second, 5 * time.Second, 16 * time.Second},
		{"longest", Settings{Interval: 28000 * time.Second, Timeout: 400 * time.Second},
			MaxWaitTimeout, MaxWaitTimeout, 84000 * time.Second, 3, 3, 84000 * time.Second, 85200 * time.Second, 2 * MaxWaitTimeout},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Derive(c.in)
			require.NoError(t, err)
			require.Equal(t, c.in.Interval, got.Interval)
			require.Equal(t, c.in.Timeout, got.Timeout)
			require.Equal(t, c.wait, got.WaitTimeout)
			require.Equal(t, c.notice, got.Notice)
			require.Equal(t, c.settle, got.Settle)
			require.Equal(t, c.safe, got.SafeFailcount)
			require.Equal(t, c.failcount, got.Failcount)
			require.Equal(t, c.after, got.FailoverAfter())
			require.Equal(t, c.worst, got.FailoverWorst())
			require.Equal(t, c.staleness, got.StaleAfter())
			require.Equal(t, c.failcount < c.safe, got.Unsafe())
			require.Less(t, got.Lease, got.Settle)
		})
	}
}

func TestDeriveRefuses(t *testing.T) {
	for _, c := range []struct {
		name, want string
		in         Settings
	}{
		{"no interval", "interval is 0s", Settings{Timeout: time.Second}},
		{"negative interval", "interval is -1s", Settings{Interval: -time.Second, Timeout: time.Second}},
		{"no timeout", "timeout is 0s", Settings{Interval: time.Second}},
		{"negative timeout", "timeout is -1s", Settings{Interval: time.Second, Timeout: -time.Second}},
		{"floor below a second", "wait_timeout floor is 999ms", Settings{Interval: time.Second, Timeout: time.Second, Floor: 999 * time.Millisecond}},
		{"negative floor", "wait_timeout floor is -1s", Settings{Interval: time.Second, Timeout: time.Second, Floor: -time.Second}},
		{"floor too large", "wait_timeout floor is 8h0m1s", Settings{Interval: time.Second, Timeout: time.Second, Floor: MaxWaitTimeout + time.Second}},
		{"too long", "interval + 2 × timeout is 8h0m2s", Settings{Interval: MaxWaitTimeout, Timeout: time.Second}},
		{"negative failcount", "failcount is -1", Settings{Interval: time.Second, Timeout: time.Second, Failcount: -1, AllowUnsafe: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Derive(c.in)
			require.ErrorContains(t, err, c.want)
			require.NotErrorIs(t, err, ErrUnsafeFailcount)
		})
	}
}

func TestDeriveRefusesUnsafeFailcount(t *testing.T) {
	for _, c := range []struct {
		i, t      time.Duration
		failcount int
		figures   []string
	}{
		{2 * time.Second, 3 * time.Second, 4, []string{"failcount is 4", "smallest safe one is 5", "interval 2s", "timeout 3s", "wait_timeout 8s", "failover starts after 10s"}},
		{5 * time.Second, 10 * time.Second, 5, []string{"failcount is 5", "smallest safe one is 6", "interval 5s", "timeout 10s", "wait_timeout 25s", "failover starts after 30s"}},
	} {
		_, err := Derive(Settings{Interval: c.i, Timeout: c.t, Failcount: c.failcount})
		require.ErrorIs(t, err, ErrUnsafeFailcount)
		for _, f := range append(c.figures, "allow_unsafe_failcount = true") {
			require.ErrorContains(t, err, f)
		}
		got, err := Derive(Settings{Interval: c.i, Timeout: c.t, Failcount: c.failcount, AllowUnsafe: true})
		require.NoError(t, err)
		require.True(t, got.Unsafe())
		_, err = Derive(Settings{Interval: c.i, Timeout: c.t, Failcount: c.failcount + 1})
		require.NoError(t, err)
	}
}

// safeFailcount counts instead of dividing: one tick, ticks that cover two
// timeouts, and one more.
func safeFailcount(i, t time.Duration) int {
	covering := 0
	for covered := time.Duration(0); covered < 2*t; covered += i {
		covering++
	}
	return 1 + covering + 1
}

func TestDeriveProperties(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	runs := 20000
	if testing.Short() {
		runs = 2000
	}
	units := []time.Duration{time.Millisecond, 10 * time.Millisecond, 333 * time.Microsecond, time.Second}
	for range runs {
		i := time.Duration(1+rng.IntN(600)) * units[rng.IntN(len(units))]
		to := time.Duration(1+rng.IntN(600)) * units[rng.IntN(len(units))]
		if 2*to/i > 5000 {
			continue
		}
		floor := time.Duration(1+rng.IntN(20)) * time.Second
		s := Settings{Interval: i, Timeout: to, Floor: floor}
		got, err := Derive(s)
		require.NoError(t, err)
		require.Zero(t, got.WaitTimeout%time.Second, "%+v", s)
		require.GreaterOrEqual(t, got.WaitTimeout, got.Notice)
		require.GreaterOrEqual(t, got.WaitTimeout, floor)
		require.LessOrEqual(t, got.WaitTimeout, MaxWaitTimeout)
		require.Less(t, got.WaitTimeout, max(got.Notice, floor)+time.Second, "no longer than rounding needs")
		require.Equal(t, i+2*to, got.Notice)
		safe := safeFailcount(i, to)
		require.Equal(t, safe, got.SafeFailcount, "%+v", s)
		require.Equal(t, safe, got.Failcount)
		require.Positive(t, got.Margin)
		require.Less(t, got.Lease, got.Settle, "%+v", s)
		require.Less(t, got.Lease, got.WaitTimeout)
		require.GreaterOrEqual(t, got.Settle, got.Notice)
		require.GreaterOrEqual(t, got.Settle, got.FailoverAfter())
		// A renewal on time keeps the lease: one interval, and one query that
		// takes as long as it may.
		require.Greater(t, got.Lease, i+to, "%+v", s)
		// With a safe failcount one percent of clock rates is covered.
		require.Less(t, got.Lease+got.Settle/100, got.Settle, "%+v", s)

		s.Failcount = 1 + rng.IntN(safe-1)
		_, err = Derive(s)
		require.ErrorIs(t, err, ErrUnsafeFailcount)
		s.AllowUnsafe = true
		got, err = Derive(s)
		require.NoError(t, err)
		require.Less(t, got.Lease, got.Settle, "an unsafe failcount still settles for longer than a lease: %+v", s)
		s = Settings{Interval: i, Timeout: to, Floor: floor, Failcount: safe + rng.IntN(5)}
		got, err = Derive(s)
		require.NoError(t, err)
		require.False(t, got.Unsafe())
		require.Less(t, got.Lease, got.Settle)
	}
}

func TestDeriveRefusesOverflow(t *testing.T) {
	for _, s := range []Settings{
		{Interval: time.Second, Timeout: math.MaxInt64},
		{Interval: math.MaxInt64, Timeout: time.Second},
		{Interval: time.Second, Timeout: time.Second, Failcount: math.MaxInt},
		{Interval: time.Second, Timeout: 1},
	} {
		_, err := Derive(s)
		require.Error(t, err, "%+v", s)
	}
}
