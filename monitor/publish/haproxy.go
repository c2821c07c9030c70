package publish

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/lockstep-ha/lockstep/monitor"
)

// HAProxy is one server of a running HAProxy that is to be the primary of a cluster.
type HAProxy struct {
	// Socket is the runtime API, of level admin: unix:/path or host:port.
	Socket string
	// Server is BACKEND/SERVER.
	Server string
}

const (
	haproxyTime = time.Second
	// haproxyRecheck is how often its state is read though nothing has changed: a
	// reload of HAProxy loses what was set.
	haproxyRecheck = 2 * time.Second
	maxHAProxy     = 1 << 20
)

// Bits of srv_admin_state that are set over the runtime API.
const (
	adminMaint = 0x01
	adminDrain = 0x08
)

// Drive makes a server of HAProxy lead to the primary of a cluster until ctx ends:
// while no primary is offered, and at the end, it is in maintenance and its sessions
// are closed. Every monitor drives the HAProxys of its own site.
func Drive(ctx context.Context, src Source, h HAProxy, log zerolog.Logger, counters *Counters) {
	d := driver{h: h, log: log.With().Str("store", "haproxy").Str("socket", h.Socket).Str("server", h.Server).Logger(), counters: counters}
	each(ctx, src, func(v monitor.View) {
		if ctx.Err() != nil {
			v.Primary = nil // nobody will say when it changes
		}
		d.look(context.WithoutCancel(ctx), v)
	})
}

type driver struct {
	h        HAProxy
	log      zerolog.Logger
	counters *Counters

	at      time.Time
	wanted  string
	failing string
}

func (d *driver) look(ctx context.Context, v monitor.View) {
	want := ""
	if v.Primary != nil {
		want = v.Primary.Address
	}
	if d.failing == "" && d.wanted == want && !d.at.IsZero() && time.Since(d.at) < haproxyRecheck {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, haproxyTime)
	defer cancel()
	d.at, d.wanted = time.Now(), want
	changed, err := d.h.set(ctx, want)
	if err != nil {
		d.counters.stores.WithLabelValues("haproxy", v.Cluster, "failed").Inc()
		if d.failing != err.Error() {
			d.log.Error().Str("event", "haproxy_failed").Str("cluster", v.Cluster).AnErr("error", err).Msg("HAProxy is not as it should be; it is tried again")
		}
		d.failing = err.Error()
		return
	}
	d.failing = ""
	if changed {
		d.counters.stores.WithLabelValues("haproxy", v.Cluster, "written").Inc()
		d.log.Info().Str("event", "haproxy_set").Str("cluster", v.Cluster).Str("primary", want).Msg("HAProxy leads to the primary")
	}
}

// set makes the server lead to an address, "" for nowhere.
func (h HAProxy) set(ctx context.Context, address string) (changed bool, err error) {
	var ip, port string
	if address != "" {
		if ip, port, err = resolve(ctx, address); err != nil {
			// It must not go on leading elsewhere.
			_, shut := h.set(ctx, "")
			return false, errors.Join(err, shut)
		}
	}
	now, err := h.state(ctx)
	if err != nil {
		return false, err
	}
	want := serverState{ip, port, false}
	if address == "" {
		want = serverState{now.ip, now.port, true}
	}
	if now == want {
		return false, nil
	}
	s := h.Server
	// First nobody is led anywhere, so that no session stays with the former primary.
	lines := []string{"set server " + s + " state maint", "shutdown sessions server " + s}
	if address != "" {
		lines = append(lines, "set server "+s+" addr "+ip+" port "+port, "set server "+s+" state ready")
	}
	var said []string
	for _, line := range lines {
		text, err := h.ask(ctx, line)
		if err != nil {
			return false, err
		}
		if text = strings.TrimSpace(text); text != "" {
			said = append(said, text)
		}
	}
	if now, err = h.state(ctx); err != nil {
		return false, err
	}
	if now != want && (address != "" || !now.maint) {
		return false, fmt.Errorf("HAProxy does not do as it is told: %s", strings.Join(said, "; "))
	}
	return true, nil
}

func resolve(ctx context.Context, address string) (ip, port string, err error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil || strings.HasPrefix(address, "unix:") {
		return "", "", fmt.Errorf("the primary has no address that HAProxy could use: %s", address)
	}
	addrs, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil {
		return "", "", fmt.Errorf("look up %s: %w", host, err)
	}
	return addrs[0], port, nil
}

// serverState is what HAProxy says of a server.
type serverState struct {
	ip, port string
	maint    bool // or drained
}

func (h HAProxy) state(ctx context.Context) (serverState, error) {
	backend, server, _ := strings.Cut(h.Server, "/")
	text, err := h.ask(ctx, "show servers state "+backend)
	if err != nil {
		return serverState{}, err
	}
	column := map[string]int{}
	for _, line := range strings.Split(text, "\n") {
		fields := strings.Fields(line)
		if names, ok := strings.CutPrefix(line, "# "); ok {
			for i, n := range strings.Fields(names) {
				column[n] = i
			}
			continue
		}
		at := func(name string) string {
			if i, ok := column[name]; ok && i < len(fields) {
				return fields[i]
			}
			return ""
		}
		if at("srv_name") != server {
			continue
		}
		admin, err := strconv.Atoi(at("srv_admin_state"))
		if err != nil {
			return serverState{}, fmt.Errorf("HAProxy says nothing that is understood of %s", h.Server)
		}
		return serverState{at("srv_addr"), at("srv_port"), admin&(adminMaint|adminDrain) != 0}, nil
	}
	return serverState{}, fmt.Errorf("HAProxy has no server %s: %s", h.Server, strings.TrimSpace(text))
}

// ask gives one command.
func (h HAProxy) ask(ctx context.Context, line string) (string, error) {
	network, address := "tcp", h.Socket
	if path, ok := strings.CutPrefix(h.Socket, "unix:"); ok {
		network, address = "unix", path
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return "", err
		}
	}
	if _, err := io.WriteString(conn, line+"\n"); err != nil {
		return "", err
	}
	raw, err := io.ReadAll(io.LimitReader(conn, maxHAProxy))
	return string(raw), err
}
