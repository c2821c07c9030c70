package api

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
)

// Option changes what a Handler or an agent does.
type Option func(*api)

// WithMetrics serves metrics at /metrics and counts requests among them.
func WithMetrics(m *Metrics) Option { return func(a *api) { a.metrics = m } }

// WithAuth says who may do what.
func WithAuth(auth *Auth) Option { return func(a *api) { a.auth = auth } }

// WithLogger logs every call that changes something, and every one that was denied.
func WithLogger(l zerolog.Logger) Option { return func(a *api) { a.log = l } }

func (a *api) with(opts []Option) *api {
	for _, o := range opts {
		o(a)
	}
	return a
}

// count counts a request once it has been answered.
func (a *api) count(path string, h http.HandlerFunc) http.HandlerFunc {
	if a.metrics == nil {
		return h
	}
	return func(w http.ResponseWriter, r *http.Request) {
		s := &statusWriter{ResponseWriter: w, status: http.StatusOK}
		defer func() {
			a.metrics.requests.With(prometheus.Labels{"path": path, "method": knownMethod(r.Method), "code": statusCode(s.status)}).Inc()
		}()
		h(s, r)
	}
}

// knownMethod keeps a client from making labels up.
func knownMethod(m string) string {
	switch m {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch:
		return m
	}
	return "other"
}

// statusWriter remembers the status of an answer.
type statusWriter struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements http.ResponseWriter.
func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.ResponseController reach the connection.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
