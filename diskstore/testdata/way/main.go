// Way takes one message from its push to its deletion, and writes down which functions ran meanwhile.
// ARCHITECTURE.md has the command.
package main

import (
	"context"
	"log"
	"os"
	"runtime/coverage"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore"
)

func main() {
	dir, err := os.MkdirTemp("", "punctual-way-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	s, err := diskstore.Open(dir, nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := way(context.Background(), s); err != nil {
		log.Fatal(err)
	}
	if err := s.Close(); err != nil {
		log.Fatal(err)
	}
}

// way takes a message through the store. Each call is there twice: what happens once, such as the making
// of the topic, is not counted.
func way(ctx context.Context, s punctual.Store) error {
	for range 2 {
		if err := coverage.ClearCounters(); err != nil {
			return err
		}
		rs, err := s.Push(ctx, []punctual.NewMessage{{Topic: "o", Delay: 100 * time.Millisecond}})
		if err != nil {
			return err
		}
		ds, err := s.Claim(ctx, punctual.Claim{Topics: []string{"o"}, Max: 1, Wait: time.Minute})
		if err != nil {
			return err
		}
		if _, err := s.Settle(ctx, []punctual.Settlement{{Topic: "o", ID: rs[0].ID, Token: ds[0].Token, Verb: punctual.SettleAck}}); err != nil {
			return err
		}
		time.Sleep(2 * time.Second) // until the message is deleted
	}
	if err := coverage.WriteMetaDir(os.Args[1]); err != nil {
		return err
	}
	return coverage.WriteCountersDir(os.Args[1])
}
