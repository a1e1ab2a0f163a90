package cli

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// kubernetes is what a container finds in its environment where services are called punctual and punctual-store.
var kubernetes = []string{
	"PUNCTUAL_SERVICE_HOST=10.96.0.7", "PUNCTUAL_SERVICE_PORT=7878", "PUNCTUAL_SERVICE_PORT_HTTP=7878", "PUNCTUAL_PORT=tcp://10.96.0.7:7878",
	"PUNCTUAL_PORT_6379_TCP=tcp://10.96.0.7:6379", "PUNCTUAL_PORT_6379_TCP_PROTO=tcp", "PUNCTUAL_PORT_6379_TCP_PORT=6379", "PUNCTUAL_PORT_6379_TCP_ADDR=10.96.0.7",
	"PUNCTUAL_STORE_SERVICE_HOST=10.96.0.8", "PUNCTUAL_STORE_SERVICE_PORT=6379", "PUNCTUAL_STORE_PORT=tcp://10.96.0.8:6379", "PUNCTUAL_STORE_PORT_53_UDP_ADDR=10.96.0.8",
}

// Commands refuse a variable that has a value and a name which is nearly a known one; push and serve are tried.
func TestMistypedVariables(t *testing.T) {
	for name, meant := range map[string]string{
		"PUNCTUAL_STRE": "PUNCTUAL_STORE", "PUNCTUAL_SOTRE": "PUNCTUAL_STORE", "PUNCTUAL_TOKNE_FILE": "PUNCTUAL_TOKEN_FILE", "PUNCTUAL_LITSEN": "PUNCTUAL_LISTEN",
		"PUNCTUAL_LOGLEVEL": "PUNCTUAL_LOG_LEVEL", "PUNCTUAL_TLS_CRT": "PUNCTUAL_TLS_CERT", "PUNCTUAL_IMPORT_FORM": "PUNCTUAL_IMPORT_FROM", "PUNCTUAL_DRIAN": "PUNCTUAL_DRAIN",
	} {
		r := newRig(t)
		r.env = map[string]string{name: "x"}
		r.run("--store", "mem:", "push", "orders", "a").exits(exitUsage, name, meant)
		r.run("--store", "mem:", "serve").exits(exitUsage, name, meant)
		r.env = map[string]string{name: "", meant: ""}
		r.run("--store", "mem:", "push", "orders", "a").ok()
	}
}

// No command is stopped by variables that Kubernetes or consume --exec have set, nor by those whose names resemble no known one; push
// is tried.
func TestVariablesOfOthers(t *testing.T) {
	r := newRig(t)
	r.env = map[string]string{
		"PUNCTUAL_ID": "x", "PUNCTUAL_TOPIC": "t", "PUNCTUAL_ATTEMPT": "1", "PUNCTUAL_DUE": "now", "PUNCTUAL_HEADER_STOR": "x",
		"PUNCTUAL_VERSION": "1.2", "PUNCTUAL_DATA": "/data", "PUNCTUAL_URL": "http://punctual", "PUNCTUAL_DB_PASSWORD": "secret", "PUNCTUAL_PORT": "7878", "PUNCTUAL_IMAGE": "x",
	}
	for _, entry := range kubernetes {
		name, value, _ := strings.Cut(entry, "=")
		r.env[name] = value
	}
	if got := r.run("--store", "mem:", "push", "orders", "a").ok(); got.err != "" {
		t.Errorf("push says %s", got.err)
	}
}

// serve warns of variables that have no effect, but not of those that Kubernetes sets.
func TestServeWarnsOfVariables(t *testing.T) {
	for _, c := range []struct {
		environ []string
		warns   string
	}{
		{kubernetes, ""},
		{slices.Concat(kubernetes, []string{"PUNCTUAL_REGION=eu"}), "variable=PUNCTUAL_REGION"},
	} {
		ctx, end := context.WithCancel(t.Context())
		var out buffer
		errs := &endsAt{text: "msg=serving", end: end}
		a := newApp(Streams{In: strings.NewReader(""), Out: &out, Err: errs, Getenv: func(string) string { return "" }, Environ: func() []string { return c.environ }})
		code := a.run(ctx, []string{"serve", "--store", "mem:", "--listen", "127.0.0.1:0"})
		end()
		said := errs.String()
		if warned := strings.Contains(said, "level=WARN"); code != exitOK || warned != (c.warns != "") || !strings.Contains(said, c.warns) {
			t.Errorf("serve ends with %d and says %s; want a warning: %q", code, said, c.warns)
		}
	}
}

// endsAt is a buffer that calls end when text is written to it.
type endsAt struct {
	buffer
	text string
	end  func()
}

func (w *endsAt) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte(w.text)) {
		w.end()
	}
	return w.buffer.Write(p)
}

// The program finds a mistyped variable in the environment of its process, and makes no store.
func TestMistypedVariableOfAProcess(t *testing.T) {
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "push", "orders", "a")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), runAsCommand+"=1", "PUNCTUAL_STRE=redis://localhost")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "PUNCTUAL_STORE was meant") {
		t.Errorf("%v: %s", err, out)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
		t.Errorf("a store was made: %v, %v", files, err)
	}
}
