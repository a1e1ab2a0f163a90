package wire

import (
	"errors"
	"reflect"
	"testing"
	"unicode/utf8"

	"github.com/punctualmq/punctual"
)

// Decoding a request never panics, and refuses a request with ErrInvalid or ErrTooLarge. Pushes,
// settlements and settings mean the same after they were encoded and decoded again.

func FuzzDecodePush(f *testing.F) {
	f.Add([]byte(`{"messages":[{"topic":"a","body":"x","in":"30m","headers":{"a":"b"}},{"body_base64":"/w==","due":"2026-11-20T10:00:00Z"}]}`))
	f.Add([]byte(`{"messages":[{"topic":"a@b","body":"","at_local":"2026-11-20 09:00","zone":"Europe/Berlin"},{"topic":"a","id":"1","body":"","if_exists":"replace","if_due":"2026-11-20T10:00:00Z"}]}`))
	f.Add([]byte(`{"messages":[{"body":{"a":[1,null,"\ud83d\ude00"]},"if_exists":"replace-dead","headers_base64":{"/w==":""}}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var r PushRequest
		if !decodes(t, data, &r) {
			return
		}
		for i := range r.Messages {
			m, err := r.Messages[i].Message()
			if err != nil {
				wantInvalid(t, err)
				continue
			}
			item, err := PushItemOf(&m)
			if err != nil {
				t.Fatalf("%+v cannot be sent on: %v", m, err)
			}
			if again, err := item.Message(); err != nil || string(again.Body) != string(m.Body) || again.Delay != m.Delay || !again.Due.Equal(m.Due) || !again.IfDue.Equal(m.IfDue) {
				t.Fatalf("%+v is sent on as %+v, %v", m, again, err)
			}
		}
	})
}

func FuzzDecodeSettle(f *testing.F) {
	f.Add([]byte(`{"settlements":[{"topic":"a","id":"b","token":"8123","verb":"retry","in":"1m","error":"no"}]}`))
	f.Add([]byte(`{"settlements":[{"topic":"a","id":"b","token":"1","verb":"snooze","at":"2026-11-20T10:00:00Z","then":[{"topic":"a@b","id":"b~1","in":"2d","body":{"a":1}},{"topic":"c","body_base64":"/w=="}]}]}`))
	f.Add([]byte(`{"settlements":[{"topic":"a","id":"b","token":"1","verb":"ack","then":[]},{"verb":"discard","then":null}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var r SettleRequest
		if !decodes(t, data, &r) {
			return
		}
		for i := range r.Settlements {
			s, err := r.Settlements[i].Settlement()
			if err != nil {
				wantInvalid(t, err)
				continue
			}
			item, err := SettleItemOf(&s)
			if err != nil {
				t.Fatalf("%+v cannot be sent on: %v", s, err)
			}
			if again, err := item.Settlement(); err != nil || again.Delay != s.Delay || !again.Due.Equal(s.Due) || len(again.Then) != len(s.Then) {
				t.Fatalf("%+v is sent on as %+v, %v", s, again, err)
			}
		}
	})
}

func FuzzDecodeAmend(f *testing.F) {
	f.Add([]byte(`{"amendments":[{"change":"reschedule","topic":"a","id":"b","in":"2h"}]}`))
	f.Add([]byte(`{"amendments":[{"change":"cancel","topic":"a@b","id":"b","if_due":"2026-11-20T10:00:00.25Z"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var r AmendRequest
		if decodes(t, data, &r) {
			for i := range r.Amendments {
				_, err := r.Amendments[i].Amendment()
				wantInvalid(t, err)
			}
		}
	})
}

func FuzzDecodeClaim(f *testing.F) {
	f.Add([]byte(`{"topics":["a","b/c"],"max":10,"wait":"30s","lease":"1m"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var r ClaimRequest
		if decodes(t, data, &r) {
			if _, err := ClaimRequestOf(r.Claim()); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func FuzzDecodeSettings(f *testing.F) {
	f.Add([]byte(`{"lease":"1m","backoff":"2m,10m","max_attempts":3,"push_paused":true,"partitions":4}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var p SettingsPatch
		if !decodes(t, data, &p) {
			return
		}
		sent, err := Encode(p)
		if err != nil {
			t.Fatal(err)
		}
		var again SettingsPatch
		if err := DecodeRequest(sent, &again); err != nil {
			t.Fatalf("%s is sent on as %s: %v", data, sent, err)
		}
		if twice, err := Encode(again); err != nil || string(twice) != string(sent) {
			t.Fatalf("%s is sent on as %s, and then as %s, %v", data, sent, twice, err)
		}
	})
}

// Decoding an answer never panics, although it may not come from a Punctual server.
func FuzzDecodeAnswer(f *testing.F) {
	f.Add([]byte(`{"messages":[{"id":"a","token":"1","body":"x","due":"2026-11-20T10:00:00.000Z"}]}`))
	f.Add([]byte(`{"results":[{"result":"stored","error":{"code":"no_space","definite":true}}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var c ClaimAnswer
		if err := DecodeAnswer(data, &c); err == nil {
			for i := range c.Messages {
				if _, err := c.Messages[i].Delivery(); err != nil && !errors.Is(err, punctual.ErrIndeterminate) {
					t.Fatal(err)
				}
			}
		}
		var p PushAnswer
		if err := DecodeAnswer(data, &p); err == nil {
			for i := range p.Results {
				if r := p.Results[i].PushResult(); r.Err == nil && r.Status == punctual.PushNone {
					t.Fatalf("%+v says nothing", r)
				}
			}
		}
	})
}

func FuzzSplitPath(f *testing.F) {
	f.Add("/v1/topics/a%2Fb/messages/A-17/ack")
	f.Add("/v1/topics/%2e%2e/messages")
	f.Fuzz(func(t *testing.T, path string) {
		segments, err := SplitPath(path)
		if err != nil {
			wantInvalid(t, err)
			return
		}
		for _, s := range segments {
			back, err := SplitPath("/" + escapeSegment(s))
			if err != nil || len(back) != 1 || back[0] != s {
				t.Fatalf("segment %q of %q is read back as %q, %v", s, path, back, err)
			}
		}
	})
}

func decodes(t *testing.T, data []byte, into any) bool {
	err := DecodeRequest(data, into)
	if errors.Is(err, punctual.ErrTooLarge) {
		return false
	}
	wantInvalid(t, err)
	if err == nil && !utf8.Valid(data) {
		t.Fatalf("%q is accepted although it is not UTF-8", data)
	}
	return err == nil
}

func wantInvalid(t *testing.T, err error) {
	t.Helper()
	if err != nil && (!errors.Is(err, punctual.ErrInvalid) || !punctual.Definite(err)) {
		t.Fatalf("%v; want ErrInvalid", err)
	}
}

func FuzzCompactPush(f *testing.F) {
	data, err := EncodePush(Compact, samplePush())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		ms, err := DecodeCompactPush(data, 1000, unbounded)
		if err != nil {
			if !errors.Is(err, punctual.ErrTooLarge) {
				wantInvalid(t, err)
			}
			return
		}
		sent, err := compactPush(ms)
		if err != nil {
			t.Fatal(err)
		}
		again, err := DecodeCompactPush(sent, 1000, unbounded)
		if err != nil || len(ms) > 0 && !reflect.DeepEqual(ms, again) {
			t.Fatalf("%+v is sent on as %+v, %v", ms, again, err)
		}
	})
}

func FuzzCompactSettle(f *testing.F) {
	data, err := EncodeSettle(Compact, sampleSettlements())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		ss, err := DecodeCompactSettle(data, 1000, unbounded)
		if err != nil {
			if !errors.Is(err, punctual.ErrTooLarge) {
				wantInvalid(t, err)
			}
			return
		}
		sent, err := compactSettle(ss)
		if err != nil {
			t.Fatal(err)
		}
		again, err := DecodeCompactSettle(sent, 1000, unbounded)
		if err != nil || len(ss) > 0 && !reflect.DeepEqual(ss, again) {
			t.Fatalf("%+v is sent on as %+v, %v", ss, again, err)
		}
	})
}

func FuzzCompactAnswers(f *testing.F) {
	push, err1 := EncodePushAnswer(Compact, samplePushResults())
	claim, err2 := EncodeClaimAnswer(Compact, sampleDeliveries())
	settle, err3 := EncodeSettleAnswer(Compact, sampleSettlements(), sampleErrors())
	if err := errors.Join(err1, err2, err3); err != nil {
		f.Fatal(err)
	}
	f.Add(push)
	f.Add(claim)
	f.Add(settle)
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, decode := range []func() error{
			func() error { _, err := DecodePushAnswer(Compact, data); return err },
			func() error { _, err := DecodeSettleAnswer(Compact, data); return err },
			func() error {
				ds, err := DecodeClaimAnswer(Compact, data)
				if err != nil || len(ds) == 0 {
					return err
				}
				sent, err := compactClaimAnswer(ds)
				if err != nil {
					t.Fatal(err)
				}
				again, err := DecodeClaimAnswer(Compact, sent)
				if err != nil || !reflect.DeepEqual(ds, again) {
					t.Fatalf("%+v is sent on as %+v, %v", ds, again, err)
				}
				return nil
			},
		} {
			if err := decode(); err != nil && !errors.Is(err, punctual.ErrIndeterminate) {
				t.Fatalf("%x: %v, want ErrIndeterminate", data, err)
			}
		}
	})
}
