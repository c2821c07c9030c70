package config

import (
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
)

// Consul says where the primary is written in Consul.
type Consul struct {
	// Address is the URL of an agent, or empty for no Consul at all.
	Address string
	Prefix  string
	Token   Secret
	CA      string
}

// Etcd says where the primary is written in etcd.
type Etcd struct {
	// Endpoints are URLs; empty for no etcd at all.
	Endpoints []string
	Prefix    string
	// User is empty if there is no login.
	User          string
	Password      Secret
	CA, Cert, Key string
}

// HAProxy is a server of HAProxy that follows the primary of a cluster.
type HAProxy struct {
	Cluster string
	// Socket is unix:/path or host:port, Server is BACKEND/SERVER.
	Socket, Server string
}

var consulKeys = []key{
	{name: "address", def: "", check: checkBaseURL, doc: "URL of the agent, like http://127.0.0.1:8500; empty for no Consul."},
	{name: "prefix", def: "lockstep", check: checkPrefix, doc: "Put before the name of the cluster: PREFIX/CLUSTER/primary and PREFIX/CLUSTER/address."},
	{name: "token", kind: kindSecret, doc: "ACL token. Give this, token_file or token_env."},
	{name: "token_file", doc: "File that holds nothing but the token and that only its owner may read."},
	{name: "token_env", check: checkVariable, hide: true, doc: "Environment variable that holds the token."},
	{name: "ca", doc: "PEM file with the authorities to trust; the system's if not given."},
}

var etcdKeys = []key{
	{name: "endpoints", kind: kindStrings, def: []string{}, check: checkBaseURL, doc: "URLs of the members, like http://127.0.0.1:2379; empty for no etcd."},
	{name: "prefix", def: "/lockstep", check: checkPrefix, doc: "Put before the name of the cluster: PREFIX/CLUSTER/primary and PREFIX/CLUSTER/address."},
	{name: "user", check: checkNotEmpty, doc: "User to log in as."},
	{name: "password", kind: kindSecret, doc: passwordDoc},
	{name: "password_file", doc: passwordFileDoc},
	{name: "password_env", check: checkVariable, hide: true, doc: passwordEnvDoc},
	{name: "ca", doc: "PEM file with the authorities to trust; the system's if not given."},
	{name: "cert", doc: "PEM file with a certificate to show; needs key."},
	{name: "key", doc: "PEM file with the key of cert."},
}

var haproxyKeys = []key{
	{name: "cluster", required: true, check: checkName, doc: "Name of the cluster."},
	{name: "socket", required: true, check: checkSocket, doc: "Runtime API of level admin: unix:/path or host:port."},
	{name: "server", required: true, check: checkProxied, doc: "BACKEND/SERVER, the server that is to lead to the primary."},
}

func checkBaseURL(s string) (string, *fault) {
	if s == "" {
		return "", nil
	}
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || strings.Trim(u.Path, "/") != "" {
		return "", &fault{text: "this is not an http or https URL of a host", remedy: `write it like "http://127.0.0.1:8500"`}
	}
	return strings.TrimRight(s, "/"), nil
}

func checkPrefix(s string) (string, *fault) {
	bad := func(c rune) bool { return c <= ' ' || c > '~' }
	if s == "" || len(s) > 256 || strings.ContainsFunc(s, bad) || strings.HasSuffix(s, "/") {
		return "", &fault{text: "this cannot be a prefix", remedy: "use printable ASCII without a slash at the end"}
	}
	return s, nil
}

func checkSocket(s string) (string, *fault) {
	if path, ok := strings.CutPrefix(s, "unix:"); ok {
		if !filepath.IsAbs(path) {
			return "", &fault{text: "the path of a socket must be absolute", remedy: `write it like "unix:/run/haproxy/admin.sock"`}
		}
		return s, nil
	}
	if _, port, err := net.SplitHostPort(s); err != nil || port == "" {
		return "", &fault{text: "this is no socket", remedy: `write it like "unix:/run/haproxy/admin.sock" or "127.0.0.1:9999"`}
	}
	return s, nil
}

func checkProxied(s string) (string, *fault) {
	parts := strings.Split(s, "/")
	// What has been let through stands in a command as it is.
	bad := func(c rune) bool { return c <= ' ' || c > '~' || c == ';' || c == '\\' }
	if len(parts) != 2 || parts[0] == "" || parts[1] == "" || strings.ContainsFunc(s, bad) {
		return "", &fault{text: "this is not a server with its backend", remedy: `write it like "writer/primary"`}
	}
	return s, nil
}

// discovery reads where the primary is published.
func (r *reader) discovery(f *File, consul, etcd *values, haproxy []*values, clusters []string) {
	f.Consul = Consul{Address: consul.str("address"), Prefix: consul.str("prefix"), Token: r.password(consul, "token", false), CA: r.tlsFile(consul, "ca")}
	f.Etcd = Etcd{Endpoints: etcd.strs("endpoints"), Prefix: etcd.str("prefix"), User: etcd.str("user"), Password: r.password(etcd, "password", false),
		CA: r.tlsFile(etcd, "ca"), Cert: r.tlsFile(etcd, "cert"), Key: r.tlsFile(etcd, "key")}
	if (f.Etcd.Cert == "") != (f.Etcd.Key == "") && !etcd.anyBad("cert", "key") {
		k := "cert"
		if f.Etcd.Cert == "" {
			k = "key"
		}
		r.problem(etcd.path(k), etcd.printed(k), "a certificate and its key belong together", "set both cert and key")
	}
	if f.Etcd.User == "" && f.Etcd.Password != "" && !etcd.bad["user"] {
		r.problem(etcd.path("user"), "", "there is a password, but no user", "set user too")
	}
	seen := map[HAProxy]bool{}
	for _, v := range haproxy {
		h := HAProxy{Cluster: v.str("cluster"), Socket: v.str("socket"), Server: v.str("server")}
		if !slices.Contains(clusters, h.Cluster) && !v.bad["cluster"] {
			r.problem(v.path("cluster"), v.printed("cluster"), fmt.Sprintf("there is no cluster %q", h.Cluster), "the clusters are "+strings.Join(clusters, ", "))
		}
		place := HAProxy{Socket: h.Socket, Server: h.Server}
		if seen[place] && !v.anyBad("socket", "server") {
			r.problem(v.path("server"), v.printed("server"), "this server of HAProxy is given twice", "one server can follow one cluster only")
		}
		seen[place] = true
		f.HAProxy = append(f.HAProxy, h)
	}
}
