package console

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/punctualmq/punctual"
)

// messageFilter selects messages of a list by conditions that no store searches for, so the console
// reads the list and filters it. The zero value selects every message.
type messageFilter struct {
	// Errors selects dead messages by their last error.
	Errors deathFilter
	// Prefix is the beginning that the ID has to have. An empty Prefix sets no condition.
	Prefix string
	// Key is the key that the message has to have. An empty Key sets no condition.
	Key string
	// Header is the name of a header that the message has to have with exactly the value Value. An
	// empty name sets no condition.
	Header, Value string
}

// typedFilter returns what stands in the form's fields of the filter, also what messageFilter
// refuses.
func (c *call) typedFilter() messageFilter {
	return messageFilter{
		Errors: deathFilter{Text: c.get("error"), Whole: c.get("match") == matchWhole},
		Prefix: c.get("prefix"), Key: c.get("key"), Header: c.get("header"), Value: c.get("value"),
	}
}

// messageFilter reads the filter from the form's fields "prefix", "key", "header" and "value", and
// for dead messages also from "error" and "match". It refuses a header that is hidden, because the
// messages found would reveal the value of that header.
func (c *call) messageFilter(state punctual.State) (f messageFilter, err error) {
	f = c.typedFilter()
	if f.Errors = (deathFilter{}); state == punctual.StateDead {
		if f.Errors, err = c.deathFilter(); err != nil {
			return f, err
		}
	}
	if f.Header == "" && f.Value != "" {
		return f, fmt.Errorf("a value without the name of its header: %w", punctual.ErrInvalid)
	}
	if f.Header != "" {
		err = c.mayShowHeader(f.Header)
	}
	return f, err
}

// KeepsAll reports whether the filter selects every message.
func (f messageFilter) KeepsAll() bool {
	return f.Errors.keepsAll() && f.Prefix == "" && f.Key == "" && f.Header == ""
}

func (f messageFilter) keeps(m *punctual.Info) bool {
	if value, ok := m.Headers[f.Header]; f.Header != "" && (!ok || value != f.Value) {
		return false
	}
	return strings.HasPrefix(m.ID, f.Prefix) && (f.Key == "" || m.Key == f.Key) && f.Errors.keeps(m)
}

// addTo sets the form's fields of the filter in a query.
func (f messageFilter) addTo(q url.Values) {
	f.Errors.addTo(q)
	for name, value := range map[string]string{"prefix": f.Prefix, "key": f.Key, "header": f.Header, "value": f.Value} {
		if value != "" {
			q.Set(name, value)
		}
	}
}
