package tokens

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newStore(t *testing.T) *memstore.Store {
	t.Helper()
	s := memstore.New(nil)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// given makes a file with one entry of each kind and returns the tokens by name.
func given(t *testing.T, path string) map[string]string {
	t.Helper()
	now := time.Now().UTC().Truncate(time.Second)
	tokens := make(map[string]string)
	err := Change(path, func(es []Entry) ([]Entry, error) {
		for _, name := range []string{"good", "expired", "revoked"} {
			e := Entry{Name: name, Actions: []string{"push"}, Topics: []string{"*"}, Created: now, Expires: now.Add(time.Hour)}
			tokens[name] = NewToken(&e)
			switch name {
			case "expired":
				e.Expires = now
			case "revoked":
				e.Revoked = now
			}
			es = append(es, e)
		}
		e := Entry{Name: "worker", Actions: []string{"work"}, Topics: []string{"*"}, Created: now}
		NewSubject(&e, "CN=worker-1,O=Example")
		return append(es, e), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return tokens
}

func TestTokens(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.json")
	tokens := given(t, path)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, token := range tokens {
		secret := token[len(tokenPrefix)+idLength+1:]
		if len(secret) != 26 || strings.Contains(string(text), secret) {
			t.Errorf("the secret of %s has %d characters and stands in the file", name, len(secret))
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v; want 0600", info.Mode(), err)
	}
	es, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if e, err := es.Token(tokens["good"], time.Now()); err != nil || e.Name != "good" {
		t.Errorf("the good token: %v, %v", e, err)
	}
	good := tokens["good"]
	for name, token := range map[string]string{
		"expired": tokens["expired"], "revoked": tokens["revoked"], "empty": "", "another kind": "Bearer x", "cut": good[:len(good)-1],
		"longer": good + "a", "upper case": strings.ToUpper(good), "another's secret": tokens["expired"][:len(tokenPrefix)+idLength] + good[len(tokenPrefix)+idLength:],
		"an unknown ID": tokenPrefix + "aaaaaaaaaa_" + strings.Repeat("a", 26), "only an ID": good[:len(tokenPrefix)+idLength], "no secret": good[:len(tokenPrefix)+idLength+1],
		// Without an entry Token compares the hash of the secret with zeros. The empty secret must
		// not pass that comparison.
		"an unknown ID with an empty secret": tokenPrefix + "aaaaaaaaaa_",
	} {
		e, err := es.Token(token, time.Now())
		if e != nil || !errors.Is(err, punctual.ErrUnauthenticated) {
			t.Errorf("%s: %v, %v; want ErrUnauthenticated", name, e, err)
		}
		if len(token) > 30 && strings.Contains(fmt.Sprint(err), token[len(tokenPrefix)+idLength+1:]) {
			t.Errorf("%s: the error holds the secret: %v", name, err)
		}
	}
	if e, err := es.Certificate("CN=worker-1,O=Example", time.Now()); err != nil || e.Name != "worker" {
		t.Errorf("the certificate: %v, %v", e, err)
	}
	for _, subject := range []string{"", "CN=worker-1", "CN=worker-1,O=Example,C=DE", "cn=worker-1,o=Example"} {
		if e, err := es.Certificate(subject, time.Now()); e != nil || !errors.Is(err, punctual.ErrUnauthenticated) {
			t.Errorf("certificate %q: %v, %v; want ErrUnauthenticated", subject, e, err)
		}
	}
}

// An entry counts up to the instant before it expires, and not at that instant.
func TestExpiresAtItsInstant(t *testing.T) {
	end := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	token, subject := Entry{Name: "t", Actions: []string{"push"}, Topics: []string{"*"}, Expires: end}, Entry{Name: "s", Actions: []string{"push"}, Topics: []string{"*"}, Expires: end}
	secret := NewToken(&token)
	NewSubject(&subject, "CN=x")
	es, err := newEntries([]Entry{token, subject})
	if err != nil {
		t.Fatal(err)
	}
	for at, want := range map[time.Time]bool{end.Add(-1): true, end: false, end.Add(1): false} {
		_, err := es.Token(secret, at)
		_, err2 := es.Certificate("CN=x", at)
		if (err == nil) != want || (err2 == nil) != want {
			t.Errorf("%v before its end: %v, %v; want it to count: %v", end.Sub(at), err, err2, want)
		}
	}
}

// A subject whose entry was revoked may get another entry, before or behind the revoked one in the
// file.
func TestSubjectAgain(t *testing.T) {
	revoked := Entry{Name: "old", Actions: []string{"push"}, Topics: []string{"*"}, Revoked: time.Now()}
	live := Entry{Name: "new", Actions: []string{"push"}, Topics: []string{"*"}}
	NewSubject(&revoked, "CN=x")
	NewSubject(&live, "CN=x")
	for _, list := range [][]Entry{{revoked, live}, {live, revoked}} {
		es, err := newEntries(list)
		if err != nil {
			t.Fatal(err)
		}
		if e, err := es.Certificate("CN=x", time.Now()); err != nil || e.Name != "new" {
			t.Errorf("with %s first: %+v, %v; want the one that was not revoked", list[0].Name, e, err)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	hash := strings.Repeat("ab", sha256.Size)
	entry := func(change string) string {
		fields := map[string]string{
			"id": `"k3wq5y7ahx"`, "name": `"x"`, "sha256": `"` + hash + `"`, "actions": `["push"]`, "topics": `["*"]`, "created": `"2026-11-22T09:00:00Z"`,
		}
		name, value, _ := strings.Cut(change, "=")
		if fields[name] = value; value == "" {
			delete(fields, name)
		}
		var parts []string
		for k, v := range fields {
			if k != "" {
				parts = append(parts, `"`+k+`": `+v)
			}
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
	if _, err := Parse([]byte(`{"entries": [` + entry("") + `]}`)); err != nil {
		t.Fatalf("a sound file: %v", err)
	}
	for what, text := range map[string]string{
		"nothing":               "",
		"a list":                "[]",
		"an unknown field":      `{"entries": [` + entry(`scope="all"`) + `]}`,
		"an unknown member":     `{"entries": [], "version": 2}`,
		"a field twice":         `{"entries": [], "entries": []}`,
		"text behind":           `{"entries": []} {}`,
		"the same ID twice":     `{"entries": [` + entry("") + `,` + entry("") + `]}`,
		"no ID":                 `{"entries": [` + entry("id=") + `]}`,
		"no name":               `{"entries": [` + entry("name=") + `]}`,
		"neither hash":          `{"entries": [` + entry("sha256=") + `]}`,
		"hash and subject":      `{"entries": [` + entry(`subject="CN=x"`) + `]}`,
		"a short hash":          `{"entries": [` + entry(`sha256="abcd"`) + `]}`,
		"no actions":            `{"entries": [` + entry("actions=") + `]}`,
		"no topics":             `{"entries": [` + entry("topics=[]") + `]}`,
		"an unknown action":     `{"entries": [` + entry(`actions=["pop"]`) + `]}`,
		"an empty topic":        `{"entries": [` + entry(`topics=[""]`) + `]}`,
		"a star in the middle":  `{"entries": [` + entry(`topics=["a*b"]`) + `]}`,
		"two stars":             `{"entries": [` + entry(`topics=["a**"]`) + `]}`,
		"a topic that is none":  `{"entries": [` + entry(`topics=["a b"]`) + `]}`,
		"a companion of two":    `{"entries": [` + entry(`topics=["a@b@c"]`) + `]}`,
		"a companion of none":   `{"entries": [` + entry(`topics=["@b*"]`) + `]}`,
		"a companion unnamed":   `{"entries": [` + entry(`topics=["a@"]`) + `]}`,
		"a time that is none":   `{"entries": [` + entry(`expires="tomorrow"`) + `]}`,
		"the same subject live": `{"entries": [` + strings.Replace(entry("sha256="), "{", `{"subject": "CN=x",`, 1) + `,` + strings.Replace(strings.Replace(entry("sha256="), "{", `{"subject": "CN=x",`, 1), "k3wq5y7ahx", "aaaaaaaaaa", 1) + `]}`,
	} {
		if es, err := Parse([]byte(text)); !errors.Is(err, punctual.ErrInvalid) {
			t.Errorf("%s: %v, %v; want ErrInvalid", what, es, err)
		}
	}
}

// TestFileIsReadAgain: a revoked token is refused without a restart, and a file that cannot be read
// lets nobody in.
func TestFileIsReadAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.json")
	token := given(t, path)["good"]
	var logs strings.Builder
	f, err := Open(path, slog.New(slog.NewTextHandler(&logs, nil)))
	if err != nil {
		t.Fatal(err)
	}
	enter := func() error {
		es, err := f.Entries()
		if err == nil {
			_, err = es.Token(token, time.Now())
		}
		return err
	}
	until := func(what string, good func(error) bool) {
		t.Helper()
		var err error
		for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			if err = enter(); good(err) {
				return
			}
		}
		t.Fatalf("%s: still %v", what, err)
	}
	if err := enter(); err != nil {
		t.Fatalf("at first: %v", err)
	}
	refused := func(text string) func(error) bool {
		return func(err error) bool {
			return errors.Is(err, punctual.ErrUnauthenticated) && strings.Contains(err.Error(), text)
		}
	}
	let := func(err error) bool { return err == nil }

	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	until("readable by others", refused("chmod 600"))
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	until("mended", let)

	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	until("away", func(err error) bool {
		return errors.Is(err, fs.ErrNotExist) && errors.Is(err, punctual.ErrUnauthenticated)
	})
	if err := os.Rename(path+".away", path); err != nil {
		t.Fatal(err)
	}
	until("back", let)

	err = Change(path, func(es []Entry) ([]Entry, error) {
		for i := range es {
			if es[i].Name == "good" {
				es[i].Revoked = time.Now()
			}
		}
		return es, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	until("revoked", refused("revoked"))
	if strings.Contains(logs.String(), token[len(tokenPrefix)+idLength+1:]) {
		t.Error("the log holds a secret")
	}
	if n := strings.Count(logs.String(), "nobody is let in"); n != 2 {
		t.Errorf("%d lines about a file that cannot be read, want one for each time:\n%s", n, &logs)
	}
}

// Changes of the file at the same time are all kept, and a reader never sees half a file.
func TestChangesAtTheSameTime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.json")
	given(t, path)
	const n = 20
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			err := Change(path, func(es []Entry) ([]Entry, error) {
				e := Entry{Name: fmt.Sprint(i), Actions: []string{"all"}, Topics: []string{"*"}}
				NewToken(&e)
				return append(es, e), nil
			})
			if err != nil {
				t.Error(err)
			}
		})
		wg.Go(func() {
			if _, err := Open(path, slog.New(slog.DiscardHandler)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	f, err := Open(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	es, err := f.Entries()
	if err != nil || len(es.All()) != 4+n {
		t.Errorf("%d entries, %v; want %d", len(es.All()), err, 4+n)
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*"))
	if err != nil || len(left) != 1 {
		t.Errorf("files left behind: %v, %v", left, err)
	}
}

// A change that is refused, or would make a file that cannot be read, leaves the file as it was.
func TestRefusedChange(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.json")
	given(t, path)
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	no := errors.New("no")
	if err := Change(path, func([]Entry) ([]Entry, error) { return nil, no }); !errors.Is(err, no) {
		t.Errorf("a change that gives up: %v", err)
	}
	if err := Change(path, func(es []Entry) ([]Entry, error) { return append(es, es[0]), nil }); !errors.Is(err, punctual.ErrInvalid) {
		t.Errorf("the same ID twice: %v", err)
	}
	if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
		t.Errorf("the file has changed: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"entries": [{"id": "k3wq5y7ahx", "name": "x", "subject": "CN=x", "actions": ["push"], "topics": ["a*"], "created": "2026-11-22T09:00:00Z"}]}`))
	f.Add([]byte(`{"entries": []}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		es, err := Parse(text)
		if err != nil {
			return
		}
		out, err := es.text()
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse(out)
		if err != nil || len(again.All()) != len(es.All()) {
			t.Fatalf("what was written cannot be read: %v\n%s", err, out)
		}
	})
}

func FuzzToken(f *testing.F) {
	e := Entry{Name: "x", Actions: []string{"all"}, Topics: []string{"*"}}
	hash := sha256.Sum256([]byte("secret"))
	e.ID, e.SHA256 = "aaaaaaaaaa", hex.EncodeToString(hash[:])
	es, err := newEntries([]Entry{e})
	if err != nil {
		f.Fatal(err)
	}
	f.Add("punctual_aaaaaaaaaa_secret")
	f.Add("punctual_aaaaaaaaaa_")
	f.Add("punctual__")
	f.Fuzz(func(t *testing.T, token string) {
		if e, err := es.Token(token, time.Now()); (err == nil) != (token == "punctual_aaaaaaaaaa_secret") || (e == nil) != (err != nil) {
			t.Fatalf("token %q: %v, %v", token, e, err)
		}
	})
}
