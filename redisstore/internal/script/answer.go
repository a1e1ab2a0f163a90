package script

import (
	"fmt"

	"github.com/punctualmq/punctual"
)

// Answer is what a script replied.
type Answer struct {
	Reader
	Now     int64 // by the clock of the script, in ms
	Era     int64 // how many steps of the clock the partition, or the store, has made
	Version int64 // of the settings in the partition; 0 or less if there is no such topic (lua/start.lua)
}

// Reader takes values off the front of a reply. Bad is set if a value is missing or of another
// type, and stays set.
type Reader struct {
	Items []any
	Bad   bool
}

func (r *Reader) next() any {
	if len(r.Items) == 0 {
		r.Bad = true
		return nil
	}
	v := r.Items[0]
	r.Items = r.Items[1:]
	return v
}

// Int reads a whole number.
func (r *Reader) Int() int64 {
	n, ok := r.next().(int64)
	r.Bad = r.Bad || !ok
	return n
}

// Text reads a text.
func (r *Reader) Text() string {
	s, ok := r.next().(string)
	r.Bad = r.Bad || !ok
	return s
}

// List reads an array of texts.
func (r *Reader) List() []string {
	items, ok := r.next().([]any)
	r.Bad = r.Bad || !ok
	texts := Reader{Items: items}
	out := make([]string, len(items))
	for i := range out {
		out[i] = texts.Text()
	}
	r.Bad = r.Bad || texts.Bad
	return out
}

// BadReply returns the error for an answer that no version of the script gives.
func BadReply(sc *Script) error {
	return fmt.Errorf("%s: the server's answer cannot be read; does something between it and this program change answers?: %w", sc.Name, punctual.ErrIndeterminate)
}

// StepOf reads a step of the clock as the hash of the store has it: from which time to which, in
// ms. It returns false for the empty text, and for one that no script writes.
func StepOf(text string) (from, to int64, ok bool) {
	n, err := fmt.Sscan(text, &from, &to)
	return from, to, n == 2 && err == nil
}

// StepField returns the field of the hash of the store that has the step of the clock after which
// the era is era.
func StepField(era int64) string { return fmt.Sprint("step:", era) }
