package console

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/url"
	"testing"
	"time"
)

// TestSeldom: of many lines in a minute only linesAMinute are logged, and the first line of the
// next minute says how many were left out.
func TestSeldom(t *testing.T) {
	var s seldom
	now, said := time.Unix(0, 0).Add(time.Hour), 0
	for range 1000 {
		if say, silent := s.count(now); say {
			said++
			if silent != 0 {
				t.Errorf("%d lines were left out before the first one that was", silent)
			}
		}
	}
	if said != linesAMinute {
		t.Errorf("%d of 1000 lines in an instant are logged; want %d", said, linesAMinute)
	}
	if say, silent := s.count(now.Add(time.Minute)); !say || silent != 1000-linesAMinute {
		t.Errorf("a minute later: %v, %d left out; want %d", say, silent, 1000-linesAMinute)
	}
}

// TestFailedLogins: somebody who tries many tokens cannot fill the log.
func TestFailedLogins(t *testing.T) {
	var logs bytes.Buffer
	r := newRig(t, &Options{Authenticate: people().authenticate, LoginByToken: true, Logger: slog.New(slog.NewTextHandler(&logs, nil))})
	b := r.browser()
	b.send(http.MethodGet, "/login", nil)
	for range 3 * linesAMinute {
		if a := b.submit("/login", url.Values{"token": {"wrong"}}); a.Code != http.StatusUnauthorized {
			t.Fatalf("status %d", a.Code)
		}
	}
	if n := bytes.Count(logs.Bytes(), []byte("nobody was logged in")); n == 0 || n > 2*linesAMinute { // a minute may end meanwhile
		t.Errorf("%d failed logins made %d lines; want %d", 3*linesAMinute, n, linesAMinute)
	}
}
