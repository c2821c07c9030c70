package api

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/lockstep-ha/lockstep/topology"
)

// Limits of the agent check.
const (
	maxAgents   = 64
	agentTime   = 2 * time.Second
	maxQuestion = 256
)

// ServeAgent answers HAProxy's agent checks on a listener until ctx ends, when it
// closes it. Each connection sends a line "CLUSTER/SERVER" or
// "CLUSTER/SERVER/ROLE" (agent-send), where ROLE is primary, replica or any, and
// gets a line back:
//
//	up ready        the server may be used in that role
//	up drain        a person has drained it
//	maint #reason   a person has put it into maintenance
//	down #reason    it may not be used
//
// The error is that of the listener, nil at the end of ctx.
func ServeAgent(ctx context.Context, l net.Listener, list Monitors, opts ...Option) error {
	return serveAgent(ctx, l, newAPI(sources(list), opts...))
}

func serveAgent(ctx context.Context, l net.Listener, a *api) error {
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	defer func() { _ = l.Close() }()
	var running sync.WaitGroup
	defer running.Wait()
	slots := make(chan struct{}, maxAgents)
	for {
		conn, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			var ne net.Error
			if errors.As(err, &ne) && !errors.Is(err, net.ErrClosed) {
				// Too many open files, say: HAProxy asks again.
				time.Sleep(100 * time.Millisecond)
				continue
			}
			return fmt.Errorf("agent check: %w", err)
		}
		select {
		case slots <- struct{}{}:
		default:
			_ = conn.Close()
			continue
		}
		running.Go(func() {
			defer func() { <-slots }()
			a.agent(conn)
		})
	}
}

// agent answers one connection.
func (a *api) agent(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(agentTime)); err != nil {
		return
	}
	line, err := bufio.NewReader(io.LimitReader(conn, maxQuestion)).ReadString('\n')
	if err != nil && line == "" {
		line = "\n"
	}
	reply := a.agentAnswer(strings.TrimSpace(line))
	if a.metrics != nil {
		word := strings.Fields(reply)[0]
		if reply == "up drain" {
			word = "drain"
		}
		a.metrics.agents.WithLabelValues(word).Inc()
	}
	// HAProxy takes no answer for no change, so that nobody is left to tell.
	_, _ = io.WriteString(conn, reply+"\n")
}

// agentAnswer is the line for a question. A reason is set apart by a space, without
// which HAProxy does not understand the word before it.
func (a *api) agentAnswer(text string) string {
	parts := strings.Split(text, "/")
	if len(parts) < 2 || len(parts) > 3 {
		return `down #send CLUSTER/SERVER or CLUSTER/SERVER/ROLE with agent-send, and a line feed`
	}
	c, ok := map[string]check{"": checkReadOnly, "any": checkReadOnly, "primary": checkPrimary, "replica": checkReplica}[append(parts, "")[2]]
	if !ok {
		return "down #the role is primary, replica or any"
	}
	m, _, why := a.only(parts[0])
	if m == nil {
		return "down #" + plain(why)
	}
	if parts[1] == "" {
		return "down #no server is named"
	}
	v, known := c.decide(m, question{server: parts[1], lag: -1, drained: true})
	switch {
	case !known:
		return "down #" + plain(v.Reason)
	case v.state == topology.LabelMaintenance:
		return "maint #" + plain(v.Reason)
	case v.OK && v.state == topology.LabelDrained:
		return "up drain" // without "up" it would stay down if it was
	case v.OK:
		return "up ready"
	}
	return "down #" + plain(v.Reason)
}

// plain keeps a text from ending the line.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
}
