package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/rs/zerolog"
	"golang.org/x/term"

	"github.com/lockstep-ha/lockstep/internal/boottime"
	"github.com/lockstep-ha/lockstep/internal/config"
	"github.com/lockstep-ha/lockstep/internal/wiring"
	"github.com/lockstep-ha/lockstep/monitor/api"
)

// hookTime is how long hooks may take at the end of the daemon.
const hookTime = 5 * time.Second

// serve runs the daemon until ctx ends.
func serve(ctx context.Context, path string, stderr io.Writer) error {
	f, err := load(path)
	if err != nil {
		return err
	}
	log := newLogger(f, stderr)
	for _, w := range f.Warnings {
		log.Warn().Str("event", "config_warning").Msg(w.String())
	}
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)

	monCtx, stopMonitors := context.WithCancel(context.WithoutCancel(ctx))
	defer stopMonitors()
	g := newGroup(monCtx, log)
	listener, err := listen("http.listen", f.HTTP.Listen, f.Path)
	if err != nil {
		return err
	}
	agent, err := listen("agent.listen", f.Agent.Listen, f.Path)
	if err != nil {
		return err
	}
	web, err := newWeb(f, g, log)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", errConfig, path, err)
	}
	g.brake.Set(f.MaxFailovers, f.MaxFailoversWithin)
	if err := g.apply(f.Clusters); err != nil {
		return fmt.Errorf("%w: %s: %w", errConfig, path, err)
	}
	served := make(chan error, 2)
	if listener != nil {
		go func() { served <- web.serve(listener) }()
		log.Info().Str("event", "listening").Str("address", listener.Addr().String()).Bool("tls", f.HTTP.Cert != "").Str("version", version).Msg("serving HTTP")
	}
	agentCtx, stopAgent := context.WithCancel(context.WithoutCancel(ctx))
	defer stopAgent()
	if agent != nil {
		go func() { served <- api.ServeAgent(agentCtx, agent, g.monitors, web.metrics) }()
		log.Info().Str("event", "listening").Str("address", agent.Addr().String()).Msg("answering agent checks")
	}
	notify(log, daemon.SdNotifyReady)
	err = loop(ctx, g, web, path, hup, served, log)

	notify(log, daemon.SdNotifyStopping)
	stopMonitors()
	g.wait()
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	err = errors.Join(err, web.server.Shutdown(bounded), web.closeStores())
	hooked, cancelHooks := context.WithTimeout(context.WithoutCancel(ctx), hookTime)
	defer cancelHooks()
	if late := web.hooks.Close(hooked); late != nil {
		log.Error().Str("event", "hooks_late").AnErr("error", late).Msg("the daemon ends")
	}
	return err
}

// listen opens the listener that a key of the configuration asks for.
func listen(key, address, path string) (net.Listener, error) {
	if address == "" {
		return nil, nil //nolint:nilnil // no listener is what the configuration asks for
	}
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%s = %q in %s: %w", key, address, path, err)
	}
	return l, nil
}

// loop handles signals and the watchdog until the daemon has to end.
func loop(ctx context.Context, g *group, web *web, path string, hup <-chan os.Signal, served <-chan error, log zerolog.Logger) error {
	var watchdog <-chan time.Time
	if every, err := daemon.SdWatchdogEnabled(false); err == nil && every > 0 {
		t := time.NewTicker(every / 3)
		defer t.Stop()
		watchdog = t.C
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-g.fail:
			return err
		case err := <-served:
			if !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("serve: %w", err)
			}
		case <-watchdog:
			if alive(g) {
				notify(log, daemon.SdNotifyWatchdog)
			}
		case <-hup:
			notify(log, daemon.SdNotifyReloading+"\nMONOTONIC_USEC="+strconv.FormatInt(boottime.Now().Microseconds(), 10))
			reload(g, web, path, log)
			notify(log, daemon.SdNotifyReady)
		}
	}
}

// alive reports whether every loop goes on: the watchdog is fed by the loops'
// progress, not by a timer.
func alive(g *group) bool {
	for _, m := range g.monitors() {
		if m.Ready() && !m.Live() {
			return false
		}
	}
	return true
}

func reload(g *group, web *web, path string, log zerolog.Logger) {
	f, err := load(path)
	if err == nil {
		err = g.apply(f.Clusters)
	}
	if err == nil {
		g.brake.Set(f.MaxFailovers, f.MaxFailoversWithin)
	}
	if err != nil {
		log.Error().Str("event", "reload_failed").AnErr("error", err).Msg("the configuration has errors; the one before stays in force")
		return
	}
	setLevel(f)
	web.auth.SetTokens(tokens(f))
	web.hooks.Set(wiring.Hooks(f))
	log.Info().Str("event", "reloaded").Str("file", path).Msg("the configuration was read again; what listens, TLS of http, consul, etcd, haproxy and log_format change only at a restart")
}

func notify(log zerolog.Logger, state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		log.Warn().Str("event", "notify_failed").AnErr("error", err).Msg("systemd could not be told")
	}
}

func setLevel(f *config.File) {
	level, err := zerolog.ParseLevel(f.LogLevel)
	if err != nil {
		level = zerolog.InfoLevel
	}
	zerolog.SetGlobalLevel(level)
}

func newLogger(f *config.File, out io.Writer) zerolog.Logger {
	setLevel(f)
	zerolog.TimeFieldFormat = time.RFC3339Nano
	console := f.LogFormat == "console"
	if file, ok := out.(*os.File); ok && f.LogFormat == "auto" {
		console = term.IsTerminal(int(file.Fd()))
	}
	if console {
		_, noColor := os.LookupEnv("NO_COLOR")
		out = zerolog.ConsoleWriter{Out: out, TimeFormat: time.RFC3339, NoColor: noColor}
	}
	return zerolog.New(out).With().Timestamp().Logger()
}
