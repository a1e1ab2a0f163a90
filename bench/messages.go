package main

import (
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore"
)

// topic is where messages go unless a scenario needs several.
const topic = "bench"

// bodies hands out bodies that no compression makes smaller.
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

// farDue is a due time between 1 and 25 hours ahead, every one as likely.
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

// chosenID is an ID as a caller may choose one: as long as those that the store makes, and random, so that each falls into
// another place of the store. That is the worst case for a store that has to see whether it knows the ID.
func chosenID() string {
	const digits = "0123456789abcdefghijklmnopqrstuv" // 32 of them: the low bits of a random byte choose one
	b := randomBytes(idBytes)
	for i := range b {
		b[i] = digits[b[i]%32]
	}
	return string(b)
}

// openStore opens the store of a round as a user would who sets nothing.
func openStore(e *env) (*diskstore.Store, error) {
	return diskstore.Open(e.dir, nil)
}

// checkPushed is the error of a push, which tells of every message that was not stored.
func checkPushed(_ []punctual.PushResult, err error) error { return err }

// closeStore closes a store and returns the error of the round, or else that of closing.
func closeStore(s punctual.Store, err error) error {
	if cerr := s.Close(); err == nil && cerr != nil {
		return fmt.Errorf("close the store: %w", cerr)
	}
	return err
}
