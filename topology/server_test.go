package topology

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseVersion(t *testing.T) {
	for text, want := range map[string]struct {
		major, minor, patch int
		flavor              Flavor
	}{
		"10.5.9-MariaDB-1:10.5.9+maria~focal-log": {10, 5, 9, MariaDB},
		"11.8.3-MariaDB-ubu2404":                  {11, 8, 3, MariaDB},
		"12.0.2-mariadb-log":                      {12, 0, 2, MariaDB},
		"10.6.12.1-MariaDB":                       {10, 6, 12, MariaDB},
		"8.0.36":                                  {8, 0, 36, MySQL},
		"8.4.0-cluster":                           {8, 4, 0, MySQL},
		"9.1":                                     {9, 1, 0, MySQL},
		"10":                                      {10, 0, 0, MySQL},
		"10..3":                                   {10, 0, 0, MySQL},
		"nonsense":                                {0, 0, 0, MySQL},
		"99999999999999999999.1.2":                {0, 0, 0, MySQL},
	} {
		v, flavor := ParseVersion(text)
		require.Equal(t, Version{want.major, want.minor, want.patch, text}, v)
		require.Equal(t, want.flavor, flavor, text)
	}
}

func TestAtLeast(t *testing.T) {
	v := Version{Major: 10, Minor: 5, Patch: 9}
	for _, older := range [][3]int{{10, 5, 9}, {10, 5, 8}, {10, 4, 30}, {9, 9, 99}, {0, 0, 0}} {
		require.True(t, v.AtLeast(older[0], older[1], older[2]), "%v", older)
	}
	for _, newer := range [][3]int{{10, 5, 10}, {10, 6, 0}, {11, 0, 0}} {
		require.False(t, v.AtLeast(newer[0], newer[1], newer[2]), "%v", newer)
	}
}

func TestEvidence(t *testing.T) {
	down := map[Evidence]bool{Refused: true, Closed: true, TimedOut: true, WriteFailed: true, Outdated: true}
	seen := map[string]bool{}
	for e := NotAsked; e <= OtherFailure; e++ {
		require.Equal(t, down[e], e.Down(), "%s", e)
		require.NotEmpty(t, e.String())
		require.False(t, seen[e.String()], "two classes called %s", e)
		seen[e.String()] = true
		text, err := e.MarshalText()
		require.NoError(t, err)
		require.Equal(t, e.String(), string(text))
		require.Equal(t, e == Answered, Server{Evidence: e}.Up())
	}
	require.Equal(t, "timed out", Server{Evidence: TimedOut}.Why())
	require.Equal(t, "timed out (read)", Server{Evidence: TimedOut, Detail: "read"}.Why())
}

func TestWritable(t *testing.T) {
	for _, e := range []Evidence{Answered, Refused} {
		for _, ro := range []Tri{Unknown, No, Yes} {
			require.Equal(t, e == Answered && ro == No, Server{Evidence: e, ReadOnly: ro}.Writable())
		}
	}
	require.Equal(t, "unknown no yes yes no", Unknown.String()+" "+No.String()+" "+Yes.String()+" "+TriOf(true).String()+" "+TriOf(false).String())
	require.Equal(t, "[fd00::1]:3306", Replication{Host: "fd00::1", Port: 3306}.Address())
	require.Equal(t, "a: b", Fault{Text: "a", Remedy: "b"}.String())
}
