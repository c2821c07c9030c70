package testdb

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const tempPrefix = "lockstep-testdb-"

// maxSocketPath is what a Unix socket's path may take on every system.
const maxSocketPath = 100

// workDir is the directory of one server. It holds a lock for as long as it is
// in use, by which a later run tells what may be removed.
type workDir struct {
	path  string
	socks string // where the socket is, if path is too long for it
	lock  *os.File
}

var sweepOnce sync.Once

// newWorkDir makes a directory: path, which must be empty or missing, or a
// temporary one if it is "".
func newWorkDir(path, name string) (*workDir, error) {
	sweepOnce.Do(func() { sweep(os.TempDir(), time.Minute) })
	d := &workDir{path: path}
	if path == "" {
		var err error
		if d.path, err = os.MkdirTemp("", tempPrefix+fileName(name)+"-"); err != nil {
			return nil, err
		}
	} else {
		var err error
		if d.path, err = filepath.Abs(path); err != nil {
			return nil, err
		}
		if err := os.MkdirAll(d.path, 0o700); err != nil {
			return nil, err
		}
		entries, err := os.ReadDir(d.path)
		if err != nil {
			return nil, err
		}
		if len(entries) > 0 {
			return nil, fmt.Errorf("%s is not empty", d.path)
		}
	}
	var err error
	if d.lock, err = tryLock(filepath.Join(d.path, "lock")); err != nil {
		return nil, errors.Join(err, os.RemoveAll(d.path))
	}
	return d, nil
}

// fileName keeps of a name what is harmless in a file's name.
func fileName(name string) string {
	return strings.Map(func(r rune) rune {
		if r == '-' || r == '_' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' {
			return r
		}
		return '_'
	}, name)
}

// socketPath returns a path for the socket that is short enough.
func (d *workDir) socketPath() (string, error) {
	if sock := filepath.Join(d.path, "sock"); len(sock) <= maxSocketPath {
		return sock, nil
	}
	var err error
	// The temporary directory can be what is too long.
	if d.socks, err = os.MkdirTemp("/tmp", tempPrefix+"sock-"); err != nil {
		return "", err
	}
	return filepath.Join(d.socks, "sock"), nil
}

func (d *workDir) remove() error {
	errs := []error{os.RemoveAll(d.path)}
	if d.socks != "" {
		errs = append(errs, os.RemoveAll(d.socks))
	}
	return errors.Join(append(errs, d.lock.Close())...)
}

// tryLock locks a file, which it makes if there is none, or fails at once.
func tryLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	return f, nil
}

// sweep removes what killed runs have left in dir: directories that are older
// than age, which gives their owner time to lock them, and that nobody has
// locked. What cannot be removed stays for the next run.
func sweep(dir string, age time.Duration) {
	found, err := filepath.Glob(filepath.Join(dir, tempPrefix+"*"))
	if err != nil {
		return
	}
	for _, path := range found {
		info, err := os.Lstat(path)
		if err != nil || !info.IsDir() || time.Since(info.ModTime()) < age {
			continue
		}
		if _, err := os.Stat(filepath.Join(path, "lock")); errors.Is(err, fs.ErrNotExist) {
			_ = os.Remove(path) // only if it is empty
			continue
		}
		lock, err := tryLock(filepath.Join(path, "lock"))
		if err != nil {
			continue
		}
		_ = os.RemoveAll(path)
		_ = lock.Close()
	}
}

var ports struct {
	mu sync.Mutex
	// claims are the files whose locks keep the ports; they end with the process.
	claims []*os.File
}

// claim makes a port this process's own until it ends, also while no server
// listens on it: test binaries run side by side, and servers restart.
func claim(port int) (bool, error) {
	dir, err := cacheDir()
	if err != nil {
		return false, err
	}
	f, err := os.OpenFile(filepath.Join(dir, "port-"+strconv.Itoa(port)), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return false, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return false, f.Close()
	}
	ports.claims = append(ports.claims, f)
	return true, nil
}

// freePort returns a port that is free now and that nobody has claimed. It is
// below the ports that the system gives to clients, so that a server finds it
// free again after a restart, and so that no client can be connected to itself.
func freePort() (int, error) {
	ports.mu.Lock()
	defer ports.mu.Unlock()
	var last error
	for range 200 {
		port := 15000 + rand.IntN(15000)
		// The claim comes first: to listen for a look at it would get in the way of
		// whoever has it.
		mine, err := claim(port)
		if err != nil || !mine {
			last = err
			continue
		}
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))) //nolint:noctx // it does not wait
		if err != nil {
			last = err
			continue
		}
		return port, l.Close()
	}
	return 0, fmt.Errorf("find a free port: %w", last)
}
