package pgstore

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/punctualmq/punctual"
)

func TestParseURL(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("from file\nmore"), 0o600); err != nil {
		t.Fatal(err)
	}
	var o Options
	c, err := parseURL("postgres://me:secret@one:1,two:2/shop?schema=q&durability=fsync&pool_max_conns=7&password-file="+file, &o)
	if err != nil {
		t.Fatal(err)
	}
	conn := c.ConnConfig
	if o.Schema != "q" || o.Durability != punctual.Fsync || c.MaxConns != 7 || conn.Host != "one" || conn.Database != "shop" || conn.Password != "from file" {
		t.Errorf("parsed %+v, %d connections, host %s, database %s, password %q", o, c.MaxConns, conn.Host, conn.Database, conn.Password)
	}
	if conn.ValidateConnect == nil || len(conn.RuntimeParams) > 0 {
		t.Errorf("with two hosts any is used, or the server gets %v", conn.RuntimeParams)
	}
	for _, bad := range []string{
		"mysql://me:secret@h/d", "postgres:h", "postgres://me:secret@h:port/d", "postgres://me:secret@h/d?durability=some",
		"postgres://me:secret@h/d?password-file=/nowhere/at/all", "postgres://me:secret@h/d?%zz", "postgres://me:secret@h/d?schema=a&schema=b",
	} {
		if _, err := parseURL(bad, &Options{}); !errors.Is(err, punctual.ErrInvalid) || strings.Contains(err.Error(), "secret") {
			t.Errorf("parse of %s: %v; want invalid, without the password", bad, err)
		}
	}
}
