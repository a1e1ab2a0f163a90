package pgstore_test

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/pgstore"
)

// unpaid is what closes an order that nobody has paid.
type unpaid struct{ Order int64 }

// The order and the message that closes it exist together, or neither does, because both are in one
// transaction. The transaction that marks the order paid cancels the message.
func ExampleStore_PushTx() {
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
	queue := punctual.NewQueue(store, nil)
	closing := punctual.NewTopic[unpaid](queue, "order.close")

	var order int64
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, "INSERT INTO orders (total) VALUES (1999) RETURNING id").Scan(&order); err != nil {
			return err
		}
		m, err := closing.Compose(unpaid{order}, punctual.ID(fmt.Sprint(order)), punctual.In(30*time.Minute))
		if err != nil {
			return err
		}
		_, err = store.PushTx(ctx, pgstore.Pgx(tx), m)
		return err
	})
	if err != nil {
		fmt.Println("no order, and no message:", err)
		return
	}

	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if err := store.CancelTx(ctx, pgstore.Pgx(tx), closing.Name(), fmt.Sprint(order)); err != nil {
			return err // punctual.ErrLeased: the order is being closed
		}
		_, err := tx.Exec(ctx, "UPDATE orders SET paid = true WHERE id = $1", order)
		return err
	})
	if err != nil {
		fmt.Println("not paid, and not cancelled:", err)
	}
}

// A transaction of database/sql is handed over by SQL, whatever its driver is.
func ExampleSQL() {
	closeLater := func(ctx context.Context, db *sql.DB, store *pgstore.Store, order string) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // does nothing after a commit
		if _, err := tx.ExecContext(ctx, "INSERT INTO orders (number) VALUES ($1)", order); err != nil {
			return err
		}
		m := punctual.NewMessage{Topic: "order.close", ID: order, Delay: 30 * time.Minute}
		if _, err := store.PushTx(ctx, pgstore.SQL(tx), m); err != nil {
			return err
		}
		return tx.Commit()
	}
	_ = closeLater
}
