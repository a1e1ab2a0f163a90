package console

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
)

// finish makes topic t keep finished records and finishes two messages in it: "fired" is acked late
// after a retry, "taken-back" is cancelled.
func (r *rig) finish() {
	r.t.Helper()
	keep := 30 * 24 * time.Hour
	if _, err := r.store.Configure(r.t.Context(), "t", punctual.SettingsPatch{FinishedRetention: &keep}); err != nil {
		r.t.Fatal(err)
	}
	r.push("t", "fired", time.Minute)
	r.push("t", "taken-back", time.Hour)
	r.clock.Advance(time.Minute)
	for _, verb := range []punctual.Verb{punctual.SettleRetry, punctual.SettleAck} {
		r.clock.Advance(7 * time.Second)
		ds, err := r.store.Claim(r.t.Context(), punctual.Claim{Topics: []string{"t"}, Max: 1})
		if err != nil || len(ds) != 1 {
			r.t.Fatal(ds, err)
		}
		r.clock.Advance(2 * time.Second)
		s := punctual.Settlement{Topic: "t", ID: ds[0].ID, Token: ds[0].Token, Verb: verb}
		if verb == punctual.SettleRetry {
			s.Error = "<b>no route</b>"
		}
		if errs, err := r.store.Settle(r.t.Context(), []punctual.Settlement{s}); err != nil || errs[0] != nil {
			r.t.Fatal(errs, err)
		}
	}
	r.sent("/topics/t/messages/taken-back/amend", url.Values{"do": {"cancel"}})
}

func (r *rig) wantText(path string, want ...string) {
	r.t.Helper()
	text := r.page(path)
	for _, w := range want {
		if !strings.Contains(text, w) {
			r.t.Errorf("%s does not show %q", path, w)
		}
	}
	for _, key := range missingText.FindAllString(text, -1) {
		r.t.Errorf("%s shows %s", path, key)
	}
}

func TestFinishedMessage(t *testing.T) {
	r := newRig(t, nil)
	r.finish()
	for _, lang := range []struct{ code, acked, cancelled, earlier, none string }{
		{"en", "Acked", "Cancelled", "An earlier message with this ID", "Body and headers of a finished message are not kept"},
		{"zh-CN", "已确认", "已取消", "以前用过此 ID 的消息", "已完成消息的正文和消息头不保留"},
	} {
		q := "lang=" + lang.code
		r.wantText("/topics/t/messages/fired?"+q, lang.acked, "&lt;b&gt;no route&lt;/b&gt;", `<svg class="axis"`, `class="delivered"`, "done lit", lang.none)
		r.wantText("/topics/t/messages/taken-back?"+q, lang.cancelled, lang.none, "<dd>this machine</dd>") // who cancelled it
		r.wantText("/find?id=fired&stay=1&"+q, `/topics/t/messages/fired"`, lang.acked)
		if text := r.get("/fragment/topics/t/messages/fired?" + q).text; !strings.Contains(text, lang.acked) || strings.Contains(text, "<html") {
			t.Errorf("the part of a finished message that is renewed: %.200s", text)
		}
	}
	if a := r.get("/find?id=fired"); a.Code != 303 || a.Header().Get("Location") != "/topics/t/messages/fired" {
		t.Errorf("an ID that one finished message has had: %d to %q", a.Code, a.Header().Get("Location"))
	}
	if a := r.get("/topics/t/messages/nobody"); a.Code != 404 || !strings.Contains(a.text, "there is no finished record of it") {
		t.Errorf("an ID that nobody has had: %d %.300s", a.Code, a.text)
	}
	r.push("t", "fired", time.Hour)
	r.wantText("/topics/t/messages/fired", "An earlier message with this ID", "body of fired", "Acked")
	r.wantText("/topics/t/settings", `name="finished_retention" value="30d"`)
	r.sent("/topics/t/configure", url.Values{"finished_retention": {"2h"}, "was_finished_retention": {"30d"}})
	if s, err := r.store.Settings(t.Context(), "t"); err != nil || s.FinishedRetention != 2*time.Hour {
		t.Errorf("settings %+v, %v", s, err)
	}
	r.clock.Advance(31 * 24 * time.Hour)
	if text := r.page("/topics/t/messages/fired"); strings.Contains(text, "An earlier message") {
		t.Error("a finished record is shown past its retention")
	}
}

// The finished messages of a topic are listed, the one that finished last first, can be filtered by
// outcome and time, and each leads to its record.
func TestFinishedList(t *testing.T) {
	r := newRig(t, nil)
	r.push("t", "early", time.Hour)
	r.wantText("/topics/t/finished", "Set finished_retention in its settings", `href="/topics/t/settings"`, "No record of a finished message is kept")
	r.finish()
	began := r.clock.Now()
	text := r.page("/topics/t/finished")
	cancelled, acked := strings.Index(text, `href="/topics/t/messages/taken-back"`), strings.Index(text, `href="/topics/t/messages/fired"`)
	if cancelled < 0 || acked < cancelled || !strings.Contains(text, "finished message for 30 d") || strings.Contains(text, "messages/early") {
		t.Errorf("the finished messages: %s", wordsOf(text))
	}
	if text := r.page("/topics/t/finished?outcome=acked"); strings.Contains(text, "taken-back") || !strings.Contains(text, "messages/fired") {
		t.Error("a filter by outcome is not kept to")
	}
	if text := r.page("/topics/t/finished?from=2026-11-23T00:00"); strings.Contains(text, `class="happened`) || !strings.Contains(text, "what you chose") {
		t.Error("a filter by time is not kept to")
	}
	for i := range pageRows {
		r.clock.Advance(time.Second)
		id := fmt.Sprintf("m-%03d", i)
		r.push("t", id, time.Hour)
		r.sent("/topics/t/messages/"+id+"/amend", url.Values{"do": {"cancel"}})
	}
	first := r.page("/topics/t/finished")
	_, next, found := strings.Cut(first, `/topics/t/finished?after=`)
	next, _, _ = strings.Cut(next, `"`)
	if !found || strings.Contains(first, "messages/fired") || strings.Count(first, `class="happened cancelled"`) != pageRows {
		t.Fatalf("the first page of %d finished messages: %s", pageRows+2, wordsOf(first))
	}
	second := r.page("/topics/t/finished?after=" + next)
	if strings.Count(second, `class="happened`) != 2 || !strings.Contains(second, "messages/fired") || !strings.Contains(second, "messages/taken-back") {
		t.Errorf("the second page: %s", wordsOf(second))
	}
	until := url.QueryEscape(began.Add(time.Millisecond).UTC().Format(time.RFC3339Nano))
	if text := r.page("/topics/t/finished?outcome=cancelled&to=" + until); strings.Count(text, `class="happened cancelled"`) != 1 {
		t.Errorf("what was cancelled up to %s: %s", until, wordsOf(text))
	}
	if a := r.get("/topics/t/finished?outcome=lost"); a.Code != 400 {
		t.Errorf("an unknown outcome: %d; want 400", a.Code)
	}
	r.wantText("/topics/t/finished?lang=zh-CN", "最新的在前", "已取消")
	unable := rigOver(t, noKeeper{r.store, r.store}, r.store, r.clock, nil)
	unable.wantText("/topics/t/finished", "This store keeps no finished messages")
}

// noKeeper is a store that keeps no finished records, because it is no punctual.FinishedKeeper. It
// reports no abilities either.
type noKeeper struct {
	punctual.Store
	punctual.Inspector
}

// noKeeperBehind is a store that answers as a remote store does whose server keeps no finished
// records: it is a punctual.FinishedKeeper, and refuses every call of that interface with
// ErrUnsupported.
type noKeeperBehind struct {
	noKeeper
	asked *atomic.Int64 // how many calls it has refused
}

func (n noKeeperBehind) Finished(context.Context, string, string) (punctual.Finished, error) {
	n.asked.Add(1)
	return punctual.Finished{}, fmt.Errorf("server: %w", punctual.ErrUnsupported)
}

func (n noKeeperBehind) ListFinished(context.Context, punctual.FinishedQuery) (punctual.FinishedPage, error) {
	n.asked.Add(1)
	return punctual.FinishedPage{}, fmt.Errorf("server: %w", punctual.ErrUnsupported)
}

func TestStoreWithoutFinishedMessages(t *testing.T) {
	for _, elsewhere := range []bool{false, true} {
		r := newRig(t, nil)
		var asked atomic.Int64
		var over punctual.Store = noKeeper{r.store, r.store}
		if elsewhere {
			over = noKeeperBehind{noKeeper{r.store, r.store}, &asked}
		}
		if _, err := punctual.As[punctual.FinishedKeeper](over); (err == nil) != elsewhere {
			t.Fatalf("this shows nothing: that the store has the interface FinishedKeeper is %v; want %v", err == nil, elsewhere)
		}
		r = rigOver(t, over, r.store, r.clock, nil)
		r.push("t", "m", time.Hour)
		// wasAsked checks that the page before has asked the store if its server has to be asked.
		wasAsked := func(page string) {
			t.Helper()
			if n := asked.Swap(0); n > 0 != elsewhere {
				t.Errorf("%s: the store was asked %d times, elsewhere %v", page, n, elsewhere)
			}
		}
		r.wantText("/topics/t/messages/m", "body of m")
		wasAsked("a message")
		r.wantText("/find?id=nobody", "This store keeps no finished messages")
		wasAsked("a search")
		if a := r.get("/topics/t/messages/nobody"); a.Code != 404 || !strings.Contains(a.text, "keeps no finished messages") {
			t.Errorf("an ID that nobody has, elsewhere %v: %d %.300s", elsewhere, a.Code, a.text)
		}
		wasAsked("an ID that nobody has")
		r.wantText("/topics/t/finished", "This store keeps no finished messages")
		wasAsked("the finished messages of a topic")
		if !elsewhere {
			r.wantText("/topics/t/settings", "This store keeps no finished messages")
		}
	}
}
