package ledger

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"sync"
)

// A Journal is a file of lines that outlives the process that writes it: once Write has returned,
// the operating system has the line. Several processes may append to one journal; the order of its
// lines is that of their writes.
//
// Each line begins with a record separator and ends with a line feed (RFC 7464). A line that a kill
// has torn has no line feed before the next separator and is left out: nobody acted on it.
type Journal struct {
	mu   sync.Mutex
	file *os.File // guarded by mu
}

const recordSeparator = 0x1e

// OpenJournal opens a journal for appending.
func OpenJournal(path string) (*Journal, error) {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	return &Journal{file: f}, nil
}

// Write is Append for the lines of a Recorder.
func (j *Journal) Write(e Line) { j.Append(e) }

// Append appends a value as a line. It panics when it cannot, because the caller would go on with a
// call that nobody knows of.
func (j *Journal) Append(v any) {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	text = append(append([]byte{recordSeparator}, text...), '\n')
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, err := j.file.Write(text); err != nil {
		panic(err)
	}
}

// ReadJournal hands the lines of a journal, each of which has a T, to take, in their order.
func ReadJournal[T any](path string, take func(T)) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read journal: %w", err)
	}
	for i, record := range bytes.Split(text, []byte{recordSeparator}) {
		if i == 0 && len(record) == 0 || len(record) == 0 || record[len(record)-1] != '\n' {
			continue
		}
		var e T
		if err := json.Unmarshal(record, &e); err != nil {
			return fmt.Errorf("journal %s: record %d: %w", path, i, err)
		}
		take(e)
	}
	return nil
}

// DumpLines writes a history to a new file, so that one can read what broke a promise, and returns
// the name of the file. Its first line is line 1 of the ledger's reports. The crashes that the
// ledger was told of besides are not in it.
func DumpLines(lines []Line) (string, error) {
	f, err := os.CreateTemp("", "punctual-history-*.jsonl")
	if err != nil {
		return "", fmt.Errorf("dump of a history: %w", err)
	}
	enc := json.NewEncoder(f)
	for _, e := range lines {
		if err := enc.Encode(e); err != nil {
			return "", fmt.Errorf("dump of a history: %w", err)
		}
	}
	return f.Name(), f.Close()
}
