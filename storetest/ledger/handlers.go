package ledger

import "github.com/punctualmq/punctual/storetest/promise"

// handlerHistory has what a worker's handlers saw: which ran when, and under which leases (P3).
type handlerHistory struct {
	running map[held]*Fact
	started map[held]bool
	// extensions has for each lease that was extended when it ends after the last extension, at the
	// earliest and at the latest.
	extensions map[held]span
	starts     int
}

// held is a lease.
type held struct {
	name
	token int64
}

func newHandlerHistory() handlerHistory {
	return handlerHistory{make(map[held]*Fact), make(map[held]bool), make(map[held]span), 0}
}

// extended takes the answer of a settlement.
func (h *handlerHistory) extended(l *Ledger, c *call) {
	if c.Call != CallSettle || len(c.answer.Facts) != len(c.Facts) {
		return
	}
	for i, f := range c.Facts {
		if f.Verb == extend && c.answer.Facts[i].Status == "ok" {
			length := exactly(f.Delay)
			if f.Delay == 0 {
				length = l.leasesOf(f.Topic)
			}
			h.extensions[held{name{f.Topic, f.ID}, f.Token}] = length.plus(span{c.At, c.end})
		}
	}
}

func (h *handlerHistory) end(key held, f *Fact) span {
	if e, ok := h.extensions[key]; ok {
		return span{max(e.lo, f.Until), max(e.hi, f.Until)}
	}
	return exactly(f.Until)
}

// add takes the start or the end of a handler.
func (h *handlerHistory) add(l *Ledger, e *Line) {
	f := &e.Facts[0]
	key := held{name{f.Topic, f.ID}, f.Token}
	if e.Call == LineStop {
		delete(h.running, key)
		return
	}
	h.starts++
	end := h.end(key, f)
	if h.started[key] {
		l.broken(l.line, "%s: the handler of %s started twice under token %d", promise.P3, key.name, key.token)
	}
	if l.Grace > 0 && e.At > end.hi+l.Grace {
		l.broken(l.line, "%s: the handler of %s started at %d, %d ms after the end of its lease", promise.P3, key.name, e.At, e.At-end.hi)
	}
	for other, g := range h.running {
		if other.name != key.name || g.Life != f.Life {
			continue
		}
		if until := h.end(other, g); l.Grace > 0 && until.lo > e.At+l.Grace && end.lo > e.At {
			l.broken(l.line, "%s: a second handler of %s started at %d under token %d, the first one holds token %d until %d",
				promise.P3, key.name, e.At, key.token, other.token, until.lo)
		}
	}
	h.started[key] = true
	h.running[key] = f
	f.At = e.N
}

// ended forgets the handlers of a process that is gone.
func (h *handlerHistory) ended(process int64) {
	for key, f := range h.running {
		if ProcessOf(f.At) == process {
			delete(h.running, key)
		}
	}
}
