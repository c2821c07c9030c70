package gtid

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseState(t *testing.T) {
	tests := []struct {
		id, text, want, position, wantErr string
	}{
		{id: "empty", text: ""},
		{id: "one", text: "0-1-10", want: "0-1-10", position: "0-1-10"},
		{id: "M26 first order", text: "0-1-5,0-2-7", want: "0-1-5,0-2-7", position: "0-2-7"},
		{id: "M26 second order", text: "0-2-7,0-1-5", want: "0-2-7,0-1-5", position: "0-1-5"},
		{id: "M28", text: "0-2-4,0-1-5", want: "0-2-4,0-1-5", position: "0-1-5"},
		{id: "mixed domains", text: "9-3-1, 0-3-8,9-1-2,0-1-9 ,0-2-7", want: "0-1-9,0-3-8,0-2-7,9-3-1,9-1-2", position: "0-2-7,9-1-2"},
		{id: "duplicate pair", text: "0-1-5,0-2-7,0-1-6", wantErr: "server 1 comes twice in domain 0"},
		{id: "trailing comma", text: "0-1-5,", wantErr: "element 2 is empty"},
		{id: "missing part", text: "0-1", wantErr: "not of the form domain-server-sequence"},
	}
	for _, test := range tests {
		t.Run(test.id, func(t *testing.T) {
			s, err := ParseState(test.text)
			if test.wantErr != "" {
				require.ErrorIs(t, err, ErrMalformed)
				require.ErrorContains(t, err, test.wantErr)
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.want, s.String())
			require.Equal(t, test.position, s.Position().String())
			require.Equal(t, test.text == "", s.IsEmpty())
		})
	}
}

func TestState(t *testing.T) {
	s := state(t, "0-3-12,0-1-10,0-2-11,9-4-1")
	g, found := s.Get(0, 3)
	require.True(t, found)
	require.Equal(t, GTID{0, 3, 12}, g)
	_, found = s.Get(0, 4)
	require.False(t, found)
	_, found = s.Get(1, 1)
	require.False(t, found)

	g, found = s.Last(0)
	require.True(t, found)
	require.Equal(t, GTID{0, 2, 11}, g)
	_, found = s.Last(1)
	require.False(t, found)

	require.Equal(t, []uint32{0, 9}, s.Domains())
	require.Equal(t, gtids(t, "0-1-10", "0-3-12", "0-2-11", "9-4-1"), slices.Collect(s.All()))
	require.True(t, s.Contains(GTID{0, 3, 12}))
	require.False(t, s.Contains(GTID{0, 3, 13}))

	made, err := NewState(gtids(t, "0-1-10", "9-4-1", "0-3-12", "0-2-11")...)
	require.NoError(t, err)
	require.True(t, made.Equal(s))
	require.False(t, made.Equal(state(t, "0-1-10,0-2-11,0-3-12,9-4-1")), "another one was logged last")
	_, err = NewState(GTID{0, 1, 1}, GTID{0, 1, 2})
	require.ErrorIs(t, err, ErrMalformed)
}

func TestConstructorsKeepTheirHandsOffArguments(t *testing.T) {
	list := gtids(t, "9-1-1", "0-2-2", "0-1-1")
	_, err := NewState(list...)
	require.NoError(t, err)
	require.Equal(t, gtids(t, "9-1-1", "0-2-2", "0-1-1"), list)
	list = gtids(t, "9-1-1", "0-2-2")
	p, err := NewPosition(list...)
	require.NoError(t, err)
	list[0].Seq = 77
	require.Equal(t, "0-2-2,9-1-1", p.String())
}

func TestCovers(t *testing.T) {
	s := state(t, "0-1-10,0-2-12,9-1-5")
	for text, want := range map[string]bool{
		"":              true,
		"0-1-10":        true,
		"0-1-11":        false,
		"0-3-1":         false,
		"0-2-12,9-1-5":  true,
		"0-2-12,9-1-6":  false,
		"0-2-12,10-1-1": false,
	} {
		require.Equal(t, want, Covers(s, pos(t, text)), text)
	}
}

func TestCompareStates(t *testing.T) {
	tests := []struct {
		id, a, b string
		want     Relation
	}{
		{"empty", "", "", Equal},
		{"M26", "0-1-5,0-2-7", "0-2-7,0-1-5", Equal},
		{"behind", "0-1-9", "0-1-10", Behind},
		{"ahead", "0-1-10,0-2-12", "0-1-10", Ahead},
		{"M5 lost tail", "0-1-11", "0-1-10,0-2-12", Diverged},
		{"M18 same number", "0-1-11", "0-2-11", Diverged},
		{"M28", "0-2-4,0-1-5", "0-1-5", Ahead},
	}
	for _, test := range tests {
		require.Equal(t, test.want, CompareStates(state(t, test.a), state(t, test.b)), test.id)
	}
	a, b := state(t, "0-1-5,0-2-7"), state(t, "0-2-7,0-1-5")
	require.False(t, a.Position().Equal(b.Position()), "M26: not the same one logged last")
}

func TestErrant(t *testing.T) {
	tests := []struct {
		id, replica, primary string
		want                 []GTID
	}{
		{"M9", "0-1-10,9-2-1", "0-1-10", gtids(t, "9-2-1")},
		{"M23", "0-1-7,0-2-8", "0-1-7", gtids(t, "0-2-8")},
		{"M24", "0-1-7,0-2-5", "0-1-9,0-2-5", nil},
		{"M28", "0-2-4,0-1-5", "0-1-5", gtids(t, "0-2-4")},
		{"log_slave_updates off", "0-2-8", "0-1-7", gtids(t, "0-2-8")},
		{"ordered", "9-1-1,0-3-2,0-2-3", "", gtids(t, "0-2-3", "0-3-2", "9-1-1")},
		{"empty replica", "", "0-1-7", nil},
	}
	for _, test := range tests {
		t.Run(test.id, func(t *testing.T) {
			require.Equal(t, test.want, Errant(state(t, test.replica), state(t, test.primary)))
		})
	}
	t.Run("M28 is invisible to positions", func(t *testing.T) {
		require.Equal(t, Equal, ComparePositions(state(t, "0-2-4,0-1-5").Position(), state(t, "0-1-5").Position()))
	})
}

func FuzzParseState(f *testing.F) {
	for _, seed := range []string{"", "0-1-5,0-2-7", "0-2-7,0-1-5", "9-3-1, 0-3-8,9-1-2,0-1-9 ,0-2-7", "0-1-5,0-1-5", "0-1-5,"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseState(text)
		if err != nil {
			require.ErrorIs(t, err, ErrMalformed)
			return
		}
		again, err := ParseState(s.String())
		require.NoError(t, err)
		require.Equal(t, s, again)
		require.Equal(t, s.String(), again.String())
		require.Equal(t, Equal, CompareStates(s, again))
		require.True(t, Covers(s, s.Position()))
		// What a text says a position is, the state of it can replicate to itself.
		require.True(t, CanReplicate(Upstream{State: s, OldestKnown: true}, s.Position()).OK)
	})
}
