package main

import (
	"crypto/sha256"
	"encoding/pem"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/monitor"
	"github.com/lockstep-ha/lockstep/monitor/api"
)

func TestTokenAndTLS(t *testing.T) {
	const token = "0123456789abcdef0123"
	auth := api.NewAuth([]api.Token{{Name: "anna", Role: api.RoleRead, Digest: sha256.Sum256([]byte(token))}}, false)
	m, err := monitor.New(monitor.Config{Cluster: "main", User: "x", Servers: []monitor.ServerConfig{{Name: "s1", Address: "127.0.0.1:1"}}})
	require.NoError(t, err)
	server := httptest.NewTLSServer(api.Handler(func() []*monitor.Monitor { return []*monitor.Monitor{m} }, api.WithAuth(auth)))
	defer server.Close()
	dir := t.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), mode))
		return path
	}
	ca := file("ca", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})), 0o600)
	good, wrong := file("good", token+"\n", 0o600), file("wrong", "wrong-token-012345678", 0o600)
	list := func(args ...string) result {
		return ctl(t, append([]string{"list", "servers", "--server", server.URL}, args...)...)
	}
	r := list("--ca", ca, "--token-file", good)
	require.Equal(t, exitOK, r.code, r.stderr)
	require.Contains(t, r.stdout, "s1")
	for want, args := range map[string][]string{
		"is not accepted":            {"--token-file", good},
		"a token is needed":          {"--ca", ca},
		"the token is not known":     {"--ca", ca, "--token-file", wrong},
		"chmod 600":                  {"--ca", ca, "--token-file", file("open", token, 0o644)},
		"is empty":                   {"--ca", ca, "--token-file", file("empty", "\n", 0o600)},
		"more than one word":         {"--ca", ca, "--token-file", file("line", "read anna "+token, 0o600)},
		"no such file":               {"--ca", ca, "--token-file", filepath.Join(dir, "none")},
		"holds no PEM certificate":   {"--ca", good},
		"belong together":            {"--ca", ca, "--cert", ca},
		"is not: write https://":     {"--ca", ca, "--server", "http://127.0.0.1:1"},
		"network in the clear":       {"--token-file", good, "--server", "http://192.0.2.1:1"},
		"cannot reach lockstepd":     {"--token-file", good, "--server", "http://127.0.0.1:1"},
		"--cert and --key: open":     {"--ca", ca, "--cert", filepath.Join(dir, "none"), "--key", ca},
		"give --token-file or LOCKS": {"--ca", ca},
	} {
		r := list(args...)
		require.NotEqual(t, exitOK, r.code, want)
		require.Contains(t, r.stderr, want)
		require.NotContains(t, r.stderr, token)
	}
	t.Setenv("LOCKSTEP_TOKEN", token)
	require.Equal(t, exitOK, list("--ca", ca).code)
}
