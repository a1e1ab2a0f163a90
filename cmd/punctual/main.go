// Command punctual is the command line of Punctual: see 'punctual --help'.
package main

import (
	"os"
	"runtime"
	_ "time/tzdata" // the console shows times in zones that a container without files does not know

	"github.com/punctualmq/punctual/internal/cli"
)

func main() {
	// With 2 threads two busy handlers keep timers and I/O waiting: p99 lateness went from
	// milliseconds to seconds, and came back with 4; see docs/performance.md.
	if os.Getenv("GOMAXPROCS") == "" && runtime.GOMAXPROCS(0) < 4 {
		runtime.GOMAXPROCS(4)
	}
	os.Exit(cli.Main())
}
