package config

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Hook is a command or a webhook that is run at events.
type Hook struct {
	Name string
	// Command is the program and its arguments, or empty. It does not print, since an
	// argument may be a password.
	Command []Secret
	// URL is where events are posted, or empty. It does not print either.
	URL    Secret
	Secret Secret
	// Events and Clusters are empty for all.
	Events, Clusters   []string
	OnlyPrimaryMonitor bool
	Timeout            time.Duration
	Retries            int
}

// EventNames are the names of the events that hooks may ask for, sorted.
var EventNames = []string{
	"drain_cleared", "drain_set", "failover_blocked", "failover_done", "failover_failed", "failover_started", "failover_unblocked",
	"fault_cleared", "fault_raised", "maintenance_cleared", "maintenance_set", "majority_gained", "majority_lost", "monitor_settled",
	"paused", "primary_changed", "primary_failed", "primary_found", "primary_lost", "primary_recovered", "rejoin_done", "rejoin_failed",
	"rejoin_started", "replica_caught_up", "replica_lagging", "replication_runs", "replication_stopped", "reset_replication_done",
	"reset_replication_failed", "reset_replication_started", "resumed", "server_down", "server_up", "switchover_done", "switchover_failed",
	"switchover_started",
}

var hookKeys = []key{
	{name: "name", required: true, check: checkName, doc: "Name of the hook, for the log and the metrics."},
	{name: "command", kind: kindStrings, def: []string{}, hide: true,
		doc: "Program, with its absolute path, and arguments. Give this or url."},
	{name: "url", check: checkURL, hide: true, doc: "http or https URL to which events are posted."},
	{name: "secret", kind: kindSecret, doc: "Key with which posted events are signed. Give this, secret_file or secret_env."},
	{name: "secret_file", doc: "File that holds nothing but the secret and that only its owner may read."},
	{name: "secret_env", check: checkVariable, hide: true, doc: "Environment variable that holds the secret."},
	{name: "events", kind: kindStrings, def: []string{}, check: checkEvent, doc: "Events at which it is run; all if empty. See docs/hooks.md."},
	{name: "clusters", kind: kindStrings, def: []string{}, check: checkName, doc: "Clusters of which events are told; all if empty."},
	{name: "only_primary_monitor", kind: kindBool, def: false, doc: "Leave out what happens while this is not the primary monitor."},
	{name: "timeout", kind: kindDuration, def: 10 * time.Second, min: 100 * time.Millisecond, max: 10 * time.Minute,
		doc: "How long one attempt may take."},
	{name: "retries", kind: kindInt, def: int64(0), min: int64(0), max: int64(100), unit: "attempts", doc: "How often a failed attempt is repeated."},
}

func checkURL(s string) (string, *fault) {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", &fault{text: "this is not an http or https URL", remedy: `write it like "https://chat.example.com/lockstep"`}
	}
	return s, nil
}

func checkEvent(s string) (string, *fault) {
	if slices.Contains(EventNames, s) {
		return s, nil
	}
	f := &fault{text: fmt.Sprintf("there is no event %q", s), remedy: "see docs/hooks.md"}
	if near := nearest(EventNames, s); near != "" {
		f.remedy = "did you mean " + near + "?"
	}
	return "", f
}

// hooks makes the hooks; clusters are the names of those in the file.
func (r *reader) hooks(list []*values, clusters []string) []Hook {
	var out []Hook
	names := map[string]bool{}
	for _, v := range list {
		h := Hook{
			Name: v.str("name"), Command: r.command(v, "command"), URL: Secret(v.str("url")), Secret: r.password(v, "secret", false), Events: v.strs("events"), Clusters: v.strs("clusters"),
			OnlyPrimaryMonitor: v.flag("only_primary_monitor"), Timeout: v.dur("timeout"), Retries: v.num("retries"),
		}
		switch {
		case v.anyBad("command", "url"):
		case len(h.Command) == 0 && h.URL == "":
			r.problem(v.at, "", "the hook does nothing", "give it command or url")
		case len(h.Command) > 0 && h.URL != "":
			r.problem(v.path("url"), mask, "the hook has a command and a URL", "make two hooks of it")
		}
		if h.Secret != "" && h.URL == "" && !v.bad["url"] {
			r.warn(v.path(givenPasswords(v, "secret")[0]), mask, "this has no effect", "only posted events are signed")
		}
		if names[h.Name] && !v.bad["name"] {
			r.problem(v.path("name"), v.printed("name"), "two hooks have this name", "give each a name of its own")
		}
		names[h.Name] = true
		for _, c := range h.Clusters {
			if !slices.Contains(clusters, c) && !v.bad["clusters"] {
				r.problem(v.path("clusters"), v.printed("clusters"), fmt.Sprintf("there is no cluster %q", c), "the clusters are "+strings.Join(clusters, ", "))
			}
		}
		out = append(out, h)
	}
	return out
}
