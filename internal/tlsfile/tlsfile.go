// Package tlsfile makes the TLS configuration of a server from files, and reads the files again
// when they change. So a certificate is renewed without a restart: connections that exist go on,
// and new ones get the new certificate. It makes the configuration of a client, too.
package tlsfile

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/refresh"
)

// Files are what TLS needs, in PEM.
type Files struct {
	// Cert is the file of the server's certificate and of the certificates between it and the root,
	// Key the file of its private key.
	Cert, Key string
	// ClientCA, if not empty, is the file of the roots of client certificates. A client may then
	// show a certificate.
	ClientCA string
	// ClientRequired refuses clients that show no certificate.
	ClientRequired bool
}

// checkInterval is how often, at most, new connections check whether the files have changed.
const checkInterval = time.Second

// source makes configurations of files.
type source struct {
	files Files
	log   *slog.Logger
}

// loaded is the latest configuration that could be made of the files.
type loaded struct {
	config *tls.Config
	stamps [3]stamp
	// problem is why the files could not be read the last time; empty when they could.
	problem string
}

// stamp identifies a file and its content, so that a change is noticed without reading the file.
type stamp struct {
	modified time.Time
	size     int64
	file     os.FileInfo // for os.SameFile; nil when there was none
}

func (s stamp) same(t stamp) bool {
	return s.modified.Equal(t.modified) && s.size == t.size && (s.file == nil) == (t.file == nil) && (s.file == nil || os.SameFile(s.file, t.file))
}

// Config returns a configuration for TLS 1.3 alone, with HTTP/2 and HTTP/1.1. New connections
// notice within a second that the files have changed. While the files do not fit together, for
// instance because only one of two has been replaced, the old certificate stays in use. The error
// is logged once, and again only after another error or after the files could be read meanwhile.
func Config(files Files, log *slog.Logger) (*tls.Config, error) {
	if files.ClientRequired && files.ClientCA == "" {
		return nil, fmt.Errorf("client certificates are required but no file has their roots: name one: %w", punctual.ErrInvalid)
	}
	first := loaded{stamps: files.stamps()}
	var err error
	if first.config, err = files.config(); err != nil {
		return nil, err
	}
	s := &source{files, log}
	current := refresh.New(checkInterval, first, s.readIfChanged)
	out := first.config.Clone()
	out.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return current.Get().config, nil }
	return out, nil
}

// readIfChanged makes a new configuration if the files have changed since they were read, or could
// not be read the last time.
func (s *source) readIfChanged(l loaded) loaded {
	stamps := s.files.stamps()
	if same(stamps, l.stamps) && l.problem == "" {
		return l
	}
	l.stamps = stamps
	config, err := s.files.config()
	switch {
	case err == nil:
		l.config, l.problem = config, ""
		s.log.Info("the TLS certificate was read again", "path", s.files.Cert)
	case err.Error() != l.problem:
		l.problem = err.Error()
		s.log.Error("the old TLS certificate is used on until the files can be read again", "err", err)
	}
	return l
}

func same(a, b [3]stamp) bool { return a[0].same(b[0]) && a[1].same(b[1]) && a[2].same(b[2]) }

// stamps returns the stamps of the files. It is called before the files are read, so that a change
// in between is noticed next time.
func (f Files) stamps() (out [3]stamp) {
	for i, path := range []string{f.Cert, f.Key, f.ClientCA} {
		if info, err := os.Stat(path); err == nil { // a missing file is reported when it is read
			out[i] = stamp{info.ModTime(), info.Size(), info}
		}
	}
	return out
}

func (f Files) config() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return nil, fmt.Errorf("read the certificate %s and the key %s: %w", f.Cert, f.Key, err)
	}
	c := &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2", "http/1.1"}}
	if f.ClientCA == "" {
		return c, nil
	}
	if c.ClientCAs, err = authorities(f.ClientCA); err != nil {
		return nil, fmt.Errorf("read the roots of client certificates: %w", err)
	}
	c.ClientAuth = tls.VerifyClientCertIfGiven
	if f.ClientRequired {
		c.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return c, nil
}

// authorities returns the certificates in a PEM file as a pool.
func authorities(path string) (*x509.CertPool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s holds no certificate in PEM: %w", path, punctual.ErrInvalid)
	}
	return pool, nil
}
