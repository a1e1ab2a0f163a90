package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual/access/tokens"
)

func TestToken(t *testing.T) {
	r := newRig(t)
	path := filepath.Join(t.TempDir(), "tokens.json")
	r.env["PUNCTUAL_TOKENS"] = path

	token := strings.TrimSpace(r.run("token", "new", "billing", "--actions", "push,inspect", "--topics", "order.*,mail").ok().out)
	var made newTokenJSON
	if err := json.Unmarshal([]byte(r.run("token", "new", "short", "--actions", "work", "--expires", "1h", "--json").ok().out), &made); err != nil {
		t.Fatal(err)
	}
	if made.Token == "" || made.State != "live" || time.Time(made.Expires).Sub(time.Time(made.Created)) != time.Hour {
		t.Errorf("the new token: %+v", made)
	}
	r.run("token", "new", "worker", "--actions", "work", "--subject", "CN=worker-1", "--expires", "never").ok().prints("")

	enter := func(token string) (*tokens.Entry, error) {
		t.Helper()
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		entries, err := tokens.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return entries.Token(token, r.clock.Now())
	}
	if e, err := enter(token); err != nil || e.Name != "billing" {
		t.Fatalf("the token that was printed: %v, %v", e, err)
	}

	list := func() map[string]tokenJSON {
		t.Helper()
		out := make(map[string]tokenJSON)
		for line := range strings.Lines(r.run("token", "list", "--json").ok().out) {
			var e tokenJSON
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Fatal(err)
			}
			out[e.Name] = e
		}
		return out
	}
	all := list()
	if e := all["billing"]; len(all) != 3 || e.State != "live" || strings.Join(e.Topics, " ") != "order.* mail" || time.Time(e.Expires).Sub(time.Time(e.Created)) != 90*24*time.Hour {
		t.Errorf("the list: %+v", all)
	}
	if e := all["worker"]; e.Subject != "CN=worker-1" || !e.Expires.IsZero() {
		t.Errorf("the entry of a certificate: %+v", e)
	}
	r.clock.Advance(2 * time.Hour)
	r.run("token", "list").ok().contains("billing", "order.*,mail", "expired", "CN=worker-1")

	r.run("token", "revoke", all["billing"].ID, "missing").exits(exitUnwished, "missing", "nothing was revoked")
	if _, err := enter(token); err != nil {
		t.Errorf("a revocation that failed has revoked: %v", err)
	}
	r.run("token", "revoke", all["billing"].ID).ok()
	if _, err := enter(token); err == nil {
		t.Error("a revoked token still counts")
	}
	if got := list()["billing"].State; got != "revoked" {
		t.Errorf("the list says %q", got)
	}
	if text, err := os.ReadFile(path); err != nil || strings.Contains(string(text), token[len(token)-26:]) {
		t.Errorf("the file holds the secret: %v", err)
	}
}

func TestTokenRefuses(t *testing.T) {
	r := newRig(t)
	path := filepath.Join(t.TempDir(), "tokens.json")
	tokens := "--tokens=" + path
	r.run("token", "list", tokens).exits(exitError, path)
	r.run("token", "new", "x", tokens).exits(exitUsage, "actions")
	r.run("token", "new", "x", tokens, "--actions", "pop").exits(exitUsage, "pop")
	r.run("token", "new", "x", tokens, "--actions", "push", "--topics", "a*b").exits(exitUsage, "a*b")
	r.run("token", "new", "x", tokens, "--actions", "push", "--expires", "soon").exits(exitUsage, "soon")
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("refused commands have made a file: %v", err)
	}
	r.run("token", "new", "x", tokens, "--actions", "push").ok()
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	r.run("token", "list", tokens).exits(exitUsage, "chmod 600")
	r.run("token", "new", "y", tokens, "--actions", "push").exits(exitUsage, "chmod 600")
}
