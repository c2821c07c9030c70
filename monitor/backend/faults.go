package backend

import (
	"errors"
	"fmt"
	"strings"

	"github.com/lockstep-ha/lockstep/locks"
	"github.com/lockstep-ha/lockstep/topology"
	"github.com/lockstep-ha/lockstep/topology/mariadb"
)

// faultsOf names what a person can mend behind a failed probe.
func faultsOf(srv Server, s topology.Server, err error) []topology.Fault {
	fault := func(code, remedy string) []topology.Fault {
		return []topology.Fault{{Code: code, Text: fmt.Sprintf("%s (%s): %s", srv.Name, srv.Address, s.Why()), Remedy: remedy}}
	}
	switch s.Evidence {
	case topology.AccessDenied:
		return fault("access_denied", fmt.Sprintf("check user %q and its password in the configuration, and that the account may connect from this host", srv.User))
	case topology.TooManyConnections:
		return fault("too_many_connections", "raise max_connections, end connections, or GRANT CONNECTION ADMIN to the monitor's account, which lets it use the extra one")
	case topology.NameResolution:
		return fault("name_resolution", "check the address in the configuration and the name service of this host")
	case topology.TLSFailed:
		return fault("tls", "check tls, tls_ca and tls_server_name in the configuration and the server's certificate")
	case topology.ProxyInBetween:
		return fault("proxy", "give the address of the server itself")
	case topology.Unsupported:
		return fault("unsupported", "")
	case topology.OtherFailure:
		if errors.Is(err, locks.ErrWaitTimeout) {
			return fault("wait_timeout", "a proxy or init_connect changes it: give the address of the server itself")
		}
		return fault("probe_failed", "")
	}
	return nil
}

func missingPrivilege(srv Server, g mariadb.Grant) topology.Fault {
	return topology.Fault{
		Code:   "missing_privilege",
		Text:   fmt.Sprintf("%s: account %q lacks %s (%s)", srv.Name, srv.User, g.Privilege, g.For),
		Remedy: fmt.Sprintf("GRANT %s ON *.* TO %s", g.Privilege, srv.User),
	}
}

// cannotOperate names the privileges without which an operation would fail.
func cannotOperate(srv Server, lacks []mariadb.Grant) topology.Fault {
	names := make([]string, len(lacks))
	for i, g := range lacks {
		names[i] = g.Privilege
	}
	list := strings.Join(names, ", ")
	return topology.Fault{
		Code:   "cannot_operate",
		Text:   fmt.Sprintf("%s: account %q lacks what operations need: %s", srv.Name, srv.User, list),
		Remedy: fmt.Sprintf("GRANT %s ON *.* TO %s", list, srv.User),
	}
}

// lockFaults names locks that are held by accounts that are not trusted.
func (p *prober) lockFaults(row locks.Row) []topology.Fault {
	var out []topology.Fault
	for _, l := range []struct {
		what string
		lock locks.Lock
	}{{"server", row.ServerLock}, {"primary", row.PrimaryLock}} {
		h := l.lock.Holder
		if l.lock.State != locks.Other || !h.Checked || h.Trusted {
			continue
		}
		f := topology.Fault{
			Code:   "forged_" + l.what + "_lock",
			Text:   fmt.Sprintf("server %s: the %s lock is held by %s, which is not a trusted account", p.srv.Name, l.what, h),
			Remedy: fmt.Sprintf("KILL %d on %s, or add the account to trusted_lock_users", h.ConnectionID, p.srv.Name),
		}
		if h.User == "" {
			f.Text = fmt.Sprintf("server %s: the %s lock is held by connection %d, whose account the monitor cannot see", p.srv.Name, l.what, h.ConnectionID)
			f.Remedy = fmt.Sprintf("GRANT PROCESS ON *.* TO %s, or KILL %d on %s", p.srv.User, h.ConnectionID, p.srv.Name)
		}
		out = append(out, f)
	}
	return out
}
