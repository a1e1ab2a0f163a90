package pgstore

import (
	"context"
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
)

// Attributes of a newer program survive a retry, and those of a program without blocks are read
// from their column. What is no block is an error and found by Check. A push that replaces the
// message takes its attributes away.
func TestAttributes(t *testing.T) {
	t.Parallel()
	pool := newPool(t, shared)
	s := openStore(t, pool, &Options{Schema: fresh(), Migrate: true, OwnPool: true, NoListen: true})
	ctx := t.Context()
	m := punctual.NewMessage{Topic: "orders", ID: "x", Body: []byte("body"), Remember: time.Minute}
	if rs, err := s.Push(ctx, []punctual.NewMessage{m}); err != nil || rs[0].Err != nil {
		t.Fatal(rs, err)
	}
	stored := func() string {
		t.Helper()
		var block []byte
		if err := pool.QueryRow(ctx, inSchema("SELECT attributes FROM punctual.message", s.opt.Schema)).Scan(&block); err != nil {
			t.Fatal(err)
		}
		return hex.EncodeToString(block)
	}
	store := func(block []byte) {
		t.Helper()
		if n, err := pool.Exec(ctx, inSchema("UPDATE punctual.message SET attributes = $1", s.opt.Schema), block); err != nil || n.RowsAffected() != 1 {
			t.Fatalf("the attributes were not changed: %v, %v", n, err)
		}
	}
	if got := stored(); got != "0103e0d403" {
		t.Fatalf("stored as %s", got)
	}
	claimed := func() punctual.Delivery {
		t.Helper()
		ds, err := s.Claim(ctx, punctual.Claim{Topics: []string{"orders"}, Max: 1})
		if err != nil || len(ds) != 1 || ds[0].Remember != time.Minute || string(ds[0].Body) != "body" {
			t.Fatalf("claimed %+v, %v; want x, remembered for a minute", ds, err)
		}
		return ds[0]
	}
	retried := func(d punctual.Delivery) {
		t.Helper()
		errs, err := s.Settle(ctx, []punctual.Settlement{{Topic: "orders", ID: "x", Token: d.Token, Verb: punctual.SettleRetry}})
		if err != nil || errs[0] != nil {
			t.Fatal(errs, err)
		}
	}
	retried(claimed())
	newer := []byte{1, 3, 0xe0, 0xd4, 3, 9, 1, 'x'}
	store(newer)
	retried(claimed())
	if got := stored(); got != hex.EncodeToString(newer) {
		t.Errorf("behind a retry the block is %s, want %x", got, newer)
	}
	store([]byte{1, 9})
	if _, err := s.Get(ctx, "orders", "x"); err == nil {
		t.Error("attributes that are cut short are read")
	}
	if r, err := s.Check(context.Background(), func(int64) {}); err != nil || len(r.Problems) != 1 || !strings.Contains(r.Problems[0], "x is damaged") {
		t.Errorf("check found %+v, %v; want the damaged attributes", r, err)
	}
	m.Remember, m.IfExists = 0, punctual.IfExistsReplace
	if rs, err := s.Push(ctx, []punctual.NewMessage{m}); err != nil || rs[0].Err != nil || rs[0].Status != punctual.PushReplaced {
		t.Fatal(rs, err)
	}
	if got := stored(); got != "" {
		t.Errorf("a message without attributes that replaced one has %s", got)
	}
}
