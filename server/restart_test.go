package server

import (
	"context"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/punctualmq/punctual/diskstore"
)

// One PUT that a hundred clients send, across a restart of the server and of its store, is one
// message. Each client sends it until it is answered, because a PUT with an ID may be sent again
// when its answer was lost.
func TestOnePutAcrossARestart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	address := "127.0.0.1:0"
	begin := func() (end func()) {
		t.Helper()
		store, err := diskstore.Open(dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		address = l.Addr().String()
		ctx, stop := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- newServer(t, store, nil).Serve(ctx, nil, l) }()
		return func() {
			t.Helper()
			stop()
			if err := <-done; err != nil {
				t.Error(err)
			}
			if err := store.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	end := begin()
	url := "http://" + address + "/v1/topics/t/messages/a?in=1h"
	var created, kept, unanswered counter
	answered := make(chan struct{}, 100)
	restarted := make(chan struct{})
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			if i >= 50 { // half of the clients begin when the first server has ended
				<-restarted
			}
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: waitLimit}
			for deadline := time.Now().Add(waitLimit); ; {
				req, err := http.NewRequest(http.MethodPut, url, strings.NewReader("x"))
				if err != nil {
					t.Error(err)
					return
				}
				answer, err := client.Do(req)
				if err != nil {
					unanswered.n.Add(1)
					if time.Now().After(deadline) {
						t.Errorf("no answer: %v", err)
						return
					}
					continue
				}
				answer.Body.Close()
				switch answer.StatusCode {
				case http.StatusCreated:
					created.n.Add(1)
				case http.StatusOK:
					kept.n.Add(1)
				default:
					t.Errorf("status %d", answer.StatusCode)
				}
				answered <- struct{}{}
				return
			}
		})
	}
	<-answered
	end()
	close(restarted)
	for unanswered.n.Load() == 0 { // until a client has met the closed port
		time.Sleep(time.Millisecond)
	}
	end = begin()
	all.Wait()
	end()
	t.Logf("created %d times, kept %d, without an answer %d", created.n.Load(), kept.n.Load(), unanswered.n.Load())
	if created.n.Load() != 1 || kept.n.Load() != 99 {
		t.Errorf("P7: created %d times and kept %d, want 1 and 99", created.n.Load(), kept.n.Load())
	}
	store, err := diskstore.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if stats, err := store.Stats(t.Context(), "t"); err != nil || stats.Live() != 1 {
		t.Errorf("%d messages, %v; want 1", stats.Live(), err)
	}
}
