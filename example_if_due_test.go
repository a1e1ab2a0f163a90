package punctual_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
)

// A program that has read a message replaces it only if nobody else has changed it since.
func ExampleReplaceIfDue() {
	ctx := context.Background()
	store := memstore.New(nil)
	defer store.Close()
	q := punctual.NewQueue(store, nil)

	nine := time.Date(2030, 11, 20, 9, 0, 0, 0, time.UTC)
	if _, err := q.Push(ctx, "reminder", []byte("at nine"), punctual.ID("visit-7"), punctual.At(nine)); err != nil {
		fmt.Println("not stored:", err)
		return
	}
	for _, text := range []string{"at ten", "at eleven"} { // both programs have read that it is due at nine
		_, err := q.Push(ctx, "reminder", []byte(text), punctual.ID("visit-7"), punctual.At(nine.Add(time.Hour)), punctual.ReplaceIfDue(nine))
		fmt.Println(text, "has come too late:", errors.Is(err, punctual.ErrChanged))
	}

	// Output:
	// at ten has come too late: false
	// at eleven has come too late: true
}
