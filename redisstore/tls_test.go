package redisstore

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	redisrig "github.com/punctualmq/punctual/internal/rigs/redis"
)

// authority signs certificates. Its own certificate has its name.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	dir  string // of files: NAME.pem and NAME.key
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir()}
	a.cert = &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	a.key = a.sign(t, name, a.cert)
	return a
}

// sign writes a certificate with a new key, both as PEM.
func (a *authority) sign(t *testing.T, name string, c *x509.Certificate) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c.SerialNumber, c.Subject = big.NewInt(time.Now().UnixNano()), pkix.Name{CommonName: name}
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	signer := a.key
	if signer == nil {
		signer = key // its own
	}
	raw, err := x509.CreateCertificate(rand.Reader, c, a.cert, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{".pem": {Type: "CERTIFICATE", Bytes: raw}, ".key": {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(a.file(name+file), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return key
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

// startSecure starts a server that speaks TLS at the returned address, wants a certificate of
// its clients, and has a port without TLS for steering.
func startSecure(t *testing.T, a *authority) string {
	t.Helper()
	server := redisrig.Start(t)
	host, _, err := net.SplitHostPort(server.Addr)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_, port, err := net.SplitHostPort(addr)
	if err := errors.Join(err, l.Close()); err != nil {
		t.Fatal(err)
	}
	a.sign(t, "server", &x509.Certificate{IPAddresses: []net.IP{net.ParseIP(host)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	a.sign(t, "program", &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	do(t, server, "CONFIG", "SET", "tls-cert-file", a.file("server.pem"), "tls-key-file", a.file("server.key"), "tls-ca-cert-file", a.file("ca.pem"), "tls-port", port)
	return addr
}

// With rediss a store works over TLS. When one side does not trust the certificate of the other,
// the error says what to give.
func TestTLS(t *testing.T) {
	a, stranger := newAuthority(t, "ca"), newAuthority(t, "stranger")
	addr := startSecure(t, a)
	stranger.sign(t, "program", &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	own := "&cert=" + a.file("program.pem") + "&key=" + a.file("program.key")
	s, err := OpenURL(t.Context(), "rediss://"+addr+"?ca="+a.file("ca.pem")+own, nil)
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, s.Close)
	push(t, s, punctual.NewMessage{ID: "x"})
	ack(t, s, claimOne(t, s, time.Minute))
	found, err := s.Examine(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if f := finding(t, found, "encryption"); f.Value != "TLS" {
		t.Errorf("%+v; want TLS", f)
	}
	for name, tt := range map[string]struct{ url, want string }{
		"nobody vouches for the server":     {"rediss://" + addr + "?prefix=x" + own, "ca=FILE"},
		"a stranger vouches for the server": {"rediss://" + addr + "?ca=" + stranger.file("stranger.pem") + own, "ca=FILE"},
		"no certificate":                    {"rediss://" + addr + "?ca=" + a.file("ca.pem"), "cert=FILE"},
		"a stranger's certificate":          {"rediss://" + addr + "?ca=" + a.file("ca.pem") + "&cert=" + stranger.file("program.pem") + "&key=" + stranger.file("program.key"), "cert=FILE"},
	} {
		_, err := OpenURL(t.Context(), tt.url, nil)
		if !errors.Is(err, punctual.ErrUnsupported) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v; want ErrUnsupported that says %q", name, err, tt.want)
		}
	}
}

// Files that a URL names are read, and options checked, before anything is dialled. The first line
// of a password-file is the password.
func TestFilesOfURLs(t *testing.T) {
	a := newAuthority(t, "ca")
	write := func(name, text string) string {
		if err := os.WriteFile(a.file(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return a.file(name)
	}
	for _, query := range []string{
		"ca=" + a.file("none"), "ca=" + write("text", "text"), "cert=" + a.file("ca.pem"), "key=" + a.file("ca.key"),
		"cert=" + a.file("ca.pem") + "&key=" + a.file("ca.pem"), "password-file=" + a.file("none"), "password-file=" + write("empty", "\n"), "replicas=0", "replicas=x",
	} {
		if _, err := OpenURL(t.Context(), "rediss://127.0.0.1:1?"+query, nil); !errors.Is(err, punctual.ErrInvalid) {
			t.Errorf("open with %s: %v; want ErrInvalid", query, err)
		}
	}
	for _, url := range []string{"redis://127.0.0.1:1?ca=" + a.file("ca.pem"), "redis://:s@127.0.0.1:1?password-file=" + write("password", "s")} {
		if _, err := OpenURL(t.Context(), url, nil); !errors.Is(err, punctual.ErrInvalid) {
			t.Errorf("open %s: %v; want ErrInvalid", url, err)
		}
	}
	server := redisrig.Start(t)
	do(t, server, "CONFIG", "SET", "requirepass", "s@cret word")
	s, err := OpenURL(t.Context(), "redis://"+server.Addr+"?password-file="+write("password", "s@cret word\r\nnot this\n"), nil)
	if err != nil {
		t.Fatalf("open with a password-file: %v", err)
	}
	closeAtEnd(t, s.Close)
}
