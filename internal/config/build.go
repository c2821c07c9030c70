package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// file makes the result out of the values of the document, and checks what more
// than one key has a part in.
func (r *reader) file(v *values) *File {
	f := &File{
		Path:         r.path,
		LogLevel:     v.str("log_level"),
		LogFormat:    v.str("log_format"),
		HTTP:         r.http(v.sub("http")[0]),
		MaxFailovers: v.num("max_failovers"), MaxFailoversWithin: v.dur("max_failovers_within"),
	}
	agent := v.sub("agent")[0]
	f.Agent.Listen = agent.str("listen")
	if f.Agent.Listen != "" && !isLoopback(f.Agent.Listen) && !agent.flag("allow_remote") && !agent.bad["listen"] {
		r.problem(agent.path("listen"), agent.printed("listen"), "other hosts can reach this address",
			"listen on 127.0.0.1, or set allow_remote = true")
	}
	if f.Agent.Listen != "" && f.Agent.Listen == f.HTTP.Listen {
		r.problem(agent.path("listen"), agent.printed("listen"), "this is http.listen too", "give it a port of its own")
	}
	if len(v.sub("cluster")) == 0 && !v.bad["cluster"] {
		r.problem("cluster", "", "there is no cluster", "write a table [cluster.NAME]")
	}
	for _, c := range v.sub("cluster") {
		f.Clusters = append(f.Clusters, r.cluster(c))
	}
	names := make([]string, len(f.Clusters))
	for i, c := range f.Clusters {
		names[i] = c.Name
	}
	f.Hooks = r.hooks(v.sub("hook"), names)
	r.discovery(f, v.sub("consul")[0], v.sub("etcd")[0], v.sub("haproxy"), names)
	return f
}

func (r *reader) cluster(v *values) Cluster {
	c := Cluster{
		Name:                 v.name,
		Flavor:               v.str("flavor"),
		User:                 v.str("user"),
		Password:             r.password(v, "password", true),
		Interval:             v.dur("interval"),
		Timeout:              v.dur("timeout"),
		Failcount:            v.num("failcount"),
		AllowUnsafeFailcount: v.flag("allow_unsafe_failcount"),
		WaitTimeoutFloor:     v.dur("wait_timeout_floor"),
		Quorum:               v.str("quorum"),
		ServerLock:           v.str("server_lock"),
		PrimaryLock:          v.str("primary_lock"),
		TrustedLockUsers:     v.strs("trusted_lock_users"),
		Passive:              v.flag("passive"),
		LagLimit:             v.dur("lag_limit"),
		MonitorName:          v.str("monitor_name"),
		TLS:                  r.tls(v),
	}
	if c.MonitorName == "" && !v.bad["monitor_name"] {
		host, err := os.Hostname()
		if err != nil || host == "" {
			r.problem(v.path("monitor_name"), v.printed("monitor_name"), "this host has no name to take as a default", "give the monitor a name")
		}
		c.MonitorName = host
	}
	if strings.EqualFold(c.ServerLock, c.PrimaryLock) && !v.anyBad("server_lock", "primary_lock") {
		k := "primary_lock"
		if !v.given(k) {
			k = "server_lock"
		}
		r.problem(v.path(k), v.printed(k), "server_lock and primary_lock are the same name to a server, which disregards case", "give them two names")
	}
	for _, s := range v.sub("server") {
		c.Servers = append(c.Servers, r.server(s, c))
	}
	if len(c.Servers) == 0 && !v.bad["server"] {
		r.problem(v.at, "", "the cluster has no server", "write a table [["+v.at+".server]]")
	}
	r.duplicates(v, c)
	r.voters(v, c)
	r.tlsUse(v, c)
	c.Operations = r.operations(v, c)
	return c
}

// server makes one server; what it does not say itself it has from the cluster.
func (r *reader) server(v *values, c Cluster) Server {
	s := Server{
		Name:           v.str("name"),
		Address:        v.str("address"),
		PrivateAddress: v.str("private_address"),
		Votes:          v.num("votes"),
		Promotion:      v.str("promotion"),
		Maintenance:    v.flag("maintenance"),
		Drain:          v.flag("drain"),
		Site:           v.str("site"),
		User:           c.User,
		Password:       c.Password,
		TLS:            c.TLS,
	}
	if v.str("user") != "" {
		s.User = v.str("user")
	}
	if v.given("password") || v.given("password_file") || v.given("password_env") {
		s.Password = r.password(v, "password", false)
	}
	if v.str("tls") != "" {
		s.TLS.Mode = v.str("tls")
	}
	return s
}

// tls reads the TLS settings of a cluster, the files of which must exist.
func (r *reader) tls(v *values) TLS {
	t := TLS{
		Mode:       v.str("tls"),
		CA:         r.tlsFile(v, "tls_ca"),
		Cert:       r.tlsFile(v, "tls_cert"),
		Key:        r.tlsFile(v, "tls_key"),
		ServerName: v.str("tls_server_name"),
	}
	if v.anyBad("tls_cert", "tls_key") {
		return t
	}
	switch {
	case t.Cert != "" && t.Key == "":
		r.problem(v.path("tls_cert"), v.printed("tls_cert"), "a certificate is of no use without its key", "set tls_key too")
	case t.Cert == "" && t.Key != "":
		r.problem(v.path("tls_key"), v.printed("tls_key"), "a key is of no use without its certificate", "set tls_cert too")
	}
	return t
}

func (r *reader) tlsFile(v *values, name string) string {
	path := r.resolve(v.str(name))
	if path == "" {
		return ""
	}
	f, err := openRegular(path)
	if err != nil {
		r.problem(v.path(name), v.printed(name), err.Error(), "")
		return path
	}
	_ = f.Close()
	return path
}

// tlsUse warns of TLS settings that no server makes use of.
func (r *reader) tlsUse(v *values, c Cluster) {
	modes := []string{c.TLS.Mode}
	for _, s := range c.Servers {
		modes = append(modes, s.TLS.Mode)
	}
	has := func(want ...string) bool {
		return slices.ContainsFunc(modes, func(m string) bool { return slices.Contains(want, m) })
	}
	for _, k := range []struct {
		name, given string
		used        bool
		remedy      string
	}{
		{"tls_ca", c.TLS.CA, has(TLSVerifyCA, TLSVerifyIdentity), `certificates are verified only with tls = "verify-ca" or "verify-identity"`},
		{"tls_server_name", c.TLS.ServerName, has(TLSVerifyIdentity), `names are verified only with tls = "verify-identity"`},
		{"tls_cert", c.TLS.Cert, has(tlsModes[1:]...), `tls is "disabled"`},
	} {
		if k.given != "" && !k.used && !v.anyBad("tls", k.name) {
			r.warn(v.path(k.name), v.printed(k.name), "this has no effect", k.remedy)
		}
	}
}

// resolve returns a file name as seen from the directory of the configuration.
func (r *reader) resolve(name string) string {
	if name == "" || filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(filepath.Dir(r.path), name)
}
