package gtid

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// unread stands for an oldest binlog position that was not read.
const unread = "unread"

func upstream(t testing.TB, history, slavePos, oldest string) Upstream {
	t.Helper()
	up := Upstream{State: state(t, history), SlavePos: pos(t, slavePos)}
	if oldest != unread {
		up.Oldest, up.OldestKnown = pos(t, oldest), true
	}
	return up
}

func TestCanReplicate(t *testing.T) {
	tests := []struct {
		id, state, slavePos, pos, oldest string
		serverRefuses                    bool
		want                             []ProblemKind
		about                            []GTID // of the problems
		ignored                          []GTID
	}{
		{id: "M1", state: "0-1-10", pos: "0-1-10", oldest: "0-1-10"},
		{id: "M2", state: "0-1-10", pos: "0-1-9", oldest: "0-1-10",
			serverRefuses: true, want: []ProblemKind{Purged}, about: gtids(t, "0-1-10")},
		{id: "M3", state: "0-1-10", pos: "0-1-9", oldest: ""},
		{id: "M4", state: "0-1-10", pos: "0-1-11", oldest: unread,
			serverRefuses: true, want: []ProblemKind{NotInBinlog}, about: gtids(t, "0-1-11")},
		{id: "M5", state: "0-1-10,0-2-12", pos: "0-1-11", oldest: unread,
			serverRefuses: true, want: []ProblemKind{DivergedHistory}, about: gtids(t, "0-1-11")},
		{id: "M6", state: "0-1-10,0-2-12", pos: "0-3-11", oldest: unread,
			serverRefuses: true, want: []ProblemKind{DivergedHistory}, about: gtids(t, "0-3-11")},
		{id: "M7", state: "0-1-10,0-2-12", pos: "0-2-12", oldest: unread},
		{id: "M8", state: "0-1-10,0-2-12", pos: "0-1-10", oldest: ""},
		{id: "M9", state: "0-1-10", pos: "0-1-10,9-2-1", oldest: unread, ignored: gtids(t, "9-2-1")},
		{id: "M10", state: "0-1-10,9-1-5", pos: "0-1-10,9-2-3", oldest: unread,
			serverRefuses: true, want: []ProblemKind{DivergedHistory}, about: gtids(t, "9-2-3")},
		{id: "M11", state: "", pos: "0-1-10", oldest: unread,
			want: []ProblemKind{UpstreamEmpty}, about: gtids(t, "0-1-10"), ignored: gtids(t, "0-1-10")},
		{id: "M12", state: "", slavePos: "0-1-10", pos: "0-1-10", oldest: unread},
		{id: "M14", state: "0-1-10", pos: "", oldest: "0-1-10",
			serverRefuses: true, want: []ProblemKind{Purged}, about: gtids(t, "0-1-10")},
		{id: "M15", state: "0-1-3,0-2-6", pos: "0-1-5", oldest: "",
			serverRefuses: true, want: []ProblemKind{DivergedHistory}, about: gtids(t, "0-1-5")},
		{id: "M16", state: "0-1-3,9-2-1", pos: "0-1-3", oldest: "0-1-3,9-2-1",
			serverRefuses: true, want: []ProblemKind{Purged}, about: gtids(t, "9-2-1")},
		{id: "M18", state: "0-2-11", pos: "0-1-11", oldest: unread,
			serverRefuses: true, want: []ProblemKind{DivergedHistory}, about: gtids(t, "0-1-11")},

		{id: "nothing anywhere", oldest: ""},
		{id: "new replica, all binlogs there", state: "0-1-10", oldest: ""},
		{id: "reset upstream that wrote in another domain", state: "5-1-1", pos: "0-1-10", oldest: "",
			want: []ProblemKind{UpstreamEmpty}, about: gtids(t, "0-1-10"), ignored: gtids(t, "0-1-10")},
		{id: "upstream stands there, with its own writes lower", state: "0-2-4", slavePos: "0-1-10", pos: "0-1-10", oldest: ""},
		{id: "upstream does not log, replica behind", slavePos: "0-1-10", pos: "0-1-9", oldest: "",
			want: []ProblemKind{UpstreamEmpty}, about: gtids(t, "0-1-9"), ignored: gtids(t, "0-1-9")},
		{id: "upstream does not log, replica has nothing", slavePos: "0-1-10", oldest: "",
			want: []ProblemKind{NotLogged}, about: gtids(t, "0-1-10")},
		{id: "upstream logs only its own, replica at that", state: "0-2-8", slavePos: "0-1-10", pos: "0-2-8", oldest: "",
			want: []ProblemKind{NotLogged}, about: gtids(t, "0-1-10")},
		{id: "upstream promoted after not logging, replica behind it", state: "0-2-15", slavePos: "0-1-10", pos: "0-2-12", oldest: ""},
		{id: "upstream promoted after not logging, replica without a start", state: "0-2-15", slavePos: "0-1-10", oldest: "",
			want: []ProblemKind{NotLogged}, about: gtids(t, "0-1-10")},
		{id: "one domain logged and another not", state: "0-1-3", slavePos: "9-2-4", pos: "0-1-3,9-2-3", oldest: "",
			want: []ProblemKind{NotLogged}, about: gtids(t, "9-2-4"), ignored: gtids(t, "9-2-3")},
		{id: "purged and diverged in one domain", state: "0-1-10,0-2-12", pos: "0-1-11", oldest: "0-2-12",
			serverRefuses: true, want: []ProblemKind{DivergedHistory}, about: gtids(t, "0-1-11")},
		{id: "same number by another server at the purge point", state: "0-1-10,0-2-10", pos: "0-1-10", oldest: "0-2-10",
			serverRefuses: true, want: []ProblemKind{Purged}, about: gtids(t, "0-2-10")},
		{id: "several, by domain", state: "0-1-10,3-1-5,9-1-5", pos: "0-1-9,3-1-6,9-2-3", oldest: "0-1-10",
			serverRefuses: true, want: []ProblemKind{Purged, NotInBinlog, DivergedHistory}, about: gtids(t, "0-1-10", "3-1-6", "9-2-3")},
	}
	for _, test := range tests {
		t.Run(test.id, func(t *testing.T) {
			v := CanReplicate(upstream(t, test.state, test.slavePos, test.oldest), pos(t, test.pos))
			require.Equal(t, len(test.want) == 0, v.OK, v)
			require.Equal(t, !test.serverRefuses, v.ServerAccepts(), v)
			require.Equal(t, test.oldest != unread, v.PurgeChecked)
			require.Equal(t, test.ignored, v.Ignored)
			var kinds []ProblemKind
			var about []GTID
			for _, p := range v.Problems {
				kinds, about = append(kinds, p.Kind), append(about, p.GTID)
				require.Contains(t, v.String(), p.Text)
				require.Contains(t, p.Text, p.GTID.String())
			}
			require.Equal(t, test.want, kinds)
			require.Equal(t, test.about, about)
			if v.OK {
				require.Equal(t, "ok", v.String())
			}
		})
	}
}

func TestDivergent(t *testing.T) {
	tests := []struct {
		id                   string
		a, b                 Upstream
		positionA, positionB string
		want                 bool
	}{
		{"equal", upstream(t, "0-1-10", "", ""), upstream(t, "0-1-10", "0-1-10", ""), "0-1-10", "0-1-10", false},
		{"lag", upstream(t, "0-1-10", "", ""), upstream(t, "0-1-9", "0-1-9", ""), "0-1-10", "0-1-9", false},
		{"lag and purged", upstream(t, "0-1-10", "", "0-1-10"), upstream(t, "0-1-9", "0-1-9", ""), "0-1-10", "0-1-9", false},
		{"M5 lost tail", upstream(t, "0-1-10,0-2-12", "", ""), upstream(t, "0-1-11", "", ""), "0-2-12", "0-1-11", true},
		{"M15", upstream(t, "0-1-3,0-2-6", "", ""), upstream(t, "0-1-5", "", ""), "0-2-6", "0-1-5", true},
		{"M18 same number", upstream(t, "0-2-11", "", ""), upstream(t, "0-1-11", "", ""), "0-2-11", "0-1-11", true},
		{"M8 old primary without tail", upstream(t, "0-1-10,0-2-12", "", ""), upstream(t, "0-1-10", "", ""), "0-2-12", "0-1-10", false},
		{"M11 reset upstream", upstream(t, "", "", ""), upstream(t, "0-1-10", "", ""), "", "0-1-10", false},
	}
	for _, test := range tests {
		t.Run(test.id, func(t *testing.T) {
			positionA, positionB := pos(t, test.positionA), pos(t, test.positionB)
			require.Equal(t, test.want, Divergent(test.a, test.b, positionA, positionB))
			require.Equal(t, test.want, Divergent(test.b, test.a, positionB, positionA))
		})
	}
}

func TestBacklog(t *testing.T) {
	tests := []struct {
		id, received, applied string
		want                  uint64
	}{
		{"M22", "0-1-12,5-1-2", "0-1-9,5-1-4", 3},
		{"M19 R1", "0-1-12", "0-1-8", 4},
		{"drained", "0-1-12", "0-1-12", 0},
		{"nothing", "", "0-1-12", 0},
		{"domain not begun", "0-1-12,5-1-2", "0-1-12", 2},
		{"across servers", "0-2-14", "0-1-12", 2},
		{"same number by another server", "0-1-12", "0-2-12", 1},
		{"too many", "0-1-18446744073709551615,1-1-2", "", 18446744073709551615},
	}
	for _, test := range tests {
		require.Equal(t, test.want, Backlog(pos(t, test.received), pos(t, test.applied)), test.id)
	}
}

func TestMostAdvanced(t *testing.T) {
	progress := func(received, applied string) Progress {
		return Progress{Received: pos(t, received), Applied: pos(t, applied)}
	}
	tests := []struct {
		id         string
		candidates []Progress
		domains    []uint32
		want       Choice
	}{
		{"M19", []Progress{progress("0-1-12", "0-1-8"), progress("0-1-10", "0-1-10")}, nil, Choice{OK: true, Best: []int{0}}},
		{"M20", []Progress{progress("0-1-12", "0-1-12"), progress("0-1-12", "0-1-9")}, nil, Choice{OK: true, Best: []int{0}}},
		{"M21", []Progress{progress("0-1-12,1-4-3", ""), progress("0-1-11,1-4-7", "")}, nil, Choice{Best: []int{0, 1}}},
		{"M21 by domain", []Progress{progress("0-1-12,1-4-3", ""), progress("0-1-11,1-4-7", "")}, []uint32{0},
			Choice{OK: true, Best: []int{0}, ByPreference: true}},
		{"M21 by the other domain", []Progress{progress("0-1-12,1-4-3", ""), progress("0-1-11,1-4-7", "")}, []uint32{1},
			Choice{OK: true, Best: []int{1}, ByPreference: true}},
		{"preference not needed", []Progress{progress("0-1-11", ""), progress("0-1-11,1-4-7", "")}, []uint32{0},
			Choice{OK: true, Best: []int{1}}},
		{"preference narrows, the rest decides", []Progress{progress("0-1-11,1-4-9", ""), progress("0-1-12,1-4-3", ""), progress("0-1-12,1-4-7", "")},
			[]uint32{0}, Choice{OK: true, Best: []int{2}, ByPreference: true}},
		{"preferred domain diverged", []Progress{progress("0-1-12,1-4-9", ""), progress("0-2-12", "")}, []uint32{0}, Choice{Best: []int{0, 1}}},
		{"tie", []Progress{progress("0-1-12", "0-1-9"), progress("0-1-3", "0-1-3"), progress("0-1-12", "0-1-9")}, nil,
			Choice{OK: true, Best: []int{0, 2}}},
		{"nothing received since a restart", []Progress{progress("0-1-12", "0-1-8"), progress("", "0-1-20")}, nil,
			Choice{OK: true, Best: []int{1}}},
		{"one", []Progress{progress("", "")}, nil, Choice{OK: true, Best: []int{0}}},
		{"none", nil, []uint32{0}, Choice{}},
	}
	for _, test := range tests {
		t.Run(test.id, func(t *testing.T) {
			require.Equal(t, test.want, MostAdvanced(test.candidates, test.domains...))
		})
	}
}

func TestProgressHave(t *testing.T) {
	p := Progress{Received: pos(t, "0-1-12,5-1-2,7-1-1"), Applied: pos(t, "0-1-9,5-1-4,6-1-1")}
	require.Equal(t, "0-1-12,5-1-4,6-1-1,7-1-1", p.Have().String())
	require.Equal(t, "0-1-9,5-1-4,6-1-1", p.Applied.String())
}

func TestProblemKind(t *testing.T) {
	require.Equal(t, "unknown", ProblemKind(0).String())
	require.False(t, ProblemKind(0).RefusedByServer())
	for kind, refused := range map[ProblemKind]bool{DivergedHistory: true, NotInBinlog: true, Purged: true,
		MoreThanSource: true, UpstreamEmpty: false, NotLogged: false} {
		require.Equal(t, refused, kind.RefusedByServer(), kind)
		require.NotEqual(t, "unknown", kind.String())
	}
}
