package gtid

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func pos(t testing.TB, text string) Position {
	t.Helper()
	p, err := ParsePosition(text)
	require.NoError(t, err)
	return p
}

func state(t testing.TB, text string) State {
	t.Helper()
	s, err := ParseState(text)
	require.NoError(t, err)
	return s
}

func gtids(t testing.TB, texts ...string) []GTID {
	t.Helper()
	var list []GTID
	for _, text := range texts {
		g, err := ParseGTID(text)
		require.NoError(t, err)
		list = append(list, g)
	}
	return list
}

func TestParseGTID(t *testing.T) {
	g, err := ParseGTID(" 4294967295-7-18446744073709551615\n")
	require.NoError(t, err)
	require.Equal(t, GTID{Domain: math.MaxUint32, Server: 7, Seq: math.MaxUint64}, g)
	require.Equal(t, "4294967295-7-18446744073709551615", g.String())

	for _, text := range []string{"", "0", "0-1", "0-1-", "0--1", "-1-1", "0-1-2-3", "+0-1-2", "0-1--2",
		"0 -1-2", "0x0-1-2", "1_0-1-2", "0-4294967296-1", "0-1-18446744073709551616", "0-1-2,0-1-3"} {
		_, err := ParseGTID(text)
		require.ErrorIs(t, err, ErrMalformed, "%q", text)
	}
}

func TestParsePosition(t *testing.T) {
	tests := []struct {
		id, text, want, wantErr string
	}{
		{id: "M27 empty", text: "", want: ""},
		{id: "M27 trailing comma", text: "0-1-5,", wantErr: `malformed GTID text: position "0-1-5,": element 2 is empty`},
		{id: "M27 missing part", text: "0-1", wantErr: `malformed GTID text: position "0-1": element 1 "0-1": not of the form domain-server-sequence`},
		{id: "M27 domain too large", text: "4294967296-1-1",
			wantErr: `malformed GTID text: position "4294967296-1-1": element 1 "4294967296-1-1": domain "4294967296" does not fit in 32 bits`},
		{id: "M27 largest sequence", text: "0-1-18446744073709551615", want: "0-1-18446744073709551615"},
		{id: "blank", text: " \n", want: ""},
		{id: "white space", text: " 5-1-2 ,\n0-1-9\t", want: "0-1-9,5-1-2"},
		{id: "leading zeros", text: "00-01-007", want: "0-1-7"},
		{id: "leading comma", text: ",0-1-5", wantErr: "element 1 is empty"},
		{id: "comma only", text: ",", wantErr: "element 1 is empty"},
		{id: "sequence too large", text: "0-1-18446744073709551616", wantErr: "does not fit in 64 bits"},
		{id: "sequence missing", text: "0-1-", wantErr: "sequence number is missing"},
		{id: "server missing", text: "0--1", wantErr: "server id is missing"},
		{id: "not a number", text: "0-a-1", wantErr: `server id "a" is not a decimal number`},
		{id: "duplicate domain", text: "0-1-5,1-1-1,0-2-7", wantErr: "domain 0 comes twice, as 0-1-5 and as 0-2-7"},
		{id: "exact duplicate", text: "0-1-5,0-1-5", wantErr: "domain 0 comes twice"},
	}
	for _, test := range tests {
		t.Run(test.id, func(t *testing.T) {
			p, err := ParsePosition(test.text)
			if test.wantErr != "" {
				require.ErrorIs(t, err, ErrMalformed)
				require.ErrorContains(t, err, test.wantErr)
				require.True(t, p.IsEmpty())
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.want, p.String())
			require.Equal(t, test.want == "", p.IsEmpty())
		})
	}
}

func TestMalformedTextIsBounded(t *testing.T) {
	_, err := ParsePosition(strings.Repeat("x", 1<<20))
	require.ErrorIs(t, err, ErrMalformed)
	require.Less(t, len(err.Error()), 1000)
}

func TestPosition(t *testing.T) {
	p := pos(t, "7-3-4,0-1-10")
	g, found := p.Get(7)
	require.True(t, found)
	require.Equal(t, GTID{7, 3, 4}, g)
	_, found = p.Get(1)
	require.False(t, found)
	require.Equal(t, []uint32{0, 7}, p.Domains())
	require.Equal(t, gtids(t, "0-1-10", "7-3-4"), slices.Collect(p.All()))
	require.Equal(t, "7-3-4", p.Restrict(7, 9).String())
	require.True(t, p.Restrict().IsEmpty())

	made, err := NewPosition(GTID{7, 3, 4}, GTID{0, 1, 10})
	require.NoError(t, err)
	require.True(t, made.Equal(p))
	require.False(t, made.Equal(Position{}))
	_, err = NewPosition(GTID{0, 1, 1}, GTID{0, 2, 2})
	require.ErrorIs(t, err, ErrMalformed)

	var zero Position
	require.True(t, zero.IsEmpty())
	require.Empty(t, zero.String())
	require.Empty(t, zero.Domains())
}

func TestComparePositions(t *testing.T) {
	tests := []struct {
		a, b string
		want Relation
	}{
		{"", "", Equal},
		{"0-1-10", "0-1-10", Equal},
		{"0-1-9", "0-1-10", Behind},
		{"0-1-9", "0-2-10", Behind},
		{"", "0-1-1", Behind},
		{"0-1-10", "0-2-10", Diverged},
		{"0-1-10,1-1-1", "0-1-10", Ahead},
		{"0-1-9,1-1-1", "0-1-10", Diverged},
		{"0-1-10", "1-1-1", Diverged},
		{"0-1-12,1-4-3", "0-1-11,1-4-7", Diverged}, // M21
		{"0-2-11", "0-1-11", Diverged},             // M18
		{"0-1-18446744073709551615", "0-1-18446744073709551614", Ahead},
	}
	mirror := map[Relation]Relation{Equal: Equal, Ahead: Behind, Behind: Ahead, Diverged: Diverged}
	for _, test := range tests {
		a, b := pos(t, test.a), pos(t, test.b)
		require.Equal(t, test.want, ComparePositions(a, b), "%q to %q", test.a, test.b)
		require.Equal(t, mirror[test.want], ComparePositions(b, a), "%q to %q", test.b, test.a)
	}
}

func TestRelationString(t *testing.T) {
	var zero Relation
	require.Equal(t, Unknown, zero)
	for r, want := range []string{"unknown", "equal", "behind", "ahead", "diverged", "unknown"} {
		require.Equal(t, want, Relation(r).String())
	}
}

func FuzzParsePosition(f *testing.F) {
	for _, seed := range []string{"", "0-1-5", "0-1-5,", " 5-1-2 ,\n0-1-9", "0-1-5,0-2-7",
		"4294967295-4294967295-18446744073709551615", "00-01-007", "0-1--1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := ParsePosition(text)
		if err != nil {
			require.ErrorIs(t, err, ErrMalformed)
			return
		}
		again, err := ParsePosition(p.String())
		require.NoError(t, err)
		require.Equal(t, p, again)
		require.Equal(t, p.String(), again.String())
		require.Equal(t, Equal, ComparePositions(p, again))
	})
}
