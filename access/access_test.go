package access

import "testing"

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

// Any grant that covers the audit log lets it be read. Only a grant that names it lets it be changed.
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
		if got := p.Allows(Inspect, AuditTopic); got != c.read {
			t.Errorf("%v: reads %v", c.grants, got)
		}
		for _, a := range []Action{Push, Work, Amend, Admin} {
			if got := p.Allows(a, AuditTopic); got != c.changed {
				t.Errorf("%v: %s %v", c.grants, a, got)
			}
		}
		if got := p.Allows(Admin, "punctual.audits"); got != (c.grants[0].Topics != "" && c.grants[0].Actions&Admin != 0) {
			t.Errorf("%v: a topic with another name: %v", c.grants, got)
		}
	}
}
