package pgstore_test

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/pgstore"
)

// A program that claims by itself closes an order. The change of the order, the end of the message
// and the invoice that follows are in one transaction, so whatever crashes, the order is closed
// exactly once and has one invoice.
func ExampleStore_SettleTx() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://localhost/shop")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()
	store, err := pgstore.Open(ctx, pool, &pgstore.Options{Migrate: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	invoices := punctual.NewTopic[unpaid](punctual.NewQueue(store, nil), "invoice")

	ds, err := store.Claim(ctx, punctual.Claim{Topics: []string{"order.close"}, Max: 1, Wait: time.Minute})
	if err != nil || len(ds) == 0 {
		fmt.Println("nothing to close:", err)
		return
	}
	d := ds[0]
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "UPDATE orders SET closed = true WHERE id = $1::bigint", d.ID); err != nil {
			return err
		}
		invoice, err := invoices.Compose(unpaid{}, punctual.ID(d.ID+"~invoice"), punctual.In(48*time.Hour))
		if err != nil {
			return err
		}
		return store.SettleTx(ctx, pgstore.Pgx(tx), punctual.Settlement{
			Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: punctual.SettleAck,
			Then: []punctual.NewMessage{invoice},
		})
	})
	if err != nil {
		// Nothing is changed, unless only the answer to the commit was lost. After
		// punctual.ErrLeaseLost somebody else closes the order. Otherwise the lease stays, and the
		// message is delivered again when the lease ends.
		fmt.Println("not closed:", err)
	}
}
