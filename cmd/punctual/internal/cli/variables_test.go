package cli

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"
)

// kubernetes is what a container finds in its environment where services are called punctual and
// punctual-store.
var kubernetes = []string{
	"PUNCTUAL_SERVICE_HOST=10.96.0.7", "PUNCTUAL_SERVICE_PORT=7878", "PUNCTUAL_SERVICE_PORT_HTTP=7878", "PUNCTUAL_PORT=tcp://10.96.0.7:7878",
	"PUNCTUAL_PORT_6379_TCP=tcp://10.96.0.7:6379", "PUNCTUAL_PORT_6379_TCP_PROTO=tcp", "PUNCTUAL_PORT_6379_TCP_PORT=6379", "PUNCTUAL_PORT_6379_TCP_ADDR=10.96.0.7",
	"PUNCTUAL_STORE_SERVICE_HOST=10.96.0.8", "PUNCTUAL_STORE_SERVICE_PORT=6379", "PUNCTUAL_STORE_PORT=tcp://10.96.0.8:6379", "PUNCTUAL_STORE_PORT_53_UDP_ADDR=10.96.0.8",
}

// serve warns of variables that have no effect, such as misspelt ones, but not of those that
// Kubernetes or consume --exec set.
func TestServeWarnsOfVariables(t *testing.T) {
	for _, c := range []struct {
		environ []string
		warns   string
	}{
		{kubernetes, ""},
		{[]string{"PUNCTUAL_ID=x", "PUNCTUAL_TOPIC=t", "PUNCTUAL_ATTEMPT=1", "PUNCTUAL_DUE=now", "PUNCTUAL_HEADER_STOR=x", "PUNCTUAL_STRE="}, ""},
		{slices.Concat(kubernetes, []string{"PUNCTUAL_REGION=eu"}), "variable=PUNCTUAL_REGION"},
		{[]string{"PUNCTUAL_STRE=redis://localhost"}, "variable=PUNCTUAL_STRE"},
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
