package redisstore

import (
	"errors"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/punctualmq/punctual"
	redisrig "github.com/punctualmq/punctual/internal/rigs/redis"
)

func TestParseURL(t *testing.T) {
	tests := map[string]address{
		"redis://localhost":                           {hosts: []string{"localhost:6379"}},
		"redis://10.0.0.1:7000/3":                     {hosts: []string{"10.0.0.1:7000"}, database: 3},
		"redis://[::1]:7000/":                         {hosts: []string{"[::1]:7000"}},
		"redis://[fe80::1%eth0]:7000":                 {hosts: []string{"[fe80::1%eth0]:7000"}},
		"redis://[::1]":                               {hosts: []string{"[::1]:6379"}},
		"rediss://ann:s%40%3A%2F@db.example.com":      {tls: true, user: "ann", password: "s@:/", hosts: []string{"db.example.com:6379"}},
		"redis://:secret@db":                          {password: "secret", hosts: []string{"db:6379"}},
		"redis://a:p@ss@db":                           {user: "a", password: "p@ss", hosts: []string{"db:6379"}},
		"redis+sentinel://a,b:1234/main":              {kind: "sentinel", hosts: []string{"a:26379", "b:1234"}, primary: "main"},
		"redis+sentinel://a/main/2":                   {kind: "sentinel", hosts: []string{"a:26379"}, primary: "main", database: 2},
		"rediss+cluster://u:p@a,b:7001,c?prefix=shop": {kind: "cluster", tls: true, user: "u", password: "p", hosts: []string{"a:6379", "b:7001", "c:6379"}},
	}
	for text, want := range tests {
		got, err := parseURL(text)
		got.query = nil
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("parseURL(%q) = %+v, %v; want %+v", text, got, err, want)
		}
	}
}

// Bad URLs are refused before anything is dialled. Their errors tell no part of a password, also
// where its special characters are not escaped or the host behind it is forgotten.
func TestBadURLs(t *testing.T) {
	password := regexp.MustCompile(`\b(secret|sec|cret|ret)\b`)
	for _, text := range []string{
		"", "redis:", "http://a", "redis+tls://u:secret@a", "redis+://a", "redis://", "redis://u:secret@", "redis://u:secret@a,b", "redis://a:99999", "redis://a:b", "redis://u:sec%zzret@a",
		"redis://a/x", "redis://a/-1", "redis+sentinel://u:secret@a", "redis+sentinel://a/", "redis+sentinel://a/main/x", "redis+cluster://u:secret@a,b/1", "redis+cluster://a,,b",
		"redis://u:secret@a?prefx=b", "redis://u:secret@a?durability=most", "redis://a?%zz", "redis://u:secret@a?prefix=b&prefix=c",
		"redis://u:sec?ret@a", "redis://u:9?sec=ret@a", "redis://u:9?secret@a", "redis://:p@sec?prefix=ret@a", "redis://u:9?password-file=secret@a",
		"redis://u:secret", "redis://u:secret/1", "redis://u:se:cret",
	} {
		s, err := OpenURL(t.Context(), text, nil)
		if !errors.Is(err, punctual.ErrInvalid) || s != nil {
			t.Errorf("OpenURL(%q) = %v; want ErrInvalid", text, err)
			continue
		}
		if password.MatchString(err.Error()) {
			t.Errorf("OpenURL(%q) tells the password: %v", text, err)
		}
	}
}

func TestOpenURL(t *testing.T) {
	server := redisrig.Start(t)
	do(t, server, "CONFIG", "SET", "requirepass", "s@cret")
	open := func(text string, o *Options) *Store {
		s, err := OpenURL(t.Context(), text, o)
		if err != nil {
			t.Fatalf("OpenURL(%q): %v", text, err)
		}
		closeAtEnd(t, s.Close)
		return s
	}
	url := "redis://:s%40cret@" + server.Addr
	if _, err := OpenURL(t.Context(), url, &Options{MustExist: true}); !errors.Is(err, punctual.ErrNotFound) {
		t.Errorf("open of a store that must exist and does not = %v; want ErrNotFound", err)
	}
	s := open(url, nil)
	push(t, s, punctual.NewMessage{ID: "x", Delay: time.Hour})
	if _, err := open(url, &Options{MustExist: true}).Get(t.Context(), "orders", "x"); err != nil {
		t.Errorf("the same URL again: %v", err)
	}
	for _, other := range []string{url + "/1", url + "?prefix=other:"} {
		if _, err := open(other, nil).Get(t.Context(), "orders", "x"); !errors.Is(err, punctual.ErrNotFound) {
			t.Errorf("another database or prefix shows the message: %v", err)
		}
	}
	for text, want := range map[string]error{
		url + "?durability=fsync":         punctual.ErrDurability,
		"redis://" + server.Addr:          punctual.ErrUnsupported,
		"redis://:wrong@" + server.Addr:   punctual.ErrUnsupported,
		"redis://nobody:x@" + server.Addr: punctual.ErrUnsupported,
	} {
		if _, err := OpenURL(t.Context(), text, nil); !errors.Is(err, want) {
			t.Errorf("OpenURL(%q) = %v; want %v", text, err, want)
		}
	}
}

// A client for something else than a store takes the same URLs, without the options of a store.
func TestConnect(t *testing.T) {
	for _, text := range []string{"", "http://h", "redis+sentinel://h", "redis://u:secret@h/x", "redis://u:secret@h?prefix=a", "redis://h?durability=fsync", "redis://h?replicas=1"} {
		if c, err := Connect(text); !errors.Is(err, punctual.ErrInvalid) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v, %v; want an ErrInvalid without the password", text, c, err)
		}
	}
	for _, text := range []string{"redis://u:p@h:1/2", "rediss://h", "redis+sentinel://u:p@h,i:1/main/2", "redis+cluster://h,i:1"} {
		c, err := Connect(text)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// An address that does not answer is reported after the dials of a few tries, not after five times
// as many.
func TestDialsOfURLs(t *testing.T) {
	for _, text := range []string{"redis://a", "redis+sentinel://a/main", "redis+cluster://a,b"} {
		client, _, err := connectURL(text, nil)
		if err != nil {
			t.Fatal(err)
		}
		closeAtEnd(t, client.Close)
		got := 0
		switch c := client.(type) {
		case *redis.Client:
			got = c.Options().DialerRetries
		case *redis.ClusterClient:
			got = c.Options().DialerRetries
		}
		if got != 1 {
			t.Errorf("%s: each try dials %d times; want 1", text, got)
		}
	}
}
