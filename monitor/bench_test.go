//go:build unix

package monitor_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/election"
	"github.com/lockstep-ha/lockstep/internal/fakedb"
	"github.com/lockstep-ha/lockstep/internal/testdb"
	"github.com/lockstep-ha/lockstep/monitor"
)

// The servers of the benchmarks run in a child process, so that only the
// monitors are measured. The child is this test binary; fakesEnv tells
// TestFakeServers how many clusters to start.
const (
	fakesEnv     = "LOCKSTEP_BENCH_FAKE_CLUSTERS"
	perCluster   = 3
	manyClusters = 300
)

// TestFakeServers is the child process of the benchmarks, and no test.
func TestFakeServers(t *testing.T) {
	n, err := strconv.Atoi(os.Getenv(fakesEnv))
	if err != nil {
		t.Skip("this is the child process of the benchmarks")
	}
	raiseFiles(t)
	out := os.NewFile(3, "addresses")
	for range n {
		for _, s := range fakeCluster(t) {
			_, err := fmt.Fprintln(out, s.Addr())
			require.NoError(t, err)
		}
	}
	require.NoError(t, out.Close())
	_, err = io.Copy(io.Discard, os.Stdin) // until the parent ends
	require.NoError(t, err)
}

// fakeCluster is a primary and replicas that replicate from it.
func fakeCluster(t testing.TB) []*fakedb.Server {
	const pos = "0-1-12345"
	servers := []*fakedb.Server{fakedb.New(t, fakedb.Options{ServerID: 1, GTID: pos})}
	for i := 1; i < perCluster; i++ {
		servers = append(servers, fakedb.New(t, fakedb.Options{ServerID: uint32(i + 1), GTID: pos, ReadOnly: true,
			Replication: []fakedb.Replication{{Host: "127.0.0.1", Port: servers[0].Port(), ServerID: 1, IOPos: pos}}}))
	}
	return servers
}

// fakes starts clusters of fake servers in a child process.
func fakes(b *testing.B, n int) [][]string {
	b.Helper()
	exe, err := os.Executable()
	require.NoError(b, err)
	r, w, err := os.Pipe()
	require.NoError(b, err)
	cmd := exec.Command(exe, "-test.run=^TestFakeServers$", "-test.timeout=0")
	cmd.Env = append(os.Environ(), fakesEnv+"="+strconv.Itoa(n))
	cmd.ExtraFiles = []*os.File{w}
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	require.NoError(b, err)
	require.NoError(b, cmd.Start())
	b.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Wait()
	})
	require.NoError(b, w.Close())
	var out [][]string
	for lines := bufio.NewScanner(r); lines.Scan(); {
		if len(out) == 0 || len(out[len(out)-1]) == perCluster {
			out = append(out, nil)
		}
		out[len(out)-1] = append(out[len(out)-1], lines.Text())
	}
	require.NoError(b, r.Close())
	require.Len(b, out, n)
	return out
}

// raiseFiles raises the limit of open files to the highest that is allowed.
func raiseFiles(t testing.TB) {
	t.Helper()
	var l syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l))
	l.Cur = l.Max
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		t.Logf("the limit of open files stays as it is: %v", err)
	}
}

func configOf(name string, addrs []string, interval, timeout time.Duration) monitor.Config {
	c := monitor.Config{Cluster: name, User: testdb.MonitorUser, Password: testdb.MonitorPassword, Interval: interval, Timeout: timeout}
	for i, a := range addrs {
		c.Servers = append(c.Servers, monitor.ServerConfig{Name: fmt.Sprintf("s%d", i+1), Address: a})
	}
	return c
}

// leads reports whether a monitor is primary, has all locks and offers a server.
func leads(m *monitor.Monitor) bool {
	v := m.View()
	return v.Monitor.Role == election.Primary && v.Monitor.PrimaryLockHeld && v.Primary != nil && v.Monitor.Majority.Held == len(v.Servers)
}

// usedCPU is the time that this process has used.
func usedCPU(t testing.TB) time.Duration {
	t.Helper()
	var u syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// usedMemory is the resident set of this process in megabytes; where the system
// does not tell, what Go has from it.
func usedMemory() float64 {
	if kb, ok := status("VmRSS"); ok {
		return kb / 1024
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.Sys-m.HeapReleased) / (1 << 20)
}

// status reads a number that Linux tells of this process.
func status(name string) (value float64, ok bool) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(text)) {
		if _, err := fmt.Sscanf(line, name+": %f", &value); err == nil {
			return value, true
		}
	}
	return 0, false
}

// benchTicks measures the ticks of a settled monitor, one after the other.
func benchTicks(b *testing.B, addrs []string) {
	b.Helper()
	m, err := monitor.New(configOf("bench", addrs, 200*time.Millisecond, 100*time.Millisecond))
	require.NoError(b, err)
	tick, stop, err := m.Ticks()
	require.NoError(b, err)
	defer func() { require.NoError(b, stop(context.Background())) }()
	for start := time.Now(); !leads(m); time.Sleep(20 * time.Millisecond) {
		require.Less(b, time.Since(start), 20*time.Second, "%+v", m.View())
		tick(b.Context())
	}
	b.ReportAllocs()
	cpu := usedCPU(b)
	for b.Loop() {
		tick(b.Context())
	}
	b.ReportMetric(float64(usedCPU(b)-cpu)/float64(b.N), "cpu-ns/op")
	require.True(b, leads(m), "%+v", m.View())
}

// BenchmarkTick is one tick over three servers in memory.
func BenchmarkTick(b *testing.B) { benchTicks(b, fakes(b, 1)[0]) }

// BenchmarkTickRealServer is one tick over three real servers.
func BenchmarkTickRealServer(b *testing.B) {
	c, err := testdb.StartCluster(b.Context(), perCluster, testdb.ClusterOptions{})
	if errors.Is(err, testdb.ErrNoServer) {
		b.Skip(err)
	}
	require.NoError(b, err)
	defer func() { require.NoError(b, c.Close()) }()
	var addrs []string
	for _, s := range c.Servers {
		addrs = append(addrs, s.Addr())
	}
	benchTicks(b, addrs)
}

// BenchmarkManyClusters runs one process with a monitor for each of many
// clusters, as the program does, and reports what that costs. ns/op says
// nothing here.
func BenchmarkManyClusters(b *testing.B) {
	const (
		interval = time.Second
		timeout  = time.Second
		measured = 10 * time.Second
	)
	raiseFiles(b)
	clusters := fakes(b, manyClusters)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	defer func() {
		cancel()
		running.Wait()
	}()
	monitors := make([]*monitor.Monitor, len(clusters))
	for i, addrs := range clusters {
		m, err := monitor.New(configOf(fmt.Sprintf("c%d", i), addrs, interval, timeout))
		require.NoError(b, err)
		monitors[i] = m
		running.Go(func() {
			if err := m.Run(ctx); err != nil {
				b.Error(err)
			}
		})
	}
	leading := func() (n int) {
		for _, m := range monitors {
			if leads(m) {
				n++
			}
		}
		return n
	}
	for start := time.Now(); leading() < len(monitors); time.Sleep(100 * time.Millisecond) {
		require.Less(b, time.Since(start), time.Minute, "%d of %d lead", leading(), len(monitors))
	}
	ticks := func() (n uint64) {
		for _, m := range monitors {
			n += m.View().Tick
		}
		return n
	}
	for b.Loop() {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		cpu, start, first := usedCPU(b), time.Now(), ticks()
		time.Sleep(measured)
		used, took := usedCPU(b)-cpu, time.Since(start)
		n := float64(ticks() - first)
		runtime.ReadMemStats(&after)
		b.ReportMetric(used.Seconds()/took.Seconds(), "cores")
		b.ReportMetric(usedMemory(), "RSS-MB")
		b.ReportMetric(float64(after.HeapInuse)/(1<<20), "heap-MB")
		b.ReportMetric(float64(runtime.NumGoroutine()), "goroutines")
		if threads, ok := status("Threads"); ok {
			b.ReportMetric(threads, "threads")
		}
		b.ReportMetric(n/took.Seconds()/float64(len(monitors)), "ticks/s/cluster")
		b.ReportMetric(float64(after.Mallocs-before.Mallocs)/n, "allocs/tick")
		b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/n, "B/tick")
	}
	require.Equal(b, len(monitors), leading(), "all lead to the end")
}
