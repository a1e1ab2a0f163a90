// Command punctual is the command line of Punctual: see 'punctual --help'.
package main

import (
	"os"
	"runtime"
	_ "time/tzdata" // schedules and the console need time zones also in a container that has no files of them

	"github.com/punctualmq/punctual/cmd/punctual/internal/cli"
)

func main() {
	// With 2 threads, two handlers that compute keep timers and I/O waiting: p99 of the lateness
	// grew from about one millisecond to about a hundred, and with 4 threads to a few. See
	// docs/performance.md, GOMAXPROCS.
	if os.Getenv("GOMAXPROCS") == "" && runtime.GOMAXPROCS(0) < 4 {
		runtime.GOMAXPROCS(4)
	}
	os.Exit(cli.Main())
}
