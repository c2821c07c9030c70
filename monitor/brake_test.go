package monitor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestBrake(t *testing.T) {
	t.Parallel()
	var none *Brake
	require.Empty(t, none.take("a", 0))
	none.release("a")
	b := &Brake{}
	for _, c := range []string{"a", "b", "c"} {
		require.Empty(t, b.take(c, time.Second), "no limit")
	}
	b = &Brake{}
	b.Set(2, time.Minute)
	require.Empty(t, b.take("b", 10*time.Second))
	require.Empty(t, b.take("a", 20*time.Second))
	require.Empty(t, b.take("a", 30*time.Second), "one that has begun may begin anew")
	require.Equal(t, "a, b failed over within the last 1m0s, and max_failovers is 2: this cluster waits for another 30s; acknowledge one of them with lockstepctl call ack, or start the failover by hand", b.take("c", 40*time.Second))
	require.NotEmpty(t, b.take("c", 69*time.Second))
	require.Empty(t, b.take("c", 70*time.Second), "that of b is long ago")
	require.NotEmpty(t, b.take("d", 71*time.Second))
	b.release("c")
	require.Empty(t, b.take("d", 72*time.Second))
	require.NotEmpty(t, b.take("e", 73*time.Second))
	b.Set(0, time.Minute)
	require.Empty(t, b.take("e", 74*time.Second))
}
