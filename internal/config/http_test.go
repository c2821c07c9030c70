package config

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const goodToken = "0123456789abcdef0123"

// withHTTP parses a file that has keys in [http], below a directory with the files
// tokens and pem.
func withHTTP(t *testing.T, keys, tokens string, mode os.FileMode) (*File, error) {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tokens"), []byte(tokens), mode))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "pem"), nil, 0o600))
	f, err := Parse(filepath.Join(dir, "F"), []byte("[http]\n"+keys+"\n"+in(`monitor_name = "m"`)), nil)
	if err != nil {
		err = fmt.Errorf("%s", strings.ReplaceAll(err.Error(), dir+"/", ""))
	}
	return f, err
}

func TestTokenFile(t *testing.T) {
	digest := sha256.Sum256([]byte(goodToken))
	f, err := withHTTP(t, `token_file = "tokens"`, fmt.Sprintf("# comment\n\n read  grafana %s \noperate anna sha256:%X\n", goodToken+"x", digest), 0o600)
	require.NoError(t, err)
	require.Equal(t, []Token{
		{"grafana", RoleRead, sha256.Sum256([]byte(goodToken + "x"))},
		{"anna", RoleOperate, digest},
	}, f.HTTP.Tokens)
}

func TestHTTPProblems(t *testing.T) {
	for name, tc := range map[string]struct {
		keys, tokens string
		mode         os.FileMode
		want         string
	}{
		"mode":           {`token_file = "tokens"`, "read a " + goodToken, 0o640, `others than its owner have access to this file: its mode is 0640: chmod 600 tokens`},
		"missing":        {`token_file = "none"`, "", 0o600, `F:2: http.token_file = "none": this file cannot be read: no such file or directory`},
		"empty":          {`token_file = "tokens"`, "# nobody\n", 0o600, "this file has no token"},
		"words":          {`token_file = "tokens"`, "read " + goodToken, 0o600, "line 1 of this file: it has not three words"},
		"role":           {`token_file = "tokens"`, "\nadmin a " + goodToken, 0o600, "line 2 of this file: the first word is no role: the roles are read and operate"},
		"name":           {`token_file = "tokens"`, "read - " + goodToken, 0o600, "the second word cannot be a name"},
		"short":          {`token_file = "tokens"`, "read a hunter2", 0o600, "the token has fewer than 20 characters: make one with"},
		"digest":         {`token_file = "tokens"`, "read a sha256:0123", 0o600, "is not 64 hexadecimal digits"},
		"same name":      {`token_file = "tokens"`, "read a " + goodToken + "\nread a x" + goodToken, 0o600, "another line has this name already"},
		"same token":     {`token_file = "tokens"`, "read a " + goodToken + "\noperate b " + goodToken, 0o600, "another line has this token already"},
		"key alone":      {`tls_key = "pem"`, "", 0o600, "a key is of no use without its certificate: set tls_cert too"},
		"cert alone":     {`tls_cert = "pem"`, "", 0o600, "a certificate is of no use without its key: set tls_key too"},
		"client_ca only": {`client_ca = "pem"`, "", 0o600, "clients show certificates over TLS only: set tls_cert and tls_key too"},
		"no cert":        {"tls_cert = \"none\"\ntls_key = \"pem\"", "", 0o600, `http.tls_cert = "none": this file cannot be read`},
		"remote":         {"listen = \":1\"\ntoken_file = \"tokens\"", "read a " + goodToken, 0o600, "other hosts can reach this address"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := withHTTP(t, tc.keys, tc.tokens, tc.mode)
			require.ErrorContains(t, err, tc.want)
			require.NotContains(t, err.Error(), goodToken)
			require.NotContains(t, err.Error(), "hunter2")
		})
	}
}

func TestHTTPWarnings(t *testing.T) {
	const remote = "listen = \":1\"\nallow_remote = true\n"
	for keys, want := range map[string]string{
		remote:                           "whoever reaches this address may read everything: set token_file or client_ca",
		remote + `token_file = "tokens"`: "tokens cross the network in the clear: set tls_cert and tls_key",
		remote + "token_file = \"tokens\"\ntls_cert = \"pem\"\ntls_key = \"pem\"": "",
		`token_file = "tokens"`: "",
	} {
		f, err := withHTTP(t, keys, "read a "+goodToken, 0o600)
		require.NoError(t, err)
		if want == "" {
			require.Empty(t, f.Warnings)
			continue
		}
		require.Len(t, f.Warnings, 1)
		require.Contains(t, f.Warnings[0].String(), want)
	}
}

func TestAgentProblems(t *testing.T) {
	for keys, want := range map[string]string{
		"[agent]\nlisten = \":8991\"\n":                                       `agent.listen = ":8991": other hosts can reach this address: listen on 127.0.0.1, or set allow_remote = true`,
		"[agent]\nlisten = \"127.0.0.1:8990\"\n":                              "this is http.listen too: give it a port of its own",
		"[agent]\nlisten = \"x\"\n":                                           "this is not an address to listen on",
		"[agent]\nlisten = \"0.0.0.0:8991\"\nallow_remote = true\nlissen = 1": "lissen",
	} {
		_, err := Parse("F", []byte(keys+"\n"+in(`monitor_name = "m"`)), nil)
		require.ErrorContains(t, err, want)
	}
}
