package cli

import (
	"context"
	"errors"
	"io"
)

// batchBytes bounds a batch of what is read from standard input, and so the memory.
const batchBytes = 8 << 20

// inBatches reads items with read, and meanwhile calls f with those that have come since its last call, at most the number most. So a single
// item is worked on at once, and a fast input in large batches. read calls put for each item with its size in bytes, and ends when put
// returns false; io.EOF is the end of the input. When ctx ends, the call of f under way is finished. inBatches returns the error of f, of
// read or of ctx.
func inBatches[T any](ctx context.Context, most int, read func(put func(item T, size int) bool) error, f func(context.Context, []T) error) error {
	type sized struct {
		item T
		size int
	}
	items, batches := make(chan sized), make(chan []T)
	gone, leave := context.WithCancel(context.Background())
	defer leave()
	var end error // of read; set before items is closed
	// A read from a terminal or pipe cannot be interrupted: when ctx ends, this goroutine stays behind in it until the process ends.
	go func() {
		defer close(items)
		end = read(func(item T, size int) bool {
			select {
			case items <- sized{item, size}:
				return true
			case <-gone.Done():
				return false
			}
		})
	}()
	go func() {
		defer close(batches)
		var batch []T
		size := 0
		for in := items; in != nil || len(batch) > 0; {
			from, to := in, batches
			if len(batch) == most || size >= batchBytes {
				from = nil
			}
			if len(batch) == 0 {
				to = nil
			}
			select {
			case i, more := <-from:
				if !more {
					in = nil
					continue
				}
				batch, size = append(batch, i.item), size+i.size
			case to <- batch:
				batch, size = nil, 0
			case <-gone.Done():
				return
			}
		}
	}()
	for ctx.Err() == nil {
		select {
		case batch, more := <-batches:
			if !more && errors.Is(end, io.EOF) {
				return nil
			}
			if !more {
				return end
			}
			if err := f(context.WithoutCancel(ctx), batch); err != nil {
				return err
			}
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}
