package election

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/locks"
)

const second = time.Second

// timing: interval 2 s, timeout 3 s: settles in 10 s, leases of 7.919 s.
func timing(t testing.TB) locks.Timing {
	t.Helper()
	tm, err := locks.Derive(locks.Settings{Interval: 2 * second, Timeout: 3 * second})
	require.NoError(t, err)
	return tm
}

func seeded(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 7)) }

// kind is how one server looks in a picture:
//
//	s own lock   f free   o held by another monitor   x held by an account that is not trusted   - no answer
type kind = byte

func rowOf(k kind, at time.Duration, i int) locks.Row {
	r := locks.Row{Server: fmt.Sprintf("s%d", i+1), Session: uint64(100 + i), SentAt: at - 10*time.Millisecond, DoneAt: at, Answered: true}
	holder := locks.Holder{ConnectionID: 900, User: "monitor", Checked: true, Trusted: true}
	switch k {
	case 's':
		r.ServerLock.State = locks.Self
	case 'f':
		r.ServerLock.State = locks.Free
	case 'o':
		r.ServerLock = locks.Lock{State: locks.Other, Holder: holder}
	case 'x':
		holder.User, holder.Trusted = "app", false
		r.ServerLock = locks.Lock{State: locks.Other, Holder: holder}
	case '-':
		r.Answered = false
	default:
		panic("no such kind: " + string(k))
	}
	return r
}

// picture builds an observation: one letter for each server, votes one each
// unless others are given.
func picture(at time.Duration, kinds string, votes ...int) Observation {
	o := Observation{Now: at}
	for i := range len(kinds) {
		v := 1
		if i < len(votes) {
			v = votes[i]
		}
		o.Servers = append(o.Servers, Server{Name: fmt.Sprintf("s%d", i+1), Votes: v, Row: rowOf(kinds[i], at, i)})
	}
	return o
}

type script struct {
	t   testing.TB
	c   Config
	s   State
	d   Decision
	rng *rand.Rand
}

func newScript(t testing.TB, mode Mode) *script {
	return &script{t: t, c: Config{Mode: mode, Timing: timing(t)}, rng: seeded(1)}
}

func (x *script) step(at time.Duration, kinds string, votes ...int) Decision {
	x.s, x.d = Step(x.c, x.s, picture(at, kinds, votes...), x.rng)
	return x.d
}

func TestGainSettlePrimary(t *testing.T) {
	x := newScript(t, MajorityOfAll)
	d := x.step(100*second, "fff")
	require.Equal(t, Secondary, d.Role)
	require.Equal(t, []string{"s1", "s2", "s3"}, d.Take)
	require.True(t, d.FirstDecides)
	require.False(t, d.Release)
	require.True(t, x.s.Attempting)

	d = x.step(100*second+50*time.Millisecond, "sss")
	require.Equal(t, Settling, d.Role)
	require.Equal(t, Tally{Mode: MajorityOfAll, Held: 3, Needed: 2, Running: 3, Total: 3}, d.Tally)
	require.Equal(t, 100*second+50*time.Millisecond+x.c.Timing.Settle, d.SettledAt)
	require.Equal(t, x.c.Timing.Settle, d.Again)
	require.Equal(t, 100*second+40*time.Millisecond+x.c.Timing.Lease, d.Lease)
	require.Empty(t, d.Take)
	require.False(t, x.s.Attempting)
	settled := d.SettledAt

	for at := 102 * second; at < settled; at += 2 * second {
		d = x.step(at, "sss")
		require.Equal(t, Settling, d.Role, "at %v", at)
		require.Equal(t, settled, d.SettledAt)
	}
	d = x.step(settled-1, "sss")
	require.Equal(t, Settling, d.Role)
	d = x.step(settled, "sss")
	require.Equal(t, Primary, d.Role)
	require.Equal(t, settled-10*time.Millisecond+x.c.Timing.Lease, d.Lease)
	require.Zero(t, d.Again)
	require.Equal(t, Primary, x.s.Role)
}

// primary brings a script to the role primary at 120 s.
func primary(t testing.TB, mode Mode, kinds string, votes ...int) *script {
	x := newScript(t, mode)
	for at := 100 * second; at <= 120*second; at += 2 * second {
		x.step(at, kinds, votes...)
	}
	require.Equal(t, Primary, x.d.Role, x.d.Reason)
	return x
}

func TestPrimaryTakesWhatIsFree(t *testing.T) {
	x := primary(t, MajorityOfAll, "ssf")
	require.Equal(t, []string{"s3"}, x.d.Take)
	require.False(t, x.d.FirstDecides, "with a majority each is worth having")
	d := x.step(122*second, "sso")
	require.Equal(t, Primary, d.Role)
	require.Empty(t, d.Take)
}

func TestLossReleasesAtOnce(t *testing.T) {
	for _, c := range []struct {
		name, kinds string
		release     bool
	}{
		{"one of two taken", "sof", true},
		{"sessions broken, one left", "s--", true},
		{"all unreachable", "---", false},
		{"all free: sessions were killed", "fff", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := primary(t, MajorityOfAll, "sso")
			d := x.step(122*second, c.kinds)
			require.Equal(t, Secondary, d.Role)
			require.Equal(t, c.release, d.Release)
			require.Zero(t, d.Lease)
			if c.release {
				require.Empty(t, d.Take, "release first, then look again")
				require.Equal(t, contestShort, d.Again)
			}
		})
	}
	// A primary lock without any vote goes as well.
	x := newScript(t, MajorityOfAll)
	o := picture(100*second, "ooo")
	o.Servers[1].Row.PrimaryLock.State = locks.Self
	_, d := Step(x.c, x.s, o, x.rng)
	require.True(t, d.Release)
}

func TestLossStartsSettlingAnew(t *testing.T) {
	x := primary(t, MajorityOfAll, "sss")
	x.step(122*second, "s--")
	d := x.step(124*second, "sss")
	require.Equal(t, Settling, d.Role, "the votes that were away count from now")
	require.Equal(t, 134*second, d.SettledAt)

	// A session that was replaced between two looks is a loss too.
	x = primary(t, MajorityOfAll, "sss")
	o := picture(122*second, "sss")
	o.Servers[0].Row.Session, o.Servers[1].Row.Session = 500, 501
	x.s, d = Step(x.c, x.s, o, x.rng)
	require.Equal(t, Settling, d.Role)
	require.True(t, d.Tally.Has())
}

func TestNewVotesBesideASettledMajority(t *testing.T) {
	x := primary(t, MajorityOfAll, "ssf")
	d := x.step(122*second, "sss")
	require.Equal(t, Primary, d.Role)
	// One of the old votes goes. The new one was gained while the majority was
	// settled: nobody else can have counted it in a majority since.
	d = x.step(124*second, "s-s")
	require.Equal(t, Primary, d.Role)
	require.False(t, d.Release)
	// A vote that comes in the very tick in which an old one goes was not.
	x = primary(t, MajorityOfAll, "ssf")
	d = x.step(122*second, "s-s")
	require.Equal(t, Settling, d.Role)
	require.Equal(t, 132*second, d.SettledAt)
	// Nor does a vote that was away and comes back count as before.
	x = primary(t, MajorityOfAll, "sss")
	x.step(122*second, "ss-")
	d = x.step(124*second, "s-s")
	require.Equal(t, Settling, d.Role)
}

func TestLeaseCountsOldVotesOnly(t *testing.T) {
	x := primary(t, MajorityOfAll, "ssf")
	lease := x.c.Timing.Lease
	o := picture(122*second, "sss")
	o.Servers[0].Row.SentAt = 119 * second // an older proof of one of the two that settled
	x.s, x.d = Step(x.c, x.s, o, x.rng)
	require.Equal(t, Primary, x.d.Role)
	require.Equal(t, 120*second-10*time.Millisecond+lease, x.d.Lease, "the newer proof of s1 stands; the new vote of s3 does not count")
}

func TestExpiredLeasesAreNoVotes(t *testing.T) {
	x := primary(t, MajorityOfAll, "sss")
	// Rows of 120 s are shown once more much later, as after a freeze.
	o := picture(120*second, "sss")
	o.Now = 120*second - 10*time.Millisecond + x.c.Timing.Lease
	s, d := Step(x.c, x.s, o, x.rng)
	require.Equal(t, Secondary, d.Role)
	require.Zero(t, d.Tally.Held)
	require.True(t, d.Release)
	require.Equal(t, Secondary, s.Role)
	o.Now--
	_, d = Step(x.c, x.s, o, x.rng)
	require.Equal(t, Primary, d.Role, "one instant before it is")
}

func TestFirstDecidesOrder(t *testing.T) {
	x := newScript(t, MajorityOfAll)
	d := x.step(100*second, "-fff")
	require.Equal(t, []string{"s2", "s3", "s4"}, d.Take)
	require.True(t, d.FirstDecides)
}

func TestNoAttemptWithoutChance(t *testing.T) {
	for _, kinds := range []string{"foo", "f--", "ooo", "---", "fo-", "ffoo", "ff--"} {
		x := newScript(t, MajorityOfAll)
		d := x.step(100*second, kinds)
		require.Equal(t, Secondary, d.Role)
		require.Empty(t, d.Take, kinds)
		require.False(t, d.Release)
		require.Zero(t, d.Again)
	}
}

func TestContestedWait(t *testing.T) {
	for seed := range uint64(50) {
		x := newScript(t, MajorityOfAll)
		x.rng = seeded(seed)
		at := 100 * second
		d := x.step(at, "off")
		require.Empty(t, d.Take, "another may be in the middle of taking")
		require.GreaterOrEqual(t, d.Again, contestShort)
		require.Less(t, d.Again, contestLong)
		require.Equal(t, at, x.s.Contested)
		d = x.step(at+contestShort-1, "off")
		require.Empty(t, d.Take)
		require.Positive(t, d.Again)
		d = x.step(at+contestShort, "off")
		require.Equal(t, []string{"s2", "s3"}, d.Take)
		require.Zero(t, x.s.Contested)
	}
	x := newScript(t, MajorityOfAll)
	x.step(100*second, "off")
	x.step(100*second+5*time.Millisecond, "ooo")
	require.Zero(t, x.s.Contested, "the other has finished")
}

func TestBackOff(t *testing.T) {
	longest := time.Duration(0)
	for seed := range uint64(200) {
		x := newScript(t, MajorityOfAll)
		x.rng = seeded(seed)
		at := 100 * second
		for failures := 1; failures <= maxBackoff+2; failures++ {
			d := x.step(at, "fff")
			require.NotEmpty(t, d.Take)
			d = x.step(at+10*time.Millisecond, "soo")
			require.True(t, d.Release)
			require.Empty(t, d.Take)
			require.Equal(t, min(failures, maxBackoff), x.s.Failures)
			wait := x.s.TryAt - (at + 10*time.Millisecond)
			require.GreaterOrEqual(t, wait, time.Duration(0))
			require.LessOrEqual(t, wait, x.c.Timing.Interval*time.Duration(x.s.Failures)/2)
			require.Equal(t, wait+time.Millisecond, d.Again)
			if failures == 1 {
				require.LessOrEqual(t, wait, 2*contestLong, "locks that go one after the other are not waited for longer than they need")
			}
			longest = max(longest, wait)
			if wait > 2 {
				d = x.step(x.s.TryAt-1, "fff")
				require.Empty(t, d.Take, "not before its time")
				require.Equal(t, time.Millisecond+1, d.Again)
			}
			at = x.s.TryAt
		}
		x.step(at, "sss")
		require.Zero(t, x.s.Failures, "a success forgets failures")
	}
	require.Greater(t, longest, 2*second, "waits are spread over a few intervals")
}

func TestPassiveTakesNothing(t *testing.T) {
	for _, mode := range []Mode{MajorityOfAll, MajorityOfRunning, None} {
		x := newScript(t, mode)
		x.c.Passive = true
		d := x.step(100*second, "fff")
		require.Equal(t, Secondary, d.Role)
		require.Empty(t, d.Take)
		require.False(t, d.Release)
	}
	x := primary(t, MajorityOfAll, "sss")
	x.c.Passive = true
	d := x.step(122*second, "sss")
	require.Equal(t, Secondary, d.Role)
	require.True(t, d.Release)
}

func TestNone(t *testing.T) {
	x := newScript(t, None)
	for _, kinds := range []string{"fff", "ooo", "---"} {
		d := x.step(100*second, kinds)
		require.Equal(t, Primary, d.Role)
		require.Empty(t, d.Take)
		require.False(t, d.Release)
		require.Zero(t, d.Lease)
	}
}

func TestRefuseUntil(t *testing.T) {
	x := primary(t, MajorityOfAll, "sss")
	o := picture(122*second, "sss")
	o.RefuseUntil = 130 * second
	var d Decision
	x.s, d = Step(x.c, x.s, o, x.rng)
	require.Equal(t, Secondary, d.Role)
	require.True(t, d.Release)
	o = picture(130*second-1, "fff")
	o.RefuseUntil = 130 * second
	x.s, d = Step(x.c, x.s, o, x.rng)
	require.Empty(t, d.Take)
	require.False(t, d.Release)
	o = picture(130*second, "fff")
	o.RefuseUntil = 130 * second
	_, d = Step(x.c, x.s, o, x.rng)
	require.NotEmpty(t, d.Take)
}

func TestServersWithoutVotes(t *testing.T) {
	x := newScript(t, MajorityOfAll)
	d := x.step(100*second, "ffs", 1, 1, 0)
	require.Equal(t, Tally{Mode: MajorityOfAll, Needed: 2, Free: 2, Running: 2, Total: 2}, d.Tally)
	require.True(t, d.Release, "a lock that is no vote is no majority")

	x = primary(t, MajorityOfAll, "ssf", 1, 1, 0)
	require.Equal(t, []string{"s3"}, x.d.Take, "the primary lock needs the server lock beside it")
	x = newScript(t, MajorityOfAll)
	for at := 100 * second; at < 140*second; at += 2 * second {
		require.Equal(t, Secondary, x.step(at, "-ss", 1, 0, 0).Role)
	}
	x = newScript(t, MajorityOfAll)
	d = x.step(100*second, "ss", 0, 0)
	require.Equal(t, Secondary, d.Role, "no votes at all: nobody is primary")
	x = newScript(t, MajorityOfAll)
	d = x.step(100*second, "s--", 3, 1, 1)
	require.Equal(t, Settling, d.Role)
	require.Equal(t, 3, d.Tally.Needed)
}

func TestForgedLock(t *testing.T) {
	// In majority_of_all its vote is lost; the others decide.
	x := newScript(t, MajorityOfAll)
	d := x.step(100*second, "xss")
	require.Equal(t, Settling, d.Role)
	require.Equal(t, Tally{Mode: MajorityOfAll, Held: 2, Needed: 2, Others: 1, Running: 3, Total: 3}, d.Tally)
	x = newScript(t, MajorityOfAll)
	require.Equal(t, Secondary, x.step(100*second, "xs").Role)
	x = newScript(t, MajorityOfAll)
	x.step(100*second, "xff")
	d = x.step(101*second, "xff")
	require.Equal(t, []string{"s2", "s3"}, d.Take, "it blocks nothing that can be decided without it")

	// In majority_of_running that server's vote does not exist.
	x = newScript(t, MajorityOfRunning)
	d = x.step(100*second, "xs")
	require.Equal(t, Settling, d.Role)
	require.Equal(t, Tally{Mode: MajorityOfRunning, Held: 1, Needed: 1, Running: 1, Total: 2}, d.Tally)
	x = newScript(t, MajorityOfRunning)
	d = x.step(100*second, "xff")
	require.Equal(t, []string{"s2", "s3"}, d.Take, "nothing to contest")
	// A monitor's lock counts in both.
	x = newScript(t, MajorityOfRunning)
	require.Equal(t, Secondary, x.step(100*second, "os").Role)
}

func TestMajorityOfRunningCountsWhatAnswers(t *testing.T) {
	x := newScript(t, MajorityOfRunning)
	d := x.step(100*second, "s--")
	require.Equal(t, Settling, d.Role)
	require.Equal(t, 1, d.Tally.Needed)
	x = newScript(t, MajorityOfRunning)
	require.Equal(t, Secondary, x.step(100*second, "---").Role)
	x = newScript(t, MajorityOfAll)
	require.Equal(t, Secondary, x.step(100*second, "s--").Role)
}

func TestSettlingPicksUpStaleLocksSoon(t *testing.T) {
	x := newScript(t, MajorityOfAll)
	d := x.step(100*second, "sso")
	require.Equal(t, Settling, d.Role)
	require.Equal(t, contestLong, d.Again)
}

func TestStepLeavesItsInputAlone(t *testing.T) {
	x := primary(t, MajorityOfAll, "sss")
	before := x.s.Tenures["s1"]
	prev := x.s
	_, _ = Step(x.c, prev, picture(122*second, "---"), x.rng)
	require.Len(t, prev.Tenures, 3)
	require.Equal(t, before, prev.Tenures["s1"])
	a, da := Step(x.c, prev, picture(122*second, "ssf"), seeded(3))
	b, db := Step(x.c, prev, picture(122*second, "ssf"), seeded(3))
	require.Equal(t, a, b)
	require.Equal(t, da, db)
}

func TestWords(t *testing.T) {
	for _, m := range []Mode{MajorityOfAll, MajorityOfRunning, None} {
		back, err := ParseMode(m.String())
		require.NoError(t, err)
		require.Equal(t, m, back)
	}
	_, err := ParseMode("majority")
	require.ErrorContains(t, err, `"majority"`)
	require.Equal(t, "secondary settling primary", fmt.Sprint(Secondary, " ", Settling, " ", Primary))
}

// TestInvariantsOfStep feeds random pictures and checks what must hold of every
// decision.
func TestInvariantsOfStep(t *testing.T) {
	rng := seeded(11)
	runs := 2000
	if testing.Short() {
		runs = 200
	}
	for range runs {
		c := Config{Mode: Mode(rng.IntN(2)), Timing: timing(t), Passive: rng.IntN(20) == 0}
		n := 1 + rng.IntN(5)
		votes := make([]int, n)
		for i := range votes {
			votes[i] = max(rng.IntN(4)-1, 0)
		}
		var s State
		at := 100 * second
		for range 30 {
			at += time.Duration(rng.IntN(4000)) * time.Millisecond
			kinds := make([]byte, n)
			for i := range kinds {
				kinds[i] = "sssfox-"[rng.IntN(7)]
			}
			o := picture(at, string(kinds), votes...)
			for i := range o.Servers {
				if rng.IntN(10) == 0 {
					o.Servers[i].Row.Session++
				}
			}
			var d Decision
			s, d = Step(c, s, o, rng)
			holds := holdsAny(o)
			switch d.Role {
			case Secondary:
				require.Equal(t, holds, d.Release, "all or nothing: %s %v", kinds, votes)
				require.Zero(t, d.Lease)
				require.False(t, d.Release && len(d.Take) > 0)
			default:
				require.True(t, d.Tally.Has())
				require.False(t, c.Passive)
				require.False(t, d.Release)
				require.Greater(t, d.Lease, at)
				require.LessOrEqual(t, d.Lease, at+c.Timing.Lease)
				require.Equal(t, d.Role == Primary, d.SettledAt <= at)
				require.False(t, d.FirstDecides)
			}
			require.Equal(t, d.Role, s.Role)
			require.GreaterOrEqual(t, d.Again, time.Duration(0))
			require.IsIncreasing(t, append([]string{""}, d.Take...), "canonical order")
			require.NotEmpty(t, d.Reason)
		}
	}
}
