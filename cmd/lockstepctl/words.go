package main

import (
	"fmt"
	"slices"

	"github.com/lockstep-ha/lockstep/election"
	"github.com/lockstep-ha/lockstep/monitor"
	"github.com/lockstep-ha/lockstep/monitor/operation"
	"github.com/lockstep-ha/lockstep/topology"
)

// holder says who holds a lock.
func holder(held *bool, owner *monitor.OwnerView) string {
	switch {
	case held == nil:
		return "unknown"
	case *held:
		return "this monitor"
	case owner == nil:
		return "free"
	}
	return ownerText(owner)
}

// ownerText writes user@host #id.
func ownerText(o *monitor.OwnerView) string {
	var s string
	switch {
	case o.ConnectionID == 0:
		return "an unknown connection"
	case o.User == "":
		s = fmt.Sprintf("#%d", o.ConnectionID)
	default:
		s = fmt.Sprintf("%s@%s #%d", clean(o.User), clean(o.Host), o.ConnectionID)
	}
	if !o.Trusted && !o.Self {
		s += " (not trusted)"
	}
	return s
}

// ownerOrNull writes the owner for the table of show monitor.
func ownerOrNull(o *monitor.OwnerView) string {
	if o == nil {
		return "null"
	}
	return ownerText(o)
}

// lagText writes the lag; "-" for a server that does not replicate.
func lagText(s monitor.ServerView) string {
	switch {
	case s.LagMS != nil:
		return ms(*s.LagMS)
	case s.Source == "" && len(s.Replication) == 0, slices.Contains(s.State, topology.LabelPrimary):
		return "-"
	}
	return "unknown"
}

func up(s monitor.ServerView) bool { return slices.Contains(s.State, topology.LabelRunning) }

func countUp(servers []monitor.ServerView) int {
	n := 0
	for _, s := range servers {
		if up(s) {
			n++
		}
	}
	return n
}

func endpoint(e *monitor.Endpoint) string {
	if e == nil {
		return "none"
	}
	return clean(e.Name + " " + e.Address)
}

func majority(t election.Tally) string {
	if t.Mode == election.None {
		return "not needed (none)"
	}
	return fmt.Sprintf("%d held, %d needed, %d running, %d in all (%s)", t.Held, t.Needed, t.Running, t.Total, t.Mode)
}

func roleColour(r election.Role) string {
	switch r {
	case election.Primary:
		return green
	case election.Settling:
		return yellow
	case election.Secondary:
	}
	return ""
}

// timingRows are the derived intervals.
func timingRows(t monitor.TimingView) [][]string {
	failcount := fmt.Sprint(t.Failcount)
	if t.Failcount < t.SafeFailcount {
		failcount += " (unsafe)"
	}
	return [][]string{
		{"Interval", ms(t.IntervalMS), "from tick to tick"},
		{"Timeout", ms(t.TimeoutMS), "of each network operation"},
		{"Lock wait_timeout (W)", ms(t.WaitTimeoutMS), "how long the locks of a vanished monitor stay"},
		{"Notice (N)", ms(t.NoticeMS), "how long a monitor needs to notice a lost lock"},
		{"Lease", ms(t.LeaseMS), "how long a lock is believed held"},
		{"Failcount", failcount, "missed ticks before a failover"},
		{"Smallest safe failcount", fmt.Sprint(t.SafeFailcount), "no stale lock is believed in when a failover starts"},
		{"Settle", ms(t.SettleMS), "from gaining the majority to acting on it"},
		{"Failover starts after", ms(t.FailoverAfterMS), "from the first missed tick"},
		{"Worst case", ms(t.FailoverWorstMS), "if each missed tick waits for a timeout"},
	}
}

// movement writes "switchover from s1 to s2" or "rejoin of s1".
func movement(kind operation.Kind, from, to string) string {
	text := string(kind)
	if from != "" {
		text += " from " + from
	}
	if kind == operation.Rejoin {
		return clean(text + " of " + to)
	}
	return clean(text + " to " + to)
}

// operationName is an operation under way, "-" for none.
func operationName(r *monitor.RunningView) string {
	if r == nil {
		return "-"
	}
	return movement(r.Kind, r.From, r.To)
}

// operationStep is an operation with the step under way.
func operationStep(r *monitor.RunningView) string {
	if r == nil || r.Step == "" {
		return operationName(r)
	}
	return operationName(r) + ", at the step " + clean(r.Step)
}

// operationDetail is an operation with its id and the step under way.
func operationDetail(r *monitor.RunningView) string {
	if r == nil {
		return "-"
	}
	return operationStep(r) + " (" + clean(r.ID) + ")"
}
