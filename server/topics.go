package server

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/wire"
)

var errNoInspector = fmt.Errorf("this store cannot be inspected: %w", punctual.ErrUnsupported)

// inspect calls the store's Inspector, and answers with what f returns.
func (c *call) inspect(f func(ctx context.Context, i punctual.Inspector) (any, error)) error {
	if c.server.inspector == nil {
		return errNoInspector
	}
	answer, err := storeCall(c, func(ctx context.Context) (any, error) { return f(ctx, c.server.inspector) })
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, answer)
}

func (c *call) topics() error {
	return c.inspect(func(ctx context.Context, i punctual.Inspector) (any, error) {
		all, err := i.Topics(ctx)
		out := wire.Topics{Topics: make([]wire.Topic, 0, len(all))}
		for _, t := range all {
			if c.principal.Allows(ActionInspect, t.Topic) {
				out.Topics = append(out.Topics, wire.TopicOf(t))
			}
		}
		return out, err
	})
}

func (c *call) stats() error {
	return c.inspect(func(ctx context.Context, i punctual.Inspector) (any, error) {
		t, err := i.Stats(ctx, c.path["topic"])
		return wire.TopicOf(t), err
	})
}

func (c *call) deleteTopic() error {
	return c.inspect(func(ctx context.Context, i punctual.Inspector) (any, error) {
		n, err := i.DeleteTopic(ctx, c.path["topic"])
		return wire.Purged{Topic: c.path["topic"], Purged: n}, err
	})
}

func (c *call) settings() error {
	return c.inspect(func(ctx context.Context, i punctual.Inspector) (any, error) {
		s, err := i.Settings(ctx, c.path["topic"])
		return wire.SettingsOf(s), err
	})
}

func (c *call) configure() error {
	var p wire.SettingsPatch
	if err := wire.DecodeRequest(c.body, &p); err != nil {
		return err
	}
	patch, err := p.Patch()
	if err != nil {
		return err
	}
	return c.change(patch)
}

func (c *call) change(p punctual.SettingsPatch) error {
	return c.inspect(func(ctx context.Context, i punctual.Inspector) (any, error) {
		s, err := i.Configure(ctx, c.path["topic"], p)
		return wire.SettingsOf(s), err
	})
}

func (c *call) pause() error  { return c.setPaused(true) }
func (c *call) resume() error { return c.setPaused(false) }

// setPaused sets the pauses that are named; without any, a pause is that of deliveries and a resume ends both.
func (c *call) setPaused(paused bool) error {
	push, pushGiven, err := c.truth("push")
	if err != nil {
		return err
	}
	delivery, deliveryGiven, err := c.truth("delivery")
	if err != nil {
		return err
	}
	neither := !pushGiven && !deliveryGiven
	var p punctual.SettingsPatch
	if push || neither && !paused {
		p.PushPaused = &paused
	}
	if delivery || neither {
		p.DeliveryPaused = &paused
	}
	return c.change(p)
}

func (c *call) purge() error {
	q := punctual.PurgeQuery{Topic: c.path["topic"]}
	var err error
	if q.State, err = wire.ParseStateWord(c.param("state")); err != nil {
		return err
	}
	if q.From, q.To, err = c.span(); err != nil {
		return err
	}
	return c.inspect(func(ctx context.Context, i punctual.Inspector) (any, error) {
		n, err := i.Purge(ctx, q)
		return wire.Purged{Topic: q.Topic, Purged: n}, err
	})
}

func (c *call) forecast() (err error) {
	q := punctual.ForecastQuery{Topic: c.param("topic")}
	if q.Topic == "" && !c.principal.Allows(ActionInspect, "") {
		return fmt.Errorf("%s may not inspect all topics: name one with topic: %w", c.principal.Name, punctual.ErrForbidden)
	}
	if q.Topic != "" {
		if err := c.allows(ActionInspect, q.Topic); err != nil {
			return err
		}
	}
	if q.From, err = c.instant("from"); err != nil {
		return err
	}
	if q.Step, err = c.duration("step"); err != nil {
		return err
	}
	if !c.query.Has("step") {
		q.Step = time.Minute
	}
	if q.Buckets, err = c.number("buckets", 60); err != nil {
		return err
	}
	return c.inspect(func(ctx context.Context, i punctual.Inspector) (any, error) {
		f, err := i.Forecast(ctx, q)
		return wire.ForecastOf(q.Topic, f), err
	})
}
