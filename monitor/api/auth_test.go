package api

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/monitor"
)

const readToken, operateToken = "read-token-0123456789", "operate-token-0123456789"

func testAuth() *Auth {
	return NewAuth([]Token{
		{Name: "grafana", Role: RoleRead, Digest: sha256.Sum256([]byte(readToken))},
		{Name: "anna", Role: RoleOperate, Digest: sha256.Sum256([]byte(operateToken))},
	}, false)
}

// Every route asks for the role that it needs, and the checks for none.
func TestTokens(t *testing.T) {
	var log bytes.Buffer
	f := shop()
	f.reply = monitor.Reply{ID: "op1", Text: "begun"}
	a := newAPI(fakes(f), WithAuth(testAuth()), WithMetrics(newMetrics(fakes(f), "v")), WithLogger(zerolog.New(&log)))
	h := newRouter(a)
	ask := func(method, path, authorization string) int {
		r := httptest.NewRequest(method, path, strings.NewReader(`{"action":"switchover","server":"s2"}`))
		r.Header.Set("Content-Type", "application/json")
		if authorization != "" {
			r.Header.Set("Authorization", authorization)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond) // ends the stream
		defer cancel()
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r.WithContext(ctx))
		if w.Code == http.StatusUnauthorized {
			require.Contains(t, w.Header().Get("WWW-Authenticate"), "Bearer")
		}
		return w.Code
	}
	for _, r := range a.routes() {
		path := strings.NewReplacer("{name}", "shop", "{id}", "none").Replace(r.path)
		denied := func(token string) bool {
			code := ask(r.methods[0], path, token)
			return code == http.StatusUnauthorized || code == http.StatusForbidden
		}
		require.Equal(t, r.need > RoleNone, denied(""), r.path)
		require.Equal(t, r.need > RoleNone, denied("Bearer nonsense"), r.path)
		require.Equal(t, r.need > RoleNone, denied("Basic "+operateToken), r.path)
		require.Equal(t, r.need > RoleRead, denied("Bearer "+readToken), r.path)
		require.False(t, denied("bearer "+operateToken), r.path)
	}
	require.Len(t, f.commands, 1, "only one of them was allowed to")

	var lines []map[string]any
	for _, line := range strings.Split(strings.TrimSpace(log.String()), "\n") {
		var m map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &m))
		require.Equal(t, "audit", m["event"])
		lines = append(lines, m)
	}
	require.Len(t, lines, 5)
	for i, want := range []string{"", "", "", "grafana", "anna"} {
		require.Equal(t, want, lines[i]["who"])
		require.Equal(t, "shop", lines[i]["cluster"])
		require.Equal(t, "192.0.2.1:1234", lines[i]["from"])
	}
	require.Equal(t, "denied", lines[3]["outcome"])
	require.Equal(t, "started", lines[4]["outcome"])
	require.Equal(t, "op1", lines[4]["operation"])
	require.Equal(t, "switchover", lines[4]["action"])
	require.Equal(t, "s2", lines[4]["server"])
	require.NotContains(t, log.String(), operateToken)
	require.NotContains(t, log.String(), readToken)

	a.auth.SetTokens(nil)
	require.Equal(t, http.StatusOK, ask(http.MethodGet, "/v1/clusters", "Bearer "+readToken), "a token where none is asked for does no harm")
}

// The audit log is written whatever the level.
func TestAuditLevel(t *testing.T) {
	var log bytes.Buffer
	f := shop()
	f.err = monitor.ErrBusy
	h := newRouter(newAPI(fakes(f), WithLogger(zerolog.New(&log).Level(zerolog.ErrorLevel))))
	r := httptest.NewRequest(http.MethodPost, "/v1/clusters/shop/commands", strings.NewReader(`{"action":"failover","force":true}`))
	r.Header.Set("Content-Type", "application/json")
	h.ServeHTTP(httptest.NewRecorder(), r)
	require.Contains(t, log.String(), `"outcome":"refused"`)
	require.Contains(t, log.String(), `"force":true`)
	require.Contains(t, log.String(), monitor.ErrBusy.Error())
}

// Without tokens another host may look, and give no command.
func TestWithoutTokens(t *testing.T) {
	f := shop()
	h := newRouter(newAPI(fakes(f)))
	ask := func(at, host, method, path string) int {
		r := httptest.NewRequest(method, path, strings.NewReader(`{"action":"pause"}`))
		r.Header.Set("Content-Type", "application/json")
		r.Host = host
		r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(&net.TCPAddr{IP: net.ParseIP(at), Port: 8990})))
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	const commands = "/v1/clusters/shop/commands"
	require.Equal(t, http.StatusOK, ask("127.0.0.1", "localhost:8990", http.MethodPost, commands))
	require.Equal(t, http.StatusOK, ask("192.0.2.7", "monitor:8990", http.MethodGet, "/v1/clusters"))
	require.Equal(t, http.StatusForbidden, ask("192.0.2.7", "monitor:8990", http.MethodPost, commands))
	require.Equal(t, http.StatusForbidden, ask("127.0.0.1", "evil.example.com", http.MethodGet, "/v1/clusters"), "a name made to lead here")
	require.Equal(t, http.StatusOK, ask("127.0.0.1", "evil.example.com", http.MethodGet, "/primary"))
	require.Len(t, f.commands, 1)
}

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return authority{cert, key}
}

// issue writes a certificate, its key and that of the authority into a directory.
func (a authority) issue(t *testing.T, dir, name, unit string, serial int64) (cert, key, ca string) {
	t.Helper()
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name, OrganizationalUnit: []string{unit}},
		NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, &own.PublicKey, a.key)
	require.NoError(t, err)
	raw, err := x509.MarshalPKCS8PrivateKey(own)
	require.NoError(t, err)
	write := func(file, kind string, der []byte) string {
		path := filepath.Join(dir, file)
		require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return path
	}
	return write(name+".pem", "CERTIFICATE", der), write(name+".key", "PRIVATE KEY", raw), write("ca.pem", "CERTIFICATE", a.cert.Raw)
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func TestTLS(t *testing.T) {
	dir, ca := t.TempDir(), newAuthority(t)
	cert, key, caFile := ca.issue(t, dir, "daemon", "x", 10)
	annaCert, annaKey, _ := ca.issue(t, dir, "anna", "operate", 11)
	bobCert, bobKey, _ := ca.issue(t, dir, "bob", "sales", 12)
	other := newAuthority(t)
	evilCert, evilKey, _ := other.issue(t, t.TempDir(), "evil", "operate", 13)
	log := &lockedBuffer{}
	config, err := TLSConfig(TLSFiles{cert, key, caFile}, zerolog.New(log))
	require.NoError(t, err)
	f := shop()
	server := NewServer(newRouter(newAPI(fakes(f), WithAuth(NewAuth(nil, true)), WithLogger(zerolog.New(log)))))
	server.TLSConfig = config
	server.ErrorLog = nil
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- server.ServeTLS(l, "", "") }()
	t.Cleanup(func() { require.NoError(t, server.Close()); require.ErrorIs(t, <-done, http.ErrServerClosed) })

	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	// ask returns the status and the serial number of the daemon's certificate.
	ask := func(method, path, cert, key string) (int, int64, error) {
		c := &tls.Config{RootCAs: pool}
		if cert != "" {
			pair, err := tls.LoadX509KeyPair(cert, key)
			require.NoError(t, err)
			// Shown even if the daemon does not name its authority.
			c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
		}
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: c, DisableKeepAlives: true}}
		req, err := http.NewRequestWithContext(t.Context(), method, "https://"+l.Addr().String()+path, strings.NewReader(`{"action":"pause"}`))
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/json")
		resp, err := client.Do(req)
		if err != nil {
			return 0, 0, err
		}
		defer func() { _ = resp.Body.Close() }()
		_, err = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode, resp.TLS.PeerCertificates[0].SerialNumber.Int64(), err
	}
	for _, tc := range []struct {
		method, path, cert, key string
		want                    int
	}{
		{"GET", "/primary", "", "", 200},
		{"GET", "/v1/clusters", "", "", 401},
		{"GET", "/v1/clusters", bobCert, bobKey, 200},
		{"POST", "/v1/clusters/shop/commands", bobCert, bobKey, 403},
		{"POST", "/v1/clusters/shop/commands", annaCert, annaKey, 200},
	} {
		code, serial, err := ask(tc.method, tc.path, tc.cert, tc.key)
		require.NoError(t, err)
		require.Equal(t, tc.want, code, "%s %s", tc.path, tc.cert)
		require.Equal(t, int64(10), serial)
	}
	_, _, err = ask("GET", "/primary", evilCert, evilKey)
	require.ErrorContains(t, err, "tls:", "a certificate from elsewhere")
	require.Contains(t, log.String(), `"who":"anna","role":"operate","by":"certificate"`)

	// A new certificate is used without a restart; one that cannot be read is not.
	ca.issue(t, dir, "daemon", "x", 20)
	require.Eventually(t, func() bool { _, serial, err := ask("GET", "/primary", "", ""); return err == nil && serial == 20 }, 10*time.Second, 50*time.Millisecond)
	require.NoError(t, os.WriteFile(key, []byte("nonsense"), 0o600))
	require.Eventually(t, func() bool {
		code, serial, err := ask("GET", "/primary", "", "")
		require.NoError(t, err)
		require.Equal(t, 200, code)
		require.Equal(t, int64(20), serial)
		return strings.Contains(log.String(), "certificate_failed")
	}, 10*time.Second, 50*time.Millisecond)
	_, err = TLSConfig(TLSFiles{cert, key, ""}, zerolog.Nop())
	require.ErrorContains(t, err, "http.tls_cert and http.tls_key")
}
