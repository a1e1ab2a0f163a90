package importer

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/punctualmq/punctual/storekit"
)

// record is the value of a staged message. It has what the run which took the message decided about
// it, except the codec with which its body is read. So another run with the same codec stores
// exactly the same message. Staging also keeps the member, for asynq the hash of the task and for
// PostgreSQL the row, as they were.
type record struct {
	// Version is 1.
	Version int `json:"v"`
	// Run names the run that took the message or was the last to adopt it.
	Run string `json:"run"`
	// Taken is when the message was taken, by the source's clock, in Unix ms.
	Taken int64 `json:"taken"`
	// Score is the score that the member had, in a text from which exactly the same number is read.
	Score string `json:"score"`
	// Due is the due time of the message, in Unix ms.
	Due int64 `json:"due"`
	// Topic and ID say under which topic and ID the message is pushed. Target names the store into
	// which the run that took the message was to push it. A run for another store leaves the
	// message alone unless Options.Uncertain decides about it; with PushUncertain it pushes the
	// message into its own store, and Target stays as it was.
	Topic  string `json:"topic"`
	ID     string `json:"id"`
	Target string `json:"target"`
}

func (r record) String() string {
	text, err := json.Marshal(r)
	if err != nil {
		panic("importer: a record of strings and numbers cannot be written: " + err.Error())
	}
	return string(text)
}

// parseStaged makes an entry from a member and its record in staging.
func parseStaged(member, text string) (*entry, error) {
	e := &entry{member: member, text: text}
	if err := json.Unmarshal([]byte(text), &e.record); err != nil {
		return e, fmt.Errorf("its record cannot be read: %w", err)
	}
	if e.record.Version != 1 {
		return e, fmt.Errorf("its record is of version %d, which a newer Punctual wrote", e.record.Version)
	}
	var err error
	if e.score, err = strconv.ParseFloat(e.record.Score, 64); err != nil {
		return e, fmt.Errorf("its score %q is not a number", e.record.Score)
	}
	return e, nil
}

// stage fills in the record of an entry that is to be taken.
func (m *mover) stage(e *entry, now time.Time) {
	if m.im.opt.Spread > 0 && e.message.Due.Before(now) {
		e.message.Due = now.Add(spreadOf(e.message.ID, m.im.opt.Spread))
	}
	e.dueAt(storekit.FromMillis(storekit.CeilMillis(e.message.Due)))
	e.record = record{
		Version: 1, Run: m.im.run, Taken: now.UnixMilli(), Score: formatScore(e.score), Due: storekit.Millis(e.message.Due),
		Topic: e.message.Topic, ID: e.message.ID, Target: m.im.opt.Target,
	}
	e.text = e.record.String()
}
