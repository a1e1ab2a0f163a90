package redisstore

import (
	"bytes"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/redisstore/internal/record"
)

// A message with attributes that a newer program has pushed takes the fast path of claims, and
// still has all its bytes after a retry.
func TestAttributesOfANewerProgram(t *testing.T) {
	s, clock := openStill(t, Options{})
	clock.Advance(time.Millisecond) // at a multiple of 16 ms claims may take the general path, because they tidy
	messages := s.names.Partition("orders", 0).Keys()[4]
	push(t, s, punctual.NewMessage{ID: "x", Body: []byte("body"), Due: time.Unix(1, 0)})
	old, err := s.client.HGet(t.Context(), messages, "x").Bytes()
	if err != nil || len(old) != record.HeadBytes+1+len("body") {
		t.Fatalf("the message is %x, %v; want nothing but a head, no headers and the body", old, err)
	}
	newer := bytes.Join([][]byte{old[:record.HeadBytes], {3, 99, 1, 'x'}, old[record.HeadBytes:]}, nil)
	newer[0] += 8
	if err := s.client.HSet(t.Context(), messages, "x", newer).Err(); err != nil {
		t.Fatal(err)
	}
	wantSound(t, s)
	d := claimOne(t, s, 0)
	if d.ID != "x" || string(d.Body) != "body" || !withoutState(t, s, d) {
		t.Errorf("leased %s with the body %q and a state: %t; want x, body, false", d.ID, d.Body, !withoutState(t, s, d))
	}
	wantSound(t, s)
	out, err := s.Settle(t.Context(), []punctual.Settlement{{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: punctual.SettleRetry}})
	if err != nil || out[0] != nil {
		t.Fatal(out, err)
	}
	if now, err := s.client.HGet(t.Context(), messages, "x").Bytes(); err != nil || !bytes.Equal(now, newer) {
		t.Errorf("behind a retry the message is %x, %v; want %x", now, err, newer)
	}
	if d = claimOne(t, s, 0); d.ID != "x" || d.Attempt != 2 || string(d.Body) != "body" {
		t.Errorf("leased %+v; want the second attempt", d)
	}
	wantSound(t, s)
}
