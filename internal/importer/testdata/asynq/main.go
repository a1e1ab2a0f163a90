// Command asynqdump fills an empty Redis with tasks by asynq's own client and server, and prints
// what they wrote, one key per line. The tests of package importer import from that.
//
//	redis-server --port 6399 --save '' &
//	go run . 127.0.0.1:6399 > ../asynq-0.26.0.ndjson
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"slices"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: asynqdump HOST:PORT of an empty Redis")
	}
	if err := fill(os.Args[1]); err != nil {
		log.Fatal(err)
	}
	if err := dump(os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

var due = time.Date(2100, 1, 1, 12, 0, 0, 0, time.UTC)

func fill(addr string) error {
	opt := asynq.RedisClientOpt{Addr: addr}
	c := asynq.NewClient(opt)
	defer c.Close()
	push := func(t *asynq.Task, opts ...asynq.Option) {
		if _, err := c.Enqueue(t, opts...); err != nil {
			log.Fatal(err)
		}
	}
	// One that fails and so gets into the retry set.
	push(asynq.NewTask("order:close", []byte(`{"order":1}`)), asynq.Queue("orders"), asynq.MaxRetry(5),
		asynq.TaskID("11111111-1111-4111-8111-111111111111"))
	if err := failOnce(opt); err != nil {
		return err
	}
	push(asynq.NewTask("order:close", []byte(`{"order":2}`)), asynq.Queue("orders"), asynq.ProcessAt(due),
		asynq.TaskID("22222222-2222-4222-8222-222222222222"))
	push(asynq.NewTask("order:close", []byte(`{"order":3}`)), asynq.Queue("orders"), asynq.ProcessAt(due.Add(time.Second)),
		asynq.Unique(time.Hour), asynq.TaskID("33333333-3333-4333-8333-333333333333"))
	push(asynq.NewTask("report:daily", nil), asynq.Queue("orders"), asynq.ProcessAt(due.Add(2*time.Second)),
		asynq.TaskID("daily report"), asynq.MaxRetry(0), asynq.Timeout(90*time.Second))
	push(asynq.NewTaskWithHeaders("email:send", []byte{0, 1, 2, 0xff}, map[string]string{"trace": "abc", "lang": "zh"}),
		asynq.Queue("orders"), asynq.ProcessAt(due.Add(3*time.Second)), asynq.Deadline(due.Add(time.Hour)),
		asynq.Retention(time.Hour), asynq.Group("mails"), asynq.TaskID("44444444-4444-4444-8444-444444444444"))
	push(asynq.NewTask("order:close", []byte("now")), asynq.Queue("orders"), asynq.TaskID("pending"))
	push(asynq.NewTask("image:resize", []byte("a.png")), asynq.ProcessAt(due), asynq.TaskID("55555555-5555-4555-8555-555555555555"))
	return nil
}

// failOnce runs a server until a task has failed.
func failOnce(opt asynq.RedisClientOpt) error {
	inspector := asynq.NewInspector(opt)
	defer inspector.Close()
	s := asynq.NewServer(opt, asynq.Config{
		Concurrency: 1, Queues: map[string]int{"orders": 1}, LogLevel: asynq.FatalLevel,
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return 24 * 365 * time.Hour },
	})
	fail := asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return errors.New("no such customer") })
	if err := s.Start(fail); err != nil {
		return err
	}
	defer s.Shutdown()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if info, err := inspector.GetQueueInfo("orders"); err == nil && info.Retry == 1 {
			return nil
		}
	}
	return errors.New("the task did not get into the retry set")
}

// key is one line of the dump; bytes are base64.
type key struct {
	Key    string            `json:"key"`
	Hash   map[string][]byte `json:"hash,omitempty"`
	ZSet   map[string]string `json:"zset,omitempty"`
	Set    []string          `json:"set,omitempty"`
	List   []string          `json:"list,omitempty"`
	String *string           `json:"string,omitempty"`
}

func dump(addr string) error {
	ctx := context.Background()
	c := redis.NewClient(&redis.Options{Addr: addr})
	defer c.Close()
	keys, err := c.Keys(ctx, "asynq:*").Result()
	if err != nil {
		return err
	}
	slices.Sort(keys)
	out := json.NewEncoder(os.Stdout)
	for _, name := range keys {
		k := key{Key: name}
		switch t := c.Type(ctx, name).Val(); t {
		case "hash":
			k.Hash = map[string][]byte{}
			for f, v := range c.HGetAll(ctx, name).Val() {
				k.Hash[f] = []byte(v)
			}
		case "zset":
			k.ZSet = map[string]string{}
			for _, z := range c.ZRangeWithScores(ctx, name, 0, -1).Val() {
				k.ZSet[z.Member.(string)] = fmt.Sprint(int64(z.Score))
			}
		case "set":
			k.Set = c.SMembers(ctx, name).Val()
		case "list":
			k.List = c.LRange(ctx, name, 0, -1).Val()
		case "string":
			v := c.Get(ctx, name).Val()
			k.String = &v
		default:
			return fmt.Errorf("%s is a %s", name, t)
		}
		if err := out.Encode(k); err != nil {
			return err
		}
	}
	return nil
}
