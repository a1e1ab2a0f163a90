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

// TestIdleServer: connections that come at the same time, long after the last one, all get the
// files as they are now.
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
		config, err := Config(files, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		replace(2)
		time.Sleep(time.Minute) // idle
		got := make(chan *tls.Config, 10)
		for range cap(got) {
			go func() {
				c, _ := config.GetConfigForClient(nil) // never fails
				got <- c
			}()
		}
		synctest.Wait()
		for range cap(got) {
			if c := <-got; c.Certificates[0].Leaf.SerialNumber.Int64() != 2 {
				t.Error("a connection has the files as they were a minute ago")
			}
		}
	})
}
