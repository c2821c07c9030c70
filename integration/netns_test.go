//go:build linux

package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/election"
	"github.com/lockstep-ha/lockstep/internal/testdb"
	"github.com/lockstep-ha/lockstep/monitor"
)

// sites is a network of two sites, each with a switch, that are connected by one
// cable. Every server and monitor has a network namespace of its own; this process
// has one leg at each site, which the cut leaves alone.
type sites struct {
	id, hub       string
	subnet, hosts int
}

const nsPrefix = "lockstep-"

// networks counts the networks of this process.
var networks atomic.Int64

// newSites makes the two switches. It skips where that cannot be done.
func newSites(t testing.TB) *sites {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	for _, p := range []string{"ip", "nft"} {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("there is no %s", p)
		}
	}
	sweepNamespaces(t)
	serial := int(networks.Add(1))
	n := &sites{id: fmt.Sprintf("%d-%d", os.Getpid(), serial), subnet: (os.Getpid() + serial) % 250}
	n.hub = n.namespace(t, "hub")
	for _, site := range []string{"a", "b"} {
		n.inside(t, n.hub, "link add br"+site+" type bridge", "link set br"+site+" up")
	}
	n.inside(t, n.hub, "link add cable type veth peer name elbac", "link set cable master bra up", "link set elbac master brb up")
	for i, site := range []string{"a", "b"} {
		leg := n.leg(site)
		ipCommand(t, "link add "+leg+" type veth peer name leg"+site+" netns "+n.hub)
		n.inside(t, n.hub, "link set leg"+site+" master br"+site+" up")
		// Each leg answers for its own address only, as the switches know each other.
		path := filepath.Join("/proc/sys/net/ipv4/conf", leg, "arp_ignore")
		require.NoError(t, os.WriteFile(path, []byte("1"), 0o600))
		ipCommand(t, fmt.Sprintf("addr add %s/32 dev %s", n.address(250+i), leg))
		ipCommand(t, "link set "+leg+" up")
	}
	return n
}

// sweepNamespaces removes what runs that were killed have left.
func sweepNamespaces(t testing.TB) {
	t.Helper()
	for _, line := range strings.Split(ipCommand(t, "netns list"), "\n") {
		name, _, _ := strings.Cut(line, " ")
		rest, ours := strings.CutPrefix(name, nsPrefix)
		owner, _, _ := strings.Cut(rest, "-")
		if _, err := strconv.Atoi(owner); !ours || err != nil {
			continue
		}
		if _, err := os.Stat("/proc/" + owner); errors.Is(err, os.ErrNotExist) {
			ipCommand(t, "netns del "+name)
		}
	}
}

func ipCommand(t testing.TB, args string) string {
	t.Helper()
	out, err := exec.CommandContext(context.Background(), "ip", strings.Fields(args)...).CombinedOutput()
	require.NoError(t, err, "ip %s: %s", args, out)
	return string(out)
}

// inside runs ip in a namespace.
func (n *sites) inside(t testing.TB, ns string, commands ...string) {
	t.Helper()
	for _, c := range commands {
		ipCommand(t, "-n "+ns+" "+c)
	}
}

func (n *sites) namespace(t testing.TB, name string) string {
	t.Helper()
	ns := nsPrefix + n.id + "-" + name
	ipCommand(t, "netns add "+ns)
	t.Cleanup(func() { ipCommand(t, "netns del "+ns) })
	n.inside(t, ns, "link set lo up")
	return ns
}

// address is a private address that hardly anybody else uses.
func (n *sites) address(host int) string { return fmt.Sprintf("10.213.%d.%d", n.subnet, host) }

// leg is the interface of this process at a site; its name must be short.
func (n *sites) leg(site string) string { return "ls" + strings.ReplaceAll(n.id, "-", "n") + site }

// host adds a host to a site and returns its namespace and address.
func (n *sites) host(t testing.TB, name, site string) (ns, address string) {
	t.Helper()
	n.hosts++
	ns, address = n.namespace(t, name), n.address(n.hosts)
	port := "p" + name
	n.inside(t, n.hub, "link add "+port+" type veth peer name eth0 netns "+ns, "link set "+port+" master br"+site+" up")
	n.inside(t, ns, "addr add "+address+"/24 dev eth0", "link set eth0 up")
	own := map[string]int{"a": 250, "b": 251}[site]
	ipCommand(t, fmt.Sprintf("route add %s/32 dev %s src %s", address, n.leg(site), n.address(own)))
	return ns, address
}

// cuts are ways to part the sites: without the cable nobody is found any more, and
// a filter lets the hosts go on finding each other and drops what they send.
var cuts = map[string][2]string{
	"cable":  {"ip link set cable down", "ip link set cable up"},
	"filter": {"nft add table bridge cut; add chain bridge cut f { type filter hook forward priority 0; }; add rule bridge cut f iifname { cable, elbac } ether type ip drop", "nft delete table bridge cut"},
}

func (n *sites) do(t testing.TB, command string) {
	t.Helper()
	program, args, _ := strings.Cut(command, " ")
	argv := append([]string{"netns", "exec", n.hub, program}, strings.Fields(args)...)
	if program == "nft" {
		argv = []string{"netns", "exec", n.hub, program, args}
	}
	out, err := exec.CommandContext(context.Background(), "ip", argv...).CombinedOutput()
	require.NoError(t, err, "%s: %s", command, out)
}

// servers starts one server in each namespace, which replicate semi-synchronously
// from the first and never fall back.
func (n *sites) servers(t testing.TB, where ...string) (*testdb.Cluster, []monitor.ServerConfig) {
	t.Helper()
	configs := make([]monitor.ServerConfig, len(where))
	addresses := make([]string, len(where))
	namespaces := make([]string, len(where))
	for i, site := range where {
		ns, address := n.host(t, serverName(i), site)
		namespaces[i], addresses[i] = ns, address
	}
	c := testdb.NewCluster(t, len(where), testdb.ClusterOptions{NoReplication: true,
		Server: testdb.Options{Operate: true, Backend: testdb.BackendProcess},
		Each: func(i int, o *testdb.Options) {
			o.Prefix = []string{"ip", "netns", "exec", namespaces[i]}
			o.ExtraArgs = append(testdb.SemiSyncArgs(), "--bind-address=0.0.0.0", "--report-host="+addresses[i])
		}})
	for i, s := range c.Servers {
		configs[i] = monitor.ServerConfig{Name: serverName(i), Address: net.JoinHostPort(addresses[i], strconv.Itoa(s.Port()))}
		if i > 0 {
			s.MustExec(t, "SET GLOBAL read_only=1", fmt.Sprintf("CHANGE MASTER TO MASTER_HOST='%s', MASTER_PORT=%d, MASTER_USER='%s', MASTER_PASSWORD='%s', "+
				"MASTER_USE_GTID=slave_pos, MASTER_HEARTBEAT_PERIOD=1, MASTER_CONNECT_RETRY=1", addresses[0], c.Primary().Port(), testdb.ReplUser, testdb.ReplPassword), "START SLAVE")
			require.NoError(t, s.WaitReplicating(t.Context()))
		}
	}
	require.NoError(t, c.EnableSemiSync(t.Context()))
	return c, configs
}

// daemon is a lockstepd at a site, and what it said last.
type daemon struct {
	url, log string
	last     atomic.Pointer[monitor.View]
	offered  atomic.Int64 // when it offered a primary last, in ns since the epoch
}

// daemon starts a monitor with default timing in a namespace of its own.
func (n *sites) daemon(t testing.TB, program, name, site string, servers []monitor.ServerConfig) *daemon {
	t.Helper()
	ns, address := n.host(t, name, site)
	dir := t.TempDir()
	d := &daemon{url: "http://" + address + ":8990/v1/clusters/test", log: filepath.Join(dir, "log")}
	var b strings.Builder
	fmt.Fprintf(&b, "[http]\nlisten = \"%s:8990\"\nallow_remote = true\n[cluster.test]\nmonitor_name = %q\nuser = %q\npassword = %q\nreplication_user = %q\nreplication_password = %q\n",
		address, name, testdb.MonitorUser, testdb.MonitorPassword, testdb.ReplUser, testdb.ReplPassword)
	fmt.Fprint(&b, "quorum = \"majority_of_all\"\nauto_failover = true\nauto_rejoin = true\n")
	for _, s := range servers {
		fmt.Fprintf(&b, "[[cluster.test.server]]\nname = %q\naddress = %q\n", s.Name, s.Address)
	}
	file := filepath.Join(dir, "lockstep.toml")
	require.NoError(t, os.WriteFile(file, []byte(b.String()), 0o600))
	log, err := os.Create(d.log)
	require.NoError(t, err)
	defer func() { _ = log.Close() }()
	cmd := exec.CommandContext(context.Background(), "ip", "netns", "exec", ns, program, "--config", file) //nolint:gosec // built here
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	require.NoError(t, cmd.Start())
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { d.poll(ctx) })
	t.Cleanup(func() {
		cancel()
		wg.Wait()
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
		if t.Failed() {
			text, _ := os.ReadFile(d.log)
			t.Logf("%s:\n%s", name, text)
		}
	})
	return d
}

// poll asks the daemon all the time.
func (d *daemon) poll(ctx context.Context) {
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for ctx.Err() == nil {
		if v, err := d.ask(ctx, client); err == nil {
			if v.Primary != nil {
				d.offered.Store(time.Now().UnixNano())
			}
			d.last.Store(&v)
		}
		select {
		case <-ctx.Done():
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (d *daemon) ask(ctx context.Context, client *http.Client) (v monitor.View, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.url, nil)
	if err != nil {
		return v, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return v, err
	}
	defer func() { _ = resp.Body.Close() }()
	return v, json.NewDecoder(resp.Body).Decode(&v)
}

// target tells a writer where the daemon says to write.
func (d *daemon) target() (string, bool) {
	v := d.last.Load()
	if v == nil || v.Primary == nil {
		return "", false
	}
	return v.Primary.Address, true
}

func (d *daemon) until(t testing.TB, within time.Duration, what string, ok func(monitor.View) bool) monitor.View {
	t.Helper()
	var last monitor.View
	for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if v := d.last.Load(); v != nil {
			if last = *v; ok(last) {
				return last
			}
		}
	}
	t.Fatalf("not within %v: %s\nrole %s (%s)\nprimary %v (%s)\npending %q\nfaults %v", within, what,
		last.Monitor.Role, last.Monitor.Reason, last.Primary, last.Reason, last.Operations.Pending, last.Faults)
	return last
}

// lastAck follows a writer and returns when its last write was acknowledged.
func lastAck(ctx context.Context, w *testdb.Writer) (at func() time.Time) {
	var last atomic.Int64
	last.Store(time.Now().UnixNano())
	go func() {
		for acked := 0; ctx.Err() == nil; time.Sleep(time.Millisecond) {
			if n := w.Snapshot().Acked; n > acked {
				acked = n
				last.Store(time.Now().UnixNano())
			}
		}
	}()
	return func() time.Time { return time.Unix(0, last.Load()) }
}

// BenchmarkPartition parts two sites with default timing: the primary and a monitor are
// at the small one, two replicas and a monitor at the other. It measures, from the cut,
// when the small site stops to acknowledge writes and to offer the primary, and when
// writes go on at the other.
func BenchmarkPartition(b *testing.B) {
	program := filepath.Join(b.TempDir(), "lockstepd")
	out, err := exec.CommandContext(b.Context(), "go", "build", "-o", program, "../cmd/lockstepd").CombinedOutput()
	require.NoError(b, err, "%s", out)
	for _, cut := range []string{"filter", "cable"} {
		for _, leads := range []string{"majority", "minority"} {
			b.Run(cut+"/primary monitor with the "+leads, func(b *testing.B) {
				var acks, stops, resumes []time.Duration
				for b.Loop() {
					ack, stop, resume := partition(b, program, cuts[cut], leads == "minority")
					acks, stops, resumes = append(acks, ack), append(stops, stop), append(resumes, resume)
				}
				report := func(list []time.Duration, unit string) {
					var sum time.Duration
					for _, d := range list {
						sum += d
					}
					b.ReportMetric(float64(sum.Milliseconds())/float64(len(list)), unit)
				}
				report(acks, "minority-last-ack-ms")
				report(stops, "minority-last-offer-ms")
				report(resumes, "majority-resumes-ms")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// partition is one cut.
func partition(b *testing.B, program string, cut [2]string, minorityLeads bool) (ack, stop, resume time.Duration) {
	b.Helper()
	n := newSites(b)
	c, servers := n.servers(b, "a", "b", "b")
	for _, table := range []string{"app.inner", "app.outer"} {
		c.Primary().MustExec(b, testdb.WriterTable(table))
	}
	require.NoError(b, c.WaitSync(b.Context()))

	settles := func(v monitor.View) bool { return v.Monitor.Role == election.Primary && v.Primary != nil }
	follows := func(v monitor.View) bool {
		return offers("s1")(v) && v.Monitor.Role == election.Secondary && v.Tick > 3
	}
	var inner, outer *daemon
	if minorityLeads {
		inner = n.daemon(b, program, "inner", "a", servers)
		inner.until(b, 30*time.Second, "settles", settles)
		outer = n.daemon(b, program, "outer", "b", servers)
		outer.until(b, 30*time.Second, "follows", follows)
	} else {
		outer = n.daemon(b, program, "outer", "b", servers)
		outer.until(b, 30*time.Second, "settles", settles)
		inner = n.daemon(b, program, "inner", "a", servers)
		inner.until(b, 30*time.Second, "follows", follows)
	}
	opts := testdb.WriterOptions{Clients: 2, Every: 2 * time.Millisecond, Timeout: 2 * time.Second}
	opts.Table = "app.inner"
	wi := testdb.StartWriter(b.Context(), inner.target, opts)
	b.Cleanup(func() { wi.Stop() })
	opts.Table = "app.outer"
	wo := testdb.StartWriter(b.Context(), outer.target, opts)
	b.Cleanup(func() { wo.Stop() })
	require.NoError(b, wi.WaitAcked(b.Context(), 100))
	require.NoError(b, wo.WaitAcked(b.Context(), 100))
	last := lastAck(b.Context(), wi)

	began := time.Now()
	n.do(b, cut[0])
	done := time.Now()
	v := outer.until(b, 90*time.Second, "the majority has a primary", otherThan("s1"))
	require.NoError(b, wo.WaitAcked(b.Context(), 50))
	require.Nil(b, inner.last.Load().Primary, "both sides offer a primary")
	report := wo.Stop()
	require.Len(b, report.Outages, 1, "%+v", report.Outages)
	inner.until(b, time.Second, "the minority offers nothing", func(v monitor.View) bool { return v.Primary == nil })
	ack, stop, resume = max(last().Sub(began), 0), time.Unix(0, inner.offered.Load()).Sub(began), report.Outages[0].To.Sub(began)
	b.Logf("cut within %v; last acknowledgement of the minority after %v, last offer after %v; the majority writes after %v; %s",
		done.Sub(began).Round(time.Millisecond), ack.Round(time.Millisecond), stop.Round(time.Millisecond), resume.Round(time.Millisecond), v.Operations.Pending)

	wi.Stop()
	n.do(b, cut[1])
	inner.until(b, 60*time.Second, "the minority follows", offers(v.Primary.Name))
	inSyncExcept(b, c, v.Primary.Name, 0)
	nothingLost(b, wi, c.Servers[1], c.Servers[2])
	nothingLost(b, wo, c.Servers[1], c.Servers[2])
	return ack, stop, resume
}
