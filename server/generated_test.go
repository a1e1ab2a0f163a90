package server

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/punctualmq/punctual/memstore"
)

// A client in TypeScript that is generated from the OpenAPI description compiles and works.
func TestGeneratedClientTypeScript(t *testing.T) {
	tryGenerated(t, "testdata/typescript", [][]string{
		{"npm", "install", "--no-audit", "--no-fund"},
		{"npx", "openapi-typescript", "openapi.json", "-o", "api.d.ts"},
		{"npx", "tsc", "--strict", "--target", "es2022", "--module", "esnext", "--moduleResolution", "bundler", "--skipLibCheck", "client.ts"},
		{"node", "client.js"},
	})
}

// A client in Go that is generated from the OpenAPI description compiles and works. It is a module
// of its own, so that the go.mod of this module stays free of the generator.
func TestGeneratedClientGo(t *testing.T) {
	tryGenerated(t, "testdata/go", [][]string{
		{"go", "mod", "init", "client"},
		{"go", "run", "github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.8.2", "-generate", "types,client,skip-prune", "-package", "api", "-o", "api/api.go", "openapi.json"},
		{"go", "get", "github.com/oapi-codegen/runtime@v1.8.0"},
		{"go", "mod", "tidy"},
		{"go", "vet", "./..."},
		{"go", "run", "."},
	})
}

// tryGenerated runs commands over a copy of a folder with the description in it. The last command
// gets the URL of a server. The commands need a network, and those of TypeScript npm, so they run
// only where PUNCTUAL_TEST_NPM is set, as make client does.
func tryGenerated(t *testing.T, folder string, commands [][]string) {
	if os.Getenv("PUNCTUAL_TEST_NPM") == "" {
		t.Skip("make client has clients generated in TypeScript and Go, and tries them")
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(folder)); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "api"), 0o700); err != nil {
		t.Fatal(err)
	}
	s := newServer(t, memstore.New(nil), nil)
	if err := os.WriteFile(filepath.Join(dir, "openapi.json"), s.openAPI, 0o600); err != nil {
		t.Fatal(err)
	}
	address := serveForTest(t, s)
	for i, args := range commands {
		if i == len(commands)-1 {
			args = append(args, "http://"+address)
		}
		cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%q: %v\n%s", args, err, out)
		}
	}
}
