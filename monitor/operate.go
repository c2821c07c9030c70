package monitor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/lockstep-ha/lockstep/election"
	"github.com/lockstep-ha/lockstep/monitor/operation"
	"github.com/lockstep-ha/lockstep/topology"
)

// maxRecords bounds the history that a monitor keeps.
const maxRecords = 100

// operations is what the loop remembers of operations. It is owned by the
// goroutine of Run.
type operations struct {
	detector operation.Detector
	verdict  operation.Verdict
	// current moves the primary; joins bring servers to it, by name.
	current *operation.Run
	joins   map[string]*operation.Run
	// retryAt is the earliest instant of the next automatic failover after one that
	// failed; joinAt the same for each server.
	retryAt time.Duration
	joinAt  map[string]time.Duration
	// fenceAt is the earliest instant at which read_only is set on a server again.
	fenceAt map[string]time.Duration
	// refused is why a server is not joined.
	refused map[string]operation.Refusal
	// writable is why a server that should be read-only is not.
	writable map[string]string
	// strayAt is since when a server has been where it does not belong.
	strayAt map[string]time.Duration
	// former are the servers that this monitor has moved the primary away from.
	former map[string]bool
	// before are the servers as the tick before saw them.
	before  []topology.Server
	fencing fencing
	// acting is true while this monitor is the settled primary monitor; last is what
	// it has acted with.
	acting bool
	last   *hands
	serial int
	closed []operation.Record
	// errant is what the binary logs of servers that are not joined say.
	errant map[string]errant
	// notYet is why no failover is started though the primary has failed.
	notYet string
	logged map[string]int
	// count is how many operations have ended, published how many of them other
	// goroutines can see.
	count, published int
}

func newOperations() operations {
	return operations{joins: map[string]*operation.Run{}, joinAt: map[string]time.Duration{}, fenceAt: map[string]time.Duration{},
		writable: map[string]string{}, strayAt: map[string]time.Duration{}, former: map[string]bool{},
		refused: map[string]operation.Refusal{}, errant: map[string]errant{}, logged: map[string]int{}}
}

// assess looks for a failed primary. It runs in every tick, whatever the role.
func (m *Monitor) assess(s scene) {
	since := s.now
	if s.d.Role != election.Secondary && s.d.Since != 0 {
		since = s.d.Since
	}
	if s.d.Tally.Mode == election.None {
		since = 0
	}
	m.ops.verdict = m.ops.detector.Look(operation.Sight{Cluster: m.sight(s), Timing: s.timing, Mode: s.d.Tally.Mode, MajoritySince: since, Policy: m.d.cfg.Policy})
}

// operate is step 6 of a tick: what a primary monitor changes on the servers. It
// returns after what time the next tick should begin, zero for an interval.
func (m *Monitor) operate(ctx context.Context, fleet Fleet, s scene) (again time.Duration) {
	h := &hands{m: m, fleet: fleet, s: s}
	defer m.record()
	defer func() { m.ops.before = slices.Clone(s.servers) }()
	notPrimary := func(Command) (Reply, error) {
		return Reply{}, fmt.Errorf("%w: %s; %s", ErrNotPrimaryMonitor, s.d.Reason, primaryMonitor(s))
	}
	if s.d.Role != election.Primary && !s.d.Quick {
		m.fenceReturning(fleet, s, false)
		m.abandon(h, s)
		m.answer(notPrimary)
		m.fenceMinority(ctx, fleet, s)
		m.readState(ctx, h)
		m.ops.acting, m.ops.notYet = false, ""
		return 0
	}
	if !m.ops.acting {
		m.ops.acting, m.shared.read = true, false // what others have done since counts
	}
	m.ops.last = h
	if s.d.Quick {
		// A majority that has not settled replaces a dead primary, and no more.
		m.fenceReturning(fleet, s, false)
		again = m.readState(ctx, h)
		m.answer(notPrimary)
		m.failover(ctx, h)
		return soonest(soonest(again, m.advance(ctx, h)), m.urgent(s))
	}
	m.fenceReturning(fleet, s, true)
	again = m.readState(ctx, h)
	if run := m.ops.current; run != nil && run.Turned() && run.Plan.To != m.mem.chosen {
		run.Abandon(h, m.mem.chosen+" is the primary now")
		m.finish(h.Now())
	}
	m.answer(func(c Command) (Reply, error) { return m.command(ctx, h, c) })
	m.failover(ctx, h)
	m.leaveLowDisk(ctx, h)
	chosen := m.mem.chosen
	again = soonest(again, m.advance(ctx, h))
	if m.foreground() || m.mem.chosen != chosen {
		// What this tick has seen is older than the new primary.
		return soonest(again, m.urgent(s))
	}
	m.enforce(ctx, h)
	if m.mem.offered != "" && m.mem.offered == m.mem.chosen {
		m.notePrimary(m.mem.chosen)
	}
	again = soonest(again, m.rejoin(ctx, h))
	m.writeState(ctx, h)
	return soonest(again, m.urgent(s))
}

// urgent is how soon to look again while the primary has failed and this monitor
// is to replace it.
func (m *Monitor) urgent(s scene) time.Duration {
	v := m.ops.verdict
	switch {
	case !v.Failed || !m.d.cfg.Policy.AutoFailover || m.shared.paused != "" || m.blocked(s.now) != "":
		return 0
	case v.Dead && s.now < v.At:
		return max(min(v.At-s.now, 20*time.Millisecond), minGap)
	case v.Almost:
		return 20 * time.Millisecond
	case v.At != 0 && s.now < v.At-m.headStart():
		return max(min(v.At-m.headStart()-s.now, s.timing.Interval/4), minGap)
	}
	return s.timing.Interval / 4
}

// foreground reports whether an operation is under way that has not had its effect.
func (m *Monitor) foreground() bool {
	return m.ops.current != nil && !m.ops.current.Turned() && !m.ops.current.Ended()
}

// answer takes the waiting command, if any.
func (m *Monitor) answer(f func(Command) (Reply, error)) {
	select {
	case a := <-m.inbox:
		if !a.taken.CompareAndSwap(false, true) {
			return // whoever asked does not wait for it any more
		}
		r, err := f(a.cmd)
		m.record()
		a.reply <- answered{r, err}
	default:
	}
}

// abandon ends everything under way: the majority is gone.
func (m *Monitor) abandon(h *hands, s scene) {
	for _, r := range m.running() {
		r.Abandon(h, "the majority was lost: "+s.d.Reason)
	}
	m.finish(h.Now())
}

// wrapUp takes back, when the monitor stops, what an operation has begun and not
// ended. What follows a promotion is left to the next primary monitor.
func (m *Monitor) wrapUp(ctx context.Context) {
	h := m.ops.last
	if h == nil || !m.ops.acting || len(m.running()) == 0 {
		return
	}
	if m.foreground() {
		m.ops.current.Cancel()
		m.ops.current.Advance(ctx, m.sight(h.s), h)
	}
	for _, r := range m.running() {
		if !r.Ended() {
			r.Abandon(h, "the monitor is stopping")
		}
	}
	m.finish(h.Now())
	m.record()
}

func (m *Monitor) running() []*operation.Run {
	var out []*operation.Run
	if m.ops.current != nil {
		out = append(out, m.ops.current)
	}
	for _, s := range m.d.servers {
		if r := m.ops.joins[s.Name]; r != nil {
			out = append(out, r)
		}
	}
	return out
}

// failover starts an automatic failover where one is due, and says why not.
func (m *Monitor) failover(_ context.Context, h *hands) {
	m.ops.notYet = ""
	v, now := m.ops.verdict, h.Now()
	if !v.Failed || m.foreground() {
		return
	}
	policy := m.d.cfg.Policy
	switch why := m.blocked(now); {
	case !policy.AutoFailover:
		m.ops.notYet = "auto_failover is off: a person has to start the failover"
	case m.shared.paused != "":
		m.ops.notYet = m.shared.paused
	case why != "":
		m.ops.notYet = why
	case v.At == 0 || v.At-now > m.headStart() || (h.s.d.Quick && !v.Dead):
		m.ops.notYet = v.Reason
	case now < m.ops.retryAt:
		m.ops.notYet = fmt.Sprintf("the last attempt failed; the next is in %v", (m.ops.retryAt - now).Round(time.Millisecond))
	case v.Dead && now < v.At:
		m.ops.notYet = v.Reason
	default:
		r := operation.Request{Kind: operation.Failover, Automatic: true, NotBefore: v.At}
		plan, err := operation.PlanFailover(m.sight(h.s), policy, r)
		if err != nil {
			m.ops.notYet = err.Error()
			return
		}
		if m.ops.notYet = m.brake.take(m.cluster, now); m.ops.notYet != "" {
			return
		}
		plan.Reason = v.Reason + "; " + plan.Reason
		m.begin(h, plan, r)
	}
}

// headStart is how long before a failover may promote it begins with what can be
// taken back: an IO thread whose source does not answer takes a second to stop.
func (m *Monitor) headStart() time.Duration { return min(1500*time.Millisecond, m.timing.Notice/2) }

// begin starts an operation that moves the primary. What was under way in the
// background gives way.
func (m *Monitor) begin(h *hands, plan operation.Plan, r operation.Request) *operation.Run {
	for _, old := range m.running() {
		old.Abandon(h, "a "+string(plan.Kind)+" has begun")
	}
	m.finish(h.Now())
	m.ops.current = m.start(h, plan, r)
	return m.ops.current
}

// beginNoted is begin of a plan that somebody has asked for. That it may leave the
// primary read-only is noted first, where the next primary monitor finds it.
func (m *Monitor) beginNoted(ctx context.Context, h *hands, plan operation.Plan, r operation.Request) *operation.Run {
	if mv, ok := leavesReadOnly(plan); ok {
		m.noteMove(mv, false)
		m.writeState(ctx, h)
	}
	return m.begin(h, plan, r)
}

func (m *Monitor) start(h *hands, plan operation.Plan, r operation.Request) *operation.Run {
	m.ops.serial++
	id := fmt.Sprintf("%s-%s-%d", h.Wall().Format("20060102T150405"), m.d.cfg.Name, m.ops.serial)
	m.log.Warn().Str("event", "operation_started").Str("id", id).Str("kind", string(plan.Kind)).Str("from", plan.From).Str("to", plan.To).
		Bool("automatic", r.Automatic).Str("reason", plan.Reason).Msg("operation started")
	return operation.Start(id, plan, m.d.cfg.Policy, r, h)
}

// advance goes on with everything under way.
func (m *Monitor) advance(ctx context.Context, h *hands) (again time.Duration) {
	c := m.sight(h.s)
	if run := m.ops.current; run != nil {
		turned := run.Turned()
		again = run.Advance(ctx, c, h)
		if run.Turned() && !turned {
			m.turn(h, run)
			again = minGap
		}
	}
	for _, s := range m.d.servers {
		if r := m.ops.joins[s.Name]; r != nil && !h.s.d.Quick {
			again = soonest(again, r.Advance(ctx, c, h))
		}
	}
	m.finish(h.Now())
	return again
}

// turn makes the server that an operation has promoted the chosen primary. The
// operation has waited for as long as stale views of others can name the one before.
func (m *Monitor) turn(h *hands, run *operation.Run) {
	m.mem = memory{chosen: run.Plan.To, promoted: run.Plan.To, offeredAt: h.Now(), led: true}
	m.ops.former[run.Plan.From] = true
	delete(m.ops.former, run.Plan.To)
	m.notePrimary(run.Plan.To)
	if run.Plan.Kind == operation.Failover {
		m.noteFailover(h.Now(), run.Plan)
	}
}

// finish moves what has ended into the history.
func (m *Monitor) finish(now time.Duration) {
	pause := m.timing.Settle
	if r := m.ops.current; r != nil && r.Ended() {
		m.ended(r)
		if mv, ok := leavesReadOnly(r.Plan); ok && !r.Left() {
			m.noteMove(mv, true)
		}
		if r.Record.Outcome != operation.Done {
			m.ops.retryAt = now + min(pause, 5*m.timing.Interval)
		}
		m.ops.current = nil
	}
	for _, s := range m.d.servers {
		r := m.ops.joins[s.Name]
		if r == nil || !r.Ended() {
			continue
		}
		m.ended(r)
		delete(m.ops.joins, s.Name)
		if r.Record.Outcome != operation.Done {
			m.ops.joinAt[s.Name] = now + pause
			m.ops.refused[s.Name] = operation.Refusal{Code: "rejoin_failed", Text: "the last attempt to join it failed: " + r.Record.Detail, Remedy: "it is tried again; see the history"}
		}
	}
}

func (m *Monitor) ended(r *operation.Run) {
	m.ops.count++
	m.ops.closed = append([]operation.Record{r.Record}, m.ops.closed...)
	if len(m.ops.closed) > maxRecords {
		m.ops.closed = m.ops.closed[:maxRecords]
	}
	e := m.log.Info()
	if r.Record.Outcome != operation.Done || len(r.Record.Warnings) > 0 {
		e = m.log.Warn()
	}
	e.Str("event", "operation_ended").Str("id", r.Record.ID).Str("kind", string(r.Record.Kind)).Str("from", r.Record.From).Str("to", r.Record.To).
		Str("outcome", r.Record.Outcome).Str("detail", r.Record.Detail).Strs("warnings", r.Record.Warnings).
		Dur("took_ms", r.Record.EndedAt.Sub(r.Record.StartedAt)).Msg("operation ended")
	delete(m.ops.logged, r.Record.ID)
}

// record makes what happened visible to other goroutines, and logs steps as they end.
func (m *Monitor) record() {
	runs := m.running()
	if len(runs) == 0 && m.ops.count == m.ops.published {
		return
	}
	var list []operation.Record
	for _, r := range runs {
		rec := r.Record
		rec.Steps = slices.Clone(rec.Steps)
		rec.Warnings = slices.Clone(rec.Warnings)
		list = append(list, rec)
		n := m.ops.logged[rec.ID]
		for n < len(rec.Steps) && rec.Steps[n].Outcome != operation.Running {
			st := rec.Steps[n]
			m.log.Info().Str("event", "operation_step").Str("id", rec.ID).Str("step", st.Name).Str("server", st.Server).Str("outcome", st.Outcome).
				Float64("took_ms", st.TookMS).Str("detail", st.Detail).Msg("step")
			n++
		}
		m.ops.logged[rec.ID] = n
	}
	m.ops.published = m.ops.count
	list = append(list, m.ops.closed...)
	m.records.Store(&list)
}

// command carries out what a person asks of the primary monitor.
func (m *Monitor) command(ctx context.Context, h *hands, c Command) (Reply, error) {
	switch c.Action {
	case ActFailover, ActSwitchover, ActResetReplication, ActRejoin:
	default:
		if c.DryRun {
			return Reply{}, fmt.Errorf("%w: there is no plan to show for %s", ErrInvalid, c.Action)
		}
	}
	switch c.Action {
	case ActFailover, ActSwitchover, ActResetReplication, ActRejoin:
		return m.operation(ctx, h, c)
	case ActCancel:
		if m.ops.current == nil || !m.ops.current.Cancel() {
			return Reply{}, fmt.Errorf("%w: no operation is under way that could be cancelled", ErrInvalid)
		}
		return Reply{ID: m.ops.current.Record.ID, Text: "it is cancelled before its next step"}, nil
	case ActAcknowledge, ActPause, ActResume, ActMaintenance, ActPromotion, ActDrain:
		return m.setShared(h, c)
	}
	return Reply{}, fmt.Errorf("%w: there is no action %q", ErrInvalid, c.Action)
}

func (m *Monitor) operation(ctx context.Context, h *hands, c Command) (Reply, error) {
	r := operation.Request{Kind: operation.Kind(c.Action), To: c.Server, Force: c.Force}
	cluster, policy := m.sight(h.s), m.d.cfg.Policy
	if m.foreground() && !c.DryRun {
		return Reply{}, fmt.Errorf("%w: %s %s", ErrBusy, m.ops.current.Plan.Kind, m.ops.current.Record.ID)
	}
	var plan operation.Plan
	var err error
	switch c.Action {
	case ActFailover:
		if refusal := m.manualFailover(h, c.Force); refusal != nil {
			return Reply{}, &operation.RefusedError{Kind: operation.Failover, Refusals: []operation.Refusal{*refusal}}
		}
		plan, err = operation.PlanFailover(cluster, policy, r)
	case ActSwitchover:
		plan, err = operation.PlanSwitchover(cluster, policy, r)
	case ActRejoin:
		plan, err = m.planRejoin(ctx, h, r)
	default:
		plan, err = operation.PlanReset(cluster, policy, r)
	}
	if err != nil {
		return Reply{}, err
	}
	if c.DryRun {
		return Reply{Plan: &plan, Text: plan.String()}, nil
	}
	if c.Action == ActRejoin {
		if old := m.ops.joins[plan.To]; old != nil {
			return Reply{}, fmt.Errorf("%w: %s is being joined", ErrBusy, plan.To)
		}
		run := m.start(h, plan, r)
		m.ops.joins[plan.To] = run
		return Reply{ID: run.Record.ID, Plan: &plan, Text: "started"}, nil
	}
	run := m.beginNoted(ctx, h, plan, r)
	return Reply{ID: run.Record.ID, Plan: &plan, Text: "started"}, nil
}

// leavesReadOnly reports whether a plan that is cut short can leave the primary
// read-only, and between which servers the primary moves.
func leavesReadOnly(p operation.Plan) (operation.Plan, bool) {
	switch p.Kind {
	case operation.Switchover:
		return p, true
	case operation.ResetReplication:
		return operation.Plan{From: cmp.Or(p.From, p.To), To: p.To}, true
	case operation.Failover, operation.Rejoin:
	}
	return operation.Plan{}, false
}

// manualFailover says why a person may not start a failover yet.
func (m *Monitor) manualFailover(h *hands, force bool) *operation.Refusal {
	v := m.ops.verdict
	i := indexOf(h.s.servers, m.mem.chosen)
	switch {
	case i >= 0 && h.s.servers[i].Up():
		return &operation.Refusal{Code: "primary_up", Text: fmt.Sprintf("the primary %s answers", m.mem.chosen), Remedy: "use switchover"}
	case v.Due(h.Now()) || force || i < 0:
		return nil
	}
	return &operation.Refusal{Code: "not_safe_yet", Text: v.Reason, Remedy: "wait, or override if you know that it is off", Force: true}
}
