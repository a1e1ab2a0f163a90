package wire

import (
	"net/url"
	"strings"
)

// The paths that name no topic.
const (
	PathInfo     = "/v1"
	PathPush     = "/v1/push"
	PathClaim    = "/v1/claim"
	PathSettle   = "/v1/settle"
	PathAmend    = "/v1/amend"
	PathTopics   = "/v1/topics"
	PathForecast = "/v1/forecast"
	PathCheck    = "/v1/check"
	PathExamine  = "/v1/examine"
	PathClock    = "/v1/clock"
	PathSpace    = "/v1/space"
	PathBackup   = "/v1/backup"
	PathOpenAPI  = "/openapi.json"
	PathLive     = "/livez"
	PathReady    = "/readyz"
	PathMetrics  = "/metrics"
)

// TopicPath is the path of a topic, with what is asked of it behind: TopicPath("a/b", "purge") is /v1/topics/a%2Fb/purge.
func TopicPath(topic string, rest ...string) string {
	return PathTopics + "/" + escapeSegment(topic) + behind(rest)
}

// MessagePath is the path of a message, with what is asked of it behind.
func MessagePath(topic, id string, rest ...string) string {
	return TopicPath(topic, "messages") + "/" + escapeSegment(id) + behind(rest)
}

// FinishedPath is the path of the story of a finished message.
func FinishedPath(topic, id string) string {
	return TopicPath(topic, "finished") + "/" + escapeSegment(id)
}

func behind(rest []string) string {
	if len(rest) == 0 {
		return ""
	}
	return "/" + strings.Join(rest, "/")
}

// escapeSegment is a name as one segment of a path. Names of dots alone are escaped, too, since clients and proxies take those for
// a way up.
func escapeSegment(name string) string {
	if name != "" && strings.Trim(name, ".") == "" {
		return strings.ReplaceAll(name, ".", "%2E")
	}
	return url.PathEscape(name)
}

// SplitPath returns the segments of an escaped path, decoded: the inverse of TopicPath and MessagePath. A path that
// can be taken for another one, with an empty segment or one that is "." or "..", is an ErrInvalid.
func SplitPath(escaped string) ([]string, error) {
	rest, ok := strings.CutPrefix(escaped, "/")
	if !ok {
		return nil, invalidf("path %q does not begin with /", escaped)
	}
	segments := strings.Split(rest, "/")
	for i, s := range segments {
		if s == "" || s == "." || s == ".." {
			return nil, invalidf("path %q: segment %d is %q: write a name in a path with / as %%2F and dots alone as %%2E", escaped, i+1, s)
		}
		name, err := url.PathUnescape(s)
		if err != nil {
			return nil, invalidf("path %q: segment %d: %v", escaped, i+1, err)
		}
		segments[i] = name
	}
	return segments, nil
}
