package api

import (
	"bufio"
	"context"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/monitor"
)

func TestAgentAnswers(t *testing.T) {
	f := shop()
	a := newAPI(fakes(f))
	for line, want := range map[string]string{
		"shop/s1":         "up ready",
		"shop/s1/primary": "up ready",
		"shop/s1/replica": "down #s1 is not a replica",
		"/s1":             "up ready",
		"shop/s2":         "up ready",
		"shop/s2/any":     "up ready",
		"shop/s2/primary": "down #s2 is not the primary: s1 is",
		"shop/s4":         "up drain",
		"shop/s5":         "maint #s5 is in maintenance",
		"shop/s6":         "down #s6 has not answered of late",
		"shop/nobody":     `down #no server "nobody" in cluster shop`,
		"other/s1":        `down #no cluster "other" here`,
		"shop/":           "down #no server is named",
		"":                "down #send CLUSTER/SERVER or CLUSTER/SERVER/ROLE with agent-send, and a line feed",
		"shop/s1/x":       "down #the role is primary, replica or any",
		"a/b/c/d":         "down #send CLUSTER/SERVER or CLUSTER/SERVER/ROLE with agent-send, and a line feed",
	} {
		require.Equal(t, want, a.agentAnswer(line), line)
	}
	f.set(func(v *monitor.View) { v.Primary = nil })
	require.Equal(t, "down #no primary is offered", a.agentAnswer("shop/s2"))
	require.Equal(t, "down #no primary is offered", a.agentAnswer("shop/s1/primary"))
	f.dead = true
	require.Equal(t, "down #the monitor has not looked at the servers for too long", a.agentAnswer("shop/s1"))
}

func TestAgentListener(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- serveAgent(ctx, l, newAPI(fakes(shop()))) }()
	for send, want := range map[string]string{
		"shop/s1\n":                   "up ready\n",
		"shop/s1\r\n":                 "up ready\n",
		"shop/s\x002\n":               "down #no server \"s\\x002\" in cluster shop\n",
		strings.Repeat("x", 300):      "down #send CLUSTER/SERVER or CLUSTER/SERVER/ROLE with agent-send, and a line feed\n",
		"shop/s6\nand what is behind": "down #s6 has not answered of late\n",
	} {
		conn, err := net.Dial("tcp", l.Addr().String())
		require.NoError(t, err)
		_, err = io.WriteString(conn, send)
		require.NoError(t, err)
		got, err := bufio.NewReader(conn).ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, want, got)
		require.NoError(t, conn.Close())
	}
	cancel()
	require.NoError(t, <-done)
	_, err = net.Dial("tcp", l.Addr().String())
	require.Error(t, err)
}
