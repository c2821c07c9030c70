package routing

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// levelKind is what a Level guarantees.
type levelKind uint8

const (
	kindStrong levelKind = iota
	kindSession
	kindEventual
	kindAny
)

// Level says what a read must be able to see. The zero value is Strong.
type Level struct {
	kind   levelKind
	maxAge time.Duration
	wait   time.Duration
	token  Token
	tag    string
}

// Levels without parameters. Do not assign to them.
var (
	// Strong reads from the primary only.
	Strong = Level{}
	// Any reads from any replica that replicates, however far behind it is.
	Any = Level{kind: kindAny}
)

// Session reads from a replica that has all that the token asks for. Where none is
// known to, one of them is waited for, at most Options.SessionWait; then the
// primary is read from. An empty token asks for nothing: that is Any.
func Session(t Token) Level { return Level{kind: kindSession, token: t} }

// Eventual reads from a replica whose data was complete at most maxAge ago, as far
// as the view proves it; else from the primary. Of less than twice the monitor's
// interval it is mostly the primary.
func Eventual(maxAge time.Duration) Level { return Level{kind: kindEventual, maxAge: maxAge} }

// Within returns the level with another limit than Options.SessionWait on how long
// a replica is waited for to reach the token; negative for not at all.
func (l Level) Within(d time.Duration) Level {
	l.wait = d
	return l
}

// Tagged returns the level restricted to replicas with a tag (ServerOptions.Tags).
// It does not restrict the primary.
func (l Level) Tagged(tag string) Level {
	l.tag = tag
	return l
}

// String names the level.
func (l Level) String() string {
	var s string
	switch l.kind {
	case kindStrong:
		s = "strong"
	case kindSession:
		s = "session"
	case kindEventual:
		s = fmt.Sprintf("eventual(%v)", l.maxAge)
	case kindAny:
		s = "any"
	}
	if l.tag != "" {
		s += " tagged " + l.tag
	}
	return s
}

// check returns an error for a level that means nothing.
func (l Level) check() error {
	if l.kind == kindEventual && l.maxAge <= 0 {
		return fmt.Errorf("level eventual: the age is %v: it must be more than zero; use Strong for reads that are never old", l.maxAge)
	}
	return nil
}

// Tracker carries what one client has written, so that what it reads has it. Put
// one into the context of a request with WithTracker: writes made with that
// context are noted, and reads at any level but Strong are served by a server that
// has them. It may be used from several goroutines.
type Tracker struct {
	mu     sync.Mutex
	token  Token
	strong atomic.Bool
	node   atomic.Pointer[Node]
}

// NewTracker makes a tracker that starts with what a token asks for.
func NewTracker(t Token) *Tracker { return &Tracker{token: t} }

// Token returns what the client needs to see.
func (t *Tracker) Token() Token {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.token
}

// Add makes later reads see what a token asks for, too.
func (t *Tracker) Add(u Token) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.token = t.token.Merge(u)
}

// lost notes a write whose token could not be read: what follows is read from the
// primary.
func (t *Tracker) lost() { t.strong.Store(true) }

// Strong reports whether reads have to go to the primary, because a write was made
// whose token is not known. Keep the client on the primary for a while.
func (t *Tracker) Strong() bool { return t.strong.Load() }

type callKey struct{}

// call is what a context says about the statements made with it.
type call struct {
	level   Level
	leveled bool
	tracker *Tracker
}

func callOf(ctx context.Context) call {
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		return *c
	}
	return call{}
}

// WithLevel returns a context whose reads through handles of Router.Connector and
// Router.DB have this level instead of the handle's own.
func WithLevel(ctx context.Context, l Level) context.Context {
	c := callOf(ctx)
	c.level, c.leveled = l, true
	return context.WithValue(ctx, callKey{}, &c)
}

// WithTracker returns a context whose writes are noted in t and whose reads see
// them.
func WithTracker(ctx context.Context, t *Tracker) context.Context {
	c := callOf(ctx)
	c.tracker = t
	return context.WithValue(ctx, callKey{}, &c)
}

// WithToken returns a context whose reads see what a token asks for.
func WithToken(ctx context.Context, t Token) context.Context {
	return WithTracker(ctx, NewTracker(t))
}
