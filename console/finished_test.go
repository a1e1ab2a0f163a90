package console

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
)

// finish makes topic t keep finished records and finishes two messages in it: one acked late, one cancelled.
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
		r.wantText("/topics/t/messages/taken-back?"+q, lang.cancelled, lang.none)
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

// noKeeper is a store that keeps no finished records and has no punctual.FinishedKeeper.
type noKeeper struct {
	punctual.Store
	punctual.Inspector
}

// noKeeperBehind is a remote store whose server keeps no finished records, which only a call of Finished tells.
type noKeeperBehind struct{ noKeeper }

func (noKeeperBehind) Finished(context.Context, string, string) (punctual.Finished, error) {
	return punctual.Finished{}, fmt.Errorf("server: %w", punctual.ErrUnsupported)
}

func TestStoreWithoutFinishedMessages(t *testing.T) {
	for _, elsewhere := range []bool{false, true} {
		r := newRig(t, nil)
		var over punctual.Store = noKeeper{r.store, r.store}
		if elsewhere {
			over = noKeeperBehind{noKeeper{r.store, r.store}}
		}
		r = rigOver(t, over, r.store, r.clock, nil)
		r.push("t", "m", time.Hour)
		r.wantText("/topics/t/messages/m", "body of m")
		r.wantText("/find?id=nobody", "This store keeps no finished messages")
		if a := r.get("/topics/t/messages/nobody"); a.Code != 404 || !strings.Contains(a.text, "keeps no finished messages") {
			t.Errorf("an ID that nobody has, elsewhere %v: %d %.300s", elsewhere, a.Code, a.text)
		}
		if !elsewhere {
			r.wantText("/topics/t/settings", "This store keeps no finished messages")
		}
	}
}
