package publish

import (
	"context"
	"time"

	"github.com/rs/zerolog"

	"github.com/lockstep-ha/lockstep/monitor"
	"github.com/lockstep-ha/lockstep/monitor/operation"
)

// Source is a monitor.
type Source interface {
	View() monitor.View
	Watch(ctx context.Context, fn func(monitor.View))
	Operations() []operation.Record
}

// Follow logs the events of a monitor and calls fn with each, in order, until ctx
// ends; then it looks once more, so that the end of the monitor is told if that came
// before. A primary that expires is noticed though the monitor stands still.
func Follow(ctx context.Context, src Source, log zerolog.Logger, fn func(Event)) {
	var d Deriver
	each(ctx, src, func(v monitor.View) {
		for _, e := range d.Next(v, src.Operations()) {
			logEvent(log, e)
			fn(e)
		}
	})
}

// each calls fn with the view at every change, when a primary that is offered
// expires, at least once an interval, and once more when ctx has ended.
func each(ctx context.Context, src Source, fn func(monitor.View)) {
	changed := make(chan struct{}, 1)
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		src.Watch(ctx, func(monitor.View) {
			select {
			case changed <- struct{}{}:
			default:
			}
		})
	}()
	for ctx.Err() == nil {
		v := src.View()
		fn(v)
		wait := max(time.Duration(v.Monitor.Timing.IntervalMS)*time.Millisecond, 10*time.Millisecond)
		if v.Primary != nil {
			wait = min(wait, time.Duration(v.ValidForMS+1)*time.Millisecond)
		}
		timer := time.NewTimer(wait)
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
	<-watching
	fn(src.View())
}

func logEvent(log zerolog.Logger, e Event) {
	l := log.Info()
	switch e.Name {
	case PrimaryLost, PrimaryFailed, MajorityLost, ServerDown, ReplicationStopped, FaultRaised, FailoverBlocked:
		l = log.Warn()
	}
	l.Str("event", e.Name).Str("id", e.ID).Str("cluster", e.Cluster).Bool("primary_monitor", e.PrimaryMonitor)
	for key, value := range map[string]string{"server": e.Server, "from": e.From, "to": e.To, "operation": e.Operation, "outcome": e.Outcome, "code": e.Code} {
		if value != "" {
			l.Str(key, value)
		}
	}
	l.Str("reason", e.Reason).Msg("event")
}
