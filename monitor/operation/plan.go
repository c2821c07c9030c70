package operation

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-ha/lockstep/topology"
	"github.com/lockstep-ha/lockstep/topology/gtid"
)

// Kind is what an operation does.
type Kind string

// Kinds of operations.
const (
	Failover         Kind = "failover"
	Switchover       Kind = "switchover"
	Rejoin           Kind = "rejoin"
	ResetReplication Kind = "reset-replication"
)

// Cluster is what is known of a cluster at one instant.
type Cluster struct {
	// Now is the instant of the newest observation.
	Now     time.Duration
	Servers []topology.Server
	Graph   topology.Graph
	// Primary is the index of the chosen primary, up or down; negative for none.
	Primary int
	// Former are servers that were the primary before.
	Former []string
	// Lingering are servers on which a former connection of this monitor still holds
	// locks: what was sent on it may still be carried out.
	Lingering []string
	// Had is, by replica of the primary, the most that it was seen to have received:
	// see Detector.Had.
	Had map[string]gtid.Position
}

// Index returns the index of a server, -1 for none of that name.
func (c Cluster) Index(name string) int {
	for i, s := range c.Servers {
		if s.Name == name {
			return i
		}
	}
	return -1
}

func (c Cluster) server(name string) (topology.Server, bool) {
	if i := c.Index(name); i >= 0 {
		return c.Servers[i], true
	}
	return topology.Server{}, false
}

// Plan is an operation that has not been run. A plan that was made from one
// observation is run on later ones: each step looks again.
type Plan struct {
	Kind Kind `json:"kind"`
	// From is the primary that is replaced, To the server that the plan is about:
	// the new primary, or the server that joins.
	From string `json:"from,omitempty"`
	To   string `json:"to"`
	// Reason says why To was chosen.
	Reason string `json:"reason,omitempty"`
	// Overrides are the checks that failed and were overridden by force.
	Overrides []string `json:"overrides,omitempty"`
	// Steps are run one after the other; when the last is done the operation has
	// had its effect, and To is published where it is the new primary.
	Steps []Step `json:"steps"`
	// Then are run after that, the list of each server in parallel to the others.
	// A failure there does not take back what was done.
	Then [][]Step `json:"then"`
}

// Step is one thing to do on one server.
type Step struct {
	Name   string `json:"name"`
	Server string `json:"server"`
	// Statement is what is sent, with secrets masked; or what is waited for.
	Statement string `json:"statement"`
	// LimitMS is how long it may take.
	LimitMS int64 `json:"limit_ms"`
	// Undo is what takes it back if a later step fails, "" for nothing.
	Undo string `json:"undo,omitempty"`
	// After is what is true after it.
	After string `json:"after"`

	sql, undo string
	// waits is how long the server itself may wait before it carries the step out.
	waits time.Duration
	// wait is the condition of a step that only looks; why says what is missing.
	wait func(c Cluster, since time.Duration) (ok bool, why string)
	// seen tells, after an answer was lost or a statement was refused half-way,
	// whether the step has had its effect all the same.
	seen func(s topology.Server) bool
	// special names the steps whose statements depend on what a server answers.
	special special
	// aside steps may take longer than a lease lasts: whether they had their effect
	// is seen, not awaited.
	aside bool
	// again is what a step that only looks sends while it waits; nil for nothing.
	again *Step
	// soft steps may fail: the run goes on with a warning.
	soft bool
	// purge names a server on which the connections of accounts that may write to a
	// read-only server are ended again before a wait is over; "" for none.
	purge string
	// turn marks the step after which To is the primary.
	turn bool
}

type special uint8

const (
	plain special = iota
	killSessions
	killClients
	killBlocked
	eventsOff
	eventsOn
)

func (s Step) limit() time.Duration { return time.Duration(s.LimitMS) * time.Millisecond }

// Refusal is one reason against an operation.
type Refusal struct {
	Code   string `json:"code"`
	Text   string `json:"text"`
	Remedy string `json:"remedy,omitempty"`
	// Force is true where a person may override it.
	Force bool `json:"can_be_forced,omitempty"`
}

// RefusedError is why there is no plan.
type RefusedError struct {
	Kind     Kind      `json:"kind"`
	Refusals []Refusal `json:"refusals"`
}

func (e *RefusedError) Error() string {
	parts := make([]string, len(e.Refusals))
	for i, r := range e.Refusals {
		parts[i] = r.Text
		if r.Remedy != "" {
			parts[i] += " (" + r.Remedy + ")"
		}
	}
	return fmt.Sprintf("%s refused: %s", e.Kind, strings.Join(parts, "; "))
}

// checks collects refusals; forced ones become overrides.
type checks struct {
	kind      Kind
	force     bool
	refusals  []Refusal
	overrides []string
	// lossy is set where a person has chosen a server though others have more.
	lossy bool
}

func (k *checks) refuse(code, remedy, format string, args ...any) {
	k.refusals = append(k.refusals, Refusal{Code: code, Text: fmt.Sprintf(format, args...), Remedy: remedy})
}

// doubt is a refusal that force overrides.
func (k *checks) doubt(code, remedy, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if k.force {
		k.overrides = append(k.overrides, text)
		k.lossy = k.lossy || slices.Contains([]string{"behind", "diverged", "replica_ahead", "replica_ahead_down", "thrown_away"}, code)
		return
	}
	k.refusals = append(k.refusals, Refusal{Code: code, Text: text, Remedy: remedy, Force: true})
}

func (k *checks) err() error {
	if len(k.refusals) == 0 {
		return nil
	}
	return &RefusedError{Kind: k.kind, Refusals: k.refusals}
}

// String is the plan as a person reads it.
func (p Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s", p.Kind)
	if p.From != "" {
		fmt.Fprintf(&b, " from %s", p.From)
	}
	word := "to"
	if p.Kind == Rejoin {
		word = "of"
	}
	fmt.Fprintf(&b, " %s %s\n", word, p.To)
	if p.Reason != "" {
		fmt.Fprintf(&b, "  %s\n", p.Reason)
	}
	for _, o := range p.Overrides {
		fmt.Fprintf(&b, "  overridden: %s\n", o)
	}
	n := 0
	write := func(s Step) {
		n++
		fmt.Fprintf(&b, "%3d. %s: %s (at most %v)\n", n, s.Server, s.Name, s.limit())
		for line := range strings.SplitSeq(s.Statement, "\n") {
			fmt.Fprintf(&b, "       %s\n", line)
		}
		if s.Undo != "" {
			fmt.Fprintf(&b, "     undo: %s\n", s.Undo)
		}
		fmt.Fprintf(&b, "     then: %s\n", s.After)
	}
	for _, s := range p.Steps {
		write(s)
	}
	if len(p.Then) > 0 {
		b.WriteString("  after that, on each server in parallel:\n")
	}
	for _, lane := range p.Then {
		for _, s := range lane {
			write(s)
		}
	}
	return b.String()
}
