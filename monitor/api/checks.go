package api

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-ha/lockstep/monitor"
	"github.com/lockstep-ha/lockstep/topology"
)

// question is what a load balancer asks about one server.
type question struct {
	server string
	// lag is the most that a replica may be behind; negative for any.
	lag time.Duration
	// orphans lets a replica be read while no primary is offered.
	orphans bool
	// drained takes a drained replica for one that may be used.
	drained bool
}

// verdict is the answer to a question.
type verdict struct {
	OK      bool   `json:"ok"`
	Cluster string `json:"cluster"`
	Server  string `json:"server,omitempty"`
	// Reason names servers, but no address, account or error of theirs.
	Reason string `json:"reason"`
	// state is what takes a server out of use by a person's word: LabelMaintenance,
	// LabelDrained or "".
	state string
}

// check is one kind of question. It is asked of a view that is live: the monitor
// has looked at the servers not long ago.
type check struct {
	// alone is true where the question makes sense without a server.
	alone bool
	ask   func(v monitor.View, s *monitor.ServerView, q question) (bool, string)
}

var (
	checkPrimary   = check{true, isPrimary}
	checkReadWrite = check{false, isPrimary}
	checkReplica   = check{false, isReplica}
	checkReadOnly  = check{false, func(v monitor.View, s *monitor.ServerView, q question) (bool, string) {
		if ok, why := isPrimary(v, s, q); ok {
			return true, why
		}
		return isReplica(v, s, q)
	}}
	checkHealth = check{true, isHealthy}
)

func isPrimary(v monitor.View, s *monitor.ServerView, _ question) (bool, string) {
	switch {
	case v.Primary == nil || v.ValidForMS <= 0:
		return false, "no primary is offered"
	case s == nil:
		return true, v.Primary.Name + " is the primary"
	case s.Name != v.Primary.Name:
		return false, fmt.Sprintf("%s is not the primary: %s is", s.Name, v.Primary.Name)
	}
	return true, s.Name + " is the primary"
}

func isReplica(v monitor.View, s *monitor.ServerView, q question) (bool, string) {
	has := func(label string) bool { return slices.Contains(s.State, label) }
	switch {
	case has(topology.LabelMaintenance):
		return false, s.Name + " is in maintenance"
	case has(topology.LabelDrained) && !q.drained:
		return false, s.Name + " is drained"
	case !fresh(v, s):
		return false, s.Name + " has not answered of late"
	case !has(topology.LabelReplica):
		return false, s.Name + " is not a replica"
	case v.Primary == nil && !q.orphans:
		return false, "no primary is offered"
	case q.lag >= 0 && s.LagMS == nil:
		return false, "the lag of " + s.Name + " is not known"
	case q.lag >= 0 && *s.LagMS > q.lag.Milliseconds():
		return false, fmt.Sprintf("%s is %v behind", s.Name, time.Duration(*s.LagMS)*time.Millisecond)
	}
	return true, s.Name + " is a replica"
}

func isHealthy(v monitor.View, s *monitor.ServerView, _ question) (bool, string) {
	switch {
	case s == nil:
		return true, "the monitor looks at the servers"
	case !fresh(v, s) || !slices.Contains(s.State, topology.LabelRunning):
		return false, s.Name + " has not answered of late"
	case slices.Contains(s.State, topology.LabelMaintenance):
		return false, s.Name + " is in maintenance"
	}
	return true, s.Name + " answers"
}

// fresh reports whether what is known of a server is no older than a lease.
func fresh(v monitor.View, s *monitor.ServerView) bool {
	return s.ProbeAgeMS >= 0 && s.ProbeAgeMS <= v.Monitor.Timing.LeaseMS
}

// decide answers a question about a cluster; known is false for an unknown server.
func (c check) decide(m source, q question) (out verdict, known bool) {
	v := m.View()
	out = verdict{Cluster: v.Cluster, Server: q.server}
	var s *monitor.ServerView
	if q.server != "" {
		i := slices.IndexFunc(v.Servers, func(s monitor.ServerView) bool { return s.Name == q.server })
		if i < 0 {
			out.Reason = fmt.Sprintf("no server %q in cluster %s", q.server, v.Cluster)
			return out, false
		}
		s = &v.Servers[i]
		for _, l := range []string{topology.LabelMaintenance, topology.LabelDrained} {
			if slices.Contains(s.State, l) && out.state == "" {
				out.state = l
			}
		}
	}
	if !m.Live() {
		out.Reason = "the monitor has not looked at the servers for too long"
		return out, true
	}
	out.OK, out.Reason = c.ask(v, s, q)
	return out, true
}

// check answers a load balancer: 200 for yes, 503 for no, 404 for a server or
// cluster that is not known, 400 for a question that cannot be understood.
func (a *api) check(c check) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		q, cluster, err := readQuestion(r, c)
		if err != nil {
			problem(w, http.StatusBadRequest, err.Error())
			return
		}
		m, status, text := a.only(cluster)
		if m == nil {
			problem(w, status, text)
			return
		}
		v, known := c.decide(m, q)
		switch {
		case !known:
			problem(w, http.StatusNotFound, v.Reason)
		case v.OK:
			answer(w, http.StatusOK, v)
		default:
			answer(w, http.StatusServiceUnavailable, v)
		}
	}
}

// only returns the named cluster, or the only one for no name.
func (a *api) only(name string) (source, int, string) {
	list := a.list()
	if name == "" {
		if len(list) == 1 {
			return list[0], 0, ""
		}
		return nil, http.StatusBadRequest, fmt.Sprintf("say which cluster, as in cluster=NAME: there are %d", len(list))
	}
	for _, m := range list {
		if m.Cluster() == name {
			return m, 0, ""
		}
	}
	return nil, http.StatusNotFound, fmt.Sprintf("no cluster %q here", name)
}

func readQuestion(r *http.Request, c check) (q question, cluster string, err error) {
	q.lag = -1
	values := r.URL.Query()
	for key, given := range values {
		if len(given) != 1 {
			return q, "", fmt.Errorf("%s is given %d times: give it once", key, len(given))
		}
		v := given[0]
		switch key {
		case "cluster":
			cluster = v
		case "server":
			q.server = v
		case "lag":
			if q.lag, err = time.ParseDuration(v); err != nil || q.lag < 0 {
				return q, "", fmt.Errorf("lag=%q is not a duration: write it like lag=5s", v)
			}
		case "without_primary":
			if v != "yes" && v != "no" {
				return q, "", fmt.Errorf("without_primary=%q: it is yes or no", v)
			}
			q.orphans = v == "yes"
		default:
			return q, "", fmt.Errorf("%q is unknown: use cluster, server, lag and without_primary", key)
		}
	}
	if q.server == "" && (!c.alone || values.Has("server")) {
		return q, "", fmt.Errorf("say which server, as in %s?server=NAME", strings.TrimSpace(r.URL.Path))
	}
	return q, cluster, nil
}
