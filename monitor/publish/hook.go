package publish

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// Hook is what is run at events: a command or a webhook.
type Hook struct {
	Name string
	// Command is a program, with its absolute path, and its arguments; URL is where
	// the event is posted. One of them is set.
	Command []string
	URL     string
	// Secret signs what is posted; "" for no signature.
	Secret string
	// Events and Clusters say which events; all where empty.
	Events, Clusters []string
	// OnlyPrimaryMonitor leaves events out that another monitor tells too.
	OnlyPrimaryMonitor bool
	// Timeout bounds each attempt; 10 s when zero.
	Timeout time.Duration
	// Retries is how often a failed attempt is repeated.
	Retries int
}

func (h Hook) wants(e Event) bool {
	return (len(h.Events) == 0 || slices.Contains(h.Events, e.Name)) && (len(h.Clusters) == 0 || slices.Contains(h.Clusters, e.Cluster)) &&
		(e.PrimaryMonitor || !h.OnlyPrimaryMonitor)
}

const (
	// maxQueue is how many events wait for a hook before the oldest is dropped.
	maxQueue       = 256
	defaultTimeout = 10 * time.Second
	maxBackoff     = 30 * time.Second
)

// Hooks runs hooks. Each has a queue and a goroutine of its own, so that its events
// come one after the other and in order, and a slow one delays no other.
type Hooks struct {
	log      zerolog.Logger
	counters *Counters
	backoff  time.Duration // of the first retry

	ctx  context.Context
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	workers []*worker
}

// NewHooks returns hooks that are none yet; counters may be nil.
func NewHooks(log zerolog.Logger, counters *Counters) *Hooks {
	ctx, stop := context.WithCancel(context.Background())
	if counters == nil {
		counters = NewCounters()
	}
	return &Hooks{log: log, counters: counters, backoff: time.Second, ctx: ctx, stop: stop}
}

// Set replaces the hooks. One that has not changed keeps its queue; one that is gone
// still gets what waits for it.
func (h *Hooks) Set(list []Hook) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	before := h.workers
	h.workers = nil
	for _, hook := range list {
		i := slices.IndexFunc(before, func(w *worker) bool { return reflect.DeepEqual(w.hook, hook) })
		if i >= 0 {
			h.workers = append(h.workers, before[i])
			before = slices.Delete(slices.Clone(before), i, i+1)
			continue
		}
		w := &worker{hooks: h, hook: hook, more: make(chan struct{}, 1)}
		h.workers = append(h.workers, w)
		h.wg.Go(w.run)
	}
	for _, w := range before {
		w.finish()
	}
}

// Offer gives an event to the hooks that want it. It never blocks.
func (h *Hooks) Offer(e Event) {
	h.counters.events.WithLabelValues(e.Cluster, e.Name).Inc()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range h.workers {
		if w.hook.wants(e) {
			w.put(e)
		}
	}
}

// Close lets the hooks finish what waits for them until ctx ends; what is running
// then is stopped. The error says what was not delivered.
func (h *Hooks) Close(ctx context.Context) error {
	h.mu.Lock()
	h.closed = true
	for _, w := range h.workers {
		w.finish()
	}
	h.mu.Unlock()
	done := make(chan struct{})
	go func() { h.wg.Wait(); close(done) }()
	defer h.stop()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	h.stop()
	<-done
	return errors.New("some hooks did not end in time: events were not delivered to them")
}

// worker runs one hook.
type worker struct {
	hooks *Hooks
	hook  Hook
	more  chan struct{}

	mu     sync.Mutex
	queue  []Event
	missed int
	last   bool // nothing more is put in
}

func (w *worker) put(e Event) {
	w.mu.Lock()
	dropped := len(w.queue) >= maxQueue
	if dropped {
		w.missed++
		w.queue = slices.Delete(w.queue, 0, 1)
	}
	w.queue = append(w.queue, e)
	w.hooks.counters.queue.WithLabelValues(w.hook.Name).Set(float64(len(w.queue)))
	w.mu.Unlock()
	if dropped {
		w.count("dropped")
		w.hooks.log.Error().Str("event", "hook_dropped").Str("hook", w.hook.Name).Int("waiting", maxQueue).Msg("the hook is too slow: the oldest event that waits for it is dropped")
	}
	w.wake()
}

func (w *worker) finish() {
	w.mu.Lock()
	w.last = true
	w.mu.Unlock()
	w.wake()
}

func (w *worker) wake() {
	select {
	case w.more <- struct{}{}:
	default:
	}
}

// take returns the next event; ok is false where none waits, end where none will.
func (w *worker) take() (e Event, ok, end bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) == 0 {
		return Event{}, false, w.last
	}
	e = w.queue[0]
	w.queue = slices.Delete(w.queue, 0, 1)
	e.Missed, w.missed = w.missed, 0
	w.hooks.counters.queue.WithLabelValues(w.hook.Name).Set(float64(len(w.queue)))
	return e, true, false
}

func (w *worker) run() {
	for {
		e, ok, end := w.take()
		switch {
		case ok:
			w.deliver(e)
			continue
		case end:
			w.hooks.counters.queue.DeleteLabelValues(w.hook.Name)
			return
		}
		select {
		case <-w.more:
		case <-w.hooks.ctx.Done():
			return
		}
	}
}

func (w *worker) count(outcome string) {
	w.hooks.counters.runs.WithLabelValues(w.hook.Name, outcome).Inc()
}

// errFinal marks failures that another attempt would not mend.
var errFinal = errors.New("not tried again")

// deliver tries until it is done, or for the last time.
func (w *worker) deliver(e Event) {
	body, err := json.Marshal(e)
	if err != nil {
		w.hooks.log.Error().Str("event", "hook_failed").Str("hook", w.hook.Name).AnErr("error", err).Msg("the event cannot be written as JSON")
		return
	}
	wait := w.hooks.backoff
	for attempt := 1; ; attempt++ {
		began := time.Now()
		output, err := w.attempt(e, body)
		l := w.hooks.log.Info()
		if err != nil {
			l = w.hooks.log.Warn()
		}
		again := err != nil && attempt <= w.hook.Retries && !errors.Is(err, errFinal) && w.hooks.ctx.Err() == nil
		if err != nil && !again {
			l = w.hooks.log.Error()
		}
		l = l.Str("hook", w.hook.Name).Str("of", e.Name).Str("id", e.ID).Str("cluster", e.Cluster).Int("attempt", attempt).
			Float64("duration_ms", float64(time.Since(began).Microseconds())/1000).Str("output", output)
		switch {
		case err == nil:
			w.count("done")
			l.Str("event", "hook_done").Msg("hook")
			return
		case !again:
			w.count("failed")
			l.Str("event", "hook_failed").AnErr("error", err).Msg("the hook has failed for good")
			return
		}
		w.count("retried")
		l.Str("event", "hook_retried").AnErr("error", err).Msg("the hook has failed and is tried again")
		select {
		case <-time.After(wait):
		case <-w.hooks.ctx.Done():
		}
		wait = min(2*wait, maxBackoff)
	}
}

func (w *worker) attempt(e Event, body []byte) (output string, err error) {
	timeout := w.hook.Timeout
	if timeout <= 0 {
		timeout = defaultTimeout
	}
	ctx, cancel := context.WithTimeout(w.hooks.ctx, timeout)
	defer cancel()
	if w.hook.URL != "" {
		return "", post(ctx, w.hook, e, body)
	}
	return runCommand(ctx, w.hook.Command, environment(e), body)
}
