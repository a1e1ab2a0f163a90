package storekit_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

func TestRequestTravelsInTheContext(t *testing.T) {
	if r, ok := storekit.RequestOf(context.Background()); ok {
		t.Errorf("a context without a request carries %v", r)
	}
	want := storekit.Request{Key: "k", NotAfter: time.Unix(1, 0)}
	if got, ok := storekit.RequestOf(storekit.WithRequest(context.Background(), want)); !ok || got != want {
		t.Errorf("got %v, %v; want %v", got, ok, want)
	}
	if r, ok := storekit.RequestOf(storekit.WithoutRequest(storekit.WithRequest(context.Background(), want))); ok {
		t.Errorf("a context without its request carries %+v", r)
	}
}

func TestCheckRequest(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name string
		r    storekit.Request
		says string
	}{
		{"only a key", storekit.Request{Key: "k"}, ""},
		{"the longest key", storekit.Request{Key: strings.Repeat("k", 128)}, ""},
		{"in time", storekit.Request{Key: "k", NotAfter: now.Add(time.Minute)}, ""},
		{"over", storekit.Request{Key: "k", NotAfter: now.Add(-time.Hour)}, ""},
		{"no key", storekit.Request{}, "no key"},
		{"too long", storekit.Request{Key: strings.Repeat("k", 129)}, "129 bytes"},
		{"a space", storekit.Request{Key: "a b"}, "byte 2"},
		{"not ASCII", storekit.Request{Key: "aé"}, "byte 2"},
		{"too far ahead", storekit.Request{Key: "k", NotAfter: now.Add(time.Minute + 1)}, "more than 1m0s ahead"},
	} {
		err := storekit.CheckRequest(c.r, now, time.Minute)
		switch {
		case c.says == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.says != "" && (!errors.Is(err, punctual.ErrInvalid) || !strings.Contains(err.Error(), c.says)):
			t.Errorf("%s: error %v; want an ErrInvalid that says %q", c.name, err, c.says)
		}
	}
}
