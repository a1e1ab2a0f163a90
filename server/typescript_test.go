package server

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/punctualmq/punctual/memstore"
)

// A client in another language, generated from the description, compiles and works. It needs npm and a network, so it
// has to be asked for.
func TestGeneratedClient(t *testing.T) {
	if os.Getenv("PUNCTUAL_TEST_NPM") == "" {
		t.Skip("make client has npm generate a client in TypeScript, and tries it")
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/typescript")); err != nil {
		t.Fatal(err)
	}
	s := newServer(t, memstore.New(nil), nil)
	if err := os.WriteFile(filepath.Join(dir, "openapi.json"), s.openAPI, 0o600); err != nil {
		t.Fatal(err)
	}
	address := serveForTest(t, s)
	for _, args := range [][]string{
		{"npm", "install", "--no-audit", "--no-fund"},
		{"npx", "openapi-typescript", "openapi.json", "-o", "api.d.ts"},
		{"npx", "tsc", "--strict", "--target", "es2022", "--module", "esnext", "--moduleResolution", "bundler", "--skipLibCheck", "client.ts"},
		{"node", "client.js", "http://" + address},
	} {
		cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%q: %v\n%s", args, err, out)
		}
	}
}
