package topology

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLagFromPositions(t *testing.T) {
	const s = time.Second
	var k LagTracker
	k.Note("s1", position("0-1-10"), 10*s)
	k.Note("s1", position("0-1-10"), 12*s) // nothing new
	k.Note("s1", position("0-1-20"), 14*s)
	k.Note("s1", position("0-1-30,1-1-1"), 16*s)
	for pos, want := range map[string]time.Duration{
		"0-1-30,1-1-1": 0,
		"0-2-99,1-7-5": 0,
		"0-1-30":       4 * s, // a domain is lacking
		"0-1-29,1-1-1": 4 * s,
		"0-1-20":       4 * s,
		"0-1-19":       6 * s,
		"0-1-10":       6 * s,
		"0-1-9":        10 * s,
		"1-1-1":        10 * s,
	} {
		require.Equal(t, Lag{Known: true, Behind: want, Source: "gtid"}, k.Measure(replica(2, 1, at(pos)), 20*s), pos)
	}
	require.Equal(t, Lag{Known: true, Source: "gtid"}, k.Measure(replica(2, 1, at("0-1-9")), 5*s), "never less than nothing")

	// What was known of the primary before says nothing of another one.
	k.Note("s3", position("0-3-40"), 20*s)
	require.Equal(t, 1*s, k.Measure(replica(2, 1, at("0-1-30")), 21*s).Behind)
	k.Note("", position("0-3-40"), 21*s)
	require.Equal(t, "seconds_behind", k.Measure(replica(2, 1, at("0-1-30")), 21*s).Source)
}

func TestLagFromSeconds(t *testing.T) {
	seconds := func(n uint64) func(*Server) {
		return func(s *Server) {
			s.Replication = append(s.Replication, Replication{IO: "Yes", SQL: "Yes", SecondsBehind: Yes, Seconds: n})
		}
	}
	var k LagTracker
	require.Equal(t, Lag{}, k.Measure(server(1), 0))
	require.Equal(t, Lag{Known: true, Behind: 3 * time.Second, Source: "seconds_behind"}, k.Measure(server(2, seconds(3)), 0))
	require.Equal(t, 9*time.Second, k.Measure(server(2, seconds(3), seconds(9), seconds(0)), 0).Behind, "the worst connection")
	require.Equal(t, Lag{}, k.Measure(server(2, seconds(3), lost(1)), 0), "one that does not know spoils the rest")
	require.True(t, k.Measure(server(2, seconds(0)), 0).Known)
	k.Note("s1", position(""), 0)
	require.Equal(t, "seconds_behind", k.Measure(server(2, seconds(3)), 0).Source, "an empty position is no beat")
	k.Note("s1", position("0-1-1"), 0)
	require.Equal(t, "seconds_behind", k.Measure(server(2, seconds(3), at("")), 0).Source, "a replica without a position")
	require.Equal(t, "gtid", k.Measure(server(2, seconds(3)), 0).Source)
}

func TestLagMemoryIsBounded(t *testing.T) {
	var k LagTracker
	for i := 1; i <= 10*beats; i++ {
		k.Note("s1", position(fmt.Sprintf("0-1-%d", i)), time.Duration(i)*time.Second)
		require.LessOrEqual(t, len(k.ring), beats)
		now := time.Duration(i+1) * time.Second
		require.Zero(t, k.Measure(replica(2, 1, at(fmt.Sprintf("0-1-%d", i))), now).Behind)
		if i > 10 {
			require.Equal(t, 10*time.Second, k.Measure(replica(2, 1, at(fmt.Sprintf("0-1-%d", i-9-1))), now).Behind)
		}
	}
	require.GreaterOrEqual(t, len(k.ring), beats/2)
	require.GreaterOrEqual(t, k.Measure(replica(2, 1, at("0-1-1")), 10*beats*time.Second).Behind, beats/2*time.Second-time.Second)
}
