package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/cmd/punctual/internal/cli/term"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
)

const (
	// maxLine bounds a line of input: twice a body, for its escapes, and room for the rest.
	maxLine = 2*limits.DefaultMaxBody + 64<<10
	// batchLines bounds a batch.
	batchLines = 1000
)

// lineJSON is one line of input: an item as the HTTP interface takes it, or what list prints.
type lineJSON struct {
	wire.PushItem
	// The other members that list prints, so that its lines can be pushed. State has to be one that
	// can be pushed; the members behind it are ignored.
	Expires         wire.Time `json:"expires,omitzero"`
	State           string    `json:"state,omitzero"`
	FirstDue        any       `json:"first_due,omitzero"`
	Created         any       `json:"created,omitzero"`
	Attempt         any       `json:"attempt,omitzero"`
	LeaseUntil      any       `json:"lease_until,omitzero"`
	Waiting         any       `json:"waiting,omitzero"`
	CancelRequested any       `json:"cancel_requested,omitzero"`
	Died            any       `json:"died,omitzero"`
	Reason          any       `json:"reason,omitzero"`
	Failures        any       `json:"failures,omitzero"`
	Next            any       `json:"next,omitzero"`
}

// inputLine is one line read: a message, or why it was refused.
type inputLine struct {
	number int64
	end    int64 // how many bytes the input has up to the end of the line
	m      punctual.NewMessage
	err    error
}

func (a *app) pushLines(ctx context.Context, args []string, f *pushFlags) error {
	topic := strings.Join(args, "")
	if topic != "" {
		if err := storekit.CheckTopic(topic); err != nil {
			return err
		}
	}
	return a.withStore(ctx, orCreate, func(s punctual.Store) error {
		p := linePusher{app: a, store: s, size: sizeOf(a.in)}
		p.bar = a.newBar(p.message(), p.size)
		read := func(put func(inputLine, int) bool) error { return readLines(a.in, topic, f, put) }
		err := p.end(inBatches(ctx, batchLines, read, p.push))
		p.bar.Stop(err)
		return err
	})
}

// message is the text beside the bar. The bar itself counts messages, or the bytes of the input if
// that is a file.
func (p *linePusher) message() string {
	if p.size == 0 {
		return "pushed"
	}
	return fmt.Sprintf("pushed %d", p.stored)
}

func (p *linePusher) update(end int64) {
	if p.size == 0 {
		end = p.stored
	}
	p.bar.Update(end, p.message())
}

// sizeOf returns how many bytes of a file are still to be read, and 0 for anything else.
func sizeOf(in io.Reader) int64 {
	f, ok := in.(*os.File)
	if !ok {
		return 0
	}
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return 0
	}
	at, err := f.Seek(0, io.SeekCurrent)
	if err != nil {
		return 0
	}
	return max(0, info.Size()-at)
}

// linePusher pushes batches of lines and counts what became of them.
type linePusher struct {
	*app
	store          punctual.Store
	size           int64 // of the input, in bytes; 0 if it is not a file
	bar            *term.Bar
	stored         int64
	kept           int64 // of stored: the ID was in use, and the first message was kept
	inUse, refused int64 // refused because the ID was in use; for any other reason
}

// end returns the command's error. err is what ended the run before its last line, or nil.
func (p *linePusher) end(err error) error {
	switch {
	case err == nil:
		return p.result()
	case p.stored == 0:
		return err
	}
	return soFar(err, true, "messages stored before that: %d", p.stored)
}

// push stores one batch. It prints a line for each message that was stored, in the order of the
// input, and reports the others.
func (p *linePusher) push(ctx context.Context, batch []inputLine) error {
	var ms []punctual.NewMessage
	for _, l := range batch {
		if l.err == nil {
			ms = append(ms, l.m)
		}
	}
	var results []punctual.PushResult
	if len(ms) > 0 {
		var err error
		if results, err = p.store.Push(ctx, ms); err != nil {
			return fmt.Errorf("lines %d to %d: %w", batch[0].number, batch[len(batch)-1].number, err)
		}
	}
	var out bytes.Buffer
	for _, l := range batch {
		if l.err == nil {
			l.err, results = p.answer(&out, results[0]), results[1:]
		}
		if l.err != nil {
			if err := p.refuse(l); err != nil {
				return err
			}
		}
	}
	if err := outputError(p.bar.Print(p.out.Output, out.Bytes())); err != nil {
		return err
	}
	p.update(batch[len(batch)-1].end)
	return nil
}

func (p *linePusher) answer(out *bytes.Buffer, r punctual.PushResult) error {
	if r.Err != nil {
		return r.Err
	}
	line, err := jsonLine(wire.PushResultOf(r))
	out.Write(line)
	p.stored++
	if r.Status == punctual.PushDuplicate {
		p.kept++
	}
	return err
}

// refuse counts a line that was not stored, and reports it on standard error.
func (p *linePusher) refuse(l inputLine) error {
	if errors.Is(l.err, punctual.ErrDuplicate) {
		p.inUse++
	} else {
		p.refused++
	}
	f := describe(l.err)
	text := fmt.Appendf(nil, "punctual: push: line %d: %s\n", l.number, term.Printable(f.text))
	if p.json {
		var err error
		if text, err = jsonLine(errorJSON{Error: errorBody{f.code, f.text, f.definite}, Line: l.number}); err != nil {
			return err
		}
	}
	return p.bar.Print(p.errs.Output, text)
}

// result is the command's error once all lines were read.
func (p *linePusher) result() error {
	total := p.stored + p.inUse + p.refused
	if p.kept > 0 && !p.json {
		note := fmt.Appendf(nil, "punctual: push: %d of %d lines have an ID that is in use (duplicate): the first messages are kept\n", p.kept, total)
		if err := p.bar.Print(p.errs.Output, note); err != nil {
			return err
		}
	}
	switch {
	case p.refused > 0:
		return &failure{
			code: codeSomeFailed, exit: exitError, definite: p.stored == 0, // otherwise some lines were stored
			text: fmt.Sprintf("%d of %d lines were not stored: mend and push those again", p.refused+p.inUse, total),
		}
	case p.inUse > 0:
		return &failure{
			code: "duplicate", exit: exitUnwished, definite: p.stored == 0,
			text: fmt.Sprintf("%d of %d lines have an ID that is in use and were not stored", p.inUse, total),
		}
	}
	return nil
}

// readLines parses the lines of in and puts each. It returns io.EOF at the end of in, or when put
// returns false, and otherwise the error of reading.
func readLines(in io.Reader, topic string, f *pushFlags, put func(inputLine, int) bool) error {
	r := bufio.NewReaderSize(in, 64<<10)
	var end int64
	for number := int64(1); ; number++ {
		line, length, err := readLine(r)
		end += length
		tooLong := errors.Is(err, punctual.ErrTooLarge)
		if err != nil && !tooLong && !errors.Is(err, io.EOF) {
			return fmt.Errorf("read standard input: %w", err)
		}
		l := inputLine{number: number, end: end}
		text := bytes.TrimSpace(line)
		switch {
		case tooLong:
			l.err = err
		case len(text) > 0:
			l.m, l.err = f.line(text, topic)
		}
		if (tooLong || len(text) > 0) && !put(l, len(line)) || errors.Is(err, io.EOF) {
			return io.EOF
		}
	}
}

// readLine reads up to the next line feed, or up to the input's end, where it returns io.EOF.
// length is how many bytes it has read. A line that is longer than maxLine is read to its end, too,
// but not returned: the error is an ErrTooLarge.
func readLine(r *bufio.Reader) (line []byte, length int64, err error) {
	tooLong := false
	for {
		part, err := r.ReadSlice('\n')
		length += int64(len(part))
		if len(line)+len(part) > maxLine {
			tooLong, line = true, nil
		}
		if !tooLong {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case tooLong && (err == nil || errors.Is(err, io.EOF)):
			return nil, length, fmt.Errorf("the line is longer than %d bytes: %w", maxLine, punctual.ErrTooLarge)
		}
		return line, length, err
	}
}

// line makes a message of one line. What the line does not say is as topic and the flags say.
func (f *pushFlags) line(text []byte, topic string) (m punctual.NewMessage, err error) {
	l := lineJSON{PushItem: f.item}
	l.Topic, l.Expire = wire.Given(topic), ""
	if err := wire.DecodeRequest(text, &l); err != nil {
		return m, err
	}
	switch l.State {
	case "", "scheduled", "ready":
	default:
		return m, usagef("the message is %s where the line comes from: only scheduled and ready ones are pushed; leave \"state\" out to push it all the same", term.Printable(l.State))
	}
	expires := time.Time(l.Expires)
	if !expires.IsZero() && (l.Expire != "" || l.Due == "" && l.At == "") {
		return m, usagef("\"expires\" goes with \"due\" or \"at\", and without \"expire\"")
	}
	l.Expire = cmp.Or(l.Expire, f.item.Expire)
	if m, err = f.compose(&l.PushItem); err != nil {
		return m, err
	}
	if !expires.IsZero() {
		m.ExpireAfter = max(time.Millisecond, expires.Sub(m.Due))
	}
	return m, storekit.CheckPush(&m, limits.DefaultMaxBody)
}

// batchBytes bounds a batch of what is read from standard input, and so the memory.
const batchBytes = 8 << 20

// inBatches reads items with read, and meanwhile calls f with those that have come since its last
// call, at most the number most. So a single item is worked on at once, and a fast input in large
// batches. read calls put for each item with its size in bytes, and ends when put returns false;
// io.EOF is the end of the input. When ctx ends, the call of f under way is finished. inBatches
// returns the error of f, of read or of ctx.
func inBatches[T any](ctx context.Context, most int, read func(put func(item T, size int) bool) error, f func(context.Context, []T) error) error {
	type sized struct {
		item T
		size int
	}
	items, batches := make(chan sized), make(chan []T)
	gone, leave := context.WithCancel(context.Background())
	defer leave()
	var end error // of read; set before items is closed
	// A read from a terminal or pipe cannot be interrupted: when ctx ends, this goroutine stays
	// behind in it until the process ends.
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
