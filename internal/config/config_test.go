package config

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const examples = "../../examples/config"

func TestDefaults(t *testing.T) {
	f, err := Parse("x.toml", []byte(in(`monitor_name = "m"`)), nil)
	require.NoError(t, err)
	want := Cluster{
		Name: "main", Flavor: FlavorAuto, User: "lockstep", Password: "hunter2",
		Interval: 2 * time.Second, Timeout: 3 * time.Second, WaitTimeoutFloor: 5 * time.Second,
		Quorum: QuorumMajorityOfAll, ServerLock: "maxscale_mariadbmonitor", PrimaryLock: "maxscale_mariadbmonitor_master",
		TrustedLockUsers: []string{}, LagLimit: 10 * time.Second,
		MonitorName: "m", TLS: TLS{Mode: TLSDisabled}, Operations: Operations{RelayLog: RelayLogWait, FailoverTimeout: 90 * time.Second,
			SwitchoverTimeout: 10 * time.Second, FailoverBlock: time.Hour, MoveEvents: true, MoveSemiSync: true, StateSchema: "lockstep", KeepConnections: []string{}},
	}
	for _, n := range []string{"1", "2", "3"} {
		want.Servers = append(want.Servers, Server{Name: "s" + n, Address: "10.0.0." + n + ":3306", Votes: 1,
			Promotion: PromotionNeutral, User: "lockstep", Password: "hunter2", TLS: want.TLS})
	}
	require.Equal(t, &File{Path: "x.toml", LogLevel: "info", LogFormat: "json", MaxFailoversWithin: 10 * time.Minute, HTTP: HTTP{Listen: "127.0.0.1:8990"},
		Consul: Consul{Prefix: "lockstep"}, Etcd: Etcd{Endpoints: []string{}, Prefix: "/lockstep"}, Clusters: []Cluster{want}}, f)
}

func TestGivenValues(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "pw"), []byte(" from file \r\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "pem"), nil, 0o600))
	text := `
log_level = "debug"
[http]
listen = "0.0.0.0:1"
allow_remote = true
[cluster.zeta]
user = "$USER-${WHO}-$${WHO}$"
password_file = "pw"
flavor = "mysql"
lag_limit = "0s"
failcount = 7
allow_unsafe_failcount = true
trusted_lock_users = []
passive = true
quorum = "none"
tls = "verify-identity"
tls_ca = "pem"
tls_cert = "pem"
tls_key = "pem"
tls_server_name = "DB"
[[cluster.zeta.server]]
name = "a"
address = "[2001:DB8::1]"
private_address = "[::1]:3307"
votes = 0
promotion = "prefer"
maintenance = true
drain = true
site = "x"
user = "other"
password = ""
tls = "disabled"
[[cluster.zeta.server]]
name = "b"
address = "unix:/run//mysqld.sock"
private_address = "B"
[cluster.alpha]
user = "u"
password_env = "PW"
[[cluster.alpha.server]]
name = "a"
address = "DB.Example.com:3310"
`
	f, err := Parse(filepath.Join(dir, "x.toml"), []byte(text), environment("WHO", "me", "PW", "from env"))
	require.NoError(t, err)
	require.Equal(t, HTTP{Listen: "0.0.0.0:1", AllowRemote: true}, f.HTTP)
	require.Len(t, f.Clusters, 2)
	alpha, zeta := f.Clusters[0], f.Clusters[1]
	require.Equal(t, "from env", alpha.Password.Reveal())
	require.Equal(t, "from env", alpha.Servers[0].Password.Reveal())
	require.Equal(t, "db.example.com:3310", alpha.Servers[0].Address)
	host, _ := os.Hostname()
	require.Equal(t, host, alpha.MonitorName)

	require.Equal(t, "$USER-me-${WHO}$", zeta.User)
	require.Equal(t, " from file ", zeta.Password.Reveal())
	require.Equal(t, 7, zeta.Failcount)
	require.Zero(t, zeta.LagLimit)
	require.Empty(t, zeta.TrustedLockUsers)
	pem := filepath.Join(dir, "pem")
	require.Equal(t, TLS{Mode: TLSVerifyIdentity, CA: pem, Cert: pem, Key: pem, ServerName: "db"}, zeta.TLS)
	a, b := zeta.Servers[0], zeta.Servers[1]
	require.Equal(t, "[2001:db8::1]:3306", a.Address)
	require.Equal(t, "[::1]:3307", a.PrivateAddress)
	require.Equal(t, "other", a.User)
	require.Empty(t, a.Password)
	require.Equal(t, TLSDisabled, a.TLS.Mode)
	require.Equal(t, 0, a.Votes)
	require.Equal(t, PromotionPrefer, a.Promotion)
	require.True(t, a.Maintenance && a.Drain)
	require.Equal(t, "unix:/run/mysqld.sock", b.Address)
	require.Equal(t, "b:3306", b.PrivateAddress)
	require.Equal(t, zeta.TLS, b.TLS)
}

func TestExamples(t *testing.T) {
	env := environment("DB_PASSWORD", "x", "LOCKSTEP_DB_PASSWORD", "x")
	for name, servers := range map[string]int{"minimal.toml": 3, "two-sites.toml": 4} {
		f, err := Load(filepath.Join(examples, name), env)
		require.NoError(t, err, name)
		require.Empty(t, f.Warnings, name)
		require.Len(t, f.Clusters, 1, name)
		require.Len(t, f.Clusters[0].Servers, servers, name)
	}
}

// The example for newcomers promises every key, with its default.
func TestExampleIsComplete(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(examples, "two-sites.toml"))
	require.NoError(t, err)
	for _, d := range Reference() {
		name := d.Key[strings.LastIndexAny(d.Key, ".]")+1:]
		require.Contains(t, string(text), name)
		if d.Default != "" && !strings.Contains(d.Key, "[]") && strings.ContainsAny(d.Default[:1], `"[0123456789tf`) && d.Default != "the host name" && d.Default != "the host of the address" {
			require.Contains(t, string(text), "\n"+name+" = "+d.Default+"\n")
		}
	}
}

func TestLoad(t *testing.T) {
	_, err := Load("none.toml", nil)
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = Load(t.TempDir(), nil)
	require.ErrorContains(t, err, "not a regular file")

	path := filepath.Join(t.TempDir(), "x.toml")
	require.NoError(t, os.WriteFile(path, []byte(valid), 0o600))
	require.NoError(t, os.Chmod(path, 0o644))
	f, err := Load(path, nil)
	require.NoError(t, err)
	require.Len(t, f.Warnings, 1)
	require.Equal(t, path+":4: cluster.main.password = *****: every user of this host may read the password: the mode of the file is 0644: chmod o= "+path+", or use password_file", f.Warnings[0].String())

	require.NoError(t, os.WriteFile(path, make([]byte, MaxSize+1), 0o600))
	_, err = Load(path, nil)
	require.ErrorContains(t, err, "more than 1048576 bytes")
}

func TestSecretsDoNotLeak(t *testing.T) {
	f, err := Parse("x.toml", []byte(valid), nil)
	require.NoError(t, err)
	c := f.Clusters[0]
	for _, v := range []any{c.Password, &c.Password, c, &c, f, *f, c.Servers, []Secret{c.Password}, map[string]Secret{"a": c.Password}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%10s"} {
			require.NotContains(t, fmt.Sprintf(verb, v), "hunter2", verb)
			require.NotContains(t, strings.ToLower(fmt.Sprintf(verb, v)), "68756e74657232", verb)
		}
		text, err := json.Marshal(v)
		require.NoError(t, err)
		require.NotContains(t, string(text), "hunter2")
	}
	require.Equal(t, "*****", c.Password.String())
	require.Equal(t, "*****", fmt.Sprintf("%#v", c.Password))
	require.Empty(t, fmt.Sprint(Secret("")))
	text, err := json.Marshal(c.Password)
	require.NoError(t, err)
	require.Equal(t, `"*****"`, string(text))
	require.Equal(t, "hunter2", c.Password.Reveal())
}

func TestScanLines(t *testing.T) {
	text := "\ufeff# c [x]\n" + // 1
		"a.b = 1\n" + // 2
		"\"q.r\" = \"\"\"\n]\n\\\"\"\"\"\"\n" + // 3 to 5
		"'l' = '''\n\\''''\n" + // 6, 7
		"list = [ 1, # ]\n [2,\n 3],\n { x = 1, y.z = 2 } ]\r\n" + // 8 to 11
		"[[t]]\n" + // 12
		"[[t.u]]\nk = 1979-05-27 07:32:00\n" + // 13, 14
		"[[ t . u ]]\n[t.u.v] # c\nk = 1\n" + // 15 to 17
		"[[t]]\n[[t.u]]\nk = 1\n" // 18 to 20
	want := map[string]int{
		"a": 2, "a.b": 2, `"q.r"`: 3, "l": 6,
		"list": 8, "list[0]": 8, "list[1]": 9, "list[1][0]": 9, "list[1][1]": 10, "list[2]": 11, "list[2].x": 11, "list[2].y": 11, "list[2].y.z": 11,
		"t": 12, "t[0]": 12, "t[0].u": 13, "t[0].u[0]": 13, "t[0].u[0].k": 14, "t[0].u[1]": 15, "t[0].u[1].v": 16, "t[0].u[1].v.k": 17,
		"t[1]": 18, "t[1].u": 19, "t[1].u[0]": 19, "t[1].u[0].k": 20,
	}
	require.Equal(t, want, scanLines(text))
}

func TestAddresses(t *testing.T) {
	for in, want := range map[string]string{
		"h": "h:3306", "H:1": "h:1", "[::1]": "[::1]:3306", "[::FFFF:10.0.0.1]:5": "10.0.0.1:5", "a_b.c-d:65535": "a_b.c-d:65535",
		"unix:/a/../b": "unix:/b",
		"":             "", ":3306": "", "h:0": "", "h:65536": "", "h:+1": "", "h:01": "", "h:": "", "::1": "", "[h]:1": "", "[::1]1": "", "[::1": "", "[10.0.0.1]:1": "",
		"10.0.0.256": "", "h h": "", "-h": "", "unix:": "", "unix:x": "", "tcp://h": "",
	} {
		got, f := checkAddress(in)
		require.Equal(t, want, got, in)
		require.Equal(t, want == "", f != nil, in)
	}
	_, f := checkAddress("2001:DB8::1")
	require.NotNil(t, f)
	require.Equal(t, `an IPv6 address needs brackets: write "[2001:db8::1]:3306"`, f.Error())
}

func TestDuration(t *testing.T) {
	var d Duration
	require.NoError(t, d.UnmarshalTOML("1h30m"))
	require.Equal(t, Duration(90*time.Minute), d)
	require.EqualError(t, d.UnmarshalTOML(int64(2)), `a duration needs a unit: write "2s"`)
	require.EqualError(t, d.UnmarshalText([]byte("-1s")), "a duration cannot be negative")
	for s, v := range map[string]time.Duration{"8h": 8 * time.Hour, "10m": 10 * time.Minute, "1h30m": 90 * time.Minute, "0s": 0, "1m30s": 90 * time.Second} {
		require.Equal(t, s, Duration(v).String())
		require.NoError(t, d.UnmarshalText([]byte(s)))
		require.Equal(t, Duration(v), d)
	}
}

// Every key is documented, has a default that it would accept itself, and is in
// the Markdown.
func TestReference(t *testing.T) {
	r := &reader{env: environment()}
	var walk func(keys []key)
	walk = func(keys []key) {
		for i := range keys {
			k := &keys[i]
			walk(k.keys)
			var raw any
			switch def := k.def.(type) {
			case nil:
				continue
			case time.Duration:
				raw = Duration(def).String()
			case []string:
				list := []any{}
				for _, s := range def {
					list = append(list, s)
				}
				raw = list
			default:
				raw = def
			}
			got, f := r.convert(k, raw)
			require.Nil(t, f, k.name)
			require.Equal(t, k.def, got, k.name)
		}
	}
	walk(schema)

	md, keys := Markdown(), Reference()
	for _, d := range keys {
		require.NotEmpty(t, d.Doc, d.Key)
		require.NotContains(t, d.Doc, "\n", d.Key)
		if !strings.Contains(d.Type, "table") {
			require.Contains(t, md, "| `"+d.Key[strings.LastIndexAny(d.Key, ".]")+1:]+"` |")
		}
	}
	i := slices.IndexFunc(keys, func(d KeyDoc) bool { return d.Key == "cluster.NAME.interval" })
	require.GreaterOrEqual(t, i, 0)
	require.Equal(t, KeyDoc{Key: "cluster.NAME.interval", Type: "duration", Default: `"2s"`, Unit: "written with the value: ms, s, m, h",
		Allowed: `between "100ms" and "10m"`, Doc: "Time between two looks at the servers."}, keys[i])
	require.True(t, slices.ContainsFunc(keys, func(d KeyDoc) bool { return d.Key == "cluster.NAME.server[].address" && d.Required }))
}

func TestReferenceIsUpToDate(t *testing.T) {
	doc, err := os.ReadFile("../../docs/configuration.md")
	require.NoError(t, err)
	require.Equal(t, Markdown(), string(doc), "run: go run ./cmd/lockstepd reference > docs/configuration.md")
}
