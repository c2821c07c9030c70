package gtid

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCanReplicateMySQL(t *testing.T) {
	const none = ""
	tests := []struct {
		id, source, executed, purged, have string
		serverRefuses                      bool
		want                               []ProblemKind
		about                              string // of the only problem
		errant                             string
	}{
		{id: "Y1", executed: "u:1-10", have: "u:1-10"},
		{id: "Y2", executed: "u:1-10", have: "u:1-7"},
		{id: "Y3", executed: "u:1-10", purged: "u:1-5", have: "u:1-5"},
		{id: "Y4", executed: "u:1-10", purged: "u:1-5", have: "u:1-4",
			serverRefuses: true, want: []ProblemKind{Purged}, about: "u:5"},
		{id: "Y5", source: uText, executed: "u:1-10", have: "u:1-11",
			serverRefuses: true, want: []ProblemKind{MoreThanSource}, about: "u:11", errant: "u:11"},
		{id: "Y6", source: uText, executed: "u:1-10", have: "u:1-10,v:1", errant: "v:1"},
		{id: "Y7", source: vText, executed: "u:1-10,v:1-5", have: "u:1-12", errant: "u:11-12"},
		{id: "Y8", source: vText, executed: "u:1-10,v:1-5", have: "u:1-10"},
		{id: "Y10", executed: "u:1-10", purged: "u:1-10", have: none,
			serverRefuses: true, want: []ProblemKind{Purged}, about: "u:1-10"},
		{id: "Y11", source: vText, executed: none, have: "u:1-10",
			want: []ProblemKind{UpstreamEmpty}, about: "u:1-10", errant: "u:1-10"},
		{id: "Y12", executed: "u:1-10:t:1-3", have: "u:1-10"},
		{id: "Y13", source: vText, executed: "u:1-10", have: "u:1-10:t:1", errant: "u:t:1"},
		{id: "Y13 with the tag under the source's own UUID", source: uText, executed: "u:1-10", have: "u:1-10:t:1",
			serverRefuses: true, want: []ProblemKind{MoreThanSource}, about: "u:t:1", errant: "u:t:1"},
		{id: "Y14", source: uText, executed: "u:T1:1-3", have: "u:t1:1-3"},
		{id: "Y15", source: vText, executed: "u:1-5:7", have: "u:1-7", errant: "u:6"},
		{id: "Y16", source: uText, executed: "u:1-5,\nv:1-3", have: "v:1-3,u:1-5"},
		{id: "Y17", source: uText, executed: "u:1-5:3-8", have: "u:1-8"},
		{id: "both empty", source: uText},
		{id: "new replica, all binlogs there", source: uText, executed: "u:1-10"},
		{id: "UUID not known", executed: "u:1-10", have: "u:1-11", errant: "u:11"},
	}
	for _, test := range tests {
		t.Run(test.id, func(t *testing.T) {
			source := MySQLSource{Executed: set(t, test.executed), Purged: set(t, test.purged)}
			if test.source != "" {
				source.UUID = uuid(t, test.source)
			}
			v := CanReplicateMySQL(source, set(t, test.have))
			require.Equal(t, len(test.want) == 0, v.OK, v)
			require.Equal(t, !test.serverRefuses, v.ServerAccepts(), v)
			require.Equal(t, expand(test.errant), v.Errant.String())
			var kinds []ProblemKind
			for _, p := range v.Problems {
				kinds = append(kinds, p.Kind)
				require.Equal(t, expand(test.about), p.Set.String())
				require.Contains(t, v.String(), p.Text)
			}
			require.Equal(t, test.want, kinds)
		})
	}
}

func TestMySQLVerdictString(t *testing.T) {
	source := MySQLSource{UUID: uuid(t, uText), Executed: set(t, "u:1-10"), Purged: set(t, "u:1-5")}
	require.Equal(t, "ok", CanReplicateMySQL(source, set(t, "u:1-10")).String())
	require.Equal(t, "ok; errant: "+vText+":1", CanReplicateMySQL(source, set(t, "u:1-10,v:1")).String())
	require.Equal(t, "the source has purged "+uText+":5, which the replica lacks; "+
		"the replica has "+uText+":11, which the source lacks though it bears its UUID; errant: "+uText+":11",
		CanReplicateMySQL(source, set(t, "u:1-4:6-11")).String())
}

func TestMostAdvancedMySQL(t *testing.T) {
	progress := func(retrieved, executed string) MySQLProgress {
		return MySQLProgress{Retrieved: set(t, retrieved), Executed: set(t, executed)}
	}
	tests := []struct {
		id         string
		candidates []MySQLProgress
		uuids      []UUID
		want       Choice
	}{
		{"Y18", []MySQLProgress{progress("", "u:1-12"), progress("", "u:1-10")}, nil, Choice{OK: true, Best: []int{0}}},
		{"Y20", []MySQLProgress{progress("u:9-12", "u:1-8"), progress("", "u:1-10")}, nil, Choice{OK: true, Best: []int{0}}},
		{"same, more executed", []MySQLProgress{progress("u:9-12", "u:1-8"), progress("u:9-12", "u:1-12")}, nil,
			Choice{OK: true, Best: []int{1}}},
		{"tie", []MySQLProgress{progress("", "u:1-12"), progress("", "u:1-12")}, nil, Choice{OK: true, Best: []int{0, 1}}},
		{"errant", []MySQLProgress{progress("", "u:1-12"), progress("", "u:1-10,v:1-50")}, nil, Choice{Best: []int{0, 1}}},
		{"errant, by UUID", []MySQLProgress{progress("", "u:1-12"), progress("", "u:1-10,v:1-50")}, []UUID{uuid(t, uText)},
			Choice{OK: true, Best: []int{0}, ByPreference: true}},
		{"none", nil, nil, Choice{}},
	}
	for _, test := range tests {
		t.Run(test.id, func(t *testing.T) {
			require.Equal(t, test.want, MostAdvancedMySQL(test.candidates, test.uuids...))
		})
	}
	require.Equal(t, expand("u:9-12"), progress("u:5-12", "u:1-8").Backlog().String(), "Y20: what the applier has to do")
	require.Equal(t, expand("u:1-12"), progress("u:9-12", "u:1-8").Have().String())
}
