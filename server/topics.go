package server

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/access"
	"github.com/punctualmq/punctual/audit"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/storekit"
)

var errNoInspector = fmt.Errorf("this store cannot be inspected: %w", punctual.ErrUnsupported)

// inspect calls f with the store's Inspector and answers with what f returns.
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

// alter makes a change with the store's Inspector and records it. f returns the answer and how many
// messages it changed, or 1 for settings.
func (c *call) alter(ch audit.Change, f func(ctx context.Context, i punctual.Inspector) (any, int64, error)) error {
	if c.server.inspector == nil {
		return errNoInspector
	}
	var answer any
	_, err := c.record(ch, func() (n int64, err error) {
		answer, err = storeCall(c, func(ctx context.Context) (answer any, err error) {
			answer, n, err = f(ctx, c.server.inspector)
			return answer, err
		})
		return n, err
	})
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, answer)
}

// record calls do through Options.Record, with the client and its address in ch.
func (c *call) record(ch audit.Change, do func() (int64, error)) (int64, error) {
	record := c.server.options.Record
	if record == nil {
		return do()
	}
	ch.Detail = storekit.TrimError(ch.Detail)
	ch.Who, ch.From = c.principal.Name, c.r.RemoteAddr
	if host, _, err := net.SplitHostPort(ch.From); err == nil {
		ch.From = host
	}
	return record(c.r.Context(), ch, func(context.Context) (int64, error) { return do() })
}

// amend makes amendments through Options.Record, as one change. detail describes them for the
// record.
func (c *call) amend(as []punctual.Amendment, detail string) (results []punctual.Amended, err error) {
	if len(as) == 0 {
		return nil, nil
	}
	ch := audit.Change{Verb: as[0].Change.String(), Topic: as[0].Topic, ID: as[0].ID, Detail: detail, Amends: true}
	ch.Amends = !slices.ContainsFunc(as, func(a punctual.Amendment) bool { return a.Change == punctual.ChangeDelete }) // deleted messages leave no other trace
	if len(as) > 1 {
		ch.IDs = func() (ids []string) {
			for i := range results {
				switch {
				case results[i].Err != nil:
				case ch.Topic == "":
					ids = append(ids, as[i].Topic+" "+as[i].ID)
				default:
					ids = append(ids, as[i].ID)
				}
			}
			return ids
		}
	}
	for i := range as[1:] {
		a := &as[i+1]
		ch.ID = ""
		if a.Change.String() != ch.Verb {
			ch.Verb = "amend"
		}
		if a.Topic != ch.Topic {
			ch.Topic = ""
		}
	}
	_, err = c.record(ch, func() (n int64, err error) {
		results, err = storeBatch(c, as, c.server.store.Amend)
		for i := range results {
			if results[i].Err == nil {
				n++
			}
		}
		return n, err
	})
	return results, err
}

// topics lists the topics that the client may inspect. A client that may inspect none gets an
// ErrForbidden, because an empty list would say that there are no topics.
func (c *call) topics() error {
	if !c.principal.AllowsSomewhere(access.Inspect) {
		return fmt.Errorf("%s may not inspect in any topic: %w", c.principal.Name, punctual.ErrForbidden)
	}
	return c.inspect(func(ctx context.Context, i punctual.Inspector) (any, error) {
		all, err := i.Topics(ctx)
		out := wire.Topics{Topics: make([]wire.Topic, 0, len(all))}
		for _, t := range all {
			if c.principal.Allows(access.Inspect, t.Topic) {
				out.Topics = append(out.Topics, wire.TopicOf(t))
			}
		}
		return out, err
	})
}

var errNoNames = fmt.Errorf("this store does not name its topics without counting them: %w; GET %s counts them", punctual.ErrUnsupported, wire.PathTopics)

// names lists the names of the topics that the client may inspect. A client that may inspect none
// gets an ErrForbidden, as from topics.
func (c *call) names() error {
	if !c.principal.AllowsSomewhere(access.Inspect) {
		return fmt.Errorf("%s may not inspect in any topic: %w", c.principal.Name, punctual.ErrForbidden)
	}
	if c.server.namer == nil {
		return errNoNames
	}
	named, err := c.named()
	if err != nil {
		return err
	}
	out := wire.Names{Topics: make([]string, 0, len(named.Names)), Mark: named.Mark}
	for _, topic := range named.Names {
		if c.principal.Allows(access.Inspect, topic) {
			out.Topics = append(out.Topics, topic)
		}
	}
	return c.json(http.StatusOK, out)
}

// named returns the names that the request asks for: with a mark those of the companions that are
// new since then.
func (c *call) named() (out storekit.Companions, err error) {
	wait, err := c.duration("wait")
	switch {
	case err != nil:
		return out, err
	case !c.query.Has("mark"):
		if wait > 0 {
			return out, storekit.Invalidf("parameter \"wait\" needs \"mark\"")
		}
		q := storekit.NameQuery{Prefix: c.param("prefix"), Suffix: c.param("suffix")}
		out.Names, err = storeCall(c, func(ctx context.Context) ([]string, error) { return c.server.namer.TopicNames(ctx, q) })
		return out, err
	case c.query.Has("prefix") || c.query.Has("suffix"):
		return out, storekit.Invalidf("parameter \"mark\" is not for \"prefix\" and \"suffix\"")
	case wait > storekit.MaxAwait:
		return out, storekit.Invalidf("the request waits %v: use at most %v, and ask again", wait, storekit.MaxAwait)
	}
	return storeCall(c, func(ctx context.Context) (storekit.Companions, error) {
		return c.server.namer.NewCompanions(ctx, c.param("mark"), wait)
	})
}

func (c *call) stats() error {
	return c.inspect(func(ctx context.Context, i punctual.Inspector) (any, error) {
		t, err := i.Stats(ctx, c.path["topic"])
		return wire.TopicOf(t), err
	})
}

func (c *call) deleteTopic() error {
	topic := c.path["topic"]
	return c.alter(audit.Change{Verb: "delete topic", Topic: topic}, func(ctx context.Context, i punctual.Inspector) (any, int64, error) {
		n, err := i.DeleteTopic(ctx, topic)
		return wire.Purged{Topic: topic, Purged: n}, n, err
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
	changes := p.Patch()
	changes.If = nil
	detail, err := wire.Encode(wire.SettingsPatchOf(changes)) // not the body, which may consist mostly of spaces
	if err != nil {
		return notEncoded(err)
	}
	return c.change(p.Patch(), string(detail))
}

func (c *call) change(p punctual.SettingsPatch, detail string) error {
	topic := c.path["topic"]
	if err := c.mayMake(topic); err != nil {
		return err
	}
	return c.alter(audit.Change{Verb: "configure", Topic: topic, Detail: detail}, func(ctx context.Context, i punctual.Inspector) (any, int64, error) {
		s, err := i.Configure(ctx, topic, p)
		if err != nil {
			return nil, 0, err
		}
		return wire.SettingsOf(s), 1, nil
	})
}

func (c *call) pause() error  { return c.setPaused(true) }
func (c *call) resume() error { return c.setPaused(false) }

// setPaused pauses or resumes what the parameters push and delivery name. Without any of them, a
// pause is that of deliveries, and a resume ends both pauses.
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
	var detail []string
	if push || neither && !paused {
		p.PushPaused = &paused
		detail = append(detail, fmt.Sprintf("push paused: %t", paused))
	}
	if delivery || neither {
		p.DeliveryPaused = &paused
		detail = append(detail, fmt.Sprintf("delivery paused: %t", paused))
	}
	return c.change(p, strings.Join(detail, ", "))
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
	detail := c.param("state")
	for _, name := range []string{"from", "to"} {
		if text := c.param(name); text != "" {
			detail += ", " + name + " " + text
		}
	}
	return c.alter(audit.Change{Verb: "purge", Topic: q.Topic, Detail: detail}, func(ctx context.Context, i punctual.Inspector) (any, int64, error) {
		n, err := i.Purge(ctx, q)
		return wire.Purged{Topic: q.Topic, Purged: n}, n, err
	})
}

func (c *call) forecast() (err error) {
	q := punctual.ForecastQuery{Topic: c.param("topic")}
	if q.Topic == "" && !c.principal.Allows(access.Inspect, "") {
		return fmt.Errorf("%s may not inspect all topics: name one with topic: %w", c.principal.Name, punctual.ErrForbidden)
	}
	if q.Topic != "" {
		if err := c.allows(access.Inspect, q.Topic); err != nil {
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
