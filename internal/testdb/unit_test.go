package testdb

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSweep(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	mkdir := func(name string, age time.Duration, files ...string) string {
		dir := filepath.Join(root, name)
		require.NoError(t, os.Mkdir(dir, 0o700))
		for _, f := range files {
			require.NoError(t, os.WriteFile(filepath.Join(dir, f), nil, 0o600))
		}
		then := time.Now().Add(-age)
		require.NoError(t, os.Chtimes(dir, then, then))
		return dir
	}
	dead := mkdir(tempPrefix+"dead", time.Hour, "lock", "data")
	young := mkdir(tempPrefix+"young", 0, "lock")
	used := mkdir(tempPrefix+"used", time.Hour, "lock")
	sock := mkdir(tempPrefix+"sock-1", time.Hour)
	other := mkdir("other", time.Hour, "lock")
	lock, err := tryLock(filepath.Join(used, "lock"))
	require.NoError(t, err)

	sweep(root, time.Minute)
	require.NoDirExists(t, dead)
	require.NoDirExists(t, sock)
	require.DirExists(t, young)
	require.DirExists(t, used)
	require.DirExists(t, other)

	require.NoError(t, lock.Close())
	sweep(root, time.Minute)
	require.NoDirExists(t, used)
}

func TestFreePort(t *testing.T) {
	t.Parallel()
	seen := map[int]bool{}
	for range 50 {
		port, err := freePort()
		require.NoError(t, err)
		require.False(t, seen[port])
		seen[port] = true
		l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port))
		require.NoError(t, err)
		require.NoError(t, l.Close())
	}
}

func TestQuote(t *testing.T) {
	t.Parallel()
	require.Equal(t, `'it''s a \\'`, quote(`it's a \`))
}

func TestLastLines(t *testing.T) {
	t.Parallel()
	require.Equal(t, "a\nb", lastLines("a\nb\n", 2))
	require.Equal(t, "... (1 lines before)\nb\nc", lastLines("a\nb\nc\n", 2))
	require.Empty(t, lastLines("", 2))
}

func TestSplitImage(t *testing.T) {
	t.Parallel()
	for image, want := range map[string][2]string{
		"mariadb:11.8":      {"mariadb", "11.8"},
		"mariadb":           {"mariadb", "latest"},
		"host:5000/mariadb": {"host:5000/mariadb", "latest"},
		"host:5000/m:10.5":  {"host:5000/m", "10.5"},
	} {
		repository, tag := splitImage(image)
		require.Equal(t, want, [2]string{repository, tag}, image)
	}
}

func TestBackendChoice(t *testing.T) {
	ctx := t.Context()
	o := Options{Backend: BackendDocker}
	t.Setenv("LOCKSTEP_BACKEND", "process")
	got, err := o.backend(ctx)
	require.NoError(t, err)
	require.Equal(t, BackendDocker, got)

	o.Backend = BackendAuto
	got, err = o.backend(ctx)
	require.NoError(t, err)
	require.Equal(t, BackendProcess, got)

	t.Setenv("LOCKSTEP_BACKEND", "nonsense")
	_, err = o.backend(ctx)
	require.ErrorContains(t, err, `"nonsense"`)
	require.Equal(t, "docker", BackendDocker.String())
}

// TestTiedToProcess kills a process that has started a server, and finds that
// the server is killed too.
func TestTiedToProcess(t *testing.T) {
	if os.Getenv("TESTDB_CHILD") != "" {
		childMain(t)
		return
	}
	t.Parallel()
	if New(t, Options{}).Backend() != BackendProcess {
		t.Skip("a container has a time limit instead")
	}
	pidFile := filepath.Join(t.TempDir(), "pid")
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestTiedToProcess$")
	cmd.Env = append(os.Environ(), "TESTDB_CHILD="+pidFile)
	require.NoError(t, cmd.Start())
	var pid int
	require.Eventually(t, func() bool {
		text, err := os.ReadFile(pidFile)
		if err != nil {
			return false
		}
		pid, err = strconv.Atoi(string(text))
		return err == nil
	}, 20*time.Second, 10*time.Millisecond)
	require.True(t, processExists(pid))
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	require.Eventually(t, func() bool { return !runs(pid) }, 5*time.Second, 10*time.Millisecond)
}

// runs reports whether a process is there and is no zombie, as it is where no
// init reaps it.
func runs(pid int) bool {
	path, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/exe")
	return err == nil && path != ""
}

// childMain starts a server, says its pid and waits to be killed.
func childMain(t *testing.T) {
	pidFile := os.Getenv("TESTDB_CHILD")
	s, err := Start(t.Context(), Options{Dir: filepath.Join(filepath.Dir(pidFile), "server")})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(pidFile+".new", []byte(strconv.Itoa(s.Pid())), 0o600))
	require.NoError(t, os.Rename(pidFile+".new", pidFile))
	time.Sleep(time.Minute)
}
