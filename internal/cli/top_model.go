package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/overview"
	"github.com/punctualmq/punctual/storekit"
)

// topView is one of the things that top shows.
type topView uint8

const (
	viewNow topView = iota
	viewAhead
	viewTopics
	viewTopic
	viewMessage
	viewDead
)

// topPage is what top shows, and where the user stands in it. Pages lie on a stack: Esc goes back.
type topPage struct {
	view      topView
	topic, id string
	// state is which messages of a topic are listed, step is how Ahead is counted.
	state punctual.State
	step  overview.Step
	// from is where the list begins in time; zero is no bound.
	from time.Time
	// after is where the page of the list begins, before has the pages in front of it.
	after  string
	before []string

	cursor, first int // the row that is chosen, and the first one shown

	list    *punctual.Page // nil while it was not read yet
	workers string         // who works on the topic, in words; empty where nobody knows
	message *punctual.Info
	err     error
}

// same tells whether an answer for p is one for the page that is shown now.
func (p *topPage) same(o topPage) bool {
	return p.view == o.view && p.topic == o.topic && p.id == o.id && p.state == o.state && p.after == o.after && p.from.Equal(o.from)
}

// question is what top asks in its last line but one. Either a key answers it, or a line.
type question struct {
	text string
	// line tells that a line is typed; else y is yes, and every other key is no.
	line   bool
	typed  string
	answer func(typed string)
}

// topModel is the state of top. bubbletea calls its methods one at a time.
type topModel struct {
	app       *app
	inspector punctual.Inspector
	store     punctual.Store
	reader    *overview.Reader
	zone      *time.Location
	// run lets f work beside the screen; what it returns comes back to Update.
	run func(f func(context.Context) tea.Msg)

	width, height int
	o             *overview.Overview
	oErr          error
	reading       bool // an overview is on its way
	loading       bool // the list or message of the page is on its way
	pages         []topPage
	asked         *question
	note          string // what the last action came to
	keys          bool   // the list of keys is shown
	going         bool   // g was typed: the next key says where to
	leave         bool
}

func newTopModel(a *app, i punctual.Inspector, s punctual.Store, r *overview.Reader, zone *time.Location) *topModel {
	return &topModel{app: a, inspector: i, store: s, reader: r, zone: zone, width: 80, height: 24, pages: []topPage{{view: viewNow}}}
}

// What comes back to Update.
type (
	// topTick says that it is time to look again.
	topTick struct{}
	// topOverview is what the reader told.
	topOverview struct {
		o   *overview.Overview
		err error
	}
	// topLoaded is a list or message, for the page that asked for it.
	topLoaded struct {
		page    topPage
		list    *punctual.Page
		workers string
		message *punctual.Info
		err     error
	}
	// topDone is what a change came to.
	topDone struct{ note string }
	// topFound says where a message is, or why it was not found.
	topFound struct {
		topic, id, note string
	}
)

// Init implements tea.Model.
func (t *topModel) Init() tea.Cmd { return nil }

// Update implements tea.Model.
func (t *topModel) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch m := msg.(type) {
	case tea.WindowSizeMsg:
		t.width, t.height = m.Width, m.Height
	case tea.KeyPressMsg:
		t.key(m)
	case topTick:
		t.look()
	case topOverview:
		t.reading, t.oErr = false, m.err
		if m.o != nil {
			t.o = m.o
		}
	case topLoaded:
		t.loading = false
		if p := t.page(); p.same(m.page) {
			p.list, p.workers, p.message, p.err = m.list, m.workers, m.message, m.err
		} else {
			t.load()
		}
	case topDone:
		t.note = m.note
		t.reader.Expire()
		t.look()
	case topFound:
		if t.note = m.note; m.topic != "" {
			t.open(topPage{view: viewMessage, topic: m.topic, id: m.id})
		}
	}
	if t.leave {
		return t, tea.Quit
	}
	return t, nil
}

// page is the page that is shown.
func (t *topModel) page() *topPage { return &t.pages[len(t.pages)-1] }

// open shows a page in front of the present one.
func (t *topModel) open(p topPage) {
	t.pages = append(t.pages, p)
	t.load()
}

// goTo shows one of the main pages and forgets the way to the present one.
func (t *topModel) goTo(p topPage) {
	t.pages = []topPage{p}
	t.load()
}

// back shows the page before.
func (t *topModel) back() {
	if len(t.pages) > 1 {
		t.pages = t.pages[:len(t.pages)-1]
	}
	t.load()
}

// look reads what is shown anew, unless that is under way.
func (t *topModel) look() {
	if !t.reading {
		t.reading = true
		t.run(func(ctx context.Context) tea.Msg {
			o, err := t.reader.Read(ctx)
			return topOverview{o, err}
		})
	}
	t.load()
}

// topTimeout bounds each call to the store.
const topTimeout = 10 * time.Second

// load reads the list or message of the page, unless one is under way: then it is read when that has come.
func (t *topModel) load() {
	p := *t.page()
	if t.loading || p.view != viewTopic && p.view != viewMessage {
		return
	}
	t.loading = true
	limit := max(1, t.height)
	t.run(func(ctx context.Context) tea.Msg {
		ctx, cancel := context.WithTimeout(ctx, topTimeout)
		defer cancel()
		out := topLoaded{page: p}
		if p.view == viewMessage {
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
		if all, err := consumersOf(ctx, t.store, p.topic); err == nil {
			out.workers = consumersLine(all)
		}
		return out
	})
}

// find looks for a message by its ID: in the topic that is shown, else in all.
func (t *topModel) find(id string) {
	id = strings.TrimSpace(id)
	if id == "" {
		return
	}
	within := ""
	if p := t.page(); p.view == viewTopic || p.view == viewMessage {
		within = p.topic
	}
	t.note = "looking for " + oneLine(id, 40) + " …"
	t.run(func(ctx context.Context) tea.Msg {
		ctx, cancel := context.WithTimeout(ctx, topTimeout)
		defer cancel()
		topics, err := findID(ctx, t.inspector, within, id)
		switch {
		case err != nil:
			return topFound{note: failed("find "+id, err)}
		case len(topics) == 0:
			return topFound{note: fmt.Sprintf("%s: not found: 'punctual get' tells of a finished one while its story is kept", oneLine(id, 40))}
		case len(topics) > 1:
			return topFound{note: fmt.Sprintf("%s is in %s: open one of them and look there", oneLine(id, 40), oneLine(strings.Join(topics, ", "), 60))}
		}
		return topFound{topic: topics[0], id: id}
	})
}

// findID is in which topics an ID is; if it is in the topic within, that alone.
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
	return topicsWith(ctx, i, topics, id)
}

// failed is a note of what did not work.
func failed(what string, err error) string {
	if !punctual.Definite(err) {
		return oneLine(what+": it may have happened or not: "+err.Error(), 200)
	}
	return oneLine(what+": "+err.Error(), 200)
}
