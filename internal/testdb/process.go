package testdb

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// process is an instance that runs as a process of this machine.
type process struct {
	programs programs
	prefix   []string
	dir      *workDir
	sock     string

	mu   sync.Mutex
	cmd  *exec.Cmd     // the last one started
	gone chan struct{} // closed when cmd has ended
}

// newProcess prepares the directory of a server, and takes a port if o has none.
func newProcess(ctx context.Context, o *Options) (*process, error) {
	version, err := o.version()
	if err != nil {
		return nil, err
	}
	programs, err := findPrograms(version)
	if err != nil {
		return nil, err
	}
	template, err := templateDir(ctx, programs)
	if err != nil {
		return nil, err
	}
	if o.Port == 0 {
		if o.Port, err = freePort(); err != nil {
			return nil, err
		}
	}
	dir, err := newWorkDir(o.Dir, o.Name)
	if err != nil {
		return nil, err
	}
	p := &process{programs: programs, prefix: o.Prefix, dir: dir, gone: make(chan struct{})}
	close(p.gone)
	if err := p.prepare(template); err != nil {
		return nil, errors.Join(err, dir.remove())
	}
	return p, nil
}

func (p *process) prepare(template string) error {
	if err := os.Mkdir(p.path("tmp"), 0o700); err != nil {
		return err
	}
	var err error
	if p.sock, err = p.dir.socketPath(); err != nil {
		return err
	}
	if err := copyTree(template, p.path("data")); err != nil {
		return fmt.Errorf("copy the template data directory: %w", err)
	}
	return nil
}

func (p *process) path(name string) string { return filepath.Join(p.dir.path, name) }

func (p *process) start(_ context.Context, args []string) error {
	if err := p.kill(); err != nil {
		return err
	}
	argv := append(slices.Clone(p.prefix), p.programs.server,
		"--no-defaults",
		"--datadir="+p.path("data"),
		"--tmpdir="+p.path("tmp"),
		"--pid-file="+p.path("pid"),
		"--log-error="+p.path("error.log"),
		"--socket="+p.sock,
		"--bind-address=127.0.0.1",
	)
	argv = append(argv, userArgs()...)
	argv = append(argv, args...)
	// No context: a server outlives the call that starts it.
	cmd := exec.Command(argv[0], argv[1:]...) //nolint:noctx // see above
	cmd.Dir = p.dir.path
	out, err := os.OpenFile(p.path("error.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }()
	cmd.Stdout, cmd.Stderr = out, out
	if err := startTied(cmd); err != nil {
		return err
	}
	gone := make(chan struct{})
	p.mu.Lock()
	p.cmd, p.gone = cmd, gone
	p.mu.Unlock()
	go func() {
		_ = cmd.Wait() // how it ended is for its log to tell
		close(gone)
	}()
	return nil
}

// userArgs lets root run a server.
func userArgs() []string {
	if os.Geteuid() == 0 {
		return []string{"--user=root"}
	}
	return nil
}

// running returns the process if it has not ended.
func (p *process) running() (*os.Process, chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.gone:
		return nil, p.gone
	default:
		return p.cmd.Process, p.gone
	}
}

// signal sends a signal to a running process, and nothing to one that is gone.
func (p *process) signal(signals ...os.Signal) (gone chan struct{}, err error) {
	proc, gone := p.running()
	if proc == nil {
		return gone, nil
	}
	for _, sig := range signals {
		if err := proc.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return gone, fmt.Errorf("send %v to process %d: %w", sig, proc.Pid, err)
		}
	}
	return gone, nil
}

func (p *process) kill() error {
	gone, err := p.signal(syscall.SIGKILL)
	if err != nil {
		return err
	}
	<-gone
	return nil
}

func (p *process) stop(ctx context.Context) error {
	gone, err := p.signal(syscall.SIGCONT, syscall.SIGTERM)
	if err != nil {
		return err
	}
	select {
	case <-gone:
		return nil
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("the server did not stop: %w", ctx.Err()), p.kill())
	}
}

var errNotRunning = errors.New("the server does not run")

func (p *process) freeze() error {
	proc, _ := p.running()
	if proc == nil {
		return errNotRunning
	}
	if _, err := p.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return waitStopped(proc.Pid)
}

func (p *process) thaw() error {
	_, err := p.signal(syscall.SIGCONT)
	return err
}

func (p *process) exited() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.gone
}

func (p *process) pid() int {
	proc, _ := p.running()
	if proc == nil {
		return 0
	}
	return proc.Pid
}

func (p *process) socket() string  { return p.sock }
func (p *process) logPath() string { return p.path("error.log") }

func (p *process) logTail(n int) string {
	text, err := os.ReadFile(p.logPath())
	if err != nil {
		return err.Error()
	}
	return lastLines(string(text), n)
}

func (p *process) remove() error { return p.dir.remove() }

// lastLines returns the last n lines of a text.
func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if len(lines) > n {
		lines = append([]string{"... (" + strconv.Itoa(len(lines)-n) + " lines before)"}, lines[len(lines)-n:]...)
	}
	return strings.Join(lines, "\n")
}

// findProgram looks a program up under its names, on the PATH and where Linux
// distributions keep servers.
func findProgram(names ...string) (string, error) {
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return filepath.Abs(path)
		}
		for _, dir := range []string{"/usr/sbin", "/usr/libexec", "/usr/local/sbin", "/usr/local/bin", "/usr/bin", "/opt/homebrew/bin"} {
			path := filepath.Join(dir, name)
			if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
				return path, nil
			}
		}
	}
	return "", fmt.Errorf("there is no %s on the PATH or in /usr/sbin", names[0])
}
