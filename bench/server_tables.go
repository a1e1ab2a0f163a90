package main

import (
	"fmt"
	"strings"
)

// serverTables are the tables about the server.
var serverTables = []table{
	{"server-machine", serverMachineTable},
	{"server-schedule", serverScheduleTable},
	{"server-drain", serverDrainTable},
	{"server-lateness", serverLatenessTable},
	{"server-waiting", serverWaitingTable},
}

func onServer(scenario string) bool { return strings.HasPrefix(scenario, "server/") }

func peerLabel(name string) string {
	return map[string]string{
		peerLibrary: "the store as a library", peerServer: "Punctual's server", peerHTTP: "Punctual's server, net/http alone",
		peerBeanstalk: "beanstalkd, in memory",
		peerBinlog:    "beanstalkd, -b -f0", peerNATS: "NATS JetStream",
	}[name]
}

func serverMachineTable(r run) string {
	m := r.machine
	return fmt.Sprintf("Measured %s on %d cores of %s, with %s. Others used %s of the CPU meanwhile.\n", m.Run, m.Cores, m.CPU, orUnknown(m.Peers), r.others())
}

func serverRows(works ...string) []row {
	var rows []row
	for _, w := range serverWorks() {
		for _, want := range works {
			if w.name != want {
				continue
			}
			for _, name := range w.peers() {
				rows = append(rows, row{w.about + ": " + peerLabel(name), serverName(w.name, name)})
			}
		}
	}
	return rows
}

var serverCPU = []column{
	value("CPU µs per message", "cpu_us_per_message", digits),
	value("of it the server", "server_us_per_message", digits),
	value("the clients", "clients_us_per_message", digits),
	othersColumn, roundsColumn,
}

func serverScheduleTable(r run) string {
	rows := serverRows(serverAlone, "schedule-single-16", "schedule-single-64", "schedule-batch-16", "schedule-batch-64")
	return scenarioTable(r, "scheduled by", rows, append([]column{
		value("messages/s", "rate", digits), value("call p50 ms", "call_p50_ms", digits), value("p99 ms", "call_p99_ms", digits),
	}, serverCPU...)...)
}

func serverDrainTable(r run) string {
	return scenarioTable(r, "drained", serverRows("drain"), append([]column{
		value("messages", "messages", func(v float64) string { return commas(int64(v)) }),
		value("messages/s", "rate", digits), value("first after ms", "first_ms", digits),
	}, serverCPU...)...)
}

func serverLatenessTable(r run) string {
	return scenarioTable(r, "load", serverRows("lateness-2k"), append([]column{
		value("handler start p50 ms", "start_p50_ms", digits), value("p99 ms", "start_p99_ms", digits), value("max ms", "start_max_ms", digits),
		value("early", "early_share", percent), value("by up to ms", "earliest_ms", digits),
	}, serverCPU...)...)
}

func serverWaitingTable(r run) string {
	return scenarioTable(r, "memory", serverRows(serverWaits),
		value("MB before", "rss_before_bytes", inMB), value("MB", "rss_bytes", inMB), value("bytes per client", "bytes_per_client", digits), roundsColumn)
}
