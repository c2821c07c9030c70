package api

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// TLSFiles are PEM files.
type TLSFiles struct {
	Cert, Key string
	// ClientCA holds the authorities whose certificates let clients in; "" for none.
	ClientCA string
}

// TLSConfig returns the TLS settings of a server. The files are read again when they
// have changed; until they can be read the ones before stay in use, which is logged.
func TLSConfig(files TLSFiles, log zerolog.Logger) (*tls.Config, error) {
	l := &loader{files: files, log: log, every: time.Second}
	var err error
	if l.config, err = files.read(); err != nil {
		return nil, err
	}
	l.stamps, l.looked = files.stamps(), time.Now()
	out := l.config.Clone()
	out.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return l.current(), nil }
	return out, nil
}

// loader keeps the settings that are in use.
type loader struct {
	files TLSFiles
	log   zerolog.Logger
	every time.Duration

	mu     sync.Mutex
	config *tls.Config
	stamps string
	looked time.Time
}

func (l *loader) current() *tls.Config {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.looked) < l.every {
		return l.config
	}
	l.looked = time.Now()
	now := l.files.stamps()
	if now == l.stamps {
		return l.config
	}
	config, err := l.files.read()
	if err != nil {
		// Certificate and key may be half replaced: they are looked at again, and one
		// line is logged for each state that they are in.
		if l.stamps != now+"!" {
			l.log.Error().Str("event", "certificate_failed").AnErr("error", err).Msg("the certificate before stays in use")
		}
		l.stamps = now + "!"
		return l.config
	}
	l.config, l.stamps = config, now
	l.log.Info().Str("event", "certificate_reloaded").Str("file", l.files.Cert).Msg("the certificate was read again")
	return config
}

// stamps tells one state of the files from another.
func (f TLSFiles) stamps() (out string) {
	for _, path := range []string{f.Cert, f.Key, f.ClientCA} {
		if path == "" {
			continue
		}
		info, err := os.Stat(path)
		if err != nil {
			out += err.Error() + "\n"
			continue
		}
		out += fmt.Sprintln(info.ModTime().UnixNano(), info.Size())
	}
	return out
}

func (f TLSFiles) read() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return nil, fmt.Errorf("http.tls_cert and http.tls_key: %w", err)
	}
	// Without tickets each connection is verified by the authorities of now.
	c := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, SessionTicketsDisabled: true, NextProtos: []string{"h2", "http/1.1"}}
	if f.ClientCA == "" {
		return c, nil
	}
	pem, err := os.ReadFile(f.ClientCA)
	if err != nil {
		return nil, fmt.Errorf("http.client_ca: %w", err)
	}
	c.ClientCAs = x509.NewCertPool()
	if !c.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, errors.New("http.client_ca: " + f.ClientCA + " holds no PEM certificate")
	}
	c.ClientAuth = tls.VerifyClientCertIfGiven
	return c, nil
}
