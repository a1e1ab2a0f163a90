package remotestore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/event"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/storekit"
)

// call sends a request without a key, decodes its answer and converts it. wrong is the error of
// malformed arguments, or nil. call returns it without sending anything, unless the store is closed
// or ctx has ended, whose errors come first.
func call[A, R any](ctx context.Context, s *Store, name string, wrong error, r *request, query url.Values, convert func(*A) (R, error)) (out R, err error) {
	if err := s.calls.Begin(ctx); err != nil {
		return out, fmt.Errorf("%s: %w", name, err)
	}
	defer s.calls.End()
	if wrong != nil {
		return out, fmt.Errorf("%s: %w", name, wrong)
	}
	if len(query) > 0 {
		r.path += "?" + query.Encode()
	}
	p, err := s.do(ctx, r)
	if err != nil {
		return out, fmt.Errorf("%s: %w", name, err)
	}
	var a A
	if err := wire.DecodeAnswer(p.body, &a); err != nil {
		kind := punctual.ErrUnreachable
		if r.again != reading {
			kind = punctual.ErrIndeterminate
		}
		return out, fmt.Errorf("%s: the server's answer is not understood: %w; %w", name, kind, errors.New(err.Error()))
	}
	if out, err = convert(&a); err != nil {
		return out, fmt.Errorf("%s: %w", name, err)
	}
	return out, nil
}

// read returns a request that only reads.
func read(path string) *request {
	return &request{method: http.MethodGet, path: path, again: reading}
}

// parameters returns a query of pairs of names and values, without those whose value is empty.
func parameters(pairs ...string) url.Values {
	q := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	return q
}

// Get implements punctual.Inspector.
func (s *Store) Get(ctx context.Context, topic, id string) (punctual.Info, error) {
	wrong := errors.Join(storekit.CheckTopic(topic), storekit.CheckID(id))
	return call(ctx, s, "get", wrong, read(wire.MessagePath(topic, id)), nil, (*wire.Message).Info)
}

// Finished implements punctual.FinishedKeeper. It fails with ErrUnsupported when the store behind
// the server keeps no finished records.
func (s *Store) Finished(ctx context.Context, topic, id string) (punctual.Finished, error) {
	wrong := errors.Join(storekit.CheckTopic(topic), storekit.CheckID(id))
	return call(ctx, s, "finished", wrong, read(wire.FinishedPath(topic, id)), nil, (*wire.Finished).Finished)
}

// ListFinished implements punctual.FinishedKeeper. It fails with ErrUnsupported when the store
// behind the server keeps no finished records, or the server is too old to list them. The server
// answers with up to 1000 records at a time.
func (s *Store) ListFinished(ctx context.Context, q punctual.FinishedQuery) (punctual.FinishedPage, error) {
	q, wrong := storekit.CheckFinished(q)
	query := parameters("outcome", string(q.Outcome), "from", wire.TimeText(q.From), "to", wire.TimeText(q.To), "after", q.After)
	if q.Descending {
		query.Set("descending", "true")
	}
	if q.Limit != 0 {
		query.Set("limit", strconv.Itoa(q.Limit))
	}
	return call(ctx, s, "list finished", wrong, read(wire.TopicPath(q.Topic, "finished")), query, (*wire.FinishedPage).Page)
}

// Consumers implements storekit.ConsumerReporter with the consumers that the answering server has
// seen. It fails with ErrUnsupported when that server is too old to record them.
func (s *Store) Consumers(ctx context.Context, topic string) (storekit.Consumers, error) {
	wrong := storekit.CheckTopic(topic)
	return call(ctx, s, "consumers", wrong, read(wire.TopicPath(topic, "consumers")), nil, (*wire.Consumers).All)
}

// List implements punctual.Inspector.
func (s *Store) List(ctx context.Context, q punctual.ListQuery) (punctual.Page, error) {
	q, wrong := storekit.CheckList(q)
	query := parameters("state", q.State.String(), "reason", string(q.Reason), "from", wire.TimeText(q.From), "to", wire.TimeText(q.To), "after", q.After)
	if q.Descending {
		query.Set("descending", "true")
	}
	if q.Bare {
		query.Set("bare", "true")
	}
	if q.Limit != 0 {
		query.Set("limit", strconv.Itoa(q.Limit))
	}
	return call(ctx, s, "list", wrong, read(wire.TopicPath(q.Topic, "messages")), query, (*wire.Page).Page)
}

// Topics implements punctual.Inspector.
func (s *Store) Topics(ctx context.Context) ([]punctual.TopicStats, error) {
	return call(ctx, s, "topics", nil, read(wire.PathTopics), nil, func(a *wire.Topics) ([]punctual.TopicStats, error) {
		out := make([]punctual.TopicStats, 0, len(a.Topics))
		for i := range a.Topics {
			t, err := a.Topics[i].Stats()
			if err != nil {
				return nil, err
			}
			out = append(out, t)
		}
		return out, nil
	})
}

// TopicNames implements storekit.TopicNamer. The server names only the topics that this program may
// inspect. TopicNames fails with ErrUnsupported when the store behind the server is no
// storekit.TopicNamer.
func (s *Store) TopicNames(ctx context.Context, q storekit.NameQuery) ([]string, error) {
	query := parameters("prefix", q.Prefix, "suffix", q.Suffix)
	return call(ctx, s, "topic names", nil, read(wire.PathNames), query, func(a *wire.Names) ([]string, error) {
		if a.Topics == nil {
			return []string{}, nil
		}
		return a.Topics, nil
	})
}

// NewCompanions implements storekit.TopicNamer, as TopicNames does.
func (s *Store) NewCompanions(ctx context.Context, mark string, wait time.Duration) (storekit.Companions, error) {
	query := parameters("wait", wire.DurationText(min(max(wait, 0), storekit.MaxAwait)))
	query.Set("mark", mark)
	return call(ctx, s, "new companions", nil, read(wire.PathNames), query, func(a *wire.Names) (storekit.Companions, error) {
		return storekit.Companions{Names: append([]string{}, a.Topics...), Mark: a.Mark}, nil
	})
}

// Stats implements punctual.Inspector.
func (s *Store) Stats(ctx context.Context, topic string) (punctual.TopicStats, error) {
	wrong := storekit.CheckTopic(topic)
	return call(ctx, s, "stats", wrong, read(wire.TopicPath(topic)), nil, (*wire.Topic).Stats)
}

// Forecast implements punctual.Inspector.
func (s *Store) Forecast(ctx context.Context, q punctual.ForecastQuery) (punctual.Forecast, error) {
	wrong := storekit.CheckForecast(q)
	q.Step = min(q.Step, math.MaxInt64/time.Millisecond*time.Millisecond) // so that rounding it up to whole milliseconds cannot overflow
	query := parameters("topic", q.Topic, "from", wire.TimeText(q.From), "step", wire.DurationText(q.Step), "buckets", strconv.Itoa(q.Buckets))
	return call(ctx, s, "forecast", wrong, read(wire.PathForecast), query, func(a *wire.Forecast) (punctual.Forecast, error) {
		return a.Forecast(), nil
	})
}

// Settings implements punctual.Inspector.
func (s *Store) Settings(ctx context.Context, topic string) (punctual.Settings, error) {
	wrong := storekit.CheckTopic(topic)
	return call(ctx, s, "settings", wrong, read(wire.TopicPath(topic, "settings")), nil, (*wire.Settings).Settings)
}

// Configure implements punctual.Inspector.
func (s *Store) Configure(ctx context.Context, topic string, p punctual.SettingsPatch) (punctual.Settings, error) {
	body, err := wire.Encode(wire.SettingsPatchOf(p))
	if err != nil {
		err = fmt.Errorf("%w: %w", punctual.ErrInvalid, err)
	}
	if p.Emit != nil && *p.Emit&^event.All != 0 { // JSON has no word for these
		err = fmt.Errorf("emit: unknown events %d: %w", *p.Emit, punctual.ErrInvalid)
	}
	wrong := cmp.Or(storekit.CheckTopic(topic), err)
	r := &request{method: http.MethodPatch, path: wire.TopicPath(topic, "settings"), body: body}
	return call(ctx, s, "configure", wrong, r, nil, (*wire.Settings).Settings)
}

// Purge implements punctual.Inspector.
func (s *Store) Purge(ctx context.Context, q punctual.PurgeQuery) (int64, error) {
	wrong := storekit.CheckTopic(q.Topic)
	query := parameters("state", wire.StateWord(q.State), "from", wire.TimeText(q.From), "to", wire.TimeText(q.To))
	r := &request{method: http.MethodPost, path: wire.TopicPath(q.Topic, "purge")}
	return call(ctx, s, "purge", wrong, r, query, purged)
}

// DeleteTopic implements punctual.Inspector.
func (s *Store) DeleteTopic(ctx context.Context, topic string) (int64, error) {
	wrong := storekit.CheckTopic(topic)
	return call(ctx, s, "delete topic", wrong, &request{method: http.MethodDelete, path: wire.TopicPath(topic)}, nil, purged)
}

func purged(a *wire.Purged) (int64, error) { return a.Purged, nil }

// Check implements storekit.Checker.
func (s *Store) Check(ctx context.Context, progress func(read int64)) (storekit.CheckReport, error) {
	if err := s.calls.Begin(ctx); err != nil {
		return storekit.CheckReport{}, fmt.Errorf("check: %w", err)
	}
	defer s.calls.End()
	var report *storekit.CheckReport
	var failed error
	r := read(wire.PathCheck)
	r.onLine = func(line []byte) error {
		var l wire.CheckLine
		if err := wire.DecodeAnswer(line, &l); err != nil {
			return err
		}
		switch {
		case l.Error != nil:
			failed = l.Error.Err()
		case l.Report != nil:
			found := l.Report.Report()
			report = &found
		case progress != nil:
			progress(l.Read)
		}
		return nil
	}
	_, err := s.do(ctx, r)
	if err == nil {
		err = failed
	}
	if err == nil && report == nil {
		err = fmt.Errorf("the server ended before it had read everything: %w", punctual.ErrUnreachable)
	}
	if err != nil {
		return storekit.CheckReport{}, fmt.Errorf("check: %w", err)
	}
	return *report, nil
}

// Examine implements storekit.Examiner.
func (s *Store) Examine(ctx context.Context) ([]storekit.Finding, error) {
	type examined struct {
		findings []storekit.Finding
		err      error
	}
	e, err := call(ctx, s, "examine", nil, read(wire.PathExamine), nil, func(a *wire.Examination) (examined, error) {
		found, err := a.Examined()
		return examined{found, err}, nil
	})
	return e.findings, errors.Join(err, e.err)
}

// Space implements storekit.SpaceReporter for the store behind the server. It fails with
// ErrUnsupported when that store is no storekit.SpaceReporter.
func (s *Store) Space(ctx context.Context) (storekit.Space, error) {
	return call(ctx, s, "space", nil, read(wire.PathSpace), nil, func(a *wire.Space) (storekit.Space, error) {
		return storekit.Space{Free: a.Free, Total: a.Total, Reserve: a.Reserve}, nil
	})
}

// Clock implements storekit.ClockKeeper for the store behind the server. It fails with
// ErrUnsupported when that store is no storekit.ClockKeeper.
func (s *Store) Clock(ctx context.Context) (storekit.ClockState, error) {
	return call(ctx, s, "clock", nil, read(wire.PathStanding), nil, (*wire.ClockState).State)
}

// StepClock implements storekit.ClockKeeper, as Clock does.
func (s *Store) StepClock(ctx context.Context) (storekit.ClockState, error) {
	return call(ctx, s, "step the clock", nil, &request{method: http.MethodPost, path: wire.PathStanding}, nil, (*wire.ClockState).State)
}
