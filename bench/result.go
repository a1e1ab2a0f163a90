package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sort"
)

// The file of results is lines of JSON: for each run one Machine, then its Results in the order in
// which they were measured. The names of the values tell the units: ms, us (µs), bytes and s; rates
// are per second. The other values are counts, ratios and shares, and the names that end with _cpu
// are numbers of cores, except others_cpu, which is a share.

// Machine describes where and when a run was made.
type Machine struct {
	Kind       string `json:"kind"` // "machine"
	Run        string `json:"run"`  // the run's start, RFC 3339
	Cores      int    `json:"cores"`
	CPU        string `json:"cpu"`
	MemoryGiB  int    `json:"memory_gib"`
	Kernel     string `json:"kernel"`
	Go         string `json:"go"`
	FileSystem string `json:"file_system"`
	Redis      string `json:"redis,omitempty"` // version of redis-server
	// Peers names beanstalkd and NATS, with which the server is compared, with their versions.
	Peers  string `json:"peers,omitempty"`
	Asynq  string `json:"asynq,omitempty"`  // version of asynq
	BullMQ string `json:"bullmq,omitempty"` // version of BullMQ
	// Postgres is the version of PostgreSQL, and River that of River.
	Postgres string `json:"postgres,omitempty"`
	River    string `json:"river,omitempty"`
	Sizes    sizes  `json:"sizes"`
}

// Result is what one round of a scenario measured.
type Result struct {
	Kind     string             `json:"kind"` // "result"
	Run      string             `json:"run"`
	Scenario string             `json:"scenario"`
	Round    int                `json:"round"` // from 1
	Procs    int                `json:"gomaxprocs"`
	Values   map[string]float64 `json:"values"`
	// Error tells why the round failed. A round that failed has no values.
	Error string `json:"error,omitempty"`
	// Series has curves by their names: points that were measured one after the other in the round.
	Series map[string][]point `json:"series,omitempty"`
}

type point struct {
	X float64 `json:"x"`
	Y float64 `json:"y"`
}

func (r *Result) set(name string, v float64) { r.Values[name] = v }

func (r *Result) add(series string, x, y float64) {
	if r.Series == nil {
		r.Series = make(map[string][]point)
	}
	r.Series[series] = append(r.Series[series], point{x, y})
}

// appendLine appends one value as a line of JSON to a file.
func appendLine(path string, v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	if _, err := f.Write(append(line, '\n')); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}

// run is what the file of results has of one call of bench run.
type run struct {
	machine Machine
	results []Result
}

// readRuns reads a file of results and returns its runs in the order of the file, so the oldest
// comes first.
func readRuns(path string) ([]run, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var runs []run
	byID := make(map[string]int)
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 16<<20)
	for n := 1; lines.Scan(); n++ {
		var kind struct{ Kind string }
		if err := json.Unmarshal(lines.Bytes(), &kind); err != nil {
			return nil, fmt.Errorf("%s line %d: %w", path, n, err)
		}
		switch kind.Kind {
		case "machine":
			var m Machine
			err = json.Unmarshal(lines.Bytes(), &m)
			byID[m.Run] = len(runs)
			runs = append(runs, run{machine: m})
		case "result":
			var r Result
			err = json.Unmarshal(lines.Bytes(), &r)
			i, ok := byID[r.Run]
			if !ok {
				return nil, fmt.Errorf("%s line %d: a result of run %s, which the file does not describe before it", path, n, r.Run)
			}
			runs[i].results = append(runs[i].results, r)
		default:
			return nil, fmt.Errorf("%s line %d: kind %q is neither machine nor result", path, n, kind.Kind)
		}
		if err != nil {
			return nil, fmt.Errorf("%s line %d: %w", path, n, err)
		}
	}
	return runs, lines.Err()
}

// spread is the median, the least and the greatest of a value over the rounds of a scenario.
type spread struct {
	median, min, max float64
	rounds           int
}

// over returns the spread of a value, and false if no round has it.
func (r run) over(scenario, value string) (spread, bool) {
	var vs []float64
	for _, res := range r.results {
		if v, ok := res.Values[value]; ok && res.Scenario == scenario {
			vs = append(vs, v)
		}
	}
	if len(vs) == 0 {
		return spread{}, false
	}
	sort.Float64s(vs)
	mid := len(vs) / 2
	s := spread{median: vs[mid], min: vs[0], max: vs[len(vs)-1], rounds: len(vs)}
	if len(vs)%2 == 0 {
		s.median = (vs[mid-1] + vs[mid]) / 2
	}
	return s, true
}
