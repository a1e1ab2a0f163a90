package console

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"html/template"
	"sync"

	"github.com/punctualmq/punctual/internal/overview"
)

// Writing a picture as HTML takes far longer than writing the rest of a page, and an open page asks
// for the same pictures about every two seconds. So drawn caches the HTML of pictures.

// mostDrawn bounds the pictures in the cache. Each has some 10 kB.
const mostDrawn = 64

// drawn is a cache of pictures as HTML. Its methods are safe for concurrent use.
type drawn struct {
	mu  sync.Mutex
	all map[drawnKey]template.HTML // guarded by mu
}

// drawnKey identifies a picture by everything that its HTML depends on.
type drawnKey struct {
	language, zone, span string
	log                  bool
	counts               [sha256.Size]byte
}

// get returns the picture from the cache. If it is not there, get calls draw and caches what draw
// returns, unless that is an error.
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
		d.all = make(map[drawnKey]template.HTML, mostDrawn) // a full cache is emptied: pictures that are still shown are drawn once more
	}
	d.all[k] = text
	return text, nil
}

// drawnPicture returns the HTML of a picture of the page Now.
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

// hashOf returns a hash of the topics, times and counts in a picture. The first and last of the
// edges stand for all, because those between them follow from the span and the time zone.
func hashOf(p *overview.Picture) (out [sha256.Size]byte) {
	h := sha256.New()
	for _, a := range append([]*overview.Ahead{p.All}, p.Topics...) {
		fmt.Fprintf(h, "%q %v %d %d %d %d\n", a.Topic, a.Counts, a.Overdue, a.Beyond, a.Edges[0].Unix(), a.Edges[len(a.Edges)-1].Unix())
	}
	h.Sum(out[:0])
	return out
}
