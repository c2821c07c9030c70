package locks

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func agreement(change ...func(*Agreement)) Agreement {
	tm, err := Derive(Settings{Interval: 2 * time.Second, Timeout: 3 * time.Second})
	if err != nil {
		panic(err)
	}
	a := Agreement{Mode: "majority_of_all", Voters: map[string]int{"db1:3306": 1, "db2:3306": 1, "db3:3306": 0}, Timing: tm}
	for _, f := range change {
		f(&a)
	}
	return a
}

func TestNewNamesDefaults(t *testing.T) {
	n, err := NewNames("", "", agreement())
	require.NoError(t, err)
	require.Equal(t, "maxscale_mariadbmonitor", n.Server)
	require.Equal(t, "maxscale_mariadbmonitor_master", n.Primary)
	require.Regexp(t, `^lockstep_[0-9a-f]{16}$`, n.Marker)
	require.Regexp(t, `^lockstep_[0-9a-f]{16}_[0-9a-f]{16}$`, n.Config)
	require.True(t, strings.HasPrefix(n.Config, n.Marker+"_"))
}

func TestNewNamesLength(t *testing.T) {
	long := strings.Repeat("é", MaxNameLength)
	n, err := NewNames(long, long[2:]+"x", agreement())
	require.NoError(t, err, "characters count, not bytes")
	for _, name := range []string{n.Server, n.Primary, n.Marker, n.Config} {
		require.LessOrEqual(t, len([]rune(name)), MaxNameLength)
	}
	_, err = NewNames(long+"x", "", agreement())
	require.ErrorContains(t, err, "65 characters")
	_, err = NewNames("", long+"x", agreement())
	require.ErrorContains(t, err, "at most 64")
}

func TestNewNamesRefuses(t *testing.T) {
	for _, bad := range []string{"a'b", `a"b`, "a`b", `a\b`, "a\x00b", "a\nb", "a\x7fb"} {
		_, err := NewNames(bad, "", agreement())
		require.ErrorContains(t, err, "not allowed", "%q", bad)
		_, err = NewNames("", bad, agreement())
		require.ErrorContains(t, err, "not allowed", "%q", bad)
	}
	for _, pair := range [][2]string{{"one", "one"}, {"one", "ONE"}, {"Straße", "sTRAßE"}, {DefaultPrimaryLock, ""}, {"", DefaultServerLock}} {
		_, err := NewNames(pair[0], pair[1], agreement())
		require.ErrorContains(t, err, "same name", "%q", pair)
	}
}

func TestConfigNameFollowsWhatMustAgree(t *testing.T) {
	base, err := NewNames("", "", agreement())
	require.NoError(t, err)

	same := map[string]Agreement{
		"again": agreement(),
		"order": agreement(func(a *Agreement) {
			a.Voters = map[string]int{}
			for _, addr := range []string{"db3:3306", "db1:3306", "db2:3306"} {
				a.Voters[addr] = map[string]int{"db1:3306": 1, "db2:3306": 1}[addr]
			}
		}),
		"case of host names": agreement(func(a *Agreement) { a.Voters = map[string]int{"DB1:3306": 1, "Db2:3306": 1, "db3:3306": 0} }),
	}
	for what, a := range same {
		for range 20 { // the order of a map changes from call to call
			n, err := NewNames("", "", a)
			require.NoError(t, err)
			require.Equal(t, base, n, what)
		}
	}

	other := map[string]Agreement{
		"mode":         agreement(func(a *Agreement) { a.Mode = "majority_of_running" }),
		"votes":        agreement(func(a *Agreement) { a.Voters["db3:3306"] = 1 }),
		"more servers": agreement(func(a *Agreement) { a.Voters["db4:3306"] = 1 }),
		"less servers": agreement(func(a *Agreement) { delete(a.Voters, "db3:3306") }),
		"port":         agreement(func(a *Agreement) { delete(a.Voters, "db1:3306"); a.Voters["db1:3307"] = 1 }),
		"interval":     agreement(func(a *Agreement) { a.Timing.Interval++ }),
		"timeout":      agreement(func(a *Agreement) { a.Timing.Timeout++ }),
		"wait_timeout": agreement(func(a *Agreement) { a.Timing.WaitTimeout += time.Second }),
		"settle":       agreement(func(a *Agreement) { a.Timing.Settle++ }),
	}
	seen := map[string]string{base.Config: "base"}
	for what, a := range other {
		n, err := NewNames("", "", a)
		require.NoError(t, err)
		require.Equal(t, base.Marker, n.Marker, "the marker is that of every configuration")
		require.Empty(t, seen[n.Config], "%s has the hash of %s", what, seen[n.Config])
		seen[n.Config] = what
	}
	n, err := NewNames("other", "", agreement())
	require.NoError(t, err)
	require.NotEqual(t, base.Marker, n.Marker)
	upper, err := NewNames("OTHER", "", agreement())
	require.NoError(t, err)
	require.NotEqual(t, n.Marker, upper.Marker, "MariaDB tells capital from small letters")
}
