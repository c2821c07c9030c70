package api

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
)

// Role is what a client may do.
type Role uint8

// Roles. Each may do what those before it may.
const (
	// RoleNone is that of a client that has not said who it is: checks only.
	RoleNone Role = iota
	// RoleRead may see everything.
	RoleRead
	// RoleOperate may give commands.
	RoleOperate
)

func (r Role) String() string { return [...]string{"none", "read", "operate"}[min(r, RoleOperate)] }

// Token lets a client in.
type Token struct {
	// Name is whose token it is, for the audit log.
	Name string
	Role Role
	// Digest is the SHA-256 digest of the token.
	Digest [sha256.Size]byte
}

// operateUnit is the organizational unit (OU) of certificates that may operate.
const operateUnit = "operate"

// Auth says who may do what. The zero value asks nobody: clients on this host may do
// everything, those on others may read.
type Auth struct {
	tokens atomic.Pointer[[]Token]
	certs  bool
}

// NewAuth returns an Auth that knows tokens. With certs it also lets in whoever has
// a certificate that the TLS layer has verified: to read, and to operate where the
// organizational unit of the certificate is "operate".
func NewAuth(tokens []Token, certs bool) *Auth {
	a := &Auth{certs: certs}
	a.SetTokens(tokens)
	return a
}

// SetTokens replaces the tokens.
func (a *Auth) SetTokens(tokens []Token) {
	tokens = slices.Clone(tokens)
	a.tokens.Store(&tokens)
}

func (a *Auth) list() []Token {
	if l := a.tokens.Load(); l != nil {
		return *l
	}
	return nil
}

// asks reports whether clients must say who they are.
func (a *Auth) asks() bool { return a.certs || len(a.list()) > 0 }

// client is who made a request.
type client struct {
	name string
	role Role
	// how is token, certificate or none.
	how string
}

// who finds out who made a request; ok is false for a token that is not known.
func (a *Auth) who(r *http.Request) (c client, ok bool) {
	if header := r.Header.Get("Authorization"); header != "" {
		scheme, given, _ := strings.Cut(header, " ")
		if !strings.EqualFold(scheme, "Bearer") {
			return client{how: "token"}, false
		}
		digest := sha256.Sum256([]byte(strings.TrimSpace(given)))
		// All are compared, so that the time tells nothing.
		for _, t := range a.list() {
			if subtle.ConstantTimeCompare(digest[:], t.Digest[:]) == 1 {
				c, ok = client{t.Name, t.Role, "token"}, true
			}
		}
		if ok || a.asks() {
			return c, ok
		}
	}
	if a.certs && r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		subject := r.TLS.VerifiedChains[0][0].Subject
		c = client{subject.CommonName, RoleRead, "certificate"}
		if slices.Contains(subject.OrganizationalUnit, operateUnit) {
			c.role = RoleOperate
		}
		return c, true
	}
	if a.asks() {
		return client{how: "none"}, true
	}
	if onHost(r) {
		return client{role: RoleOperate, how: "none"}, true
	}
	return client{role: RoleRead, how: "none"}, true
}

// onHost reports whether a request came in over loopback.
func onHost(r *http.Request) bool {
	at, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return true // no network: a handler that is called by its program
	}
	tcp, ok := at.(*net.TCPAddr)
	return !ok || tcp.IP.IsLoopback()
}

// guard lets those in who have the role.
func (a *api) guard(need Role, h http.HandlerFunc) http.HandlerFunc {
	if need == RoleNone {
		return h
	}
	return func(w http.ResponseWriter, r *http.Request) {
		deny := func(status int, code, text string, c client) {
			answer(w, status, Problem{Error: text, Code: code})
			if need == RoleOperate {
				a.auditLine(r, c, audited{}, status, text)
			}
		}
		c, ok := a.auth.who(r)
		switch {
		case !ok || c.role == RoleNone:
			w.Header().Set("WWW-Authenticate", `Bearer realm="lockstep"`)
			text := "a token is needed: send it in the header Authorization: Bearer TOKEN"
			if !ok {
				text = "the token is not known"
			}
			deny(http.StatusUnauthorized, "unauthorized", text, c)
		case c.role < need && !a.auth.asks():
			deny(http.StatusForbidden, "forbidden", "commands from other hosts need http.token_file or http.client_ca in the configuration of lockstepd", c)
		case c.role < need:
			deny(http.StatusForbidden, "forbidden", "the role "+c.role.String()+" does not allow this: operate is needed", c)
		case !a.auth.asks() && !local(r):
			deny(http.StatusForbidden, "invalid", "the name "+r.Host+" is not one of this host's own: use its address, or localhost", c)
		default:
			h(w, r)
		}
	}
}
