package main

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// Scheduling and the drain run with several systems, and have the values that the tables show.
func TestServerRun(t *testing.T) {
	if testing.Short() {
		t.Skip("starts servers and processes")
	}
	only := `^server/((schedule-batch-16|drain)/(punctual|nats|beanstalkd)|schedule-single-1/(library|punctual|http|nats))$`
	systems := []string{peerServer, peerNATS, peerBeanstalk}
	if _, err := exec.LookPath("beanstalkd"); err != nil {
		only, systems = `^server/((schedule-batch-16|drain)/(punctual|nats)|schedule-single-1/(library|punctual|http|nats))$`, systems[:2]
	}
	o := runOptions{
		dir: filepath.Join(t.TempDir(), "data"), results: filepath.Join(t.TempDir(), "r.ndjson"), rounds: 1, sizes: tinySizes(),
		only: mustCompile(only),
	}
	var progress lockedText
	if err := runAll(t.Context(), o, &progress); err != nil {
		t.Fatalf("%v\n%s", err, progress.String())
	}
	runs, err := readRuns(o.results)
	if err != nil {
		t.Fatal(err)
	}
	for work, values := range map[string][]string{
		"schedule-batch-16": {"rate", "call_p99_ms", "server_us_per_message"},
		"drain":             {"rate", "first_ms", "cpu_us_per_message"},
	} {
		for _, system := range systems {
			for _, v := range append(values, "others_cpu") {
				if _, ok := runs[0].over(serverName(work, system), v); !ok {
					t.Errorf("%s has no value %s", serverName(work, system), v)
				}
			}
		}
	}
	for _, system := range []string{peerLibrary, peerServer, peerHTTP, peerNATS} {
		for _, v := range []string{"rate", "call_p50_ms", "server_us_per_message", "clients_us_per_message", "others_cpu"} {
			if _, ok := runs[0].over(serverName(serverAlone, system), v); !ok {
				t.Errorf("%s has no value %s", serverName(serverAlone, system), v)
			}
		}
	}
}
