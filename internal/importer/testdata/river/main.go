// Command riverfill migrates an empty PostgreSQL database as River does, and fills it with jobs by
// River's own client and workers. The tests of package importer import what pg_dump then writes.
//
//	go run . postgres://postgres@127.0.0.1:5432/empty
//	clean='/^--/d; /^SET /d; /^SELECT pg_catalog.set_config/d; /^\\/d; /^$/d'
//	pg_dump --schema-only --no-owner URL | sed "$clean" > schema.sql
//	pg_dump --data-only --inserts --table river_job URL | sed "$clean; /pg_catalog.setval/d" > jobs.sql
package main

import (
	"context"
	"errors"
	"log"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: riverfill URL of an empty database")
	}
	if err := fill(context.Background(), os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

type closeOrder struct {
	Order string `json:"order"`
}

func (closeOrder) Kind() string { return "close_order" }

type sendMail struct {
	To string `json:"to"`
}

func (sendMail) Kind() string { return "send_mail" }

type failing struct{ river.WorkerDefaults[sendMail] }

func (failing) Work(context.Context, *river.Job[sendMail]) error { return errors.New("no answer") }

func (failing) NextRetry(*river.Job[sendMail]) time.Time { return due }

var due = time.Date(2096, 10, 2, 7, 6, 40, 123456000, time.UTC)

func fill(ctx context.Context, url string) error {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	driver := riverpgxv5.New(pool)
	migrator, err := rivermigrate.New(driver, nil)
	if err != nil {
		return err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return err
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, &failing{})
	client, err := river.NewClient(driver, &river.Config{Workers: workers, Queues: map[string]river.QueueConfig{"mail": {MaxWorkers: 1}}})
	if err != nil {
		return err
	}
	failed, stop := client.Subscribe(river.EventKindJobFailed)
	defer stop()
	if _, err := client.Insert(ctx, sendMail{"a@example.org"}, &river.InsertOpts{Queue: "mail", MaxAttempts: 4}); err != nil {
		return err
	}
	if err := client.Start(ctx); err != nil {
		return err
	}
	<-failed
	if err := client.Stop(ctx); err != nil {
		return err
	}
	adding, err := river.NewClient(driver, &river.Config{})
	if err != nil {
		return err
	}
	_, err = adding.Insert(ctx, closeOrder{"A-17"}, &river.InsertOpts{ScheduledAt: due, Priority: 2, Tags: []string{"shop", "night"}, MaxAttempts: 25,
		UniqueOpts: river.UniqueOpts{ByArgs: true}})
	if err != nil {
		return err
	}
	_, err = adding.Insert(ctx, closeOrder{"now"}, nil)
	return err
}
