package api

import (
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/lockstep-ha/lockstep/monitor"
)

// Metrics are the metrics of a daemon. What they say of clusters and servers is
// taken from the views when they are asked for.
type Metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	streams  prometheus.Gauge
	agents   *prometheus.CounterVec
}

// Names of counters that are not read off a view.
const (
	requestsName = "lockstep_http_requests_total"
	requestsHelp = "HTTP requests by route and status."
	streamsName  = "lockstep_http_event_streams"
	streamsHelp  = "Streams of views that are open."
	agentsName   = "lockstep_agent_checks_total"
	agentsHelp   = "Agent checks of HAProxy by their answer: up, drain, maint or down."
)

// NewMetrics makes the metrics of a daemon with these monitors. version is that of
// the program.
func NewMetrics(list Monitors, version string) *Metrics { return newMetrics(sources(list), version) }

func newMetrics(list func() []source, version string) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: requestsName, Help: requestsHelp}, []string{"method", "path", "code"}),
		streams:  prometheus.NewGauge(prometheus.GaugeOpts{Name: streamsName, Help: streamsHelp}),
		agents:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: agentsName, Help: agentsHelp}, []string{"answer"}),
	}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		m.requests, m.streams, m.agents, collector{list, version})
	return m
}

// Registerer takes further metrics of the daemon, such as those of its hooks.
func (m *Metrics) Registerer() prometheus.Registerer { return m.registry }

func (m *Metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
}

// sample is one value of a metric.
type sample struct {
	value  float64
	labels []string
}

// family is a metric that is read off a view.
type family struct {
	name, help string
	labels     []string // after cluster, and server where there is one
	kind       prometheus.ValueType
	cluster    func(v *monitor.View, live bool) []sample
	server     func(v *monitor.View, s *monitor.ServerView) []sample
}

func (f *family) allLabels() []string {
	switch {
	case f.server != nil:
		return append([]string{"cluster", "server"}, f.labels...)
	case f.cluster != nil:
		return append([]string{"cluster"}, f.labels...)
	}
	return f.labels
}

func (f *family) desc() *prometheus.Desc {
	return prometheus.NewDesc(f.name, f.help, f.allLabels(), nil)
}

// collector reads the views.
type collector struct {
	list    func() []source
	version string
}

// Describe implements prometheus.Collector.
func (c collector) Describe(ch chan<- *prometheus.Desc) {
	for i := range families {
		ch <- families[i].desc()
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	list := c.list()
	views := make([]monitor.View, len(list))
	for i, m := range list {
		views[i] = m.View()
	}
	for i := range families {
		f := &families[i]
		desc := f.desc()
		if f.cluster == nil && f.server == nil {
			ch <- prometheus.MustNewConstMetric(desc, f.kind, 1, strings.ToValidUTF8(c.version, "?"), runtime.Version())
		}
		for j := range views {
			v := &views[j]
			if f.cluster != nil {
				emit(ch, desc, f.kind, f.cluster(v, list[j].Live()), v.Cluster)
			}
			for k := range v.Servers {
				if f.server != nil {
					emit(ch, desc, f.kind, f.server(v, &v.Servers[k]), v.Cluster, v.Servers[k].Name)
				}
			}
		}
	}
}

func emit(ch chan<- prometheus.Metric, desc *prometheus.Desc, kind prometheus.ValueType, samples []sample, labels ...string) {
	for _, s := range samples {
		all := slices.Concat(labels, s.labels)
		for i := range all {
			// What servers say of themselves need not be UTF-8.
			all[i] = strings.ToValidUTF8(all[i], "?")
		}
		ch <- prometheus.MustNewConstMetric(desc, kind, s.value, all...)
	}
}

func one(value float64, labels ...string) []sample { return []sample{{value, labels}} }

func yesNo(b bool, labels ...string) []sample {
	if b {
		return one(1, labels...)
	}
	return one(0, labels...)
}

// known is a sample for a value that is known, none for nil.
func known(b *bool) []sample {
	if b == nil {
		return nil
	}
	return yesNo(*b)
}

func millis(ms int64) []sample { return one(float64(ms) / 1000) }

// statusCode is the label for a status.
func statusCode(n int) string { return strconv.Itoa(n) }
