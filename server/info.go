package server

import (
	"context"
	_ "embed" // for punctual.proto
	"fmt"
	"net/http"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/audit"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/storekit"
)

func (c *call) showInfo() error {
	info := c.server.info
	info.Farewell = connOf(c.r) != nil && c.r.TLS == nil
	info.Abilities = c.abilities()
	return c.json(http.StatusOK, info)
}

// abilityTime bounds how long GET /v1 waits for a store to say what it can do, because the answer
// has to come also while the store does not answer.
const abilityTime = time.Second

// abilities returns what the store can do, and whether the program does its duties. If the store
// does not say so now, abilities returns what it said last, nil if it never has. A store that is no
// storekit.AbilityReporter has no abilities of its own.
func (c *call) abilities() *wire.Abilities {
	s := c.server
	if s.abler == nil {
		return wire.AbilitiesOf(storekit.Abilities{Duties: s.options.Duties})
	}
	ctx, end := context.WithTimeout(c.r.Context(), min(abilityTime, s.limits.StoreTime))
	defer end()
	a, err := s.abler.Abilities(ctx)
	if err != nil {
		s.log.Debug("the store does not say what it can do", "error", err)
		return s.abilities.Load()
	}
	a.Duties = s.options.Duties
	known := wire.AbilitiesOf(a)
	s.abilities.Store(known)
	return known
}

func (c *call) showOpenAPI() error { return c.write(http.StatusOK, wire.TypeJSON, c.server.openAPI) }

//go:embed punctual.proto
var punctualProto []byte

func (c *call) showProto() error { return c.write(http.StatusOK, "text/plain", punctualProto) }

func (c *call) clock() error {
	now, err := storeCall(c, c.server.store.Now)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, wire.Clock{Now: wire.Time(now)})
}

// showClockState answers with how the store's clock stands.
func (c *call) showClockState() error {
	return c.withClock(func(ctx context.Context) (storekit.ClockState, error) { return c.server.clock.Clock(ctx) })
}

// stepClock steps the store's clock back, and answers as showClockState does.
func (c *call) stepClock() error {
	return c.withClock(func(ctx context.Context) (state storekit.ClockState, err error) {
		_, err = c.record(audit.Change{Verb: "step clock"}, func() (int64, error) {
			state, err = c.server.clock.StepClock(ctx)
			return 1, err
		})
		return state, err
	})
}

func (c *call) withClock(do func(context.Context) (storekit.ClockState, error)) error {
	if c.server.clock == nil {
		return fmt.Errorf("this store does not tell how its clock stands: %w", punctual.ErrUnsupported)
	}
	state, err := storeCall(c, do)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, wire.ClockStateOf(state))
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
