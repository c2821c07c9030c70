package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/lockstep-ha/lockstep/monitor"
)

func TestOutputs(t *testing.T) {
	url := daemon(t, shop(t), depot(t), lone(t), mill(t))
	for name, args := range map[string]string{
		"primary":            "primary shop",
		"list_servers":       "list servers shop",
		"list_servers_depot": "list servers depot",
		"list_clusters":      "list clusters",
		"show_monitor":       "show monitor shop",
		"show_monitor_depot": "show monitor depot",
		"show_monitor_lone":  "show monitor lone",
		"show_server_s1":     "show server s1 --cluster shop",
		"show_server_s4":     "show server s4 --cluster shop",
		"show_server_s5":     "show server s5 --cluster shop",
		"topology":           "topology shop",
		"topology_depot":     "topology depot",
		"timing":             "timing shop",
		"timing_given":       "timing --interval 1s --timeout 500ms --failcount 9",
		"explain":            "explain shop",
		"explain_depot":      "explain depot",
		"explain_lone":       "explain lone",
		"explain_mill":       "explain mill",
		"show_monitor_mill":  "show monitor mill",
		"history":            "history --cluster shop",
		"history_running":    "history 20260301T120100-m1-3 --cluster shop",
		"history_done":       "history 20260301T120000-m1-2 --cluster shop",
		"history_undone":     "history 20260301T110000-m1-1 --cluster shop",
	} {
		t.Run(name, func(t *testing.T) {
			for _, format := range []string{"table", "json", "yaml"} {
				r := ctl(t, append(strings.Fields(args), "--server", url, "-o", format)...)
				require.Empty(t, r.stderr)
				require.Equal(t, exitOK, r.code)
				require.NotContains(t, r.stdout, "\x1b")
				golden(t, name+"."+strings.Replace(format, "table", "txt", 1), r.stdout)
			}
		})
	}
}

// The YAML form says the same as the JSON form.
func TestYAMLEqualsJSON(t *testing.T) {
	v := shop(t)
	v.Reason = "a: \"b\" # c\nno\t<&> \u2028 ü"
	v.Servers[0].Version, v.Servers[0].Site, v.Servers[0].CurrentPos, v.Servers[0].Detail = "11.4", "no", "null", "2026-01-01"
	v.Servers[0].LagSource, v.Servers[0].Flavor, v.Servers[0].BinlogPos = "0x1f", "12:30:45", "- x"
	var js, ya bytes.Buffer
	require.NoError(t, writeJSON(&js, v))
	require.NoError(t, writeYAML(&ya, v))
	var want, got any
	require.NoError(t, json.Unmarshal(js.Bytes(), &want))
	require.NoError(t, yaml.Unmarshal(ya.Bytes(), &got))
	raw, err := json.Marshal(got)
	require.NoError(t, err)
	var again any
	require.NoError(t, json.Unmarshal(raw, &again))
	for _, v := range []any{want, again} {
		m, ok := v.(map[string]any)
		require.True(t, ok)
		m["taken_at"] = nil // a timestamp in YAML
	}
	require.Equal(t, want, again)
}

// What is decoded is what was served.
func TestViewRoundTrip(t *testing.T) {
	for _, v := range []monitor.View{shop(t), depot(t), lone(t), mill(t)} {
		c, err := newClient(daemon(t, v), access{})
		require.NoError(t, err)
		one, err := c.Cluster(context.Background(), v.Cluster)
		require.NoError(t, err)
		require.Equal(t, v, one)
		all, err := c.Clusters(context.Background())
		require.NoError(t, err)
		require.Equal(t, []monitor.View{v}, all)
	}
}

func TestExitCodes(t *testing.T) {
	one, many, none := daemon(t, shop(t)), daemon(t, shop(t), depot(t), lone(t)), daemon(t)
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"primary --server " + one, exitOK, ""},
		{"version", exitOK, ""},
		{"--help", exitOK, ""},
		{"help list servers", exitOK, ""},
		{"completion bash", exitOK, ""},
		{"completion zsh", exitOK, ""},
		{"completion fish", exitOK, ""},
		{"completion powershell", exitOK, ""},
		{"primary depot --server " + many, exitNoPrimary, "depot has no primary: the view has expired"},
		{"primary --server " + many, exitUsage, "there are several clusters, name one: depot, lone, shop"},
		{"show server s1 --server " + many, exitUsage, "depot, lone, shop"},
		{"primary --server " + none, exitError, "monitors no cluster"},
		{"primary nosuch --server " + one, exitError, `no cluster "nosuch" here`},
		{"show server s9 --server " + one, exitError, `cluster shop has no server "s9": it has s1, s2, s3, s4, s5`},
		{"timing lone --server " + many, exitError, "unsafe failcount"},
		{"timing --interval 2s --timeout 3s --failcount 2", exitError, "unsafe failcount: failcount is 2, the smallest safe one is 5"},
		{"timing --interval 2s", exitUsage, "--timeout"},
		{"timing --failcount 3", exitUsage, "--interval"},
		{"timing shop --interval 2s --timeout 3s", exitUsage, "not both"},
		{"timing --interval 2s --timeout 3s --failcount -1", exitUsage, "at least 1"},
		{"primry", exitUsage, `unknown command "primry" for lockstepctl; did you mean primary?`},
		{"list", exitUsage, "needs one of: clusters, servers"},
		{"list things", exitUsage, "unknown command"},
		{"completion tcsh", exitUsage, "unknown command"},
		{"help nosuch", exitUsage, "no help"},
		{"list clusters shop", exitUsage, "takes no arguments"},
		{"primary a b", exitUsage, "at most 1 argument"},
		{"show server", exitUsage, "1 argument"},
		{"primary --nosuch", exitUsage, "unknown flag"},
		{"primary -o xml", exitUsage, "table, json or yaml"},
		{"primary --timeout 0s", exitUsage, "greater than zero"},
		{"primary --watch=-1s", exitUsage, "greater than zero"},
		{"primary --watch 5s", exitUsage, "--watch=5s"},
		{"primary --server ftp://x", exitUsage, "is no URL"},
		{"primary --server http://127.0.0.1:1", exitError, "cannot reach lockstepd at http://127.0.0.1:1; is it running? give --server or LOCKSTEP_SERVER"},
	} {
		t.Run(c.args, func(t *testing.T) {
			r := ctl(t, strings.Fields(c.args)...)
			require.Equal(t, c.code, r.code, r.stderr)
			if c.code == exitOK {
				require.Empty(t, r.stderr)
				require.NotEmpty(t, r.stdout)
				return
			}
			require.True(t, strings.HasPrefix(r.stderr, "lockstepctl: "), r.stderr)
			require.Equal(t, 1, strings.Count(r.stderr, "\n"), r.stderr)
			require.Contains(t, r.stderr, c.says)
			if !strings.HasPrefix(c.args, "timing lone") {
				require.Empty(t, r.stdout)
			}
		})
	}
}

func TestPrimary(t *testing.T) {
	url := daemon(t, shop(t))
	require.Equal(t, "10.1.0.1:3306\n", ctl(t, "primary", "--server", url).stdout)
	require.Equal(t, "10.1.0.1:3306\n", ctl(t, "primary", "--server", strings.TrimPrefix(url, "http://")+"/").stdout)
	t.Setenv(serverEnv, url)
	require.Equal(t, "10.1.0.1:3306\n", ctl(t, "primary").stdout)
	require.Equal(t, exitError, ctl(t, "primary", "--server", "http://127.0.0.1:1").code)

	r := ctl(t, "primary", "-o", "json", "--server", daemon(t, depot(t)))
	require.Equal(t, exitNoPrimary, r.code)
	require.Contains(t, r.stdout, `"primary": null`)
}

func TestNoHeaders(t *testing.T) {
	r := ctl(t, "list", "clusters", "--no-headers", "--server", daemon(t, shop(t)))
	require.Equal(t, "shop  s1 10.1.0.1:3306  primary  3/3  4/5  2  -\n", r.stdout)
}

func TestBadAnswers(t *testing.T) {
	slow := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/text/", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello")) })
	mux.HandleFunc("/role/", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"clusters":[{"cluster":"a","monitor":{"role":"king"}}]}`))
	})
	mux.HandleFunc("/slow/", func(http.ResponseWriter, *http.Request) { <-slow })
	s := httptest.NewServer(mux)
	defer s.Close()
	defer close(slow)
	for path, says := range map[string]string{
		"/text": "is no answer of lockstepd", "/role": `role "king"`, "/none": "404 Not Found; is it lockstepd?", "/slow": "does not answer in time",
	} {
		r := ctl(t, "primary", "--timeout", "200ms", "--server", s.URL+path)
		require.Equal(t, exitError, r.code)
		require.Contains(t, r.stderr, says)
	}
}

func TestWatch(t *testing.T) {
	url := daemon(t, shop(t))
	for format, want := range map[string]string{"table": "10.1.0.1:3306\n\n10.1.0.1:3306\n", "yaml": "\n---\ncluster: shop\n", "json": "}\n{\n"} {
		ctx, cancel := context.WithCancel(context.Background())
		out := &stopping{want: want, stop: cancel}
		var errs bytes.Buffer
		require.Equal(t, exitOK, run(ctx, []string{"primary", "--watch=1ms", "-o", format, "--server", url}, nil, out, &errs))
		require.Contains(t, out.buf.String(), want)
		require.Empty(t, errs.String())
		cancel()
	}
}

// A watch goes on after an error.
func TestWatchErrors(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	errs := &stopping{want: "is it running? give --server or LOCKSTEP_SERVER\nlockstepctl: cannot reach", stop: cancel}
	var out bytes.Buffer
	require.Equal(t, exitOK, run(ctx, []string{"primary", "--watch=1ms", "--server", "http://127.0.0.1:1"}, nil, &out, errs))
	require.Contains(t, errs.buf.String(), errs.want)
	require.Empty(t, out.String())
}

// stopping stops once it has been written what is wanted.
type stopping struct {
	mu   sync.Mutex
	buf  bytes.Buffer
	want string
	stop func()
}

func (s *stopping) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, err := s.buf.Write(b)
	if strings.Contains(s.buf.String(), s.want) {
		s.stop()
	}
	return n, err
}
