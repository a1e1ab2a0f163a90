package server

import (
	"fmt"
	"net/http"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/wire"
)

func (c *call) showInfo() error {
	info := c.server.info
	info.Farewell = connOf(c.r) != nil && c.r.TLS == nil
	return c.json(http.StatusOK, info)
}

func (c *call) showOpenAPI() error {
	return c.write(http.StatusOK, wire.TypeJSON, c.server.openAPI)
}

func (c *call) clock() error {
	now, err := storeCall(c, c.server.store.Now)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, wire.Clock{Now: wire.Time(now)})
}

// showSpace answers with how much space the store's medium has.
func (c *call) showSpace() error {
	if c.server.space == nil {
		return fmt.Errorf("this store does not know how much room it has: %w", punctual.ErrUnsupported)
	}
	r, err := storeCall(c, c.server.space.Space)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, wire.Space{Free: r.Free, Total: r.Total, Reserve: r.Reserve})
}
