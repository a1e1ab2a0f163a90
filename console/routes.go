package console

import (
	"net/http"

	"github.com/punctualmq/punctual/access"
)

// route is one row of the table of routes: method, path, who may use it, and its handler.
type route struct {
	method string
	// path has parameters in braces: /topics/{topic}.
	path string
	// action is the right that the route needs on the topic in its path, or on all topics if the path has none. With perTopic the page is
	// about several topics, and its handler checks the right on each of them.
	action   access.Action
	perTopic bool
	// anyPrincipal opens a route to everybody who is authenticated, public also to everybody else. A route with neither of them and without an
	// action is refused to everybody.
	anyPrincipal, public bool
	// live marks a page of which the script renews a part, from /fragment followed by the page's path.
	live bool
	// form shows the page of a POST's form again, with the problem above it, when the handler has refused the form.
	form   func(c *call) error
	handle func(c *call) error
}

// pattern returns what httproute.New needs of a route.
func (rt *route) pattern() (method, path string) { return rt.method, rt.path }

const (
	pathTopic   = "/topics/{topic}"
	pathMessage = pathTopic + "/messages/{id}"
)

// routes returns the table of routes.
func routes() []*route {
	get, post := http.MethodGet, http.MethodPost
	return []*route{
		{method: get, path: "/assets/{name}", public: true, handle: (*call).sendAsset},
		{method: get, path: "/login", public: true, handle: (*call).showLogin},
		{method: post, path: "/login", public: true, form: (*call).showLogin, handle: (*call).logIn},
		{method: post, path: "/logout", anyPrincipal: true, handle: (*call).logOut},
		{method: get, path: "/audit", action: access.Inspect, perTopic: true, handle: (*call).showAudit},

		{method: post, path: "/look", anyPrincipal: true, handle: (*call).keepLook},

		{method: get, path: "/", action: access.Inspect, live: true, handle: (*call).showNow},
		{method: get, path: "/ahead", action: access.Inspect, live: true, handle: (*call).showAhead},
		{method: get, path: "/week", action: access.Inspect, perTopic: true, live: true, handle: (*call).showWeek},
		{method: get, path: "/lateness", action: access.Inspect, perTopic: true, live: true, handle: (*call).showLateness},
		{method: get, path: "/topics", action: access.Inspect, perTopic: true, live: true, handle: (*call).showTopics},
		{method: get, path: "/find", action: access.Inspect, perTopic: true, handle: (*call).showFind},
		{method: get, path: "/dead", action: access.Inspect, perTopic: true, live: true, handle: (*call).showDead},
		{method: get, path: "/try", action: access.Inspect, perTopic: true, live: true, handle: (*call).showTry},
		{method: post, path: "/try", action: access.Push, perTopic: true, form: (*call).showTry, handle: (*call).push},

		{method: get, path: pathTopic, action: access.Inspect, live: true, handle: (*call).showTopic},
		{method: post, path: pathTopic + "/configure", action: access.Admin, form: (*call).showTopic, handle: (*call).configureTopic},
		{method: post, path: pathTopic + "/pause", action: access.Admin, form: (*call).showTopic, handle: (*call).pauseTopic},
		{method: post, path: pathTopic + "/purge", action: access.Admin, form: (*call).showTopic, handle: (*call).purgeTopic},
		{method: post, path: pathTopic + "/delete", action: access.Admin, form: (*call).showTopic, handle: (*call).deleteTopic},
		{method: post, path: pathTopic + "/amend", action: access.Amend, form: (*call).showTopic, handle: (*call).amendMany},
		{method: post, path: pathTopic + "/requeue", action: access.Amend, handle: (*call).requeueDead},
		{method: get, path: pathTopic + "/dead.ndjson", action: access.Inspect, handle: (*call).exportDead},

		{method: get, path: pathMessage, action: access.Inspect, live: true, handle: (*call).showMessage},
		{method: get, path: pathMessage + "/body", action: access.Inspect, handle: (*call).sendBody},
		{method: post, path: pathMessage + "/delete", action: access.Admin, form: (*call).showMessage, handle: (*call).deleteMessage},
		{method: post, path: pathMessage + "/amend", action: access.Amend, form: (*call).showMessage, handle: (*call).amendMessage},
	}
}
