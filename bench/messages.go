package main

import (
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore"
)

// topic is the topic of the messages, except in scenarios that need several topics.
const topic = "bench"

// bodies are random bytes. The bodies of messages are cut out of them, because random bytes hardly
// become smaller by compression.
var bodies = randomBytes(1 << 20)

func randomBytes(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return b
}

func randomBody() []byte {
	from := mathrand.IntN(len(bodies) - bodyBytes)
	return bodies[from : from+bodyBytes : from+bodyBytes]
}

// farDue returns a random due time between 1 and 25 hours after now. All are equally likely.
func farDue(now time.Time) time.Time {
	return now.Add(time.Hour + mathrand.N(24*time.Hour))
}

// farMessages fills ms with messages due between 1 and 25 hours ahead.
func farMessages(ms []punctual.NewMessage) {
	now := time.Now()
	for i := range ms {
		ms[i] = punctual.NewMessage{Topic: topic, Body: randomBody(), Due: farDue(now)}
	}
}

// chosenID returns an ID as a caller may choose one. It is as long as the IDs that the store makes.
// It is random, so that IDs pushed one after the other lie far apart in the store, which is the
// worst case for a store that has to look whether it knows the ID.
func chosenID() string {
	const digits = "0123456789abcdefghijklmnopqrstuv" // 32 digits: the five low bits of a random byte choose one
	b := randomBytes(idBytes)
	for i := range b {
		b[i] = digits[b[i]%32]
	}
	return string(b)
}

// openStore opens the embedded store of a round without options, as a user does who sets nothing.
func openStore(e *env) (*diskstore.Store, error) {
	return diskstore.Open(e.dir, nil)
}

// checkPushed returns the error of PushMany and drops the results, because that error is nil only
// if every message was stored.
func checkPushed(_ []punctual.PushResult, err error) error { return err }

// closeStore closes a store. It returns err if that is not nil, and otherwise the error of closing.
func closeStore(s punctual.Store, err error) error {
	if cerr := s.Close(); err == nil && cerr != nil {
		return fmt.Errorf("close the store: %w", cerr)
	}
	return err
}
