package routing

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"github.com/lockstep-ha/lockstep/topology"
	"github.com/lockstep-ha/lockstep/topology/gtid"
)

// Bounds on tokens, which come back from clients.
const (
	// MaxTokenLength is the longest text of a token in bytes, signature included.
	MaxTokenLength = 1024

	maxTokenDomains   = 16
	maxTokenSources   = 8
	maxTokenIntervals = 64
)

// ErrToken reports a text that is no token. Treat its sender as one without a
// token, or refuse the request.
var ErrToken = errors.New("not a token")

// Token says what a reader must be able to see: the transactions that a client
// has written or seen. The zero value asks for nothing. Tokens never change once
// made and may be compared with Equal.
//
// A token belongs to one cluster. Its text has only characters that a cookie or a
// header may carry.
type Token struct {
	flavor  topology.Flavor
	mariadb gtid.Position
	mysql   gtid.Set
}

// Prefixes of the text of a token.
const (
	prefixMariaDB = "m:"
	prefixMySQL   = "y:"
	tokenComma    = "/" // a cookie may not hold a comma
)

// MariaDBToken makes a token of @@last_gtid or of a position; "" gives the empty
// token.
func MariaDBToken(position string) (Token, error) {
	p, err := gtid.ParsePosition(position)
	if err != nil {
		return Token{}, fmt.Errorf("%w: %w", ErrToken, err)
	}
	if p.IsEmpty() {
		return Token{}, nil
	}
	return checked(Token{flavor: topology.MariaDB, mariadb: p})
}

// MySQLToken makes a token of @@global.gtid_executed as the primary shows it after
// a write, and of its @@server_uuid. It holds all that this server has written,
// which is at least the write.
func MySQLToken(executed, serverUUID string) (Token, error) {
	set, err := gtid.ParseSet(executed)
	if err != nil {
		return Token{}, fmt.Errorf("%w: %w", ErrToken, err)
	}
	uuid, err := gtid.ParseUUID(serverUUID)
	if err != nil {
		return Token{}, fmt.Errorf("%w: %w", ErrToken, err)
	}
	set = set.ForUUID(uuid)
	if set.IsEmpty() {
		return Token{}, nil
	}
	return checked(Token{flavor: topology.MySQL, mysql: set})
}

// checked refuses what is too large to be carried around.
func checked(t Token) (Token, error) {
	intervals := 0
	for _, id := range t.mysql.Sources() {
		intervals += len(t.mysql.Intervals(id))
	}
	switch {
	case len(t.mariadb.Domains()) > maxTokenDomains:
		return Token{}, fmt.Errorf("%w: %d domains, at most %d are allowed", ErrToken, len(t.mariadb.Domains()), maxTokenDomains)
	case len(t.mysql.Sources()) > maxTokenSources:
		return Token{}, fmt.Errorf("%w: %d servers, at most %d are allowed", ErrToken, len(t.mysql.Sources()), maxTokenSources)
	case intervals > maxTokenIntervals:
		return Token{}, fmt.Errorf("%w: %d intervals, at most %d are allowed", ErrToken, intervals, maxTokenIntervals)
	}
	if n := len(t.String()); n > MaxTokenLength {
		return Token{}, fmt.Errorf("%w: %d bytes long, at most %d are allowed", ErrToken, n, MaxTokenLength)
	}
	return t, nil
}

// IsEmpty reports whether the token asks for nothing.
func (t Token) IsEmpty() bool { return t.flavor == topology.FlavorUnknown }

// Equal reports whether two tokens ask for the same.
func (t Token) Equal(u Token) bool {
	return t.flavor == u.flavor && t.mariadb.Equal(u.mariadb) && t.mysql.Equal(u.mysql)
}

// String returns the text, "" for the empty token. Nothing in it is secret, and
// nothing keeps a client from making one up: see Options.TokenKey.
func (t Token) String() string {
	switch t.flavor {
	case topology.MariaDB:
		return prefixMariaDB + strings.ReplaceAll(t.mariadb.String(), ",", tokenComma)
	case topology.MySQL:
		return prefixMySQL + strings.ReplaceAll(t.mysql.String(), ",", tokenComma)
	case topology.FlavorUnknown:
	}
	return ""
}

// ParseToken reads what String wrote, and nothing else: every other text is an
// error that wraps ErrToken. Empty text is the empty token.
func ParseToken(text string) (Token, error) {
	if text == "" {
		return Token{}, nil
	}
	if len(text) > MaxTokenLength {
		return Token{}, fmt.Errorf("%w: %d bytes long, at most %d are allowed", ErrToken, len(text), MaxTokenLength)
	}
	var t Token
	var err error
	switch body := text[min(len(text), len(prefixMariaDB)):]; {
	case strings.Contains(body, ","):
		return Token{}, fmt.Errorf("%w: it holds a comma", ErrToken)
	case strings.HasPrefix(text, prefixMariaDB):
		t.flavor = topology.MariaDB
		t.mariadb, err = gtid.ParsePosition(strings.ReplaceAll(body, tokenComma, ","))
	case strings.HasPrefix(text, prefixMySQL):
		t.flavor = topology.MySQL
		t.mysql, err = gtid.ParseSet(strings.ReplaceAll(body, tokenComma, ","))
	default:
		return Token{}, fmt.Errorf("%w: it begins with neither %s nor %s", ErrToken, prefixMariaDB, prefixMySQL)
	}
	if err != nil {
		return Token{}, fmt.Errorf("%w: %w", ErrToken, err)
	}
	if t.mariadb.IsEmpty() && t.mysql.IsEmpty() {
		return Token{}, fmt.Errorf("%w: it names no transaction", ErrToken)
	}
	if t, err = checked(t); err != nil {
		return Token{}, err
	}
	if t.String() != text {
		return Token{}, fmt.Errorf("%w: not in the form in which it was given out", ErrToken)
	}
	return t, nil
}

// Merge returns a token that asks for what either asks for. Where both cannot be
// had, as of two flavours or beyond the bounds, it is u, the newer one.
func (t Token) Merge(u Token) Token {
	switch {
	case u.IsEmpty():
		return t
	case t.flavor != u.flavor:
		return u
	}
	m := Token{flavor: u.flavor}
	if u.flavor == topology.MySQL {
		m.mysql = t.mysql.Union(u.mysql)
	} else {
		m.mariadb = later(t.mariadb, u.mariadb)
	}
	if m, err := checked(m); err == nil {
		return m
	}
	return u
}

// later takes of each domain the GTID with the higher number; b wins a tie.
func later(a, b gtid.Position) gtid.Position {
	var list []gtid.GTID
	for g := range b.All() {
		if h, ok := a.Get(g.Domain); ok && h.Seq > g.Seq {
			g = h
		}
		list = append(list, g)
	}
	for g := range a.All() {
		if _, ok := b.Get(g.Domain); !ok {
			list = append(list, g)
		}
	}
	// Each domain is in the list once.
	p, err := gtid.NewPosition(list...)
	if err != nil {
		return b
	}
	return p
}

// reachedBy reports whether a MariaDB server at a position is known to have all
// that the token asks for. own is the server's id: what a replica wrote by itself
// says nothing about what it has of the primary.
func (t Token) reachedBy(p gtid.Position, own uint32) bool {
	if t.flavor != topology.MariaDB {
		return t.IsEmpty()
	}
	for g := range t.mariadb.All() {
		have, ok := p.Get(g.Domain)
		if !ok || have.Seq < g.Seq || (have.Server == own && have != g) {
			return false
		}
	}
	return true
}

// Signed tokens end in a dot and the first bytes of an HMAC.
const (
	signatureMark  = "."
	signatureBytes = 16
)

// sign appends a signature to the text of a token.
func sign(text string, key []byte) string {
	if text == "" || len(key) == 0 {
		return text
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(text))
	return text + signatureMark + base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:signatureBytes])
}

// unsign checks and removes what sign appended.
func unsign(text string, key []byte) (string, error) {
	if text == "" || len(key) == 0 {
		return text, nil
	}
	if len(text) > MaxTokenLength {
		return "", fmt.Errorf("%w: %d bytes long, at most %d are allowed", ErrToken, len(text), MaxTokenLength)
	}
	body, _, ok := strings.Cut(text, signatureMark)
	if !ok {
		return "", fmt.Errorf("%w: it is not signed", ErrToken)
	}
	if !hmac.Equal([]byte(sign(body, key)), []byte(text)) {
		return "", fmt.Errorf("%w: its signature is wrong", ErrToken)
	}
	return body, nil
}
