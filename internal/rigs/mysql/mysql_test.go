package mysqlrig

import (
	"os"
	"testing"
)

var shared *Server

func TestMain(m *testing.M) { os.Exit(Run(m, &shared, func() error { return nil })) }

// A test gets a database of its own on a server that answers, and which has ended after Kill.
func TestServer(t *testing.T) {
	s, err := Launch(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Kill(); err != nil {
			t.Error(err)
		}
	})
	for _, server := range []*Server{shared, s} {
		got, err := server.Do(server.Database(t), "create table t (n int)", "insert into t values (7)", "select n from t", "select 8")
		if err != nil || got != "7 8" {
			t.Errorf("the server says %q: %v", got, err)
		}
	}
}
