package wiring

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/internal/config"
	"github.com/lockstep-ha/lockstep/monitor/publish"
)

const smallest = `
[cluster.main]
user = "u"
password = ""
quorum = "none"
[[cluster.main.server]]
name = "s1"
address = "h"
`

func TestEventNamesAgree(t *testing.T) { require.Equal(t, publish.Names(), config.EventNames) }

func TestHooks(t *testing.T) {
	f, err := config.Parse("x.toml", []byte(`
[[hook]]
name = "a"
command = ["/bin/true", "x"]
[[hook]]
name = "b"
url = "https://example.com/x"
secret = "s"
events = ["primary_lost"]
clusters = ["main"]
only_primary_monitor = true
timeout = "3s"
retries = 4
`+smallest), nil)
	require.NoError(t, err)
	require.Equal(t, []publish.Hook{
		{Name: "a", Command: []string{"/bin/true", "x"}, Events: []string{}, Clusters: []string{}, Timeout: 10 * time.Second},
		{Name: "b", URL: "https://example.com/x", Secret: "s", Events: []string{"primary_lost"}, Clusters: []string{"main"}, OnlyPrimaryMonitor: true,
			Timeout: 3 * time.Second, Retries: 4},
	}, Hooks(f))
}

func TestHookProblems(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	require.NoError(t, os.WriteFile(plain, nil, 0o600))
	for keys, want := range map[string]string{
		`name = "a"`: "x.toml:2: hook[0]: the hook does nothing: give it command or url",
		"name = \"a\"\nurl = \"http://h/\"\ncommand = [\"/bin/true\"]":                   "the hook has a command and a URL: make two hooks of it",
		"name = \"a\"\ncommand = [\"true\"]":                                             "the path of the program must be absolute",
		"name = \"a\"\ncommand = [\"" + plain + "\"]":                                    "the program cannot be run: permission denied",
		"name = \"a\"\nurl = \"ftp://hunter2/\"":                                         "this is not an http or https URL",
		"name = \"a\"\nurl = \"http://h/\"\nevents = [\"primary_gone\"]":                 `element 0: there is no event "primary_gone": did you mean primary_`,
		"name = \"a\"\nurl = \"http://h/\"\nclusters = [\"other\"]":                      `there is no cluster "other": the clusters are main`,
		"name = \"a\"\nurl = \"http://h/\"\nretries = 1000":                              "between 0 and 100",
		"name = \"a\"\nurl = \"http://h/\"\n[[hook]]\nname = \"a\"\nurl = \"http://h/\"": "two hooks have this name",
		"name = \"a\"\nurl = \"http://h/\"\ntimeout = 3":                                 `a duration needs a unit: write "3s"`,
		"url = \"http://h/\"":                                                            "hook[0].name: this key is required",
		"name = \"a\"\nurl = \"http://h/\"\nsecret = \"x\"\nsecret_env = \"X\"":          "given more than once",
	} {
		_, err := config.Parse("x.toml", []byte("\n[[hook]]\n"+keys+smallest), nil)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "hunter2")
	}
}

func TestDiscovery(t *testing.T) {
	f, err := config.Parse("x.toml", []byte(`
[consul]
address = "http://127.0.0.1:8500/"
token = "t"
[etcd]
endpoints = ["http://127.0.0.1:1"]
user = "u"
password = "p"
[[haproxy]]
cluster = "main"
socket = "unix:/run/haproxy.sock"
server = "writer/primary"
`+smallest), nil)
	require.NoError(t, err)
	require.Equal(t, config.Consul{Address: "http://127.0.0.1:8500", Prefix: "lockstep", Token: "t"}, f.Consul)
	require.Equal(t, []publish.HAProxy{{Socket: "unix:/run/haproxy.sock", Server: "writer/primary"}}, HAProxies(f, "main"))
	require.Empty(t, HAProxies(f, "other"))
	f.Etcd.User, f.Etcd.Password = "", "" // to log in takes a server
	stores, closeAll, err := Stores(f)
	require.NoError(t, err)
	require.Len(t, stores, 2)
	require.NoError(t, closeAll())

	for text, want := range map[string]string{
		"[consul]\naddress = \"127.0.0.1:8500\"":                                   `consul.address = "127.0.0.1:8500": this is not an http or https URL of a host: write it like`,
		"[consul]\nprefix = \"a/\"":                                                "this cannot be a prefix",
		"[etcd]\nendpoints = [\"http://h\", \"h\"]":                                "element 1: this is not an http or https URL",
		"[etcd]\ncert = \"/dev/null\"":                                             "this is not a regular file",
		"[etcd]\npassword = \"hunter2\"":                                           "there is a password, but no user: set user too",
		"[[haproxy]]\ncluster = \"main\"\nsocket = \"unix:x\"\nserver = \"a/b\"":   "the path of a socket must be absolute",
		"[[haproxy]]\ncluster = \"main\"\nsocket = \"h:1\"\nserver = \"a\"":        `this is not a server with its backend: write it like "writer/primary"`,
		"[[haproxy]]\ncluster = \"main\"\nsocket = \"h:1\"\nserver = \"a/b;quit\"": "this is not a server with its backend",
		"[[haproxy]]\ncluster = \"x\"\nsocket = \"h:1\"\nserver = \"a/b\"":         `there is no cluster "x": the clusters are main`,
		"[[haproxy]]\nsocket = \"h:1\"\nserver = \"a/b\"":                          "haproxy[0].cluster: this key is required",
	} {
		_, err := config.Parse("x.toml", []byte("\n"+text+smallest), nil)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "hunter2")
	}
}
