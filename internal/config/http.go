package config

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
)

// Roles of tokens.
const (
	RoleRead    = "read"
	RoleOperate = "operate"
)

// Token lets a client of the HTTP API in.
type Token struct {
	// Name says whose it is.
	Name string
	// Role is RoleRead or RoleOperate.
	Role string
	// Digest is the SHA-256 digest of the token, which itself is not kept.
	Digest [sha256.Size]byte
}

// Limits of token files.
const (
	minToken      = 20
	maxTokenFile  = 256 << 10
	digestPrefix  = "sha256:"
	tokenRemedy   = "write a line like: operate anna TOKEN"
	tokenGenerate = "make one with openssl rand -hex 32"
)

func (r *reader) http(v *values) HTTP {
	h := HTTP{
		Listen: v.str("listen"), AllowRemote: v.flag("allow_remote"),
		Cert: r.tlsFile(v, "tls_cert"), Key: r.tlsFile(v, "tls_key"), ClientCA: r.tlsFile(v, "client_ca"),
	}
	if v.str("token_file") != "" {
		h.Tokens = r.tokens(v)
	}
	bad := v.anyBad("listen", "allow_remote", "token_file", "tls_cert", "tls_key", "client_ca")
	remote := h.Listen != "" && !isLoopback(h.Listen)
	switch {
	case bad:
	case h.Cert != "" && h.Key == "":
		r.problem(v.path("tls_cert"), v.printed("tls_cert"), "a certificate is of no use without its key", "set tls_key too")
	case h.Cert == "" && h.Key != "":
		r.problem(v.path("tls_key"), v.printed("tls_key"), "a key is of no use without its certificate", "set tls_cert too")
	case h.ClientCA != "" && h.Cert == "":
		r.problem(v.path("client_ca"), v.printed("client_ca"), "clients show certificates over TLS only", "set tls_cert and tls_key too")
	case remote && !h.AllowRemote:
		r.problem(v.path("listen"), v.printed("listen"), "other hosts can reach this address",
			"listen on 127.0.0.1, or set allow_remote = true, and token_file and tls_cert with it")
	case remote && h.ClientCA == "" && v.str("token_file") == "":
		r.warn(v.path("listen"), v.printed("listen"), "whoever reaches this address may read everything", "set token_file or client_ca")
	case remote && h.Cert == "" && len(h.Tokens) > 0:
		r.warn(v.path("listen"), v.printed("listen"), "tokens cross the network in the clear", "set tls_cert and tls_key")
	}
	return h
}

// tokens reads the token file. No message has a word of its lines.
func (r *reader) tokens(v *values) []Token {
	const key = "token_file"
	at, printed, path := v.path(key), v.printed(key), r.resolve(v.str(key))
	f, err := openRegular(path)
	if err != nil {
		r.problem(at, printed, err.Error(), "")
		return nil
	}
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err == nil && info.Mode()&0o077 != 0 {
		r.problem(at, printed, fmt.Sprintf("others than its owner have access to this file: its mode is %04o", info.Mode().Perm()), "chmod 600 "+path)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxTokenFile+1))
	switch {
	case err != nil:
		r.problem(at, printed, "this file cannot be read: "+reason(err), "")
		return nil
	case len(text) > maxTokenFile:
		r.problem(at, printed, fmt.Sprintf("this file has more than %d bytes", maxTokenFile), "is it the right file?")
		return nil
	}
	var out []Token
	names := map[string]bool{}
	digests := map[[sha256.Size]byte]bool{}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, maxTokenFile+1)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		t, wrong := parseToken(line)
		switch {
		case wrong != nil:
		case names[t.Name]:
			wrong = &fault{text: "another line has this name already", remedy: "give each token a name of its own"}
		case digests[t.Digest]:
			wrong = &fault{text: "another line has this token already", remedy: tokenGenerate}
		}
		if wrong != nil {
			r.problem(at, printed, fmt.Sprintf("line %d of this file: %s", n, wrong.text), wrong.remedy)
			continue
		}
		names[t.Name], digests[t.Digest] = true, true
		out = append(out, t)
	}
	if len(out) == 0 && len(r.problems) == 0 {
		r.problem(at, printed, "this file has no token, so that nobody could use the daemon", tokenRemedy)
	}
	return out
}

func parseToken(line string) (Token, *fault) {
	words := strings.Fields(line)
	if len(words) != 3 {
		return Token{}, &fault{text: "it has not three words: role, name and token", remedy: tokenRemedy}
	}
	t := Token{Role: words[0], Name: words[1]}
	if t.Role != RoleRead && t.Role != RoleOperate {
		return t, &fault{text: "the first word is no role", remedy: "the roles are read and operate"}
	}
	if _, f := checkName(t.Name); f != nil {
		return t, &fault{text: "the second word cannot be a name", remedy: f.remedy}
	}
	if digest, ok := strings.CutPrefix(words[2], digestPrefix); ok {
		raw, err := hex.DecodeString(digest)
		if err != nil || len(raw) != sha256.Size {
			return t, &fault{text: "what follows sha256: is not 64 hexadecimal digits", remedy: "printf %s TOKEN | sha256sum"}
		}
		copy(t.Digest[:], raw)
		return t, nil
	}
	if len(words[2]) < minToken {
		return t, &fault{text: fmt.Sprintf("the token has fewer than %d characters", minToken), remedy: tokenGenerate}
	}
	t.Digest = sha256.Sum256([]byte(words[2]))
	return t, nil
}
