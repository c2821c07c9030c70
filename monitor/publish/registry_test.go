package publish

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstep-ha/lockstep/election"
	"github.com/lockstep-ha/lockstep/monitor"
)

// memory is a store in memory.
type memory struct {
	mu      sync.Mutex
	value   []byte
	address string
	version uint64
	err     error
	// between is called once, after the next Get.
	between func()
}

func (*memory) Name() string { return "memory" }

func (m *memory) Get(context.Context, string) ([]byte, uint64, error) {
	m.mu.Lock()
	value, version, err, f := m.value, m.version, m.err, m.between
	m.between = nil
	m.mu.Unlock()
	if f != nil {
		f()
	}
	return value, version, err
}

func (m *memory) Put(_ context.Context, _ string, value []byte, address string, version uint64) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil || version != m.version {
		return false, m.err
	}
	m.value, m.address, m.version = value, address, m.version+1
	return true, nil
}

func entry(t *testing.T, raw []byte) Entry {
	t.Helper()
	var e Entry
	require.NoError(t, json.Unmarshal(raw, &e))
	return e
}

// leader is the view of a primary monitor.
func leader(name string) monitor.View {
	v := calm()
	v.Monitor.Name, v.Monitor.LeaseLeftMS = name, 60_000
	return v
}

func registrarOf(src Source, store Store) *registrar {
	return &registrar{instance: "i-" + src.View().Monitor.Name, src: src, store: store, log: zerolog.Nop(), counters: NewCounters()}
}

func TestRegister(t *testing.T) {
	store := &memory{}
	src := newChanging(leader("m1"))
	r := registrarOf(src, store)
	look := func() { r.look(t.Context(), src.View()) }
	look()
	e := entry(t, store.value)
	require.Equal(t, uint64(1), e.Epoch)
	require.Equal(t, "s1", e.Primary.Name)
	require.Equal(t, "10.0.0.1:3306", store.address)
	look()
	require.Equal(t, uint64(1), store.version, "nothing is written twice")

	// Between two primaries none is published.
	src.set(func(v *monitor.View) { v.Primary = nil })
	look()
	e = entry(t, store.value)
	require.Nil(t, e.Primary)
	require.Empty(t, store.address)
	require.Equal(t, uint64(2), e.Epoch)

	// Whoever is not, or not yet, the primary monitor writes nothing.
	for _, role := range []election.Role{election.Secondary, election.Settling} {
		src.set(func(v *monitor.View) {
			v.Monitor.Role, v.Monitor.Primary, v.Primary = role, role != election.Secondary, &monitor.Endpoint{Name: "s2"}
		})
		look()
		require.Equal(t, uint64(2), store.version)
	}

	// What the store has lost comes back, and what it could not take is written later.
	src.set(func(v *monitor.View) { v.Monitor.Role = election.Primary })
	store.err = errors.New("no leader")
	look()
	require.InDelta(t, 1, testutil.ToFloat64(r.counters.stores.WithLabelValues("memory", "shop", "failed")), 0)
	store.err = nil
	look()
	require.Equal(t, "s2", entry(t, store.value).Primary.Name)
	store.value, store.version = nil, 0
	r.at = r.at.Add(-recheck)
	look()
	require.Equal(t, "s2", entry(t, store.value).Primary.Name)
	store.value = []byte("nonsense")
	r.at = r.at.Add(-recheck)
	look()
	require.Equal(t, "s2", entry(t, store.value).Primary.Name)
}

// A monitor that stood still loses to its successor, wherever it stood.
func TestStaleWriter(t *testing.T) {
	store := &memory{}
	old, young := newChanging(leader("old")), newChanging(leader("young"))
	a, b := registrarOf(old, store), registrarOf(young, store)
	a.look(t.Context(), old.View())

	// It read the entry, then stood still; the view that it woke up with is old.
	old.set(func(v *monitor.View) { v.Primary = &monitor.Endpoint{Name: "s9", Address: "h:1"} })
	store.between = func() { b.look(t.Context(), young.View()) }
	a.look(t.Context(), old.View())
	e := entry(t, store.value)
	require.Equal(t, "young", e.Monitor)
	require.Equal(t, uint64(2), e.Epoch)
	require.InDelta(t, 1, testutil.ToFloat64(a.counters.stores.WithLabelValues("memory", "shop", "conflict")), 0)

	// It decided to write, then stood still before it read: it looks again.
	store.between = func() {
		old.set(func(v *monitor.View) { v.Monitor.Role, v.Monitor.Primary = election.Secondary, false })
	}
	a.look(t.Context(), leader("old"))
	require.Equal(t, "young", entry(t, store.value).Monitor)
}

// consulServer is as much of Consul's key-value store as is used.
type consulServer struct {
	mu    sync.Mutex
	index uint64
	keys  map[string]struct {
		Value []byte
		Index uint64
	}
	token string
}

func (c *consulServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.Header.Get("X-Consul-Token") != c.token {
		http.Error(w, "ACL not found", http.StatusForbidden)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if key, ok := strings.CutPrefix(r.URL.Path, "/v1/kv/"); ok && r.Method == http.MethodGet {
		v, ok := c.keys[key]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		fmt.Fprintf(w, `[{"Key":%q,"Value":%q,"ModifyIndex":%d}]`, key, base64.StdEncoding.EncodeToString(v.Value), v.Index)
		return
	}
	var ops []struct {
		KV struct {
			Verb, Key string
			Value     []byte
			Index     uint64
		}
	}
	if r.URL.Path != "/v1/txn" || r.Method != http.MethodPut || json.NewDecoder(r.Body).Decode(&ops) != nil {
		http.Error(w, "unexpected request", http.StatusBadRequest)
		return
	}
	for i, op := range ops {
		if op.KV.Verb == "cas" && c.keys[op.KV.Key].Index != op.KV.Index {
			w.WriteHeader(http.StatusConflict)
			fmt.Fprintf(w, `{"Results":null,"Errors":[{"OpIndex":%d,"What":"failed to set key, index is stale"}]}`, i)
			return
		}
	}
	c.index++
	for _, op := range ops {
		c.keys[op.KV.Key] = struct {
			Value []byte
			Index uint64
		}{op.KV.Value, c.index}
	}
	fmt.Fprint(w, `{"Results":[],"Errors":null}`)
}

// contract is what every store must do.
func contract(t *testing.T, store Store, address func() string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	value, version, err := store.Get(ctx, "shop")
	require.NoError(t, err)
	require.Empty(t, value)
	require.Zero(t, version)
	ok, err := store.Put(ctx, "shop", []byte("one"), "a:1", 0)
	require.NoError(t, err)
	require.True(t, ok)
	ok, err = store.Put(ctx, "shop", []byte("two"), "b:2", 0)
	require.NoError(t, err)
	require.False(t, ok, "there is an entry already")
	require.Equal(t, "a:1", address())
	value, version, err = store.Get(ctx, "shop")
	require.NoError(t, err)
	require.Equal(t, "one", string(value))
	ok, err = store.Put(ctx, "shop", []byte("three"), "", version)
	require.NoError(t, err)
	require.True(t, ok)
	require.Empty(t, address())
	ok, err = store.Put(ctx, "shop", []byte("late"), "c:3", version)
	require.NoError(t, err)
	require.False(t, ok)
	value, _, err = store.Get(ctx, "shop")
	require.NoError(t, err)
	require.Equal(t, "three", string(value))
	_, version, err = store.Get(ctx, "depot")
	require.NoError(t, err)
	require.Zero(t, version)
}

func TestConsul(t *testing.T) {
	c := &consulServer{keys: map[string]struct {
		Value []byte
		Index uint64
	}{}, token: "t0"}
	server := httptest.NewServer(c)
	defer server.Close()
	store, err := NewConsul(ConsulConfig{Address: server.URL, Token: "t0", Prefix: "lockstep/x"})
	require.NoError(t, err)
	contract(t, store, func() string {
		c.mu.Lock()
		defer c.mu.Unlock()
		return string(c.keys["lockstep/x/shop/address"].Value)
	})
	store, err = NewConsul(ConsulConfig{Address: server.URL, Token: "wrong", Prefix: "lockstep/x"})
	require.NoError(t, err)
	_, _, err = store.Get(t.Context(), "shop")
	require.ErrorContains(t, err, "403")
}

// needs returns the path of a program, or skips the test.
func needs(t *testing.T, name, debian string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("%s is not installed: apt-get install %s", name, debian)
		}
		t.Skipf("SKIPPED: %s is not installed (apt-get install %s)", name, debian)
	}
	return path
}

// freePort returns a port that nobody listens on.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	_, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	return port
}

// TestEtcd runs against the real program, which is stopped and started again.
func TestEtcd(t *testing.T) {
	path := needs(t, "etcd", "etcd-server")
	dir := t.TempDir()
	client, peer := "http://127.0.0.1:"+freePort(t), "http://127.0.0.1:"+freePort(t)
	start := func() (stop func()) {
		cmd := exec.Command(path, "--data-dir", dir, "--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer,
			"--initial-advertise-peer-urls", peer, "--initial-cluster", "default="+peer, "--unsafe-no-fsync")
		require.NoError(t, cmd.Start())
		return func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }
	}
	stop := start()
	defer func() { stop() }()
	store, closeStore, err := NewEtcd(EtcdConfig{Endpoints: []string{client}, Prefix: "/lockstep"})
	require.NoError(t, err)
	defer func() { require.NoError(t, closeStore()) }()
	direct, err := clientv3.New(clientv3.Config{Endpoints: []string{client}})
	require.NoError(t, err)
	defer func() { _ = direct.Close() }()
	read := func(key string) string {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		resp, err := direct.Get(ctx, key)
		if err != nil || len(resp.Kvs) == 0 {
			return ""
		}
		return string(resp.Kvs[0].Value)
	}
	contract(t, store, func() string { return read("/lockstep/shop/address") })

	src := newChanging(leader("m1"))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); Register(ctx, src, store, zerolog.Nop(), NewCounters()) }()
	require.Eventually(t, func() bool { return read("/lockstep/shop/address") == "10.0.0.1:3306" }, 10*time.Second, 10*time.Millisecond)
	stop()
	src.set(func(v *monitor.View) { v.Primary = &monitor.Endpoint{Name: "s2", Address: "10.0.0.2:3306"} })
	time.Sleep(100 * time.Millisecond) // some attempts fail
	stop = start()
	require.Eventually(t, func() bool { return read("/lockstep/shop/address") == "10.0.0.2:3306" }, 30*time.Second, 50*time.Millisecond)
	cancel()
	<-done
	require.Equal(t, "10.0.0.2:3306", read("/lockstep/shop/address"), "the entry stays for the next primary monitor")
}
