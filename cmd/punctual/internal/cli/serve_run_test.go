//go:build unix

package cli

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
)

// selfSigned makes a certificate for 127.0.0.1, writes it and its key, and returns a client that
// trusts it.
func selfSigned(t *testing.T, dir string) (cert, key string, client *http.Client) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	roots := x509.NewCertPool()
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	roots.AppendCertsFromPEM(text)
	for path, text := range map[string][]byte{cert: text, key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	client = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true}}
	return cert, key, client
}

// ask sends a request, with a token if that is not empty, and returns the status and the body of
// the answer.
func ask(t *testing.T, client *http.Client, method, url, token string) (int, string) {
	t.Helper()
	r, err := http.NewRequest(method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// What stands behind the ? of the URL of a server lets commands trust an authority of its own, and
// show it a certificate.
func TestCertificatesOfAClient(t *testing.T) {
	s := newShell(t)
	dir := t.TempDir()
	cert, key, _ := selfSigned(t, dir)
	tokens := filepath.Join(dir, "tokens.json")
	s.run("token", "new", "pusher", "--actions", "push,amend", "--subject", "CN=test", "--tokens", tokens).ok()
	p := s.start("serve", "--listen", "127.0.0.1:0", "--tls-cert", cert, "--tls-key", key, "--tokens", tokens, "--tls-client-ca", cert, "--tls-client-required")
	url := listening(t, p)
	push := func(where string) result {
		return s.run("push", "orders", "hi", "--id", "A-17", "--in", "1h", "--store", where)
	}
	push(url).exits(exitError, "?ca=FILE")
	push(url+"?ca="+cert).exits(exitError, "cannot be reached") // the client gets the alert, or only sees the connection end behind it
	push(url+"?ca="+key).exits(exitUsage, "holds no certificate")
	push(url+"?cert="+cert).exits(exitUsage, "go together")
	push(url+"?ca="+cert+"&ca="+cert).exits(exitUsage, "each once")
	push(url+"?token=secret").exits(exitUsage, "use ca, cert and key")
	whole := url + "?ca=" + cert + "&cert=" + cert + "&key=" + key
	push(whole).ok()
	s.run("cancel", "A-17", "--topic", "orders", "--store", whole+"&ca=").exits(exitUsage, "each once")
	s.run("cancel", "A-17", "--store", whole).exits(exitError, "may not inspect in any topic", "--topic")
	s.run("cancel", "A-17", "--topic", "orders", "--store", whole).ok()
	p.signal(syscall.SIGTERM)
	p.wait()
}

// TestServeAsConfigured: a file configures TLS, tokens, logs and an objective. Who has a token does
// what it allows, the metrics tell of it, and a message that was late makes the server degraded,
// not unready.
func TestServeAsConfigured(t *testing.T) {
	s := newShell(t)
	dir := t.TempDir()
	cert, key, client := selfSigned(t, dir)
	tokens := filepath.Join(dir, "tokens.json")
	file := filepath.Join(dir, "punctual.yaml")
	text := "listen: 127.0.0.1:0\ntls-cert: " + cert + "\ntls-key: " + key + "\ntokens: " + tokens + "\nlog-format: json\nlateness-slo: 1ms@99\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	pusher := strings.TrimSpace(s.run("token", "new", "pusher", "--actions", "push", "--tokens", tokens).ok().out)
	worker := strings.TrimSpace(s.run("token", "new", "worker", "--actions", "work,inspect", "--tokens", tokens).ok().out)

	p := s.start("serve", "--config", file)
	url := listening(t, p)
	if !strings.HasPrefix(url, "https://") {
		t.Fatalf("serve listens on %s", url)
	}
	if status, body := ask(t, client, "POST", url+"/v1/topics/t/messages?id=a", ""); status != 401 {
		t.Errorf("without a token: %d %s", status, body)
	}
	if status, body := ask(t, client, "POST", url+"/v1/topics/t/messages?id=a", pusher); status != 201 {
		t.Errorf("push: %d %s", status, body)
	}
	if status, body := ask(t, client, "GET", url+"/metrics", pusher); status != 403 {
		t.Errorf("metrics for who may not inspect: %d %s", status, body)
	}
	if status, body := ask(t, client, "GET", url+"/readyz", ""); status != 200 || !strings.Contains(body, `"ok"`) {
		t.Errorf("ready: %d %s", status, body)
	}
	time.Sleep(50 * time.Millisecond) // so that the claim is late
	if status, body := ask(t, client, "POST", url+"/v1/topics/t/claim", worker); status != 200 || !strings.Contains(body, `"id":"a"`) {
		t.Errorf("claim: %d %s", status, body)
	}
	if status, body := ask(t, client, "POST", url+"/v1/topics/t/messages/a/ack?token=999", worker); status == 200 {
		t.Errorf("ack with a token that is not the lease's: %d %s", status, body)
	}
	if status, body := ask(t, client, "GET", url+"/readyz", ""); status != 200 || !strings.Contains(body, `"degraded"`) || !strings.Contains(body, "1ms@99") {
		t.Errorf("ready after a late delivery: %d %s", status, body)
	}
	status, metrics := ask(t, client, "GET", url+"/metrics", worker)
	for _, want := range []string{
		`punctual_delivery_lateness_seconds_count{topic="t"} 1`, `punctual_pushes_total{result="stored",topic="t"} 1`,
		`punctual_leases_lost_total{reason="lease_lost",topic="t"} 1`, `punctual_messages{state="leased",topic="t"} 1`,
		`punctual_lateness_slo_burn_rate{window="5m"} 100`, `punctual_store_info{durability="fsync"} 1`, `punctual_store_free_bytes `, `process_start_time_seconds `,
	} {
		if !strings.Contains(metrics, want) {
			var ours []string
			for line := range strings.Lines(metrics) {
				if strings.HasPrefix(line, "punctual_") && !strings.Contains(line, "_bucket{") {
					ours = append(ours, line)
				}
			}
			t.Errorf("no %s in the metrics (%d):\n%s", want, status, strings.Join(ours, ""))
		}
	}
	s.run("token", "revoke", strings.Split(pusher, "_")[1], "--tokens", tokens).ok()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if status, _ := ask(t, client, "POST", url+"/v1/topics/t/messages?id=b", pusher); status == 401 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("a revoked token still counts")
		}
	}
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != exitOK {
		t.Errorf("exit code %d: %s", code, p.errs.String())
	}
	logs := p.errs.String()
	if !strings.Contains(logs, `"msg":"serving"`) {
		t.Errorf("the log is not JSON: %s", logs)
	}
	for _, secret := range []string{pusher, worker, strings.Split(pusher, "_")[2]} {
		if strings.Contains(logs, secret) {
			t.Error("the log holds a token")
		}
	}
}

func TestServeRefusesConfigurations(t *testing.T) {
	r := newRig(t)
	dir := t.TempDir()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--tls-cert", "x"}, "go together"},
		{[]string{"--tls-client-ca", "x"}, "--tls-cert"},
		{[]string{"--tls-cert", "x", "--tls-key", "y", "--tls-client-ca", "z"}, "--tokens"},
		{[]string{"--tls-client-required"}, "--tls-client-ca"},
		{[]string{"--log-format", "xml"}, "text or json"},
		{[]string{"--log-level", "loud"}, "debug, info, warn or error"},
		{[]string{"--lateness-slo", "1s"}, "1s@99"},
		{[]string{"--metrics-topics", "0"}, "1 or more"},
		{[]string{"--max-connections", "-1"}, "1 or more"},
		{[]string{"--rate", "-1"}, "--rate -1"},
		{[]string{"--rate", "NaN"}, "--rate NaN"},
		{[]string{"--max-body", "-1"}, "MaxBody"},
		{[]string{"--tokens", filepath.Join(dir, "none.json")}, "punctual token new --tokens"},
		{[]string{"--config", filepath.Join(dir, "none.yaml")}, "none.yaml"},
	} {
		if got := r.run(append([]string{"serve", "--listen", "127.0.0.1:0"}, c.args...)...); got.code == exitOK || !strings.Contains(got.err, c.want) {
			t.Errorf("%q: exit %d, %s; want %q", c.args, got.code, got.err, c.want)
		}
	}
	r.run("serve", "--listen", "127.0.0.1:0", "--tls-cert", "/nowhere", "--tls-key", "/nowhere").exits(exitError, "/nowhere")
}

func TestServePrintsItsConfiguration(t *testing.T) {
	r := newRig(t)
	r.env["PUNCTUAL_STORE"] = "redis://me:secret@localhost/1"
	r.env["PUNCTUAL_LOG_FORMAT"] = "json"
	out := r.run("serve", "--print-config", "--drain", "5s").ok().contains(
		"# from: PUNCTUAL_STORE\nstore: redis://me:xxxxx@localhost/1\n", "# from: PUNCTUAL_LOG_FORMAT\nlog-format: json\n", "# from: flag\ndrain: 5s\n",
		"# from: default\nlisten:\n- 127.0.0.1:7878\n", "# tls-cert:\n").out
	if strings.Contains(out, "secret") {
		t.Errorf("the password is shown:\n%s", out)
	}
}

// systemd is told that the server is ready, alive and stopping, and its socket is served in place
// of --listen.
func TestServeUnderSystemd(t *testing.T) {
	s := newShell(t)
	path := filepath.Join(t.TempDir(), "notify")
	notified, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer notified.Close()
	if err := notified.SetReadDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	told := func(want string) {
		t.Helper()
		for seen := ""; ; {
			buffer := make([]byte, 4096)
			n, err := notified.Read(buffer)
			if err != nil {
				t.Fatalf("systemd was not told %s but %q: %v", want, seen, err)
			}
			if seen += string(buffer[:n]) + " "; string(buffer[:n]) == want {
				return
			}
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	handed, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer handed.Close()

	inner := s.command("serve")
	cmd := exec.Command("/bin/sh", append([]string{"-c", `export LISTEN_PID=$$; exec "$0" "$@"`}, inner.Args...)...)
	cmd.Env = append(inner.Env, "LISTEN_FDS=1", "NOTIFY_SOCKET="+path, "WATCHDOG_USEC=60000")
	cmd.ExtraFiles = []*os.File{handed}
	p := s.startCommand(cmd)
	told("READY=1")
	told("WATCHDOG=1")
	if got := call(t, "GET", "http://"+l.Addr().String()+"/v1/clock", ""); !strings.Contains(got, "now") {
		t.Errorf("the socket of systemd: %s", got)
	}
	p.signal(syscall.SIGTERM)
	told("STOPPING=1")
	if code := p.wait(); code != exitOK {
		t.Errorf("exit code %d: %s", code, p.errs.String())
	}
}

// With --drain-delay a server that was told to end keeps its port open and answers requests, but
// says at /readyz that it is not ready, so that load balancers send no more.
func TestServeDrainsBehindABalancer(t *testing.T) {
	s := newShell(t)
	p := s.start("serve", "--listen", "127.0.0.1:0", "--drain-delay", "1h")
	url := listening(t, p)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	if status, body := ask(t, client, "GET", url+"/readyz", ""); status != 200 {
		t.Errorf("ready: %d %s", status, body)
	}
	p.signal(syscall.SIGTERM)
	p.says("/readyz fails")
	if status, body := ask(t, client, "GET", url+"/readyz", ""); status != 503 {
		t.Errorf("ready after SIGTERM: %d %s, want 503", status, body)
	}
	if status, body := ask(t, client, "POST", url+"/v1/topics/t/messages", ""); status != 201 {
		t.Errorf("push after SIGTERM: %d %s, want 201", status, body)
	}
	time.Sleep(sameSignal) // because only then another signal is a second one
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != exitSignal+int(syscall.SIGTERM) {
		t.Errorf("exit code %d after the second signal: %s", code, p.errs.String())
	}
}

// failedStore is a store whose medium has failed.
type failedStore struct{ keptOpen }

func (failedStore) Push(context.Context, []punctual.NewMessage) ([]punctual.PushResult, error) {
	return nil, fmt.Errorf("push: the disk is gone: %w", punctual.ErrStoreFailed)
}

// When the store fails, serve says so and ends with exit code 1, on which a supervisor acts. The
// request that met the failure is answered before.
func TestServeEndsWithItsStore(t *testing.T) {
	r := newRig(t)
	out, in := io.Pipe()
	var errs buffer
	a := r.app(in, &errs)
	a.schemes = []scheme{{name: "mem", form: "mem:", open: func(context.Context, place) (punctual.Store, error) {
		return failedStore{keptOpen{r.store}}, nil
	}}}
	code := make(chan int, 1)
	go func() { code <- a.run(t.Context(), []string{"serve", "--listen", "127.0.0.1:0"}) }()
	lines := bufio.NewReader(out)
	first, err := lines.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	go io.Copy(io.Discard, lines) // reads the lines with calls to try, until the pipe is closed
	defer in.Close()
	_, url, _ := strings.Cut(strings.TrimSpace(first), " on ")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	if status, body := ask(t, client, "POST", url+"/v1/topics/t/messages", ""); status != 503 || !strings.Contains(body, "store_failed") {
		t.Errorf("push: %d %s", status, body)
	}
	if c := <-code; c != exitError || !strings.Contains(errs.String(), "the store has failed, so the server ends") {
		t.Errorf("exit code %d: %s", c, errs.String())
	}
}

// A server whose store is the server itself does not serve, because nobody answers there. It says
// that PUNCTUAL_STORE took the place of the file's store, if it did.
func TestServeRefusesItself(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err := errors.Join(err, l.Close()); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(t.TempDir(), "api.sock")
	file := filepath.Join(t.TempDir(), "punctual.yaml")
	if err := os.WriteFile(file, []byte("store: \"mem:\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ listen, store string }{
		{"127.0.0.1:" + port, "http://127.0.0.1:" + port},
		{"127.0.0.1:" + port, "http://192.0.2.1:1,localhost:" + port},
		{"0.0.0.0:" + port, "http://127.0.0.1:" + port},
		{"unix:" + socket, "unix:" + socket},
	} {
		ctx, end := context.WithTimeout(t.Context(), time.Minute) // so that a server that serves itself ends
		r := newRig(t)
		r.env["PUNCTUAL_STORE"] = c.store
		args := []string{"serve", "--listen", c.listen, "--config", file, "--duties=false", "--expose-without-tls-and-tokens"}
		var out, errs buffer
		a := r.app(&out, &errs)
		a.schemes = schemes()
		code := a.run(ctx, args)
		end()
		result{t, args, code, out.String(), errs.String()}.exits(exitError, "is to be this server itself", "unset PUNCTUAL_STORE", file+":1")
	}
}
