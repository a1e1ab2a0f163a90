// Way takes one message from its push through a Queue to its ack by a Worker, with the store in
// memory, and writes down which functions ran meanwhile. This counts them:
//
//	go build -cover -covermode=atomic -coverpkg=./... -o /tmp/way ./worker/testdata/way
//	mkdir /tmp/way.cover && /tmp/way /tmp/way.cover
//	go tool covdata func -i=/tmp/way.cover | grep -v 'testdata\|^total' | awk '$NF != "0.0%"'
package main

import (
	"context"
	"log"
	"os"
	"runtime/coverage"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/worker"
)

func main() {
	ctx := context.Background()
	s := memstore.New(nil)
	q := punctual.NewQueue(s, nil)
	handled := make(chan struct{})
	w := worker.New(s, nil)
	w.Handle("o", punctual.HandlerFunc(func(context.Context, *punctual.Delivery) error {
		handled <- struct{}{}
		return nil
	}))
	if err := w.Start(ctx); err != nil {
		log.Fatal(err)
	}
	for range 2 { // what happens once, such as the making of the topic, is not counted
		time.Sleep(100 * time.Millisecond) // until the worker waits in a claim
		if err := coverage.ClearCounters(); err != nil {
			log.Fatal(err)
		}
		if _, err := q.Push(ctx, "o", nil, punctual.In(100*time.Millisecond)); err != nil {
			log.Fatal(err)
		}
		<-handled
		time.Sleep(100 * time.Millisecond) // until the message is acked
	}
	if err := coverage.WriteMetaDir(os.Args[1]); err != nil {
		log.Fatal(err)
	}
	if err := coverage.WriteCountersDir(os.Args[1]); err != nil {
		log.Fatal(err)
	}
}
