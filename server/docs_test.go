package server

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/storekit"
)

// The examples of docs/server.md, but for those of the command punctual, print in a shell what the
// page says.
func TestDocsExamples(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Fatalf("the examples need curl: install it (%v)", err)
	}
	page, err := os.ReadFile("../docs/server.md")
	if err != nil {
		t.Fatal(err)
	}
	address := serveForTest(t, newServer(t, memstore.New(nil), nil))
	shell := &shell{T: t, dir: t.TempDir(), address: address, token: "none"}
	if err := os.WriteFile(filepath.Join(shell.dir, "body.bin"), []byte("\xff\x00"), 0o600); err != nil {
		t.Fatal(err)
	}
	examples := 0
	for _, block := range consoleBlock.FindAllStringSubmatch(string(page), -1) {
		for _, example := range strings.Split("\n"+block[1], "\n$ ")[1:] {
			command, want, _ := strings.Cut(example, "\n")
			if strings.HasPrefix(command, "punctual ") {
				continue // TestServe in cmd/punctual/internal/cli runs the command
			}
			examples++
			if got := shell.run(command); !like(want).MatchString(got) {
				t.Fatalf("$ %s\nprints\n%s\nthe page says\n%s", command, got, want)
			}
		}
	}
	if examples < 15 {
		t.Errorf("%d examples were found: has the page's form changed?", examples)
	}
}

// The table of statuses in docs/server.md and its translation has each code beside the status that
// the server answers it with, once, and says whether the operation may have happened as the server
// does.
func TestDocsStatuses(t *testing.T) {
	want := map[string]string{}
	for _, code := range wire.Codes() {
		want[code] = fmt.Sprint(wire.StatusOf(code))
	}
	definite := map[string]bool{"canceled": true, "deadline": true}
	for _, k := range storekit.ErrorKinds() {
		definite[k.Code] = k.Definite
		if want[k.Code] == "" {
			t.Errorf("%s has no status of its own", k.Code)
		}
	}
	for file, unknown := range map[string]string{"server.md": "not known", "server.zh-CN.md": "不确定"} {
		page, err := os.ReadFile("../docs/" + file)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, row := range statusRow.FindAllStringSubmatch(string(page), -1) {
			for _, code := range strings.Split(row[2], ", ") {
				code = strings.Trim(code, "`")
				if got[code] != "" {
					t.Errorf("%s has the code %s twice", file, code)
				}
				got[code] = row[1]
				if (row[3] == unknown) == definite[code] {
					t.Errorf("%s says of %s %q; definite is %v", file, code, row[3], definite[code])
				}
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s has\n%v\nthe server\n%v", file, got, want)
		}
	}
}

var statusRow = regexp.MustCompile("(?m)^\\| (\\d{3}) \\| ((?:`[a-z_]+`(?:, )?)+) \\| (.*) \\|$")

var consoleBlock = regexp.MustCompile("(?s)```console\n(.*?)```")

// like matches what an example prints. In want … stands for anything up to the end of its line or
// the text behind it.
func like(want string) *regexp.Regexp {
	return regexp.MustCompile(`^` + strings.ReplaceAll(regexp.QuoteMeta(strings.TrimSpace(want)), "…", `.*`) + `$`)
}

// shell runs the examples one after the other, with the token of the last claim in $TOKEN.
type shell struct {
	*testing.T
	dir, address, token string
}

var tokenOfAnswer = regexp.MustCompile(`"token":"(\d+)"`)

func (s *shell) run(command string) string {
	s.Helper()
	command = strings.ReplaceAll(command, "localhost:7878", s.address)
	command = strings.ReplaceAll(command, "curl ", "curl -sS --noproxy '*' ")
	cmd := exec.CommandContext(s.Context(), "sh", "-c", command)
	cmd.Dir, cmd.Env = s.dir, append(os.Environ(), "TOKEN="+s.token)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		s.Fatalf("$ %s\n%v\n%s%s", command, err, out, errs.Bytes())
	}
	if m := tokenOfAnswer.FindSubmatch(out); m != nil {
		s.token = string(m[1])
	}
	return strings.TrimSpace(strings.ReplaceAll(string(out), "\r", ""))
}

// serveForTest serves on a loopback address until the end of the test.
func serveForTest(t *testing.T, s *Server) (address string) {
	t.Helper()
	return serveWith(t, s, nil)
}

func serveWith(t *testing.T, s *Server, o *ServeOptions) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- s.Serve(ctx, o, l) }()
	t.Cleanup(func() {
		end()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}
