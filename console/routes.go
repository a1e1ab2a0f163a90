package console

import (
	"net/http"
	"strings"
)

// route is one row of the table: a method and path, and who may use it.
type route struct {
	method string
	// path has parameters in braces: /topics/{topic}.
	path string
	// action is what the route needs; 0 refuses everybody. It is asked for the topic that the path names, or for all topics. With
	// perTopic the page shows several topics and asks for each of them.
	action   Action
	perTopic bool
	// live is for pages of which a part is renewed, under /fragment and the page's path.
	live bool
	// form, for a POST, shows the page whose form it is, once more, when the form is refused.
	form   func(c *call) error
	handle func(c *call) error
}

// matches compares the segments of a path with the route's and returns its parameters.
func (rt *route) matches(segments []string) (values map[string]string, ok bool) {
	var pattern []string
	if rt.path != "/" {
		pattern = strings.Split(rt.path[1:], "/")
	}
	if len(pattern) != len(segments) {
		return nil, false
	}
	for i, want := range pattern {
		if name, isParam := strings.CutPrefix(want, "{"); isParam {
			if values == nil {
				values = make(map[string]string, 2)
			}
			values[strings.TrimSuffix(name, "}")] = segments[i]
		} else if want != segments[i] {
			return nil, false
		}
	}
	return values, true
}

const (
	pathTopic   = "/topics/{topic}"
	pathMessage = pathTopic + "/messages/{id}"
)

// routes is the table.
func routes() []*route {
	get, post := http.MethodGet, http.MethodPost
	return []*route{
		{method: get, path: "/assets/{name}", action: actionPublic, handle: (*call).sendAsset},
		{method: get, path: "/login", action: actionPublic, handle: (*call).showLogin},
		{method: post, path: "/login", action: actionPublic, form: (*call).showLogin, handle: (*call).logIn},
		{method: post, path: "/logout", action: actionAny, handle: (*call).logOut},
		{method: get, path: "/audit", action: ActionInspect, perTopic: true, handle: (*call).showAudit},

		{method: post, path: "/look", action: actionAny, handle: (*call).keepLook},

		{method: get, path: "/", action: ActionInspect, live: true, handle: (*call).showNow},
		{method: get, path: "/ahead", action: ActionInspect, live: true, handle: (*call).showAhead},
		{method: get, path: "/week", action: ActionInspect, perTopic: true, live: true, handle: (*call).showWeek},
		{method: get, path: "/lateness", action: ActionInspect, perTopic: true, live: true, handle: (*call).showLateness},
		{method: get, path: "/topics", action: ActionInspect, perTopic: true, live: true, handle: (*call).showTopics},
		{method: get, path: "/find", action: ActionInspect, perTopic: true, handle: (*call).showFind},
		{method: get, path: "/dead", action: ActionInspect, perTopic: true, live: true, handle: (*call).showDead},
		{method: get, path: "/try", action: ActionInspect, perTopic: true, live: true, handle: (*call).showTry},
		{method: post, path: "/try", action: ActionPush, perTopic: true, form: (*call).showTry, handle: (*call).push},

		{method: get, path: pathTopic, action: ActionInspect, live: true, handle: (*call).showTopic},
		{method: post, path: pathTopic + "/configure", action: ActionAdmin, form: (*call).showTopic, handle: (*call).configureTopic},
		{method: post, path: pathTopic + "/pause", action: ActionAdmin, form: (*call).showTopic, handle: (*call).pauseTopic},
		{method: post, path: pathTopic + "/purge", action: ActionAdmin, form: (*call).showTopic, handle: (*call).purgeTopic},
		{method: post, path: pathTopic + "/delete", action: ActionAdmin, form: (*call).showTopic, handle: (*call).deleteTopic},
		{method: post, path: pathTopic + "/amend", action: ActionAmend, form: (*call).showTopic, handle: (*call).amendMany},
		{method: post, path: pathTopic + "/requeue", action: ActionAmend, handle: (*call).requeueDead},
		{method: get, path: pathTopic + "/dead.ndjson", action: ActionInspect, handle: (*call).exportDead},

		{method: get, path: pathMessage, action: ActionInspect, live: true, handle: (*call).showMessage},
		{method: get, path: pathMessage + "/body", action: ActionInspect, handle: (*call).sendBody},
		{method: post, path: pathMessage + "/delete", action: ActionAdmin, form: (*call).showMessage, handle: (*call).deleteMessage},
		{method: post, path: pathMessage + "/amend", action: ActionAmend, form: (*call).showMessage, handle: (*call).amendMessage},
	}
}
