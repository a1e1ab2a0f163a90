package tlsfile

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// authority signs certificates for tests.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{key: newKey(t)}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "root"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return a
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// issue returns a certificate and its key, for 127.0.0.1 and for clients.
func (a *authority) issue(t *testing.T, serial int64, subject pkix.Name) (cert, key []byte) {
	t.Helper()
	k := newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: subject, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &k.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
}

func write(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// serve answers with the subject of the client's certificate.
func serve(t *testing.T, files Files, log io.Writer) string {
	t.Helper()
	config, err := Config(files, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		subject := "nobody"
		if len(r.TLS.VerifiedChains) > 0 {
			subject = r.TLS.VerifiedChains[0][0].Subject.String()
		}
		if _, err := io.WriteString(w, subject); err != nil {
			t.Error(err)
		}
	}))
	s.TLS = config
	s.EnableHTTP2 = true
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // of refused connections
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.URL
}

// TestCertificatesAreSwappedUnderLoad: clients connect all the time while certificate and key are
// replaced one after the other. No connection fails, and the new certificate is seen in the end.
func TestCertificatesAreSwappedUnderLoad(t *testing.T) {
	ca := newAuthority(t)
	dir := t.TempDir()
	files := Files{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
	replace := func(serial int64, between func()) {
		cert, key := ca.issue(t, serial, pkix.Name{CommonName: "server"})
		write(t, files.Cert, cert)
		between()
		write(t, files.Key, key)
	}
	replace(2, func() {})
	var logs lockedBuffer
	url := serve(t, files, &logs)
	roots := x509.NewCertPool()
	roots.AddCert(ca.cert)

	var serial, connections atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			for ctx.Err() == nil {
				client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true, ForceAttemptHTTP2: true}}
				answer, err := client.Get(url)
				if err != nil {
					t.Errorf("a connection failed: %v", err)
					return
				}
				serial.Store(answer.TLS.PeerCertificates[0].SerialNumber.Int64())
				connections.Add(1)
				answer.Body.Close()
				client.CloseIdleConnections()
			}
		})
	}
	wait := func(what string, done func() bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); !done(); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: still the certificate %d after %d connections\n%s", what, serial.Load(), connections.Load(), logs.String())
			}
		}
	}
	wait("at first", func() bool { return serial.Load() == 2 })
	replace(3, func() { // the key does not fit the certificate for a while
		wait("only one of two files is new", func() bool { return strings.Contains(logs.String(), "the old TLS certificate is used on") })
		if serial.Load() != 2 {
			t.Errorf("certificate %d, want the old one", serial.Load())
		}
	})
	wait("after the swap", func() bool { return serial.Load() == 3 })
	stop()
	clients.Wait()
	if n := strings.Count(logs.String(), "used on"); n != 1 {
		t.Errorf("%d lines about the files that did not fit, want one", n)
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder // guarded by mu
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func TestClientCertificates(t *testing.T) {
	ca, other := newAuthority(t), newAuthority(t)
	dir := t.TempDir()
	files := Files{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem"), ClientCA: filepath.Join(dir, "ca.pem")}
	cert, key := ca.issue(t, 2, pkix.Name{CommonName: "server"})
	write(t, files.Cert, cert)
	write(t, files.Key, key)
	write(t, files.ClientCA, ca.pem)
	roots := x509.NewCertPool()
	roots.AddCert(ca.cert)
	worker := pkix.Name{CommonName: "worker-1", Organization: []string{"Example"}}

	get := func(url string, by *authority, version uint16) (string, error) {
		config := &tls.Config{RootCAs: roots, MaxVersion: version}
		if by != nil {
			pair, err := tls.X509KeyPair(by.issue(t, 5, worker))
			if err != nil {
				t.Fatal(err)
			}
			config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
		}
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
		answer, err := client.Get(url)
		if err != nil {
			return "", err
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		return string(text), err
	}
	url := serve(t, files, io.Discard)
	if who, err := get(url, ca, 0); err != nil || who != "CN=worker-1,O=Example" {
		t.Errorf("a client with a certificate is %q, %v", who, err)
	}
	if who, err := get(url, nil, 0); err != nil || who != "nobody" {
		t.Errorf("a client without a certificate is %q, %v", who, err)
	}
	if who, err := get(url, other, 0); err == nil {
		t.Errorf("a client with a certificate of another root is %q", who)
	}
	if who, err := get(url, ca, tls.VersionTLS12); err == nil || !strings.Contains(err.Error(), "protocol version") {
		t.Errorf("a client with TLS 1.2 is %q, %v", who, err)
	}
	files.ClientRequired = true
	url = serve(t, files, io.Discard)
	if who, err := get(url, nil, 0); err == nil {
		t.Errorf("a client without the certificate that is required is %q", who)
	}
	if who, err := get(url, ca, 0); err != nil || who != "CN=worker-1,O=Example" {
		t.Errorf("a client with the certificate that is required is %q, %v", who, err)
	}
}

func TestConfigRefuses(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	ca := newAuthority(t)
	dir := t.TempDir()
	files := Files{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
	if _, err := Config(files, log); err == nil {
		t.Error("missing files are no error")
	}
	cert, key := ca.issue(t, 2, pkix.Name{CommonName: "server"})
	_, wrong := ca.issue(t, 3, pkix.Name{CommonName: "server"})
	write(t, files.Cert, cert)
	write(t, files.Key, wrong)
	if _, err := Config(files, log); err == nil {
		t.Error("a key that does not fit is no error")
	}
	write(t, files.Key, key)
	if _, err := Config(Files{Cert: files.Cert, Key: files.Key, ClientRequired: true}, log); err == nil {
		t.Error("required client certificates without roots are no error")
	}
	files.ClientCA = files.Key
	if _, err := Config(files, log); err == nil {
		t.Error("roots that are none are no error")
	}
}
