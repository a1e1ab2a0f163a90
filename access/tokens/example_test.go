package tokens_test

import (
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"time"

	"github.com/punctualmq/punctual/access"
	"github.com/punctualmq/punctual/access/tokens"
)

// A program lets in the holders of tokens. server.Options takes a File as its Authenticator, and
// console.Options the method Authenticate.
func Example() {
	dir, err := os.MkdirTemp("", "tokens")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "tokens.json")
	billing := tokens.Entry{Name: "billing", Actions: []string{"push"}, Topics: []string{"order.*"}, Created: time.Now()}
	token := tokens.NewToken(&billing) // for its holder, who is told once
	err = tokens.Change(path, func(all []tokens.Entry) ([]tokens.Entry, error) { return append(all, billing), nil })
	if err != nil {
		fmt.Println(err)
		return
	}
	file, err := tokens.Open(path, slog.New(slog.DiscardHandler))
	if err != nil {
		fmt.Println(err)
		return
	}
	request := httptest.NewRequest("POST", "/v1/push", nil)
	request.Header.Set("Authorization", "Bearer "+token)
	principal, err := file.Authenticate(request)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(principal.Check(access.Push, "order.close"))
	fmt.Println(principal.Check(access.Push, "mail"))
	// Output:
	// <nil>
	// billing may not push in topic "mail": not allowed
}
