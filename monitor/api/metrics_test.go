package api

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/VictoriaMetrics/metricsql"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/lockstep-ha/lockstep/monitor"
	"github.com/lockstep-ha/lockstep/monitor/operation"
	"github.com/lockstep-ha/lockstep/monitor/publish"
)

var update = flag.Bool("update", false, "write the tables of docs/metrics.md anew")

func busy() *fake {
	f := shop()
	f.view.Operations.Running = &monitor.RunningView{ID: "x", Kind: operation.Failover}
	f.view.Operations.Next = "s2"
	f.view.Faults = []monitor.FaultView{{Code: "not_joined", Server: "s6"}, {Code: "not_joined", Server: "s3"}, {Code: "proxy", Server: "s3"}}
	f.view.Servers[1].Replication = []monitor.ReplicationView{{IO: "Yes", SQL: "No"}, {Name: "other", IO: "Connecting", SQL: "Yes"}, {IO: "Yes", SQL: "Yes"}}
	f.view.Servers[1].ReadOnly, f.view.Servers[1].LockHeld, f.view.Servers[1].PrimaryLockHeld = ptr(true), ptr(true), ptr(false)
	f.view.Servers[2].Version = "10.11\xff"
	return f
}

func TestMetricsFollowTheConventions(t *testing.T) {
	m := newMetrics(fakes(busy(), &fake{view: monitor.View{Cluster: "empty"}}), "v1")
	problems, err := testutil.GatherAndLint(m.registry)
	require.NoError(t, err)
	for _, p := range problems {
		require.NotRegexp(t, "^lockstep_", p.Metric, p.Text)
	}
}

func TestMetricsAreWhatTheViewSays(t *testing.T) {
	f := busy()
	h := newRouter(newAPI(fakes(f), WithMetrics(newMetrics(fakes(f), "v1"))))
	scrape := func() string {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		require.Equal(t, http.StatusOK, w.Code)
		return w.Body.String()
	}
	text := scrape()
	for _, line := range []string{
		`lockstep_primary_known{cluster="shop"} 1`,
		`lockstep_primary_valid_seconds{cluster="shop"} 4`,
		`lockstep_monitor_role{cluster="shop",role="primary"} 1`,
		`lockstep_monitor_role{cluster="shop",role="settling"} 0`,
		`lockstep_votes_held{cluster="shop"} 3`,
		`lockstep_faults{cluster="shop",code="not_joined"} 2`,
		`lockstep_operation_running{cluster="shop",kind="failover"} 1`,
		`lockstep_ticks_total{cluster="shop"} 7`,
		`lockstep_last_tick_duration_seconds{cluster="shop"} 0.0015`,
		`lockstep_last_tick_timestamp_seconds{cluster="shop"} 1.7723664e+09`,
		`lockstep_server_primary{cluster="shop",server="s1"} 1`,
		`lockstep_server_primary{cluster="shop",server="s2"} 0`,
		`lockstep_server_replication_lag_seconds{cluster="shop",server="s2"} 0.2`,
		`lockstep_server_replication_running{cluster="shop",connection="",server="s2",thread="sql"} 0`,
		`lockstep_server_replication_running{cluster="shop",connection="other",server="s2",thread="io"} 0`,
		`lockstep_server_state{cluster="shop",server="s3",state="Lagging"} 1`,
		`lockstep_server_up{cluster="shop",server="s6"} 0`,
		`lockstep_server_info{address="10.0.0.3:3306",cluster="shop",flavor="mariadb",server="s3",site="",version="10.11?"} 1`,
	} {
		require.Contains(t, text, line+"\n")
	}
	require.NotContains(t, text, `lockstep_server_replication_lag_seconds{cluster="shop",server="s1"}`)

	f.set(func(v *monitor.View) { v.Primary, v.ValidForMS, v.Operations.Running = nil, 0, nil })
	text = scrape()
	require.Contains(t, text, "lockstep_primary_known{cluster=\"shop\"} 0\n")
	require.Contains(t, text, "lockstep_server_primary{cluster=\"shop\",server=\"s1\"} 0\n")
	require.NotContains(t, text, "lockstep_operation_running{")
	require.Contains(t, text, `lockstep_http_requests_total{code="200",method="GET",path="/metrics"} 1`)

	for range 3 {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("BREW", "/nothing/"+t.Name(), nil))
	}
	require.Contains(t, scrape(), `lockstep_http_requests_total{code="404",method="other",path="other"} 3`)
}

// knownMetrics are all metrics of ours, by name.
func knownMetrics(t *testing.T) map[string]family {
	t.Helper()
	out := map[string]family{
		requestsName: {help: requestsHelp, kind: counter, labels: []string{"method", "path", "code"}},
		streamsName:  {help: streamsHelp, kind: gauge},
		agentsName:   {help: agentsHelp, kind: counter, labels: []string{"answer"}},
	}
	descs := make(chan *prometheus.Desc, 100)
	publish.NewCounters().Describe(descs)
	close(descs)
	text := regexp.MustCompile(`^Desc\{fqName: "([^"]*)", help: "([^"]*)", unit: "", constLabels: \{\}, variableLabels: \{([^}]*)\}\}$`)
	for d := range descs {
		m := text.FindStringSubmatch(d.String())
		require.NotNil(t, m, d.String())
		f := family{help: m[2], kind: gauge}
		if m[3] != "" {
			f.labels = strings.Split(m[3], ",")
		}
		if strings.HasSuffix(m[1], "_total") {
			f.kind = counter
		}
		out[m[1]] = f
	}
	for _, f := range families {
		require.NotContains(t, out, f.name)
		out[f.name] = f
	}
	return out
}

// The page lists every metric, with its type, labels and meaning, and no other.
func TestMetricsPage(t *testing.T) {
	const path = "../../docs/metrics.md"
	page, err := os.ReadFile(path)
	require.NoError(t, err)
	var lines []string
	for name, f := range knownMetrics(t) {
		kind := map[prometheus.ValueType]string{gauge: "gauge", counter: "counter"}[f.kind]
		lines = append(lines, fmt.Sprintf("| `%s` | %s | %s | %s |", name, kind, strings.Join(f.allLabels(), ", "), f.help))
	}
	slices.Sort(lines)
	table := regexp.MustCompile("(?m)^\\| `lockstep_.*\\n")
	got := table.FindAllString(string(page), -1)
	want := strings.Join(lines, "\n") + "\n"
	if *update {
		first, last := table.FindIndex(page), strings.LastIndex(string(page), got[len(got)-1])+len(got[len(got)-1])
		require.NoError(t, os.WriteFile(path, []byte(string(page[:first[0]])+want+string(page[last:])), 0o600))
		return
	}
	require.Equal(t, want, strings.Join(got, ""), "go test ./monitor/api -run TestMetricsPage -update")
}

// uses checks that an expression parses and uses only metrics and labels that exist.
func uses(t *testing.T, known map[string]family, expr string) {
	t.Helper()
	expr = strings.NewReplacer("$__rate_interval", "1m", "$cluster", "x").Replace(expr)
	parsed, err := metricsql.Parse(expr)
	require.NoError(t, err, expr)
	metricsql.VisitAll(parsed, func(e metricsql.Expr) {
		m, ok := e.(*metricsql.MetricExpr)
		if !ok {
			return
		}
		for _, filters := range m.LabelFilterss {
			var name string
			for _, l := range filters {
				if l.Label == "__name__" {
					name = l.Value
				}
			}
			if name == "up" {
				continue
			}
			f, ok := known[name]
			require.True(t, ok, "%s: there is no metric %q", expr, name)
			for _, l := range filters {
				require.Contains(t, append([]string{"__name__", "instance", "job"}, f.allLabels()...), l.Label, expr)
			}
		}
	})
}

func TestAlertRules(t *testing.T) {
	const path = "../../deploy/prometheus/lockstep.rules.yml"
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	var doc struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	require.NoError(t, yaml.Unmarshal(text, &doc))
	known := knownMetrics(t)
	seen := map[string]bool{}
	for _, g := range doc.Groups {
		for _, r := range g.Rules {
			uses(t, known, r.Expr)
			require.False(t, seen[r.Alert], r.Alert)
			seen[r.Alert] = true
			require.NotEmpty(t, r.For, r.Alert)
			require.NotEmpty(t, r.Annotations["summary"], r.Alert)
			require.Contains(t, []string{"critical", "warning"}, r.Labels["severity"])
		}
	}
	require.Greater(t, len(seen), 10)
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("SKIPPED in part: promtool is not installed (apt-get install prometheus)")
	}
	for _, args := range [][]string{{"check", "rules", "lockstep.rules.yml"}, {"test", "rules", "lockstep.rules.test.yml"}} {
		cmd := exec.Command(promtool, args...)
		cmd.Dir = filepath.Dir(path)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
	}
}

func TestDashboard(t *testing.T) {
	f, err := os.Open("../../deploy/grafana/lockstep.json")
	require.NoError(t, err)
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(f)
	require.NoError(t, err)
	var doc struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
		Templating struct{ List []struct{ Query string } }
	}
	require.NoError(t, json.Unmarshal(text, &doc))
	known := knownMetrics(t)
	for _, p := range doc.Panels {
		require.NotEmpty(t, p.Targets, p.Title)
		for _, target := range p.Targets {
			uses(t, known, target.Expr)
		}
	}
	for _, name := range regexp.MustCompile(`lockstep_[a-z_]+`).FindAllString(doc.Templating.List[1].Query, -1) {
		require.Contains(t, known, name)
	}
}
