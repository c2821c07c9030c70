package monitor

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/lockstep-ha/lockstep/monitor/operation"
)

// Errors of commands.
var (
	// ErrNotPrimaryMonitor is returned for commands that only the primary monitor
	// may carry out; the text says where that is.
	ErrNotPrimaryMonitor = errors.New("this is not the primary monitor")
	// ErrBusy is returned while another operation is under way.
	ErrBusy = errors.New("another operation is under way")
	// ErrInvalid is returned for commands that make no sense.
	ErrInvalid = errors.New("invalid command")
	// ErrStopped is returned when the monitor does not run.
	ErrStopped = errors.New("the monitor does not run")
)

// Action is what a person may ask a monitor to do.
type Action string

// Actions. Those up to ActDrain are for the primary monitor; they are kept where
// all monitors read them.
const (
	ActFailover         Action = "failover"
	ActSwitchover       Action = "switchover"
	ActRejoin           Action = "rejoin"
	ActResetReplication Action = "reset-replication"
	ActCancel           Action = "cancel"
	ActAcknowledge      Action = "ack"
	ActPause            Action = "pause"
	ActResume           Action = "resume"
	ActMaintenance      Action = "maintenance"
	ActPromotion        Action = "promotion"
	ActDrain            Action = "drain"
	// ActReleaseLocks is for any monitor and not for Command: see ReleaseLocks.
	ActReleaseLocks Action = "release-locks"
)

// Command is what a person asks for.
type Command struct {
	Action Action `json:"action"`
	// Server is the new primary of a failover, switchover or reset-replication
	// ("" lets the planner choose), the one that is to rejoin, or the one that is
	// set.
	Server string `json:"server,omitempty"`
	// Value is what is set: on or off for maintenance and drain; prefer, neutral or
	// must_not for promotion; "" to return to the configuration.
	Value string `json:"value,omitempty"`
	// Force overrides refusals that allow it.
	Force bool `json:"force,omitempty"`
	// DryRun returns the plan and changes nothing.
	DryRun bool `json:"dry_run,omitempty"`
}

// Reply is the answer to a command.
type Reply struct {
	// ID names the operation that was started: see Monitor.Operations.
	ID   string          `json:"id,omitempty"`
	Plan *operation.Plan `json:"plan,omitempty"`
	Text string          `json:"text"`
}

type asked struct {
	cmd   Command
	reply chan answered
	// taken is set by whoever is first: the loop that carries it out, or the one who
	// asked and gives up.
	taken *atomic.Bool
}

type answered struct {
	reply Reply
	err   error
}

// Command gives a command to the monitor and returns when it has been accepted
// or refused; an operation goes on after that. Errors are *operation.RefusedError
// and those above.
func (m *Monitor) Command(ctx context.Context, cmd Command) (Reply, error) {
	select {
	case <-m.stopped:
		return Reply{}, ErrStopped
	default:
	}
	a := asked{cmd, make(chan answered, 1), new(atomic.Bool)}
	select {
	case m.inbox <- a:
	default:
		return Reply{}, fmt.Errorf("%w: a command is waiting already", ErrBusy)
	}
	m.clock.Wake()
	select {
	case r := <-a.reply:
		return r.reply, r.err
	case <-m.stopped:
		return Reply{}, ErrStopped
	case <-ctx.Done():
		if a.taken.CompareAndSwap(false, true) {
			return Reply{}, fmt.Errorf("the command was not carried out: %w", ctx.Err())
		}
		r := <-a.reply // it is being carried out
		return r.reply, r.err
	}
}

// Operations returns the operations of this monitor, the newest first.
func (m *Monitor) Operations() []operation.Record {
	if l := m.records.Load(); l != nil {
		return *l
	}
	return []operation.Record{}
}

// Operation returns one of them.
func (m *Monitor) Operation(id string) (operation.Record, bool) {
	for _, r := range m.Operations() {
		if r.ID == id {
			return r, true
		}
	}
	return operation.Record{}, false
}
