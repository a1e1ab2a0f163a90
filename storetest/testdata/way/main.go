// Way takes two messages from their push to their deletion, one after the other, in a directory or
// in Redis, and writes down which functions ran for the second. This counts them, over a new
// directory or a Redis of your own:
//
//	go build -cover -covermode=atomic -coverpkg=./storetest/testdata/way,./diskstore/...,./redisstore/... -o /tmp/way ./storetest/testdata/way
//	mkdir /tmp/way.cover && /tmp/way /tmp/way.store /tmp/way.cover      # or: /tmp/way redis://127.0.0.1:6379/9 /tmp/way.cover
//	go tool covdata func -i=/tmp/way.cover | grep -v 'testdata\|^total' | awk '$NF != "0.0%"' | wc -l
package main

import (
	"context"
	"log"
	"os"
	"runtime/coverage"
	"strings"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore"
	"github.com/punctualmq/punctual/redisstore"
)

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: way STORE FOLDER. STORE is a new directory or redis://HOST:PORT, FOLDER gets the counts")
	}
	s, err := open(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	if err := way(context.Background(), s, os.Args[2]); err != nil {
		log.Fatal(err)
	}
	if err := s.Close(); err != nil {
		log.Fatal(err)
	}
}

func open(store string) (punctual.Store, error) {
	if strings.Contains(store, "://") {
		return redisstore.OpenURL(context.Background(), store, nil)
	}
	return diskstore.Open(store, nil)
}

// way takes two messages through the store, one after the other, and counts the functions of the
// second alone. So what happens only once, such as the creation of the topic, is not counted.
func way(ctx context.Context, s punctual.Store, folder string) error {
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
	if err := coverage.WriteMetaDir(folder); err != nil {
		return err
	}
	return coverage.WriteCountersDir(folder)
}
