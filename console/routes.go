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
	return []*route{
		{method: http.MethodGet, path: "/assets/{name}", action: actionPublic, handle: (*call).sendAsset},
		{method: http.MethodPost, path: "/look", action: actionAny, handle: (*call).keepLook},

		{method: http.MethodGet, path: "/topics", action: ActionInspect, perTopic: true, live: true, handle: (*call).showTopics},
	}
}
