package config

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

// defaultPort is the port of an address that has none.
const defaultPort = "3306"

var (
	namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$`)
	hostPattern = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_.])?$`)
	// identifierPattern allows what SQL takes for a name even without quotes.
	identifierPattern = regexp.MustCompile(`^[A-Za-z0-9_$]{1,64}$`)
)

// The functions below are the checks of single keys in the schema.

func checkName(s string) (string, *fault) {
	if !namePattern.MatchString(s) {
		return "", &fault{text: "this cannot be a name", remedy: "use 1 to 63 letters, digits, _ . and -, with a letter or digit first"}
	}
	return s, nil
}

func checkNotEmpty(s string) (string, *fault) {
	if s == "" {
		return "", &fault{text: "this cannot be empty"}
	}
	return s, nil
}

func checkLabel(s string) (string, *fault) {
	if len(s) > 128 || strings.ContainsFunc(s, func(c rune) bool { return !unicode.IsPrint(c) }) {
		return "", &fault{text: "use at most 128 bytes of printable text"}
	}
	return s, nil
}

func checkVariable(s string) (string, *fault) {
	if !isVariable(s) {
		return "", &fault{text: "this is not the name of an environment variable"}
	}
	return s, nil
}

// checkLock allows only what every server compares alike and what can stand in a
// statement as it is.
func checkLock(s string) (string, *fault) {
	bad := func(c rune) bool { return c < ' ' || c > '~' || strings.ContainsRune("'\"`\\", c) }
	switch {
	case s == "" || len(s) > 64:
		return "", &fault{text: "the name of a lock has 1 to 64 characters"}
	case strings.ContainsFunc(s, bad):
		return "", &fault{text: "the name of a lock has printable ASCII characters only, and no quote or backslash"}
	case strings.TrimSpace(s) != s:
		return "", &fault{text: "the name of a lock does not begin or end with a space"}
	}
	return s, nil
}

func checkSchema(s string) (string, *fault) {
	if s != "" && !identifierPattern.MatchString(s) {
		return "", &fault{text: "this cannot be the name of a database", remedy: "use 1 to 64 letters, digits, _ and $"}
	}
	return s, nil
}

func checkTable(s string) (string, *fault) {
	schema, table, _ := strings.Cut(s, ".")
	if !identifierPattern.MatchString(schema) || !identifierPattern.MatchString(table) {
		return "", &fault{text: "this is not the name of a table with its database",
			remedy: `write it like "lockstep.probe", each part with 1 to 64 letters, digits, _ and $`}
	}
	return s, nil
}

func checkHost(s string) (string, *fault) {
	if a, err := netip.ParseAddr(s); err == nil {
		return a.Unmap().String(), nil
	}
	// The last label of a name is never a number, that of a mistyped address is.
	last := s[strings.LastIndexByte(s, '.')+1:]
	if _, err := strconv.Atoi(last); err == nil || !hostPattern.MatchString(s) {
		return "", &fault{text: "this is neither a host name nor an IP address"}
	}
	return strings.ToLower(s), nil
}

func checkListen(s string) (string, *fault) {
	if s == "" {
		return "", nil
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return "", &fault{text: "this is not an address to listen on", remedy: `write it like "127.0.0.1:8990" or "[::1]:8990", or "" for none`}
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || port != strconv.FormatUint(n, 10) {
		return "", &fault{text: "the port must be a number from 0 to 65535"}
	}
	if host != "" {
		var f *fault
		if host, f = checkHost(host); f != nil {
			return "", f
		}
	}
	return net.JoinHostPort(host, port), nil
}

// isLoopback reports whether an address to listen on can be reached from this
// host only.
func isLoopback(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return false
	}
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.IsLoopback()
}

func checkAddress(s string) (string, *fault) {
	if path, ok := strings.CutPrefix(s, "unix:"); ok {
		if !filepath.IsAbs(path) || strings.ContainsFunc(path, unicode.IsControl) {
			return "", &fault{text: "the path of a socket must be absolute", remedy: `write it like "unix:/run/mysqld/mysqld.sock"`}
		}
		return "unix:" + filepath.Clean(path), nil
	}
	return checkTCPAddress(s)
}

func checkTCPAddress(s string) (string, *fault) {
	if strings.HasPrefix(s, "unix:") {
		return "", &fault{text: "replicas cannot use a socket of another server", remedy: "give host:port"}
	}
	host, port := s, defaultPort
	switch {
	case strings.HasPrefix(s, "["):
		inside, rest, ok := strings.Cut(s[1:], "]")
		a, err := netip.ParseAddr(inside)
		if !ok || err != nil || !a.Is6() || rest != "" && rest[0] != ':' {
			return "", &fault{text: "this is not an IPv6 address in brackets", remedy: `write it like "[2001:db8::1]:3306"`}
		}
		host = inside
		if rest != "" {
			port = rest[1:]
		}
	case strings.Count(s, ":") > 1:
		remedy := `write it like "db1.example.com:3306"`
		if a, err := netip.ParseAddr(s); err == nil {
			remedy = fmt.Sprintf(`write "[%s]:%s"`, a, defaultPort)
		}
		return "", &fault{text: "an IPv6 address needs brackets", remedy: remedy}
	case strings.Contains(s, ":"):
		host, port, _ = strings.Cut(s, ":")
	}
	host, f := checkHost(host)
	if f != nil {
		f.remedy = `write an address like "db1.example.com:3306", "192.0.2.1:3306", "[2001:db8::1]:3306" or "unix:/path"`
		return "", f
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 || port != strconv.FormatUint(n, 10) {
		return "", &fault{text: "the port must be a number from 1 to 65535"}
	}
	return net.JoinHostPort(host, port), nil
}

// sameAs returns the form of a checked address by which two of them are compared.
func sameAs(address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil || strings.HasPrefix(address, "unix:") {
		return address
	}
	host = strings.TrimSuffix(host, ".")
	if host == "localhost" || host == "::1" {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}
