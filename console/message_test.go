package console

import (
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
)

// The page of a message shows the attributes that are set, each with its label in the language of the reader.
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
