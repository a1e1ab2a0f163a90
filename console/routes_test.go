package console

import "testing"

// A route without an action refuses everybody, so none may be without.
func TestEveryRouteHasAnAction(t *testing.T) {
	for _, rt := range routes() {
		if rt.action == 0 {
			t.Errorf("%s %s has no action", rt.method, rt.path)
		}
		if rt.handle == nil {
			t.Errorf("%s %s has no handler", rt.method, rt.path)
		}
	}
}

func TestTopicsPage(t *testing.T) {
	r := newRig(t, nil)
	if a := r.get("/topics"); a.Code != 200 {
		t.Errorf("%d: %s", a.Code, a.text)
	}
}
