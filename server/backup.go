package server

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/wire"
)

// backup sends a copy of the store. Like that of a check, its time is not limited. It ends early
// when its client goes, when the server drains, or when a single write takes longer than
// Limits.WriteTime because the client reads too slowly.
func (c *call) backup() error {
	if c.server.backuper == nil {
		return fmt.Errorf("this store has no backup of its own, use that of its database: %w", punctual.ErrUnsupported)
	}
	ctx, end := c.untilDraining()
	defer end(nil)
	h := c.w.Header()
	err := c.server.backuper.Archive(ctx, archived{c}, func(total int64) {
		h.Set("Content-Type", wire.TypeTar)
		h.Set("Content-Length", strconv.FormatInt(total, 10))
	})
	if err != nil && c.status == 0 { // nothing was sent yet, so the answer is a problem
		h.Del("Content-Length")
		h.Del("Content-Type")
	}
	if err != nil && !errors.Is(err, errNotSent) {
		err = causeOf(ctx, err)
	}
	return err
}

// archived is an io.Writer that sends an archive as the answer to a call.
type archived struct{ c *call }

// Write implements io.Writer.
func (a archived) Write(b []byte) (int, error) {
	if err := a.c.put(http.StatusOK, b); err != nil {
		return 0, err
	}
	return len(b), nil
}
