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

// A consumer is a process that handles the messages of one system. A round starts as many as
// it compares; each notes what it handled in a file, and lives until its standard input ends.
const consumerVerb = "consumer"

// consumerTask is what a consumer is to do.
type consumerTask struct {
	System string `json:"system"`
	Addr   string `json:"addr"`
	Slots  int    `json:"slots"` // concurrency; for the reference the size of its batches
	// Topics is how many numbered topics it serves; 0 stands for the usual one.
	Topics int `json:"topics,omitempty"`
	// Instant is when the reference begins to take; the others know by themselves.
	Instant time.Time `json:"instant"`
	// Records is the file for what was handled.
	Records string `json:"records"`
}

// consumerReport is one line from a consumer.
type consumerReport struct {
	Ready   bool          `json:"ready,omitempty"`
	Handled int64         `json:"handled,omitempty"` // so far
	Done    bool          `json:"done,omitempty"`
	CPU     time.Duration `json:"cpu,omitempty"` // from ready to done
}

// record is one delivery.
type record struct {
	Seq uint32
	Due time.Time
	At  time.Time // when the handler started
}

// records are what this process handled.
type records struct {
	more chan struct{} // holds one: there is more to tell
	mu   sync.Mutex
	list []record // guarded by mu
	bad  error    // guarded by mu: the first body that is none of a letter
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

// tellEvery is how often a consumer tells how many it has handled.
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
		_, _ = io.Copy(io.Discard, stdin) // however it ends, it ends the consumer
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
	var tellErr error // written before telling is done
	ready := func() {
		begin, tellErr = cpuTime()
		tellErr = errors.Join(tellErr, lines.Encode(consumerReport{Ready: true}))
		telling.Go(func() { tellErr = errors.Join(tellErr, handled.tell(lines, told)) })
	}
	err := consume(ctx, t, ready, handled.handle)
	if err == nil {
		<-ctx.Done() // the reference is done before that
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

// tell tells how many were handled, when there are more, until over is closed. An idle consumer does not wake for it.
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
