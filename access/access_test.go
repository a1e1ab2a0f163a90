package access

import (
	"strings"
	"testing"
)

func TestActions(t *testing.T) {
	for text, want := range map[string]Action{"push": Push, "push,work": Push | Work, "all": All} {
		if got, err := ParseActions(text); err != nil || got != want || got.String() != text {
			t.Errorf("%q is %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "root", "push, work", "push,"} {
		if got, err := ParseActions(text); err == nil {
			t.Errorf("%q is taken as %v", text, got)
		}
	}
}

// A grant for a topic by its name covers the topic's companions. A grant for a prefix covers the
// topics and companions whose names begin with it, and a grant for a companion that companion
// alone. No grant covers another topic.
func TestCompanions(t *testing.T) {
	for _, c := range []struct {
		topics string
		yes    []string
		no     []string
	}{
		{"orders", []string{"orders", "orders@events", "orders@g.mail"}, []string{"orders2", "orders2@events", "order", "o@orders", ""}},
		{"orders@events", []string{"orders@events"}, []string{"orders", "orders@g.mail", "orders@events2", ""}},
		{"orders@*", []string{"orders@events", "orders@g.mail"}, []string{"orders", "orders2@events", ""}},
		{"order*", []string{"orders", "orders@events", "order", "order@in"}, []string{"ord", "ord@er", ""}},
		{"*", []string{"orders", "orders@events", ""}, nil},
	} {
		p := &Principal{Name: "x", Grants: []Grant{{Actions: Push, Topics: c.topics}}}
		for _, topic := range c.yes {
			if !p.Allows(Push, topic) || p.Allows(Push|Work, topic) {
				t.Errorf("a grant for %q does not allow what it says on %q", c.topics, topic)
			}
		}
		for _, topic := range c.no {
			if p.Allows(Push, topic) {
				t.Errorf("a grant for %q allows %q", c.topics, topic)
			}
		}
	}
}

// No grant allows pushes to a companion out, because a duty of the server would forward them to any
// topic. The other actions are allowed there as on any companion.
func TestOut(t *testing.T) {
	for _, topics := range []string{"*", "orders", "orders@out", "orders*"} {
		p := &Principal{Name: "x", Grants: []Grant{{Actions: All, Topics: topics}}}
		if p.Allows(Push, "orders@out") || p.Allows(Push|Work, "orders@out") {
			t.Errorf("a grant for %q allows pushes to orders@out", topics)
		}
		if !p.Allows(Work|Inspect|Amend|Admin, "orders@out") {
			t.Errorf("a grant for %q does not allow the rest", topics)
		}
	}
}

// A companion cron has the schedules of its topic as messages, so whoever works on them or amends
// them needs Admin as well.
func TestCron(t *testing.T) {
	for _, topics := range []string{"*", "reports", "reports@cron"} {
		for _, a := range []Action{Work, Amend, Work | Inspect} {
			p := &Principal{Name: "x", Grants: []Grant{{Actions: Push | Work | Inspect | Amend, Topics: topics}}}
			err := p.Check(a, "reports@cron")
			if p.Allows(a, "reports@cron") || err == nil || topics != "reports@cron" && !strings.Contains(err.Error(), "without admin") {
				t.Errorf("a grant for %q without admin allows %v in reports@cron: %v", topics, a, err)
			}
			if !p.Allows(Push|Inspect, "reports@cron") {
				t.Errorf("a grant for %q does not allow what putting and reading schedules needs", topics)
			}
			p.Grants[0].Actions = All
			if err := p.Check(a, "reports@cron"); err != nil {
				t.Errorf("with admin: %v", err)
			}
		}
	}
}

// Any grant of Inspect that covers the audit log lets it be read. Only a grant that names it lets
// it be changed.
func TestAuditTopic(t *testing.T) {
	for _, c := range []struct {
		grants        []Grant
		read, changed bool
	}{
		{[]Grant{Everything()}, true, false},
		{[]Grant{{Actions: All, Topics: "punctual.*"}}, true, false},
		{[]Grant{{Actions: All &^ Inspect, Topics: "*"}}, false, false},
		{[]Grant{Everything(), {Actions: All, Topics: AuditTopic}}, true, true},
	} {
		p := &Principal{Name: "x", Grants: c.grants}
		for _, topic := range []string{AuditTopic, AuditTopic + "@events"} {
			if got := p.Allows(Inspect, topic); got != c.read {
				t.Errorf("%v: reads %s: %v", c.grants, topic, got)
			}
			for _, a := range []Action{Push, Work, Amend, Admin} {
				if got := p.Allows(a, topic); got != c.changed {
					t.Errorf("%v: %s %s: %v", c.grants, a, topic, got)
				}
			}
		}
		if got := p.Allows(Admin, "punctual.audits"); got != (c.grants[0].Topics != "" && c.grants[0].Actions&Admin != 0) {
			t.Errorf("%v: a topic with another name: %v", c.grants, got)
		}
	}
}
