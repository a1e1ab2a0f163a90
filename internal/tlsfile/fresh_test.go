package tlsfile

import (
	"crypto/tls"
	"crypto/x509/pkix"
	"log/slog"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// TestIdleServer: connections that come at once, long after the last one, get the files as they are now, though one of them only is
// reading.
func TestIdleServer(t *testing.T) {
	a, dir := newAuthority(t), t.TempDir()
	files := Files{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
	replace := func(serial int64) {
		cert, key := a.issue(t, serial, pkix.Name{CommonName: "server"})
		write(t, files.Cert, cert)
		write(t, files.Key, key)
	}
	replace(1)
	synctest.Test(t, func(t *testing.T) {
		s := &source{files: files, log: slog.New(slog.DiscardHandler), reading: make(chan struct{}, 1)}
		first := &loaded{looked: time.Now(), stamps: files.stamps()}
		var err error
		if first.config, err = files.config(); err != nil {
			t.Fatal(err)
		}
		s.current.Store(first)
		replace(2)
		time.Sleep(time.Minute) // idle
		s.reading <- struct{}{} // the first of the connections is about to read
		got := make(chan *tls.Config, 10)
		for range cap(got) {
			go func() { got <- s.config() }()
		}
		synctest.Wait()
		if n := len(got); n > 0 {
			t.Errorf("%d connections have the files as they were a minute ago", n)
		}
		<-s.reading
		synctest.Wait()
		for range len(got) {
			if c := <-got; c == first.config {
				t.Error("a connection has the files as they were a minute ago")
			}
		}
	})
}
