package main

import (
	"crypto/tls"
	"crypto/x509"
	"net/netip"
	"os"
	"strings"
)

// tokenEnv holds a token.
const tokenEnv = "LOCKSTEP_TOKEN"

// maxToken is the size in bytes above which a file holds no token.
const maxToken = 4096

// access is what lets lockstepctl in where lockstepd asks who it is.
type access struct{ tokenFile, ca, cert, key string }

// token returns the token of the file or the environment, "" for none.
func (a access) token() (string, error) {
	text, from := os.Getenv(tokenEnv), tokenEnv
	if a.tokenFile != "" {
		from = "--token-file " + a.tokenFile
		info, err := os.Stat(a.tokenFile)
		if err != nil {
			return "", usagef("--token-file: %v", err)
		}
		if !info.Mode().IsRegular() || info.Size() > maxToken {
			return "", usagef("%s holds no token: it must be a file with nothing else in it", from)
		}
		if info.Mode()&0o077 != 0 {
			return "", usagef("%s: others than its owner have access to this file: chmod 600 it", from)
		}
		raw, err := os.ReadFile(a.tokenFile)
		if err != nil {
			return "", usagef("--token-file: %v", err)
		}
		text = string(raw)
		if strings.TrimSpace(text) == "" {
			return "", usagef("%s is empty", from)
		}
	}
	text = strings.TrimSpace(text)
	if strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", usagef("%s is no token: it has more than one word; of a line of lockstepd's token file give the last", from)
	}
	return text, nil
}

// tls returns the TLS settings, nil for those of the system.
func (a access) tls() (*tls.Config, error) {
	if a == (access{tokenFile: a.tokenFile}) {
		return nil, nil //nolint:nilnil // nil stands for the system's
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if a.ca != "" {
		pem, err := os.ReadFile(a.ca)
		if err != nil {
			return nil, usagef("--ca: %v", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, usagef("--ca: %s holds no PEM certificate", a.ca)
		}
	}
	if (a.cert == "") != (a.key == "") {
		return nil, usagef("--cert and --key belong together: give both")
	}
	if a.cert != "" {
		pair, err := tls.LoadX509KeyPair(a.cert, a.key)
		if err != nil {
			return nil, usagef("--cert and --key: %v", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// onHost reports whether a name leads to this host only.
func onHost(name string) bool {
	a, err := netip.ParseAddr(name)
	return name == "localhost" || err == nil && a.IsLoopback()
}
