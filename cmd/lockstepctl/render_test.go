package main

import (
	"bytes"
	"context"
	"errors"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/monitor"
)

// Colours add nothing but colour: without them the text is the same.
func TestColour(t *testing.T) {
	v := shop(t)
	var coloured, plain bytes.Buffer
	listServers(&page{out: &coloured, colour: true}, v)
	listServers(&page{out: &plain}, v)
	require.Contains(t, coloured.String(), "\x1b[31mDown\x1b[0m")
	require.Contains(t, coloured.String(), "\x1b[32mPrimary, Running\x1b[0m")
	require.Contains(t, coloured.String(), "\x1b[33mReplica, Lagging, Running\x1b[0m")
	require.Equal(t, plain.String(), regexp.MustCompile("\x1b\\[[0-9]+m").ReplaceAllString(coloured.String(), ""))
}

func TestClean(t *testing.T) {
	require.Equal(t, "a b?[31mc ü?d", clean("a\nb\x1b[31mc ü\u202ed"))
}

func TestHolder(t *testing.T) {
	yes, no := new(true), new(false)
	require.Equal(t, "unknown", holder(nil, nil))
	require.Equal(t, "this monitor", holder(yes, nil))
	require.Equal(t, "free", holder(no, nil))
	require.Equal(t, "u@h #7", holder(no, &monitor.OwnerView{ConnectionID: 7, User: "u", Host: "h", Trusted: true}))
	require.Equal(t, "#7 (not trusted)", holder(no, &monitor.OwnerView{ConnectionID: 7}))
	require.Equal(t, "an unknown connection", holder(no, &monitor.OwnerView{}))
}

// Rings and unknown sources lose no server.
func TestTree(t *testing.T) {
	server := func(name, source string) monitor.ServerView {
		return monitor.ServerView{Name: name, Address: name + ":3306", Source: source, State: []string{"Running"}}
	}
	v := monitor.View{
		Primary: &monitor.Endpoint{Name: "p", Address: "p:3306"},
		Servers: []monitor.ServerView{server("x", ""), server("r1", "r2"), server("r2", "r1"), server("b", "a"), server("a", "p"),
			server("p", "q"), server("q", "p"), server("y", "gone")},
	}
	v.Servers[0].Replication = []monitor.ReplicationView{{Source: "far:3306"}}
	var out bytes.Buffer
	for _, n := range tree(v) {
		draw(&page{out: &out}, n, "", "")
	}
	require.Equal(t, `p p:3306 [Running] lag unknown
+- a a:3306 [Running] lag unknown
|  +- b b:3306 [Running] lag unknown
+- q q:3306 [Running] lag unknown
x x:3306 [Running] lag unknown from far:3306
y y:3306 [Running] lag unknown
r1 r1:3306 [Running] lag unknown
+- r2 r2:3306 [Running] lag unknown
`, out.String())
}

// On a terminal a watch clears the screen before each answer, and an old answer
// does not stay there beside an error.
func TestTerminal(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var errs bytes.Buffer
	out := &stopping{want: clearScreen + "x\n" + clearScreen + clearScreen, stop: cancel}
	a := newApp(nil, out, &errs)
	require.False(t, a.terminal)
	require.False(t, a.colour)
	a.terminal, a.timeout, a.watch = true, time.Second, time.Millisecond
	asked := 0
	require.NoError(t, a.repeat(ctx, nil, func(context.Context, []string) (answer, error) {
		if asked++; asked > 1 {
			return answer{}, errors.New("gone")
		}
		return answer{text: func(p *page) { p.line("x") }}, nil
	}))
	require.Equal(t, out.want, out.buf.String())
	require.Contains(t, errs.String(), "lockstepctl: gone\n")
}
