package locks

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/internal/sqlrows"
)

func table(pairs ...string) sqlrows.Table {
	var t sqlrows.Table
	var row []*string
	for i := 0; i < len(pairs); i += 2 {
		t.Columns = append(t.Columns, pairs[i])
		if pairs[i+1] == "NULL" {
			row = append(row, nil)
		} else {
			row = append(row, &pairs[i+1])
		}
	}
	t.Rows = [][]*string{row}
	return t
}

func TestParseRow(t *testing.T) {
	owners := func(session, server, primary, marker, config string) sqlrows.Row {
		tab := table(colSession, session, colServer, server, colPrimary, primary, colMarker, marker, colConfig, config)
		return tab.Row(0)
	}
	for _, c := range []struct {
		name            string
		row             sqlrows.Row
		server, primary State
		holder          uint64
		peer            Peer
	}{
		{"free", owners("5", "NULL", "NULL", "NULL", "NULL"), Free, Free, 0, PeerUnknown},
		{"own", owners("5", "5", "5", "5", "5"), Self, Self, 5, PeerUnknown},
		{"own vote only", owners("5", "5", "NULL", "5", "5"), Self, Free, 5, PeerUnknown},
		{"same configuration", owners("5", "9", "9", "9", "9"), Other, Other, 9, PeerAgrees},
		{"another configuration", owners("5", "9", "NULL", "9", "NULL"), Other, Free, 9, PeerDisagrees},
		{"configuration lock of a third", owners("5", "9", "NULL", "9", "8"), Other, Free, 9, PeerDisagrees},
		{"a MaxScale", owners("5", "9", "9", "NULL", "NULL"), Other, Other, 9, PeerNoLockstep},
		{"a MaxScale beside leftovers", owners("5", "9", "9", "8", "8"), Other, Other, 9, PeerNoLockstep},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := ParseRow("s1", 5, c.row)
			require.NoError(t, err)
			require.Equal(t, "s1", r.Server)
			require.Equal(t, uint64(5), r.Session)
			require.True(t, r.Answered)
			require.Equal(t, c.server, r.ServerLock.State)
			require.Equal(t, c.primary, r.PrimaryLock.State)
			require.Equal(t, c.holder, r.ServerLock.Holder.ConnectionID)
			require.Equal(t, c.peer, r.Peer)
			require.False(t, r.Published(), "a holder that was not looked up is not trusted")
		})
	}
	_, err := ParseRow("s1", 5, owners("6", "6", "NULL", "6", "6"))
	require.ErrorIs(t, err, ErrSessionChanged)
	_, err = ParseRow("s1", 5, owners("NULL", "NULL", "NULL", "NULL", "NULL"))
	require.ErrorContains(t, err, "connection id")
	_, err = ParseRow("s1", 5, owners("5", "x", "NULL", "NULL", "NULL"))
	require.ErrorContains(t, err, "lock holder")
	_, err = ParseRow("s1", 5, sqlrows.Row{})
	require.Error(t, err)
}

// answers is a Querier with a prepared answer.
type answers struct {
	got    []string
	tables []sqlrows.Table
	err    error
}

func (a *answers) Query(_ context.Context, query string) ([]sqlrows.Table, error) {
	a.got = append(a.got, query)
	return a.tables, a.err
}

func TestTake(t *testing.T) {
	n, err := NewNames("", "", agreement())
	require.NoError(t, err)
	const w = 8 * time.Second
	reply := func(got, session, wait string) *answers {
		return &answers{tables: []sqlrows.Table{table("got", got, "session", session, "wait_timeout", wait), table("IF(...)", "1")}}
	}

	q := reply("1", "5", "8")
	ok, err := TakeServerLock(t.Context(), q, n, 5, w)
	require.NoError(t, err)
	require.True(t, ok)
	require.Len(t, q.got, 1, "one round trip")
	stmt := q.got[0]
	order := []string{"SET SESSION wait_timeout=8", "GET_LOCK('" + n.Server + "',0)", "GET_LOCK('" + n.Marker + "',0)", "GET_LOCK('" + n.Config + "',0)"}
	for i, part := range order {
		require.Contains(t, stmt, part)
		if i > 0 {
			require.Greater(t, strings.Index(stmt, part), strings.Index(stmt, order[i-1]), "in order: %s", stmt)
		}
	}

	q = reply("0", "5", "8")
	ok, err = TakePrimaryLock(t.Context(), q, n, 5, w)
	require.NoError(t, err)
	require.False(t, ok)
	require.Contains(t, q.got[0], "GET_LOCK('"+n.Primary+"',0)")
	require.NotContains(t, q.got[0], n.Marker)

	_, err = TakeServerLock(t.Context(), reply("1", "6", "8"), n, 5, w)
	require.ErrorIs(t, err, ErrSessionChanged)
	_, err = TakeServerLock(t.Context(), reply("1", "5", "28800"), n, 5, w)
	require.ErrorIs(t, err, ErrWaitTimeout)
	require.ErrorContains(t, err, "8s")
	_, err = TakeServerLock(t.Context(), reply("NULL", "5", "8"), n, 5, w)
	require.ErrorContains(t, err, "NULL")
	_, err = TakeServerLock(t.Context(), &answers{}, n, 5, w)
	require.Error(t, err, "no answer is not a lock")
	broken := errors.New("broken pipe")
	_, err = TakeServerLock(t.Context(), &answers{err: broken}, n, 5, w)
	require.ErrorIs(t, err, broken)
}

func TestStatementTexts(t *testing.T) {
	n, err := NewNames("vote", "here", agreement())
	require.NoError(t, err)
	require.Equal(t, "SET SESSION wait_timeout=8", SetWaitTimeout(8*time.Second))
	require.Equal(t, "SET SESSION wait_timeout=8", SetWaitTimeout(7001*time.Millisecond), "whole seconds, rounded up")
	require.Equal(t, "DO RELEASE_LOCK('here')", n.ReleasePrimary())
	all := n.ReleaseAll()
	require.Equal(t, 4, strings.Count(all, "RELEASE_LOCK("))
	require.Less(t, strings.Index(all, "'here'"), strings.Index(all, "'vote'"), "the publication goes before the vote")
	cols := strings.Join(n.ProbeColumns(), ", ")
	for _, name := range []string{n.Server, n.Primary, n.Marker, n.Config} {
		require.Contains(t, cols, "IS_USED_LOCK('"+name+"')")
	}
	require.Contains(t, cols, "CONNECTION_ID()")
}
