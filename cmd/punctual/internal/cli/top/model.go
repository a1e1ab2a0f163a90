package top

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/cmd/punctual/internal/cli/term"
	"github.com/punctualmq/punctual/cmd/punctual/internal/cli/view"
	"github.com/punctualmq/punctual/internal/overview"
	"github.com/punctualmq/punctual/storekit"
)

// pageKind says what a page shows.
type pageKind uint8

const (
	pageNow pageKind = iota
	pageTopics
	pageTopic
	pageMessage
)

// page is what top shows, and which row of it is chosen. Pages lie on a stack, from which Esc takes
// the top one unless it is the last.
type page struct {
	kind      pageKind
	topic, id string
	// state says which messages of a topic are listed.
	state punctual.State
	// from is where the list begins in time; zero is no bound.
	from time.Time
	// after is the cursor at which the shown part of the list begins. before has the cursors of the
	// parts in front of it.
	after  string
	before []string

	cursor, first int // the row that is chosen, and the first one shown

	list    *punctual.Page // nil while it was not read yet
	workers string         // what the consumers of the topic hold, in words; empty where nobody knows
	message *punctual.Info
	err     error
}

// same reports whether o shows the same message as p, or the same part of the same list, so that an
// answer for o may be shown on p.
func (p *page) same(o page) bool {
	return p.kind == o.kind && p.topic == o.topic && p.id == o.id && p.state == o.state && p.after == o.after && p.from.Equal(o.from)
}

// question is what top asks in its last line but one. Either a key answers it, or a line.
type question struct {
	text string
	// line tells that a line is typed; else y is yes, and every other key is no.
	line   bool
	typed  string
	answer func(typed string)
}

// model is the state of the screen. bubbletea calls its methods one at a time.
type model struct {
	readTime  func(string) (time.Time, error)
	inspector punctual.Inspector
	store     punctual.Store
	reader    *overview.Reader
	zone      *time.Location
	// run calls f in a goroutine, so that the screen does not wait; Update gets what f returns.
	run func(f func(context.Context) tea.Msg)

	width, height int
	o             *overview.Overview
	oErr          error
	reading       bool // an overview is on its way
	loading       bool // the list or message of the page is on its way
	pages         []page
	asked         *question
	note          string // what the last action came to
	keys          bool   // the list of keys is shown
	going         bool   // g was typed: the next key says where to
	leave         bool
}

func newModel(i punctual.Inspector, s punctual.Store, r *overview.Reader, o Options) *model {
	return &model{readTime: o.ReadTime, inspector: i, store: s, reader: r, zone: o.Zone, width: 80, height: 24, pages: []page{{kind: pageNow}}}
}

// The messages that Update gets of top itself.
type (
	// tickMsg says that it is time to read the store again.
	tickMsg struct{}
	// overviewMsg is what the reader returned.
	overviewMsg struct {
		o   *overview.Overview
		err error
	}
	// loadedMsg is a list or message, for the page that asked for it.
	loadedMsg struct {
		page    page
		list    *punctual.Page
		workers string
		message *punctual.Info
		err     error
	}
	// doneMsg is what a change came to.
	doneMsg struct{ note string }
	// foundMsg says where a message is, or why it was not found.
	foundMsg struct {
		topic, id, note string
	}
)

// Init implements tea.Model.
func (t *model) Init() tea.Cmd { return nil }

// Update implements tea.Model.
func (t *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch m := msg.(type) {
	case tea.WindowSizeMsg:
		t.width, t.height = m.Width, m.Height
	case tea.KeyPressMsg:
		t.key(m)
	case tickMsg:
		t.refresh()
	case overviewMsg:
		t.reading, t.oErr = false, m.err
		if m.o != nil {
			t.o = m.o
		}
	case loadedMsg:
		t.loading = false
		if p := t.page(); p.same(m.page) {
			p.list, p.workers, p.message, p.err = m.list, m.workers, m.message, m.err
		} else {
			t.load()
		}
	case doneMsg:
		t.note = m.note
		t.reader.Expire()
		t.refresh()
	case foundMsg:
		if t.note = m.note; m.topic != "" {
			t.open(page{kind: pageMessage, topic: m.topic, id: m.id})
		}
	}
	if t.leave {
		return t, tea.Quit
	}
	return t, nil
}

// page is the page that is shown.
func (t *model) page() *page { return &t.pages[len(t.pages)-1] }

// open shows a page in front of the present one.
func (t *model) open(p page) {
	t.pages = append(t.pages, p)
	t.load()
}

// goTo shows one of the main pages, from which Esc does not lead back.
func (t *model) goTo(p page) {
	t.pages = []page{p}
	t.load()
}

// back shows the page before, if there is one.
func (t *model) back() {
	if len(t.pages) > 1 {
		t.pages = t.pages[:len(t.pages)-1]
	}
	t.load()
}

// refresh reads the overview, and the list or message of the page, anew. What is being read already
// is not read twice.
func (t *model) refresh() {
	if !t.reading {
		t.reading = true
		t.run(func(ctx context.Context) tea.Msg {
			o, err := t.reader.Read(ctx)
			return overviewMsg{o, err}
		})
	}
	t.load()
}

// callTimeout bounds the calls to the store that one key or one page needs, all of them together.
const callTimeout = 10 * time.Second

// load reads the list or message of the page, if it has one. While such a reading is under way load
// does nothing, because Update calls it again when that reading was for another page.
func (t *model) load() {
	p := *t.page()
	if t.loading || p.kind != pageTopic && p.kind != pageMessage {
		return
	}
	t.loading = true
	limit := max(1, t.height)
	t.run(func(ctx context.Context) tea.Msg {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		out := loadedMsg{page: p}
		if p.kind == pageMessage {
			m, err := t.inspector.Get(ctx, p.topic, p.id)
			if out.err = err; err == nil {
				out.message = &m
			}
			return out
		}
		l, err := t.inspector.List(ctx, punctual.ListQuery{Topic: p.topic, State: p.state, From: p.from, Limit: limit, After: p.after})
		if out.err = err; err == nil {
			out.list = &l
		}
		if all, err := view.Consumers(ctx, t.store, p.topic); err == nil {
			out.workers = consumersLine(all)
		}
		return out
	})
}

// find searches a message by its ID: first in the topic that is shown, then in all.
func (t *model) find(id string) {
	id = strings.TrimSpace(id)
	if id == "" {
		return
	}
	within := ""
	if p := t.page(); p.kind == pageTopic || p.kind == pageMessage {
		within = p.topic
	}
	t.note = "looking for " + term.OneLine(id, 40) + " …"
	t.run(func(ctx context.Context) tea.Msg {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		topics, err := findID(ctx, t.inspector, within, id)
		switch {
		case err != nil:
			return foundMsg{note: failed("find "+id, err)}
		case len(topics) == 0:
			return foundMsg{note: fmt.Sprintf("%s: not found: 'punctual get' shows a finished one while its record is kept", term.OneLine(id, 40))}
		case len(topics) > 1:
			return foundMsg{note: fmt.Sprintf("%s is in %s: open one of them and look there", term.OneLine(id, 40), term.OneLine(strings.Join(topics, ", "), 60))}
		}
		return foundMsg{topic: topics[0], id: id}
	})
}

// findID returns the topics that hold an ID; if the topic within does, that one alone.
func findID(ctx context.Context, i punctual.Inspector, within, id string) ([]string, error) {
	if err := storekit.CheckID(id); err != nil {
		return nil, err
	}
	if within != "" {
		if _, err := i.Get(ctx, within, id); !errors.Is(err, punctual.ErrNotFound) {
			return []string{within}, err
		}
	}
	topics, err := i.Topics(ctx)
	if err != nil {
		return nil, err
	}
	return view.TopicsWith(ctx, i, topics, id)
}

// failed returns the note about what has failed with err.
func failed(what string, err error) string {
	if !punctual.Definite(err) {
		return term.OneLine(what+": it may have happened or not: "+err.Error(), 200)
	}
	return term.OneLine(what+": "+err.Error(), 200)
}

// consumersLine says in a few words how many leases the consumers of a topic hold, and how many of
// their claims wait.
func consumersLine(all storekit.Consumers) string {
	all = all.First(0)
	line := fmt.Sprintf("%d leases held, %d claims wait", all.Others.Leases, all.Others.Waiting)
	if all.Others == (storekit.Consumer{}) {
		line = "no consumers"
	}
	return line
}
