// Package wiring turns a checked configuration into monitors.
package wiring

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/lockstep-ha/lockstep/election"
	"github.com/lockstep-ha/lockstep/internal/config"
	"github.com/lockstep-ha/lockstep/monitor"
	"github.com/lockstep-ha/lockstep/monitor/operation"
	"github.com/lockstep-ha/lockstep/topology"
)

// Config makes the configuration of a monitor from its part of the file.
// version is that of the program. It reads the files that TLS settings name.
func Config(c config.Cluster, version string) (monitor.Config, error) {
	mode, err := election.ParseMode(c.Quorum)
	if err != nil {
		return monitor.Config{}, fmt.Errorf("cluster %s: %w", c.Name, err)
	}
	cfg := monitor.Config{
		Flavor:  map[string]topology.Flavor{config.FlavorMariaDB: topology.MariaDB, config.FlavorMySQL: topology.MySQL}[c.Flavor],
		Cluster: c.Name, Name: c.MonitorName, Version: version, User: c.User, Password: c.Password.Reveal(),
		Quorum: mode, Interval: c.Interval, Timeout: c.Timeout, Failcount: c.Failcount, AllowUnsafeFailcount: c.AllowUnsafeFailcount,
		WaitTimeoutFloor: c.WaitTimeoutFloor, ServerLock: c.ServerLock, PrimaryLock: c.PrimaryLock,
		TrustedLockUsers: c.TrustedLockUsers, Passive: c.Passive, LagLimit: c.LagLimit,
		Policy: policy(c.Operations),
	}
	if cfg.LagLimit == 0 {
		cfg.LagLimit = -1
	}
	var problems []error
	for _, s := range c.Servers {
		t, err := tlsConfig(s.TLS)
		if err != nil {
			problems = append(problems, fmt.Errorf("cluster %s: server %s: %w", c.Name, s.Name, err))
		}
		cfg.Servers = append(cfg.Servers, monitor.ServerConfig{
			Name: s.Name, Address: s.Address, PrivateAddress: s.PrivateAddress, NoVote: s.Votes == 0,
			Promotion: topology.Promotion(s.Promotion), Maintenance: s.Maintenance, Drain: s.Drain, Site: s.Site,
			User: s.User, Password: s.Password.Reveal(), TLS: t, TLSOptional: s.TLS.Mode == config.TLSPreferred,
		})
	}
	return cfg, errors.Join(problems...)
}

// policy makes what the operator lets the monitor change. Where the zero value of
// a Policy stands for the default, "none" has a value of its own.
func policy(o config.Operations) operation.Policy {
	p := operation.Policy{
		ReplicationUser: o.ReplicationUser, ReplicationPassword: o.ReplicationPassword.Reveal(), ReplicationTLS: o.ReplicationTLS,
		AutoFailover: o.AutoFailover, AutoRejoin: o.AutoRejoin, EnforceReadOnly: o.EnforceReadOnly, EnforceWritable: o.EnforceWritable,
		DeadPrimaryDelay: o.DeadPrimaryDelay, TrustEvidence: o.TrustEvidence, RelayLog: operation.RelayLog(o.RelayLog),
		FailoverTimeout: o.FailoverTimeout, SwitchoverTimeout: o.SwitchoverTimeout, FailoverBlock: o.FailoverBlock,
		LeaveEvents: !o.MoveEvents, LeaveSemiSync: !o.MoveSemiSync, PromotionSQL: o.PromotionSQL, DemotionSQL: o.DemotionSQL,
		FenceOnLostMajority: o.FenceOnLostMajority, StateSchema: o.StateSchema, WriteProbe: o.WriteProbe,
		KeepConnections: o.KeepConnections, MinFreeDisk: o.MinFreeDisk, DrainOnLowDisk: o.DrainOnLowDisk, SwitchoverOnLowDisk: o.SwitchoverOnLowDisk,
	}
	if len(p.KeepConnections) == 0 {
		p.KeepConnections = nil
	}
	if p.FailoverBlock == 0 {
		p.FailoverBlock = -1
	}
	if p.StateSchema == "" {
		p.StateSchema = "-"
	}
	for _, s := range o.FenceCommand {
		p.FenceCommand = append(p.FenceCommand, s.Reveal())
	}
	return p
}

// tlsConfig makes the TLS settings of a mode; nil for connections in the clear.
func tlsConfig(t config.TLS) (*tls.Config, error) {
	if t.Mode == config.TLSDisabled || t.Mode == "" {
		return nil, nil //nolint:nilnil // nil is what the driver takes for "in the clear"
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if t.CA != "" {
		pem, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, fmt.Errorf("tls_ca: %w", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("tls_ca: %s holds no PEM certificate", t.CA)
		}
	}
	if t.Cert != "" {
		pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		if err != nil {
			return nil, fmt.Errorf("tls_cert and tls_key: %w", err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	switch t.Mode {
	case config.TLSPreferred, config.TLSRequired:
		cfg.InsecureSkipVerify = true
	case config.TLSVerifyCA:
		cfg.InsecureSkipVerify = true
		roots := cfg.RootCAs
		cfg.VerifyConnection = func(s tls.ConnectionState) error { return verifyChain(s, roots) }
	}
	return cfg, nil
}

// verifyChain checks the certificate chain without the host name.
func verifyChain(s tls.ConnectionState, roots *x509.CertPool) error {
	if len(s.PeerCertificates) == 0 {
		return errors.New("the server sent no certificate")
	}
	opts := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool(), CurrentTime: time.Now()}
	for _, c := range s.PeerCertificates[1:] {
		opts.Intermediates.AddCert(c)
	}
	_, err := s.PeerCertificates[0].Verify(opts)
	return err
}
