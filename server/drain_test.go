package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
)

// While a server waits for load balancers a new connection learns that it is not ready, and requests are answered. When the
// store fails meanwhile, there is nothing to wait for.
func TestDrainDelay(t *testing.T) {
	store := &sick{Store: memstore.New(nil), fail: func(context.Context) error { return nil }}
	s := newServer(t, store, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	defer end()
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, &ServeOptions{DrainDelay: 24 * time.Hour}, l) }()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: waitLimit}
	ask := func(method, path string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+l.Addr().String()+path, strings.NewReader(""))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.Do(req)
		if err != nil {
			t.Fatalf("%s %s: %v", method, path, err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, string(text)
	}
	if status, body := ask("GET", "/readyz"); status != 200 {
		t.Fatalf("/readyz before the end: %d %s", status, body)
	}
	waiting := make(chan int, 1)
	go func() {
		answer, err := client.Post("http://"+l.Addr().String()+"/v1/topics/t/claim?wait=50s", "", nil)
		if err != nil {
			t.Error(err)
			waiting <- 0
			return
		}
		answer.Body.Close()
		waiting <- answer.StatusCode
	}()
	(&abused{rig: &rig{t, store.Store, s}}).awaitWaiting(1)
	end()
	if status := <-waiting; status != http.StatusNoContent {
		t.Errorf("the claim that waited is answered with %d, want 204", status)
	}
	if status, body := ask("GET", "/readyz"); status != 503 {
		t.Errorf("/readyz during the delay: %d %s, want 503", status, body)
	}
	if status, body := ask("PUT", "/v1/topics/t/messages/a"); status != 201 {
		t.Errorf("a push during the delay: %d %s, want 201", status, body)
	}
	select {
	case err := <-done:
		t.Fatalf("Serve returned during the delay: %v", err)
	default:
	}
	store.fail = func(context.Context) error { return fmt.Errorf("the disk is gone: %w", punctual.ErrStoreFailed) }
	if status, body := ask("PUT", "/v1/topics/t/messages/b"); status != 503 {
		t.Errorf("a push when the store has failed: %d %s, want 503", status, body)
	}
	if err := <-done; err != nil {
		t.Errorf("Serve = %v", err)
	}
}

// When the delay is over the port closes, and Serve returns.
func TestDrainDelayEnds(t *testing.T) {
	s := newServer(t, memstore.New(nil), nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	end()
	if err := s.Serve(ctx, &ServeOptions{DrainDelay: 10 * time.Millisecond}, l); err != nil {
		t.Errorf("Serve = %v", err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the port is still open: %v", err)
	}
}
