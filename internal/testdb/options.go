package testdb

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"
)

// The accounts that every server has unless [Options.NoAccounts] is set. Root
// has no password, and logs in over the socket.
const (
	RootUser = "root"

	// MonitorUser may look: REPLICA MONITOR, BINLOG MONITOR and PROCESS, and
	// with [Options.Operate] it may also change the cluster.
	MonitorUser     = "monitor"
	MonitorPassword = "monitor-secret"

	// ReplUser is the account replicas connect with: REPLICATION SLAVE.
	ReplUser     = "repl"
	ReplPassword = "repl-secret"

	// AppUser may CREATE, SELECT, INSERT, UPDATE and DELETE in [AppDatabase].
	AppUser     = "app"
	AppPassword = "app-secret"
)

// AppDatabase is there on every server, and is not in its binary log.
const AppDatabase = "app"

const (
	startTimeout = 60 * time.Second
	stopTimeout  = 60 * time.Second
)

// ErrNoServer says that this machine has nothing to run a MariaDB server with.
var ErrNoServer = errors.New("no MariaDB server: there is no mariadbd and Docker does not answer; run 'make setup'")

// Backend is the way a server is run.
type Backend int

// The backends.
const (
	// BackendAuto is a process where there is a mariadbd, else a container.
	BackendAuto Backend = iota
	// BackendProcess runs mariadbd as a process of this machine.
	BackendProcess
	// BackendDocker runs mariadbd in a container.
	BackendDocker
)

// String returns the name that LOCKSTEP_BACKEND has for it.
func (b Backend) String() string {
	switch b {
	case BackendAuto:
		return "auto"
	case BackendProcess:
		return "process"
	case BackendDocker:
		return "docker"
	default:
		return "Backend(" + strconv.Itoa(int(b)) + ")"
	}
}

// Account is one more account of a server.
type Account struct {
	User     string
	Password string
	// Grants are what follows the word GRANT, up to the word TO, each:
	// "SELECT ON app.*".
	Grants []string
}

// Options say what server to start. The zero value is a good server.
type Options struct {
	// Name is for messages and for the directory; by default it is made from
	// the server's id.
	Name string
	// ServerID is the server_id; 0 takes the next number of this process.
	ServerID uint32
	// Port is the TCP port on 127.0.0.1; 0 takes a free one. The Docker backend
	// accepts no other value than 0.
	Port int
	// Dir is where the server lives; "" makes a temporary directory. It must be
	// empty or missing, and [Server.Close] removes it. The Docker backend does
	// not use it.
	Dir string
	// ExtraArgs are put after the harness's own arguments to mariadbd, and so
	// override them.
	ExtraArgs []string
	// MaxConnections is the max_connections; 0 means 100.
	MaxConnections int
	// Version is one of [Versions]; "" takes that of [VersionEnv], and without it
	// the server that is installed.
	Version string
	// Prefix is put before the server's program, which it must become, as
	// "ip netns exec NAME" does. The Docker backend does not use it.
	Prefix []string
	// Backend is the way to run it.
	Backend Backend
	// Image is the image of the Docker backend; "" finds one.
	Image string
	// Operate gives the monitor's account what switchover and failover need.
	Operate bool
	// Accounts are further accounts.
	Accounts []Account
	// NoAccounts leaves out all accounts but root, and the database.
	NoAccounts bool

	pods *podGroup // where the containers of a cluster belong
}

func (o *Options) podGroup() *podGroup {
	if o.pods == nil {
		return &loosePods
	}
	return o.pods
}

// backend returns the backend to use, or ErrNoServer.
func (o *Options) backend(ctx context.Context) (Backend, error) {
	b := o.Backend
	if b == BackendAuto {
		switch env := os.Getenv("LOCKSTEP_BACKEND"); env {
		case "", "auto":
		case "process":
			b = BackendProcess
		case "docker":
			b = BackendDocker
		default:
			return 0, fmt.Errorf("LOCKSTEP_BACKEND is %q: use process or docker", env)
		}
	}
	if b != BackendAuto {
		return b, nil
	}
	version, err := o.version()
	if err != nil {
		return 0, err
	}
	_, lack := findPrograms(version)
	if lack == nil {
		return BackendProcess, nil
	}
	if dockerAnswers(ctx) && (version == "" || haveImage(builtImage+":"+version)) {
		return BackendDocker, nil
	}
	if version != "" {
		return 0, lack
	}
	return 0, ErrNoServer
}

// serverArgs are the arguments to mariadbd that all backends have in common.
func (o *Options) serverArgs() []string {
	maxConns := o.MaxConnections
	if maxConns == 0 {
		maxConns = 100
	}
	return []string{
		"--server-id=" + strconv.FormatUint(uint64(o.ServerID), 10),
		"--port=" + strconv.Itoa(o.Port),
		"--max-connections=" + strconv.Itoa(maxConns),
		"--report-host=127.0.0.1",
		"--report-port=" + strconv.Itoa(o.Port),
		"--log-bin=binlog",
		"--relay-log=relay",
		"--log-slave-updates=1",
		"--gtid-strict-mode=1",
		"--binlog-format=ROW",
		"--skip-name-resolve",
		// Small and fast. Every commit reaches the kernel, so that it outlives
		// the death of the process, which is all that a test can bring about.
		"--performance-schema=0",
		"--innodb-buffer-pool-size=16M",
		"--innodb-log-file-size=" + logFileSize,
		"--innodb-flush-method=fsync",
		"--innodb-flush-log-at-trx-commit=2",
		"--innodb-use-native-aio=0",
		"--sync-binlog=0",
		"--key-buffer-size=1M",
		"--aria-pagecache-buffer-size=1M",
	}
}

// logFileSize is the size of InnoDB's log; the template must be made with it.
const logFileSize = "8M"
