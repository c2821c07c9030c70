package integration

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/internal/config"
	"github.com/lockstep-ha/lockstep/internal/testdb"
	"github.com/lockstep-ha/lockstep/internal/wiring"
	"github.com/lockstep-ha/lockstep/monitor"
)

// authority makes certificates for a test.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	a := authority{dir: t.TempDir()}
	var err error
	a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	tpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, tpl, tpl, &a.key.PublicKey, a.key)
	require.NoError(t, err)
	a.cert, err = x509.ParseCertificate(der)
	require.NoError(t, err)
	write(t, a.path("ca.pem"), "CERTIFICATE", der)
	return a
}

func (a authority) path(name string) string { return filepath.Join(a.dir, name) }

func write(t *testing.T, path, kind string, der []byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
}

// issue writes a server certificate and returns the arguments that make a server use it.
func (a authority) issue(t *testing.T, ip string, until time.Time) []string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	tpl := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "server"}, IPAddresses: []net.IP{net.ParseIP(ip)},
		NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: until, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	der, err := x509.CreateCertificate(rand.Reader, tpl, a.cert, &key.PublicKey, a.key)
	require.NoError(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	dir := t.TempDir()
	cert, private := filepath.Join(dir, "server.pem"), filepath.Join(dir, "server.key")
	write(t, cert, "CERTIFICATE", der)
	write(t, private, "PRIVATE KEY", keyDER)
	return []string{"--ssl-ca=" + a.path("ca.pem"), "--ssl-cert=" + cert, "--ssl-key=" + private}
}

// monitorWith starts a monitor of one server from a configuration file's text.
func monitorWith(t *testing.T, s *testdb.Server, tls string) running {
	t.Helper()
	text := fmt.Sprintf("[cluster.main]\nuser = %q\npassword = %q\ninterval = \"200ms\"\ntimeout = \"400ms\"\n%s\n[[cluster.main.server]]\nname = \"s1\"\naddress = %q\n",
		testdb.MonitorUser, testdb.MonitorPassword, tls, s.Addr())
	f, err := config.Parse("test.toml", []byte(text), os.LookupEnv)
	require.NoError(t, err)
	cfg, err := wiring.Config(f.Clusters[0], "test")
	require.NoError(t, err)
	return start(t, cfg)
}

func TestTLSModes(t *testing.T) {
	good, other := newAuthority(t), newAuthority(t)
	for _, tc := range []struct {
		name string
		args []string
		tls  string
		ok   bool
	}{
		{"required", good.issue(t, "127.0.0.1", time.Now().Add(time.Hour)), `tls = "required"`, true},
		{"preferred, none there", []string{"--skip-ssl"}, `tls = "preferred"`, true},
		{"required, none there", []string{"--skip-ssl"}, `tls = "required"`, false},
		{"verify-identity", good.issue(t, "127.0.0.1", time.Now().Add(time.Hour)), fmt.Sprintf("tls = \"verify-identity\"\ntls_ca = %q", good.path("ca.pem")), true},
		{"verify-ca, another authority", good.issue(t, "127.0.0.1", time.Now().Add(time.Hour)), fmt.Sprintf("tls = \"verify-ca\"\ntls_ca = %q", other.path("ca.pem")), false},
		{"verify-ca, another host", good.issue(t, "10.1.2.3", time.Now().Add(time.Hour)), fmt.Sprintf("tls = \"verify-ca\"\ntls_ca = %q", good.path("ca.pem")), true},
		{"verify-identity, another host", good.issue(t, "10.1.2.3", time.Now().Add(time.Hour)), fmt.Sprintf("tls = \"verify-identity\"\ntls_ca = %q", good.path("ca.pem")), false},
		{"verify-ca, expired", good.issue(t, "127.0.0.1", time.Now().Add(-time.Hour)), fmt.Sprintf("tls = \"verify-ca\"\ntls_ca = %q", good.path("ca.pem")), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := testdb.New(t, testdb.Options{ExtraArgs: tc.args})
			m := monitorWith(t, s, tc.tls)
			if tc.ok {
				until(t, m, 10*time.Second, "the server answers", offers("s1"))
				return
			}
			v := until(t, m, 10*time.Second, "the fault is named", func(v monitor.View) bool { return len(v.Faults) > 0 })
			require.Equal(t, "tls", v.Faults[0].Code)
			require.Equal(t, []string{"Auth Error"}, v.Servers[0].State, "a certificate says nothing about the server")
		})
	}
}
