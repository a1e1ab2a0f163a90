package console_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/access"
	"github.com/punctualmq/punctual/console"
	"github.com/punctualmq/punctual/memstore"
)

// A program shows the console beside its own pages, to the people that it knows by its own login.
func Example() {
	store := memstore.New(nil)
	defer store.Close()
	pages, err := console.New(store, &console.Options{
		Prefix: "/queues",
		Authenticate: func(r *http.Request) (*access.Principal, error) {
			cookie, err := r.Cookie("login") // or any other login that the program has
			if err != nil {
				return nil, fmt.Errorf("log in first: %w", punctual.ErrUnauthenticated)
			}
			may := access.Inspect
			if cookie.Value == "ann" {
				may = access.All
			}
			return &access.Principal{Name: cookie.Value, Grants: []access.Grant{{Actions: may, Topics: "*"}}}, nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pages.Close()
	mux := http.NewServeMux()
	mux.Handle("/queues/", pages)
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "the program's own page") })

	// The program gives pages.Observer() to its Queue, so that the console can show how much is
	// pushed. It would give it to a Worker, too.
	queue := punctual.NewQueue(store, &punctual.QueueConfig{Observer: pages.Observer()})
	defer queue.Close(context.Background())

	look := func(path, who string) string {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		if who != "" {
			r.AddCookie(&http.Cookie{Name: "login", Value: who})
		}
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		return fmt.Sprint(w.Code, " console: ", strings.Contains(w.Body.String(), "Punctual"))
	}
	fmt.Println(look("/", ""))
	fmt.Println(look("/queues/topics", ""))
	fmt.Println(look("/queues/topics", "bob"))
	// Output:
	// 200 console: false
	// 401 console: true
	// 200 console: true
}
