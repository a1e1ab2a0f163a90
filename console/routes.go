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
	// action is the right that the route needs on the topic in its path, or on all topics if the
	// path has none. With perTopic the topics do not stand in the path, and the handler checks the
	// right on each topic that it shows or changes.
	action   access.Action
	perTopic bool
	// anyPrincipal opens a route to everybody who is authenticated, public also to everybody else.
	// A route with neither of them and without an action is refused to everybody.
	anyPrincipal, public bool
	// anyStore opens a route also when the store is no Inspector.
	anyStore bool
	// live marks a page that has a part which is renewed. The script asks for that part at
	// /fragment followed by the page's path.
	live bool
	// form shows the page of a POST's form again, with the problem above it, when the handler has
	// returned an error. With nil the error page is shown.
	form func(c *call) error
	// page is the last segment of the path of the page that has a POST's form; it takes the place
	// of the last segment of path. With "" the page's path is path without its last segment: the
	// form that is posted to /topics/a/push stands on the page /topics/a.
	page   string
	handle func(c *call) error
}

// pattern returns what httproute.New needs of a route.
func (rt *route) pattern() (method, path string) { return rt.method, rt.path }

const (
	pathTopic    = "/topics/{topic}"
	pathMessage  = pathTopic + "/messages/{id}"
	pathSchedule = pathTopic + "/schedules/{name}"
	pathBulk     = pathTopic + "/bulk"
	pathBulkJob  = pathBulk + "/{job}"
)

// routes returns the table of routes.
func routes() []*route {
	get, post := http.MethodGet, http.MethodPost
	return []*route{
		{method: get, path: "/assets/{name}", public: true, handle: (*call).sendAsset},
		{method: get, path: "/login", public: true, handle: (*call).showLogin},
		{method: post, path: "/login", public: true, form: (*call).showLogin, page: "login", handle: (*call).logIn},
		{method: post, path: "/logout", anyPrincipal: true, handle: (*call).logOut},
		{method: get, path: "/audit", action: access.Inspect, perTopic: true, handle: (*call).showAudit},

		{method: post, path: "/look", anyPrincipal: true, handle: (*call).keepLook},

		{method: get, path: "/", anyStore: true, action: access.Inspect, live: true, handle: (*call).showNow},
		{method: get, path: "/week", action: access.Inspect, perTopic: true, live: true, handle: (*call).showWeek},
		{method: get, path: "/lateness", anyStore: true, action: access.Inspect, perTopic: true, live: true, handle: (*call).showLateness},
		{method: get, path: "/topics", action: access.Inspect, perTopic: true, live: true, handle: (*call).showTopics},
		{method: get, path: "/schedules", anyStore: true, action: access.Inspect, perTopic: true, live: true, handle: (*call).showSchedules},
		{method: get, path: "/schedules/new", anyStore: true, action: access.Inspect, perTopic: true, live: true, handle: (*call).showScheduleForm},
		{method: post, path: "/schedules/new", anyStore: true, action: access.Push, perTopic: true, form: (*call).showScheduleForm, page: "new", handle: (*call).newSchedule},
		{method: get, path: "/find", action: access.Inspect, perTopic: true, handle: (*call).showFind},
		{method: get, path: "/dead", action: access.Inspect, perTopic: true, live: true, handle: (*call).showDead},
		{method: post, path: "/push", action: access.Push, perTopic: true, form: (*call).showTopics, page: "topics", handle: (*call).push},

		{method: get, path: pathTopic, action: access.Inspect, live: true, handle: (*call).showTopic},
		{method: get, path: pathTopic + "/finished", action: access.Inspect, live: true, handle: (*call).showFinishedList},
		{method: get, path: pathTopic + "/events", action: access.Inspect, live: true, handle: (*call).showEvents},
		{method: get, path: pathTopic + "/consumers", action: access.Inspect, live: true, handle: (*call).showConsumers},
		{method: get, path: pathTopic + "/settings", action: access.Inspect, handle: (*call).showSettings},
		{method: post, path: pathTopic + "/configure", action: access.Admin, form: (*call).showSettings, page: "settings", handle: (*call).configureTopic},
		{method: post, path: pathTopic + "/groups", action: access.Admin, form: (*call).showSettings, page: "settings", handle: (*call).changeGroups},
		{method: post, path: pathTopic + "/push", action: access.Push, form: (*call).showTopic, handle: (*call).push},
		{method: post, path: pathTopic + "/pause", action: access.Admin, form: (*call).showTopic, handle: (*call).pauseTopic},
		{method: post, path: pathTopic + "/purge", action: access.Admin, form: (*call).showSettings, page: "settings", handle: (*call).purgeTopic},
		{method: post, path: pathTopic + "/delete", action: access.Admin, form: (*call).showSettings, page: "settings", handle: (*call).deleteTopic},
		{method: post, path: pathTopic + "/amend", action: access.Amend, form: (*call).showTopic, handle: (*call).amendMany},
		{method: get, path: pathTopic + "/dead.ndjson", action: access.Inspect, handle: (*call).exportDead},

		{method: get, path: pathBulk, action: access.Inspect, handle: (*call).showBulk},
		{method: post, path: pathBulk, action: access.Amend, form: (*call).showBulk, page: "bulk", handle: (*call).countBulk},
		{method: get, path: pathBulkJob, action: access.Inspect, live: true, handle: (*call).showBulkJob},
		{method: post, path: pathBulkJob + "/run", action: access.Amend, form: (*call).showBulkJob, handle: (*call).runBulk},
		{method: post, path: pathBulkJob + "/stop", action: access.Amend, form: (*call).showBulkJob, handle: (*call).stopBulk},

		{method: get, path: pathTopic + "/schedules", action: access.Inspect, live: true, handle: (*call).showTopicSchedules},
		{method: get, path: pathSchedule, action: access.Inspect, live: true, handle: (*call).showSchedule},
		{method: get, path: pathSchedule + "/edit", action: access.Inspect | access.Push, handle: (*call).showScheduleEdit},
		{method: post, path: pathSchedule + "/edit", action: access.Inspect | access.Push, form: (*call).showScheduleEdit, page: "edit", handle: (*call).editSchedule},
		{method: post, path: pathSchedule + "/pause", action: access.Admin, form: (*call).showSchedule, handle: (*call).pauseSchedule},
		{method: post, path: pathSchedule + "/resume", action: access.Admin, form: (*call).showSchedule, handle: (*call).resumeSchedule},
		{method: post, path: pathSchedule + "/run", action: access.Admin, form: (*call).showSchedule, handle: (*call).runSchedule},
		{method: post, path: pathSchedule + "/skip", action: access.Admin, form: (*call).showSchedule, handle: (*call).skipSchedule},
		{method: post, path: pathSchedule + "/backfill", action: access.Admin, form: (*call).showSchedule, handle: (*call).backfillSchedule},
		{method: post, path: pathSchedule + "/delete", action: access.Admin, form: (*call).showSchedule, handle: (*call).deleteSchedule},

		{method: get, path: pathMessage, action: access.Inspect, live: true, handle: (*call).showMessage},
		{method: get, path: pathMessage + "/body", action: access.Inspect, handle: (*call).sendBody},
		{method: post, path: pathMessage + "/edit", action: access.Inspect | access.Push | access.Amend, form: (*call).showMessage, handle: (*call).editMessage},
		{method: post, path: pathMessage + "/delete", action: access.Admin, form: (*call).showMessage, handle: (*call).deleteMessage},
		{method: post, path: pathMessage + "/amend", action: access.Amend, form: (*call).showMessage, handle: (*call).amendMessage},
	}
}
