package gtid

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	uText = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
	vText = "a5b8d03c-9f1e-4d55-8d12-0242ac110002"
)

// expand replaces the names u and v before a colon, or alone, with UUIDs.
func expand(text string) string {
	elements := strings.Split(text, ",")
	for i, e := range elements {
		trimmed := strings.TrimLeft(e, " \n")
		indent := e[:len(e)-len(trimmed)]
		switch {
		case strings.HasPrefix(trimmed, "u:"):
			elements[i] = indent + uText + trimmed[1:]
		case strings.HasPrefix(trimmed, "v:"):
			elements[i] = indent + vText + trimmed[1:]
		}
	}
	return strings.Join(elements, ",")
}

func set(t testing.TB, text string) Set {
	t.Helper()
	s, err := ParseSet(expand(text))
	require.NoError(t, err)
	return s
}

func uuid(t testing.TB, text string) UUID {
	t.Helper()
	u, err := ParseUUID(text)
	require.NoError(t, err)
	return u
}

func TestParseUUID(t *testing.T) {
	u := uuid(t, " "+strings.ToUpper(uText)+"\n")
	require.Equal(t, uText, u.String())
	require.False(t, u.IsZero())
	require.True(t, UUID{}.IsZero())
	require.Negative(t, u.Compare(uuid(t, vText)))
	for _, text := range []string{"", uText[1:], uText + "0", strings.ReplaceAll(uText, "-", ""), "{" + uText[1:35] + "}",
		strings.Replace(uText, "3", "g", 1), strings.Replace(uText, "-", "0", 1), uText[:9] + "-" + uText[10:]} {
		_, err := ParseUUID(text)
		require.ErrorIs(t, err, ErrMalformed, "%q", text)
	}
}

func TestParseSet(t *testing.T) {
	longTag := strings.Repeat("a", 32)
	tests := []struct {
		id, text, want, wantErr string
	}{
		{id: "empty", text: "", want: ""},
		{id: "Y12 tag", text: "u:1-10:t:1-3", want: "u:1-10:t:1-3"},
		{id: "Y14 tag case", text: "u:T1:1-3", want: "u:t1:1-3"},
		{id: "Y15", text: "u:1-5:7", want: "u:1-5:7"},
		{id: "Y16 new line", text: "u:1-5,\nv:1-3", want: "u:1-5,v:1-3"},
		{id: "Y16 order", text: "v:1-3,u:1-5", want: "u:1-5,v:1-3"},
		{id: "Y17 overlap", text: "u:1-5:3-8", want: "u:1-8"},
		{id: "Y21 zero", text: "u:0-3", wantErr: "transaction number 0 is not valid"},
		{id: "Y21 zero end", text: "u:5-0", wantErr: "transaction number 0 is not valid"},
		{id: "Y21 wrong way round", text: "u:5-1", want: ""},
		{id: "Y21 wrong way round among others", text: "u:5-1:7", want: "u:7"},
		{id: "Y21 too high", text: "u:1-9223372036854775807", wantErr: `transaction number "9223372036854775807" is higher than 9223372036854775806`},
		{id: "Y21 highest", text: "u:1-9223372036854775806", want: "u:1-9223372036854775806"},
		{id: "Y21 beyond 64 bits", text: "u:1-18446744073709551616", wantErr: "does not fit in 64 bits"},
		{id: "Y21 trailing comma", text: "u:1,", want: "u:1"},
		{id: "empty elements", text: " , ,\n", want: ""},
		{id: "empty element between", text: "u:1,,v:1", want: "u:1,v:1"},
		{id: "white space inside", text: " u: 1 - 5 : 7 :\tt : 2 ", want: "u:1-5:7:t:2"},
		{id: "adjacent", text: "u:6-8:1-5", want: "u:1-8"},
		{id: "single of a range", text: "u:3-3", want: "u:3"},
		{id: "same UUID again", text: "u:1-3,u:t:9,u:4:t:1", want: "u:1-4:t:1:9"},
		{id: "several tags", text: "u:b:1:5:a:2,v:z:1", want: "u:a:2:b:1:5,v:z:1"},
		{id: "tag with digits", text: "u:_9x:1", want: "u:_9x:1"},
		{id: "longest tag", text: "u:" + longTag + ":1", want: "u:" + longTag + ":1"},
		{id: "upper-case UUID", text: strings.ToUpper(uText) + ":1", want: "u:1"},
		{id: "leading zeros", text: "u:007", want: "u:7"},
		{id: "tag too long", text: "u:a" + longTag + ":1", wantErr: "longer than 32"},
		{id: "bad tag", text: "u:a-b:1", wantErr: `"a-b" is neither an interval nor a tag`},
		{id: "tag without interval", text: "u:1:t", wantErr: "no interval after " + uText + ":t"},
		{id: "tag after tag", text: "u:t:s:1", wantErr: "no interval after " + uText + ":t"},
		{id: "UUID alone", text: uText, wantErr: "no interval after " + uText},
		{id: "trailing colon", text: "u:1:", wantErr: "empty interval"},
		{id: "open range", text: "u:1-", wantErr: "transaction number is missing"},
		{id: "negative", text: "u:-1", wantErr: "neither an interval nor a tag"},
		{id: "two dashes", text: "u:1-2-3", wantErr: "is not a decimal number"},
		{id: "no UUID", text: "1-5", wantErr: "is not 36 characters long"},
		{id: "second element bad", text: "u:1,x:1", wantErr: "element 2"},
	}
	for _, test := range tests {
		t.Run(test.id, func(t *testing.T) {
			s, err := ParseSet(expand(test.text))
			if test.wantErr != "" {
				require.ErrorIs(t, err, ErrMalformed)
				require.ErrorContains(t, err, test.wantErr)
				require.True(t, s.IsEmpty())
				return
			}
			require.NoError(t, err)
			require.Equal(t, expand(test.want), s.String())
			require.Equal(t, test.want == "", s.IsEmpty())
		})
	}
}

func TestSetEquality(t *testing.T) {
	for _, test := range []struct{ id, a, b string }{
		{"Y14", "u:T1:1-3", "u:t1:1-3"},
		{"Y16", "u:1-5,\nv:1-3", "v:1-3,u:1-5"},
		{"Y17", "u:1-5:3-8", "u:1-8"},
	} {
		a, b := set(t, test.a), set(t, test.b)
		require.True(t, a.Equal(b), test.id)
		require.Equal(t, Equal, CompareSets(a, b), test.id)
		require.True(t, a.Subtract(b).IsEmpty(), test.id)
		require.True(t, b.Subtract(a).IsEmpty(), test.id)
	}
}

func TestCompareSets(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want Relation
	}{
		{"", "", Equal},
		{"", "u:1", Behind},
		{"u:1-10", "u:1-7", Ahead},
		{"u:1-10", "u:1-10:t:1", Behind},
		{"u:1-10", "u:t:1-3", Diverged},
		{"u:1-10,v:1", "u:1-11", Diverged},
	} {
		require.Equal(t, test.want, CompareSets(set(t, test.a), set(t, test.b)), "%q to %q", test.a, test.b)
	}
}

func TestSet(t *testing.T) {
	s := set(t, "u:1-5:7:t:1-3,v:2")
	u, v := uuid(t, uText), uuid(t, vText)
	require.Equal(t, []TSID{{UUID: u}, {UUID: u, Tag: "t"}, {UUID: v}}, s.Sources())
	require.Equal(t, uText, s.Sources()[0].String())
	require.Equal(t, uText+":t", s.Sources()[1].String())
	require.Equal(t, []Interval{{1, 5}, {7, 7}}, s.Intervals(TSID{UUID: u}))
	require.Empty(t, s.Intervals(TSID{UUID: v, Tag: "t"}))
	require.Equal(t, "1-5", Interval{1, 5}.String())
	require.Equal(t, expand("u:1-5:7:t:1-3"), s.ForUUID(u).String())
	require.Equal(t, expand("v:2"), s.ForUUID(v).String())
	require.True(t, s.ForUUID().IsEmpty())
	require.Equal(t, uint64(10), s.Count())

	s.Intervals(TSID{UUID: u})[0].Last = 99
	require.Equal(t, expand("u:1-5:7:t:1-3,v:2"), s.String())

	const all = ":1-9223372036854775806"
	require.Equal(t, uint64(math.MaxUint64), set(t, "u"+all+":a"+all+":b"+all).Count())
}

func TestNewSet(t *testing.T) {
	id := TSID{UUID: uuid(t, uText), Tag: "Tag"}
	s, err := NewSet(id, Interval{6, 8}, Interval{1, 5}, Interval{20, 20})
	require.NoError(t, err)
	require.Equal(t, expand("u:tag:1-8:20"), s.String())
	empty, err := NewSet(id)
	require.NoError(t, err)
	require.True(t, empty.Equal(Set{}))
	for _, bad := range []Interval{{0, 1}, {5, 1}, {1, MaxNumber + 1}} {
		_, err := NewSet(id, bad)
		require.ErrorIs(t, err, ErrMalformed)
	}
	_, err = NewSet(TSID{Tag: "9"}, Interval{1, 1})
	require.ErrorIs(t, err, ErrMalformed)
}

// number is one transaction, and naive a set of them by the book.
type number struct {
	id TSID
	n  uint64
}

type naive map[number]bool

const highestRandom = 40

func randomSet(t *testing.T, r *rand.Rand) (Set, naive) {
	u, v := uuid(t, uText), uuid(t, vText)
	ids := []TSID{{UUID: u}, {UUID: u, Tag: "a"}, {UUID: u, Tag: "b"}, {UUID: v}}
	var s Set
	plain := naive{}
	for range r.IntN(8) {
		id := ids[r.IntN(len(ids))]
		first := 1 + r.Uint64N(highestRandom)
		last := min(highestRandom, first+r.Uint64N(10))
		part, err := NewSet(id, Interval{first, last})
		require.NoError(t, err)
		s = s.Union(part)
		for n := first; n <= last; n++ {
			plain[number{id, n}] = true
		}
	}
	return s, plain
}

// requireSame checks the numbers of a set, and that its lists are normal.
func requireSame(t *testing.T, want naive, got Set) {
	t.Helper()
	count := 0
	for k, id := range got.Sources() {
		if k > 0 {
			require.Negative(t, compareTSID(got.Sources()[k-1], id))
		}
		intervals := got.Intervals(id)
		require.NotEmpty(t, intervals)
		for j, i := range intervals {
			require.LessOrEqual(t, i.First, i.Last)
			if j > 0 {
				require.Greater(t, i.First, intervals[j-1].Last+1)
			}
			for n := i.First; n <= i.Last; n++ {
				require.True(t, want[number{id, n}], "%s:%d", id, n)
				count++
			}
		}
	}
	require.Len(t, want, count)
	require.Equal(t, uint64(count), got.Count())
}

func TestSetLaws(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		a, plainA := randomSet(t, r)
		b, plainB := randomSet(t, r)
		textA, textB := a.String(), b.String()
		union, minus, both := naive{}, naive{}, naive{}
		subset := true
		for n := range plainA {
			union[n] = true
			if plainB[n] {
				both[n] = true
			} else {
				minus[n] = true
			}
		}
		for n := range plainB {
			union[n] = true
			subset = subset && plainA[n]
		}
		requireSame(t, plainA, a)
		requireSame(t, union, a.Union(b))
		requireSame(t, minus, a.Subtract(b))
		requireSame(t, both, a.Intersect(b))
		require.Equal(t, subset, a.Contains(b))
		require.Equal(t, len(union) == len(both), a.Equal(b))
		require.Equal(t, relationOf(len(minus) > 0, !subset), CompareSets(a, b))

		require.True(t, a.Union(b).Equal(b.Union(a)))
		require.True(t, a.Intersect(b).Equal(b.Intersect(a)))
		require.True(t, a.Subtract(b).Union(a.Intersect(b)).Equal(a))
		require.True(t, a.Union(b).Subtract(b).Equal(a.Subtract(b)))
		require.True(t, a.Subtract(b).Intersect(b).IsEmpty())

		again, err := ParseSet(textA)
		require.NoError(t, err)
		require.True(t, again.Equal(a))
		require.Equal(t, textA, a.String(), "an operation has changed its argument")
		require.Equal(t, textB, b.String(), "an operation has changed its argument")
	}
}

func FuzzParseSet(f *testing.F) {
	for _, seed := range []string{"", "u:1-5:7:t:1-3,\nv:2", "u:T1:1-3", "u:0-3", "u:5-1", "u:1-9223372036854775806",
		"u:1,", "u: 1 - 5 : t : 2 , u:t:3", "u:b:1:a:2", "u:1-5:3-8", "u"} {
		f.Add(expand(seed))
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseSet(text)
		if err != nil {
			require.ErrorIs(t, err, ErrMalformed)
			return
		}
		again, err := ParseSet(s.String())
		require.NoError(t, err)
		require.Equal(t, s, again)
		require.Equal(t, s.String(), again.String())
		require.True(t, s.Contains(again))
		require.True(t, s.Subtract(again).IsEmpty())
		require.True(t, s.Union(again).Equal(s))
	})
}

// scattered returns the text of a set with many gaps.
func scattered(sources, intervals int, shift uint64) string {
	var b strings.Builder
	for k := range sources {
		fmt.Fprintf(&b, "%08x%s", k, uText[8:])
		for i := range uint64(intervals) {
			fmt.Fprintf(&b, ":%d-%d", 10*i+1+shift, 10*i+6+shift)
		}
		b.WriteString(",\n")
	}
	return b.String()
}

func BenchmarkParseSet(b *testing.B) {
	text := scattered(5, 200, 0)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParseSet(text); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSubtract(b *testing.B) {
	x, y := set(b, scattered(5, 200, 0)), set(b, scattered(5, 200, 3))
	b.ReportAllocs()
	for b.Loop() {
		if x.Subtract(y).IsEmpty() {
			b.Fatal("nothing left")
		}
	}
}
