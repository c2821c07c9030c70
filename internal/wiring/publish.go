package wiring

import (
	"crypto/tls"
	"fmt"
	"strings"

	"github.com/lockstep-ha/lockstep/internal/config"
	"github.com/lockstep-ha/lockstep/monitor/publish"
)

// Stores opens the stores of service discovery; closeAll ends their connections.
func Stores(f *config.File) (stores []publish.Store, closeAll func() error, err error) {
	closeAll = func() error { return nil }
	if f.Consul.Address != "" {
		s, err := publish.NewConsul(publish.ConsulConfig{Address: f.Consul.Address, Token: f.Consul.Token.Reveal(), CA: f.Consul.CA, Prefix: f.Consul.Prefix})
		if err != nil {
			return nil, closeAll, err
		}
		stores = append(stores, s)
	}
	if len(f.Etcd.Endpoints) == 0 {
		return stores, closeAll, nil
	}
	var t *tls.Config
	if f.Etcd.CA != "" || f.Etcd.Cert != "" || strings.HasPrefix(f.Etcd.Endpoints[0], "https:") {
		t, err = tlsConfig(config.TLS{Mode: config.TLSVerifyIdentity, CA: f.Etcd.CA, Cert: f.Etcd.Cert, Key: f.Etcd.Key})
		if err != nil {
			return nil, closeAll, fmt.Errorf("etcd: %w", err)
		}
	}
	s, closeAll, err := publish.NewEtcd(publish.EtcdConfig{Endpoints: f.Etcd.Endpoints, User: f.Etcd.User, Password: f.Etcd.Password.Reveal(), TLS: t, Prefix: f.Etcd.Prefix})
	if err != nil {
		return nil, func() error { return nil }, err
	}
	return append(stores, s), closeAll, nil
}

// HAProxies are the servers of HAProxy that follow a cluster.
func HAProxies(f *config.File, cluster string) []publish.HAProxy {
	var out []publish.HAProxy
	for _, h := range f.HAProxy {
		if h.Cluster == cluster {
			out = append(out, publish.HAProxy{Socket: h.Socket, Server: h.Server})
		}
	}
	return out
}

// Hooks makes the hooks of a daemon.
func Hooks(f *config.File) []publish.Hook {
	var out []publish.Hook
	for _, h := range f.Hooks {
		p := publish.Hook{Name: h.Name, URL: h.URL.Reveal(), Secret: h.Secret.Reveal(), Events: h.Events, Clusters: h.Clusters,
			OnlyPrimaryMonitor: h.OnlyPrimaryMonitor, Timeout: h.Timeout, Retries: h.Retries}
		for _, word := range h.Command {
			p.Command = append(p.Command, word.Reveal())
		}
		out = append(out, p)
	}
	return out
}
