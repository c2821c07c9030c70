package routing

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/topology/gtid"
)

const (
	uuidU = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
	uuidV = "4e11fa47-71ca-11e1-9e33-c80aa9429562"
)

func mariaToken(t testing.TB, position string) Token {
	t.Helper()
	tok, err := MariaDBToken(position)
	require.NoError(t, err)
	return tok
}

func TestTokenText(t *testing.T) {
	my, err := MySQLToken(uuidU+":1-7:tag:1-3,\n"+uuidV+":1-9", uuidU)
	require.NoError(t, err)
	for text, tok := range map[string]Token{
		"":                            {},
		"m:0-1-105":                   mariaToken(t, "0-1-105"),
		"m:0-1-105/3-2-7":             mariaToken(t, "3-2-7,0-1-105"),
		"y:" + uuidU + ":1-7:tag:1-3": my,
		"m:4294967295-4294967295-18446744073709551615": mariaToken(t, "4294967295-4294967295-18446744073709551615"),
	} {
		require.Equal(t, text, tok.String())
		back, err := ParseToken(text)
		require.NoError(t, err, text)
		require.True(t, tok.Equal(back), text)
		require.Equal(t, text == "", back.IsEmpty())
		// A cookie carries it unchanged.
		c := http.Cookie{Name: "token", Value: text}
		require.NoError(t, c.Valid())
		require.Equal(t, "token="+text, c.String())
	}
	empty, err := MariaDBToken("")
	require.NoError(t, err)
	require.True(t, empty.IsEmpty())
	other, err := MySQLToken(uuidV+":1-9", uuidU)
	require.NoError(t, err)
	require.True(t, other.IsEmpty(), "nothing written by this server")
	_, err = MySQLToken(uuidV+":1-9", "x")
	require.ErrorIs(t, err, ErrToken)
	_, err = MySQLToken("x", uuidU)
	require.ErrorIs(t, err, ErrToken)
	_, err = MariaDBToken("0-1")
	require.ErrorIs(t, err, ErrToken)
}

func TestTokenRefused(t *testing.T) {
	for _, text := range []string{
		"0-1-105", "m:", "m", "y:", "x:0-1-1", "m:0-1", "m:0-1-1,1-1-1", "m:0-1-1/", "m:0-1-1//1-1-1", "m:0-1-1/0-2-2", "m:1-1-1/0-1-1",
		"m: 0-1-1", "m:0-1-1 ", "m:00-1-1", "m:0-1--1", "m:0-1-18446744073709551616", "M:0-1-1", "m:0-1-1\n", "m:0-1-1;DROP",
		"y:" + uuidU, "y:" + uuidU + ":0", "y:" + uuidU + ":2-1", "y:" + strings.ToUpper(uuidU) + ":1", "y:" + uuidU + ":1-2:3",
		"m:" + strings.Repeat("1", MaxTokenLength), "m:0-1-" + strings.Repeat("0", 300) + "1",
		"m:0-1-1/1-1-1/2-1-1/3-1-1/4-1-1/5-1-1/6-1-1/7-1-1/8-1-1/9-1-1/10-1-1/11-1-1/12-1-1/13-1-1/14-1-1/15-1-1/16-1-1",
		"y:" + uuidU + ":1" + manyIntervals(), "\x00", "m:\xff",
	} {
		tok, err := ParseToken(text)
		require.ErrorIs(t, err, ErrToken, "%q", text)
		require.True(t, tok.IsEmpty())
	}
}

func manyIntervals() string {
	var b strings.Builder
	for i := range maxTokenIntervals {
		fmt.Fprintf(&b, ":%d", 2*i+3)
	}
	return b.String()
}

func TestTokenMerge(t *testing.T) {
	a, b := mariaToken(t, "0-1-5,1-1-9"), mariaToken(t, "0-2-7,2-1-1")
	require.Equal(t, "m:0-2-7/1-1-9/2-1-1", a.Merge(b).String())
	require.Equal(t, a.Merge(b), b.Merge(a))
	require.Equal(t, a, a.Merge(Token{}))
	require.Equal(t, a, Token{}.Merge(a))
	require.Equal(t, "m:0-2-5", mariaToken(t, "0-1-5").Merge(mariaToken(t, "0-2-5")).String(), "the newer one wins a tie")
	y1, err := MySQLToken(uuidU+":1-5", uuidU)
	require.NoError(t, err)
	y2, err := MySQLToken(uuidV+":1-3", uuidV)
	require.NoError(t, err)
	require.Equal(t, "y:"+uuidU+":1-5/"+uuidV+":1-3", y1.Merge(y2).String())
	require.Equal(t, y1, a.Merge(y1), "flavours do not mix")
}

func TestTokenReached(t *testing.T) {
	at := func(s string) gtid.Position {
		p, err := gtid.ParsePosition(s)
		require.NoError(t, err)
		return p
	}
	tok := mariaToken(t, "0-1-105")
	require.True(t, tok.reachedBy(at("0-1-105"), 2))
	require.True(t, tok.reachedBy(at("0-3-200,1-1-1"), 2))
	require.False(t, tok.reachedBy(at("0-1-104"), 2))
	require.False(t, tok.reachedBy(at("1-1-900"), 2))
	require.False(t, tok.reachedBy(at("0-2-200"), 2), "what it wrote by itself says nothing")
	require.True(t, mariaToken(t, "0-2-200").reachedBy(at("0-2-200"), 2), "unless that is what is asked for")
	require.True(t, Token{}.reachedBy(gtid.Position{}, 1))
	y, err := MySQLToken(uuidU+":1-5", uuidU)
	require.NoError(t, err)
	require.False(t, y.reachedBy(at("0-1-105"), 2))
}

func TestTokenSignature(t *testing.T) {
	key := []byte("0123456789abcdef")
	text := "m:0-1-105"
	signed := sign(text, key)
	c := http.Cookie{Name: "t", Value: signed}
	require.NoError(t, c.Valid())
	back, err := unsign(signed, key)
	require.NoError(t, err)
	require.Equal(t, text, back)
	for _, bad := range []string{text, signed + "x", signed[:len(signed)-1], strings.Replace(signed, "105", "106", 1), "." + signed, sign(text, []byte("other"))} {
		_, err := unsign(bad, key)
		require.ErrorIs(t, err, ErrToken, bad)
	}
	require.Empty(t, sign("", key))
	back, err = unsign("", key)
	require.NoError(t, err)
	require.Empty(t, back)
}

// TestWaitStatements are sent as they stand: whatever is in a token, the statement is
// one of two forms. The one for MySQL was never sent to a server.
func TestWaitStatements(t *testing.T) {
	require.Equal(t, "SELECT MASTER_GTID_WAIT('0-1-105,3-2-7',0.250)", waitStatement(mariaToken(t, "0-1-105,3-2-7"), 250*time.Millisecond))
	y, err := ParseToken("y:" + uuidU + ":1-7")
	require.NoError(t, err)
	require.Equal(t, "SELECT WAIT_FOR_EXECUTED_GTID_SET('"+uuidU+":1-7',1.000)", waitStatement(y, time.Second))
}

func FuzzParseToken(f *testing.F) {
	for _, s := range []string{"", "m:0-1-105", "m:0-1-105/3-2-7", "y:" + uuidU + ":1-7:tag:1-3/" + uuidV + ":9", "m:0-1-105.AAAAAAAAAAAAAAAAAAAAAA", "m:'"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		tok, err := ParseToken(text)
		if err != nil {
			require.ErrorIs(t, err, ErrToken)
			require.True(t, tok.IsEmpty())
			return
		}
		require.Equal(t, text, tok.String())
		require.LessOrEqual(t, len(text), MaxTokenLength)
		require.True(t, tok.Equal(tok.Merge(tok)))
		if !tok.IsEmpty() {
			s := waitStatement(tok, time.Second)
			require.Equal(t, 2, strings.Count(s, "'"), s)
			require.NotContains(t, s, `\`)
			require.NotContains(t, s, ";")
		}
	})
}
