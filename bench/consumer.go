package main

import (
	"context"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// consumerVerb is the verb of a consumer, a process that handles the messages of one system. A
// round starts as many as its scenario says. A consumer runs until its standard input ends, and
// then writes what it handled into a file.
const consumerVerb = "consumer"

// consumerTask says which system's messages a consumer handles, and how.
type consumerTask struct {
	System string `json:"system"`
	Addr   string `json:"addr"`
	Slots  int    `json:"slots"` // concurrency; the reference takes that many messages at a time
	// Topics is how many numbered topics the consumer serves; 0 stands for the one topic that most
	// scenarios have.
	Topics int `json:"topics,omitempty"`
	// Instant is when the reference begins to take messages, because it does not look at due times.
	// The other systems ignore Instant.
	Instant time.Time `json:"instant"`
	// Records is the file into which the consumer writes its records.
	Records string `json:"records"`
}

// consumerReport is one line from a consumer.
type consumerReport struct {
	Ready   bool          `json:"ready,omitempty"`
	Handled int64         `json:"handled,omitempty"` // so far
	Done    bool          `json:"done,omitempty"`
	CPU     time.Duration `json:"cpu,omitempty"` // CPU time of the consumer since it was ready; only with Done
}

// record is one delivery.
type record struct {
	Seq uint32
	Due time.Time
	At  time.Time // when the handler started
}

// records are what this process handled.
type records struct {
	more chan struct{} // holds a value when something was handled that was not reported yet; nil where nothing is reported
	mu   sync.Mutex
	list []record // guarded by mu
	bad  error    // guarded by mu: the errors of all bodies that are not those of letters
}

func (r *records) handle(body []byte) {
	now := time.Now()
	l, err := parseLetter(body)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.bad = errors.Join(r.bad, err)
		return
	}
	r.list = append(r.list, record{l.seq, l.due, now})
	select {
	case r.more <- struct{}{}:
	default:
	}
}

func (r *records) count() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return int64(len(r.list))
}

// tellEvery is how long a consumer waits at least between two reports of how many messages it has
// handled.
const tellEvery = 20 * time.Millisecond

func consumerCommand(ctx context.Context, args []string, stdin io.Reader, stdout io.Writer) error {
	if len(args) != 1 {
		return errors.New("consumer is for the bench itself: use bench run")
	}
	var t consumerTask
	if err := json.Unmarshal([]byte(args[0]), &t); err != nil {
		return fmt.Errorf("consumer: %w", err)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, stdin) // the consumer ends when standard input ends, and also when reading it fails
		stop()
	}()
	if err := runConsumer(ctx, t, stdout); err != nil {
		return fmt.Errorf("consumer of %s: %w", t.System, err)
	}
	return nil
}

func runConsumer(ctx context.Context, t consumerTask, stdout io.Writer) error {
	lines := json.NewEncoder(stdout)
	handled := records{more: make(chan struct{}, 1)}
	var begin time.Duration
	var telling sync.WaitGroup
	told := make(chan struct{})
	var tellErr error // written until telling is done, read after that
	ready := func() {
		begin, tellErr = cpuTime()
		tellErr = errors.Join(tellErr, lines.Encode(consumerReport{Ready: true}))
		telling.Go(func() { tellErr = errors.Join(tellErr, handled.tell(lines, told)) })
	}
	err := consume(ctx, t, ready, handled.handle)
	if err == nil {
		<-ctx.Done() // the reference returns before ctx ends, when nothing is left, and has to wait here
	}
	close(told)
	telling.Wait()
	end, cerr := cpuTime()
	if err = errors.Join(err, tellErr, cerr, handled.bad); err != nil {
		return err
	}
	if err := handled.save(t.Records); err != nil {
		return err
	}
	return lines.Encode(consumerReport{Done: true, CPU: end - begin})
}

// tell reports how many messages were handled, each time there are more, until over is closed.
// While nothing is handled it waits for more, so that an idle consumer uses no CPU time for
// reports.
func (r *records) tell(lines *json.Encoder, over <-chan struct{}) error {
	for {
		select {
		case <-over:
			return nil
		case <-r.more:
		}
		if err := lines.Encode(consumerReport{Handled: r.count()}); err != nil {
			return err
		}
		select {
		case <-over:
			return nil
		case <-time.After(tellEvery):
		}
	}
}

func (r *records) save(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(gob.NewEncoder(f).Encode(r.list), f.Close())
}

func readRecords(path string) (list []record, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	err = gob.NewDecoder(f).Decode(&list)
	return list, errors.Join(err, f.Close())
}
