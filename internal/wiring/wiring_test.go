package wiring

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/internal/config"
	"github.com/lockstep-ha/lockstep/monitor"
	"github.com/lockstep-ha/lockstep/monitor/operation"
)

// wire makes the configuration of a monitor from lines of [cluster.main].
func wire(t *testing.T, dir string, lines ...string) monitor.Config {
	t.Helper()
	text := "[cluster.main]\nuser = \"u\"\npassword = \"p\"\n" + strings.Join(lines, "\n") + "\n[[cluster.main.server]]\nname = \"s1\"\naddress = \"h\"\n"
	f, err := config.Parse(filepath.Join(dir, "x.toml"), []byte(text), nil)
	require.NoError(t, err)
	cfg, err := Config(f.Clusters[0], "test")
	require.NoError(t, err)
	return cfg
}

// A file that says nothing of operations means the defaults of a Policy.
func TestPolicyDefaults(t *testing.T) {
	got := wire(t, "").Policy
	require.Zero(t, got.DeadPrimaryDelay)
	require.Equal(t, operation.Policy{}.WithDefaults(time.Second), got.WithDefaults(time.Second))
}

func TestPolicy(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "up.sql"), []byte("DO 1;\nDO 2;\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "down.sql"), []byte("DO 3\n"), 0o600))
	got := wire(t, dir, `replication_user = "repl"`, `replication_password = "secret"`, `replication_tls = true`,
		`auto_failover = true`, `auto_rejoin = true`, `enforce_read_only = true`, `enforce_writable = true`,
		`dead_primary_delay = "3s"`, `trust_evidence = true`, `relay_log = "abort"`, `failover_timeout = "4s"`,
		`switchover_timeout = "5s"`, `failover_block = "6s"`, `move_events = false`, `move_semi_sync = false`,
		`promotion_sql_file = "up.sql"`, `demotion_sql_file = "down.sql"`, `fence_command = ["/bin/sh", "-c", "exit 1"]`,
		`fence_on_lost_majority = true`, `state_schema = "own"`, `write_probe = "own.probe"`,
		`keep_connections = ["backup"]`, `min_free_disk = 7`, `drain_on_low_disk = true`, `switchover_on_low_disk = true`).Policy
	want := operation.Policy{
		ReplicationUser: "repl", ReplicationPassword: "secret", ReplicationTLS: true,
		AutoFailover: true, AutoRejoin: true, EnforceReadOnly: true, EnforceWritable: true,
		DeadPrimaryDelay: 3 * time.Second, TrustEvidence: true, RelayLog: operation.RelayLogAbort, FailoverTimeout: 4 * time.Second,
		SwitchoverTimeout: 5 * time.Second, FailoverBlock: 6 * time.Second, LeaveEvents: true, LeaveSemiSync: true,
		PromotionSQL: []string{"DO 1", "DO 2"}, DemotionSQL: []string{"DO 3"}, FenceCommand: []string{"/bin/sh", "-c", "exit 1"},
		FenceOnLostMajority: true, StateSchema: "own", WriteProbe: "own.probe",
		KeepConnections: []string{"backup"}, MinFreeDisk: 7, DrainOnLowDisk: true, SwitchoverOnLowDisk: true,
	}
	require.Equal(t, want, got)
	require.Equal(t, want, got.WithDefaults(time.Second))
}

func TestPolicyOfNone(t *testing.T) {
	got := wire(t, "", `failover_block = "0s"`, `state_schema = ""`, `dead_primary_delay = "0s"`, `relay_log = "proceed"`).Policy
	require.Equal(t, time.Duration(-1), got.FailoverBlock)
	require.Equal(t, "-", got.StateSchema)
	require.Zero(t, got.DeadPrimaryDelay)
	require.Equal(t, operation.RelayLogProceed, got.RelayLog)
}
