package locks

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func held(conn uint64, trusted bool) Lock {
	return Lock{State: Other, Holder: Holder{ConnectionID: conn, User: "monitor", Host: "10.0.0.1", Checked: true, Trusted: trusted}}
}

func TestPublished(t *testing.T) {
	for _, c := range []struct {
		name            string
		server, primary Lock
		unanswered      bool
		want            bool
	}{
		{name: "both by the same trusted connection", server: held(7, true), primary: held(7, true), want: true},
		{name: "by two connections", server: held(7, true), primary: held(8, true)},
		{name: "the primary lock alone", server: Lock{State: Free}, primary: held(7, true)},
		{name: "the server lock alone", server: held(7, true), primary: Lock{State: Free}},
		{name: "an account that is not trusted", server: held(7, false), primary: held(7, false)},
		{name: "server lock not trusted", server: held(7, false), primary: held(7, true)},
		{name: "primary lock not trusted", server: held(7, true), primary: held(7, false)},
		{name: "holder not checked yet", server: Lock{State: Other, Holder: Holder{ConnectionID: 7}}, primary: Lock{State: Other, Holder: Holder{ConnectionID: 7}}},
		{name: "holders not known", server: held(0, true), primary: held(0, true)},
		{name: "own locks", server: Lock{State: Self, Holder: Holder{ConnectionID: 7, Trusted: true}}, primary: Lock{State: Self, Holder: Holder{ConnectionID: 7, Trusted: true}}},
		{name: "own server lock, primary lock of another", server: Lock{State: Self, Holder: Holder{ConnectionID: 7, Trusted: true}}, primary: held(7, true)},
		{name: "unknown", server: Lock{}, primary: Lock{}},
		{name: "not answered", server: held(7, true), primary: held(7, true), unanswered: true},
		{name: "zero row", unanswered: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := Row{Answered: !c.unanswered, Session: 3, ServerLock: c.server, PrimaryLock: c.primary}
			require.Equal(t, c.want, r.Published())
		})
	}
}

func TestForged(t *testing.T) {
	for _, state := range []State{Unknown, Free, Self, Other} {
		for _, checked := range []bool{false, true} {
			for _, trusted := range []bool{false, true} {
				l := Lock{State: state, Holder: Holder{ConnectionID: 4, User: "u", Checked: checked, Trusted: trusted}}
				require.Equal(t, state == Other && checked && !trusted, l.Forged(), "%+v", l)
				l.Holder.User = ""
				require.False(t, l.Forged(), "a holder that cannot be seen may be a monitor")
			}
		}
	}
}

func TestTenure(t *testing.T) {
	const s = time.Second
	self := func(session uint64, sent, done time.Duration) Row {
		return Row{Session: session, Answered: true, SentAt: sent, DoneAt: done, ServerLock: Lock{State: Self}}
	}
	var none Tenure
	require.False(t, none.Held(0, time.Hour))

	first := none.Extend(self(5, 10*s, 11*s))
	require.Equal(t, Tenure{Session: 5, Since: 11 * s, SentAt: 10 * s}, first, "held since the answer, proved by what was sent")
	require.True(t, first.Held(10*s, 4*s))
	require.True(t, first.Held(14*s-1, 4*s))
	require.False(t, first.Held(14*s, 4*s), "a lease ends at its last instant")

	second := first.Extend(self(5, 12*s, 13*s))
	require.Equal(t, Tenure{Session: 5, Since: 11 * s, SentAt: 12 * s}, second)
	require.Equal(t, second, second.Extend(self(5, 10*s, 11*s)), "an older row proves nothing new")
	require.Equal(t, Tenure{Session: 6, Since: 15 * s, SentAt: 14 * s}, second.Extend(self(6, 14*s, 15*s)), "another session starts anew")
	for _, state := range []State{Unknown, Free, Other} {
		r := self(5, 14*s, 15*s)
		r.ServerLock.State = state
		require.Equal(t, none, second.Extend(r), "%s", state)
	}
	r := self(5, 14*s, 15*s)
	r.Answered = false
	require.Equal(t, none, second.Extend(r))
	require.Equal(t, none, second.Extend(self(0, 14*s, 15*s)), "a row without a session proves nothing")
}

func TestWords(t *testing.T) {
	for state, want := range map[State]string{Unknown: "unknown", Free: "free", Self: "self", Other: "other", 9: "state(9)"} {
		require.Equal(t, want, state.String())
		text, err := state.MarshalText()
		require.NoError(t, err)
		require.Equal(t, want, string(text))
	}
	require.Equal(t, "an unknown connection", Holder{}.String())
	require.Equal(t, "connection 812", Holder{ConnectionID: 812}.String())
	require.Equal(t, "app@10.0.0.5, connection 812", Holder{ConnectionID: 812, User: "app", Host: "10.0.0.5"}.String())
}
