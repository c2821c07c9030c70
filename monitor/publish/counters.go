package publish

import "github.com/prometheus/client_golang/prometheus"

// Counters are the metrics of what is published; register them where the daemon's
// are.
type Counters struct {
	events *prometheus.CounterVec
	runs   *prometheus.CounterVec
	queue  *prometheus.GaugeVec
	stores *prometheus.CounterVec
}

var _ prometheus.Collector = (*Counters)(nil)

// NewCounters returns counters that stand at zero.
func NewCounters() *Counters {
	return &Counters{
		events: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lockstep_events_total", Help: "Events by name, as this monitor has seen them."}, []string{"cluster", "event"}),
		runs: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lockstep_hook_runs_total",
			Help: "Attempts of hooks by outcome: done, retried (failed and tried again), failed (for good); dropped are events for which the hook was too slow."}, []string{"hook", "outcome"}),
		queue: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "lockstep_hook_queue_length", Help: "Events that wait for a hook."}, []string{"hook"}),
		stores: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lockstep_publications_total",
			Help: "Attempts to publish the primary in consul, etcd or haproxy by outcome: written, conflict (another monitor was first), failed."}, []string{"store", "cluster", "outcome"}),
	}
}

func (c *Counters) all() []prometheus.Collector {
	return []prometheus.Collector{c.events, c.runs, c.queue, c.stores}
}

// Describe implements prometheus.Collector.
func (c *Counters) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range c.all() {
		m.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (c *Counters) Collect(ch chan<- prometheus.Metric) {
	for _, m := range c.all() {
		m.Collect(ch)
	}
}
