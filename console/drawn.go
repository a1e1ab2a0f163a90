package console

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"html/template"
	"sync"

	"github.com/punctualmq/punctual/internal/overview"
)

// To write out a picture takes far longer than all else of a page. An open page asks for the same ones every two
// seconds, so those written last are kept.

// mostDrawn bounds the pictures that are kept. Each has some 10 kB.
const mostDrawn = 64

// drawn keeps pictures as they are written in a page.
type drawn struct {
	mu  sync.Mutex
	all map[drawnKey]template.HTML // guarded by mu
}

// drawnKey is all that a picture depends on.
type drawnKey struct {
	language, zone, span string
	log                  bool
	counts               [sha256.Size]byte
}

// get returns what was kept, or what draw writes.
func (d *drawn) get(k drawnKey, draw func() (template.HTML, error)) (template.HTML, error) {
	d.mu.Lock()
	text, ok := d.all[k]
	d.mu.Unlock()
	if ok {
		return text, nil
	}
	text, err := draw()
	if err != nil {
		return "", err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.all == nil || len(d.all) >= mostDrawn {
		d.all = make(map[drawnKey]template.HTML, mostDrawn) // those that are still shown come again
	}
	d.all[k] = text
	return text, nil
}

// drawnPicture is a picture of the page Now as it is written there.
func (c *call) drawnPicture(f *frame, p *overview.Picture, s span) (template.HTML, error) {
	k := drawnKey{language: c.look.language.code, zone: c.look.zone.String(), span: s.name, log: c.get("scale") == "log", counts: hashOf(p)}
	return c.console.drawn.get(k, func() (template.HTML, error) {
		var text bytes.Buffer
		if err := c.console.templates.execute(&text, k.language, "now", "chart", pair(f, c.pictureChart(f, p, s))); err != nil {
			return "", fmt.Errorf("draw %s: %w", s.name, err)
		}
		return template.HTML(text.String()), nil // a template has escaped it
	})
}

// hashOf is the same for pictures of the same numbers.
func hashOf(p *overview.Picture) (out [sha256.Size]byte) {
	h := sha256.New()
	addAhead(h, p.All)
	for _, t := range p.Topics {
		addAhead(h, t)
	}
	h.Sum(out[:0])
	return out
}

func addAhead(h hash.Hash, a *overview.Ahead) {
	b := make([]byte, 0, len(a.Topic)+8*(len(a.Counts)+len(a.Edges)+6))
	number := func(n int64) { b = binary.LittleEndian.AppendUint64(b, uint64(n)) }
	number(int64(len(a.Topic)))
	b = append(b, a.Topic...)
	number(int64(len(a.Counts)))
	for _, n := range a.Counts {
		number(n)
	}
	for _, e := range a.Edges {
		number(e.Unix())
	}
	number(a.Overdue)
	number(a.Beyond)
	h.Write(b)
}
