package console

import (
	"context"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
)

// The page of a message shows the attributes that are set, each with its label in the language of
// the reader.
func TestAttributesOfAMessage(t *testing.T) {
	r := newRig(t, nil)
	r.push("a", "plain", time.Hour)
	r.push("a", "1", time.Hour, func(m *punctual.NewMessage) { m.Remember = 36 * time.Hour })
	const label = "此消息的去重窗口"
	if page := r.page("/topics/a/messages/1?lang=zh-CN"); !strings.Contains(page, "<dt>"+label+"</dt><dd>1d12h</dd>") {
		t.Errorf("the page does not show %q as 1d12h: %s", label, page)
	}
	if page := r.page("/topics/a/messages/plain?lang=zh-CN"); strings.Contains(page, label) {
		t.Errorf("the page of a message without attributes shows %q", label)
	}
}

// meanwhile is a store in which something happens before the next amendment, after the console has
// read the message.
type meanwhile struct {
	*memstore.Store
	happens func() // called once; nil for nothing
}

func (m *meanwhile) Amend(ctx context.Context, as []punctual.Amendment) ([]punctual.Amended, error) {
	if f := m.happens; f != nil {
		m.happens = nil
		f()
	}
	return m.Store.Amend(ctx, as)
}

// A dead message that somebody requeues after the console has found it dead is not deleted.
func TestDeleteOfARequeuedMessage(t *testing.T) {
	below := newRig(t, nil)
	m := &meanwhile{Store: below.store}
	r := rigOver(t, m, below.store, below.clock, nil)
	r.kill("t", "no", "d")
	r.clock.Advance(time.Minute)
	requeued := false
	m.happens = func() {
		rs, err := r.store.Amend(t.Context(), []punctual.Amendment{{Change: punctual.ChangeRequeue, Topic: "t", ID: "d"}})
		requeued = err == nil && rs[0].Err == nil
	}
	a := r.post("/topics/t/messages/d/delete", nil)
	if !requeued {
		t.Fatal("this shows nothing: the message was not requeued")
	}
	if _, err := r.store.Get(t.Context(), "t", "d"); err != nil {
		t.Errorf("P1: a message that was requeued meanwhile is deleted: %v", err)
	}
	if a.Code != http.StatusConflict || !strings.Contains(a.text, `role="alert"`) {
		t.Errorf("the answer is %d; want 409 with the reason", a.Code)
	}
}

// editFormOf returns the hidden fields and texts that the form of a message's page would send if
// nobody changed them.
func (r *rig) editFormOf(path string) url.Values {
	r.t.Helper()
	text := r.page(path)
	_, text, found := strings.Cut(text, `action="`+path+`/edit"`)
	text, _, _ = strings.Cut(text, "</form>")
	if !found {
		r.t.Fatalf("%s has no form to edit the message", path)
	}
	fields := url.Values{}
	for _, m := range regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)"`).FindAllStringSubmatch(text, -1) {
		fields.Set(m[1], html.UnescapeString(m[2]))
	}
	for _, m := range regexp.MustCompile(`<textarea name="([^"]*)"[^>]*>([^<]*)</textarea>`).FindAllStringSubmatch(text, -1) {
		fields.Set(m[1], html.UnescapeString(m[2]))
	}
	return fields
}

// Of two people who change a message at the same time, the second one is told, and what the first
// one wrote stays: also in a scheduled message, which keeps its due time.
func TestTwoPeopleEdit(t *testing.T) {
	for what, first := range map[string]url.Values{"body": {"body": {"of the first"}}, "headers": {"headers": {"tenant: shop-2"}}} {
		r := newRig(t, nil)
		const path = "/topics/t/messages/m"
		r.push("t", "m", time.Hour, func(m *punctual.NewMessage) { m.Headers = map[string]string{"tenant": "shop-1"} })
		one, two := r.editFormOf(path), r.editFormOf(path)
		for name, value := range first {
			one[name] = value
		}
		two.Set("body", "of the second")
		r.sent(path+"/edit", one)
		was := r.message("t", "m")
		if was.State != punctual.StateScheduled || !was.Due.Equal(noon.Add(time.Hour)) {
			t.Fatalf("this shows nothing: the message is %s and due %v", was.State, was.Due)
		}
		a := r.post(path+"/edit", two)
		if a.Code != http.StatusConflict || !strings.Contains(a.text, `role="alert"`) {
			t.Errorf("%s: the second form is answered with %d; want 409 with the reason", what, a.Code)
		}
		if m := r.message("t", "m"); string(m.Body) != string(was.Body) || m.Headers["tenant"] != was.Headers["tenant"] {
			t.Errorf("%s: the second form has overwritten the first one: %q, %v", what, m.Body, m.Headers)
		}
		again := r.editFormOf(path)
		again.Set("body", "of the second")
		r.sent(path+"/edit", again)
		if m := r.message("t", "m"); string(m.Body) != "of the second" || m.Headers["tenant"] != was.Headers["tenant"] {
			t.Errorf("%s: after another look the second form makes %q, %v of it", what, m.Body, m.Headers)
		}
	}
}
