package wire

import (
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/punctualmq/punctual/storekit"
)

// The paths that name no topic.
const (
	PathInfo     = "/v1"
	PathPush     = "/v1/push"
	PathClaim    = "/v1/claim"
	PathSettle   = "/v1/settle"
	PathAmend    = "/v1/amend"
	PathTopics   = "/v1/topics"
	PathNames    = "/v1/names"
	PathForecast = "/v1/forecast"
	PathCheck    = "/v1/check"
	PathExamine  = "/v1/examine"
	PathClock    = "/v1/clock"
	PathStanding = "/v1/clock/state"
	PathSpace    = "/v1/space"
	PathBackup   = "/v1/backup"
	PathOpenAPI  = "/openapi.json"
	PathProto    = "/punctual.proto"
	PathLive     = "/livez"
	PathReady    = "/readyz"
	PathMetrics  = "/metrics"
)

// TopicPath returns the path of a topic, followed by the segments of rest: TopicPath("a/b",
// "purge") is /v1/topics/a%2Fb/purge.
func TopicPath(topic string, rest ...string) string {
	return PathTopics + "/" + escapeSegment(topic) + behind(rest)
}

// MessagePath returns the path of a message, followed by the segments of rest.
func MessagePath(topic, id string, rest ...string) string {
	return TopicPath(topic, "messages") + "/" + escapeSegment(id) + behind(rest)
}

// FinishedPath returns the path of a finished record.
func FinishedPath(topic, id string) string {
	return TopicPath(topic, "finished") + "/" + escapeSegment(id)
}

func behind(rest []string) string {
	if len(rest) == 0 {
		return ""
	}
	return "/" + strings.Join(rest, "/")
}

// escapeSegment returns a name as one segment of a path. It also escapes names that consist of
// dots, because clients and proxies resolve the segments "." and "..", and the @ of companions,
// before which some of them look for a user's name.
func escapeSegment(name string) string {
	if name != "" && strings.Trim(name, ".") == "" {
		return strings.ReplaceAll(name, ".", "%2E")
	}
	return strings.ReplaceAll(url.PathEscape(name), "@", "%40")
}

// SplitPath returns the decoded segments of an escaped path. It is the inverse of TopicPath and
// MessagePath. A path with a segment that is empty, "." or ".." is an ErrInvalid, because proxies
// may resolve it to another path. So is one that is not UTF-8, because no name is such text.
func SplitPath(escaped string) ([]string, error) {
	rest, ok := strings.CutPrefix(escaped, "/")
	if !ok {
		return nil, storekit.Invalidf("path %q does not begin with /", escaped)
	}
	segments := strings.Split(rest, "/")
	for i, s := range segments {
		if s == "" || s == "." || s == ".." {
			return nil, storekit.Invalidf("path %q: segment %d is %q: write a name in a path with / as %%2F and dots alone as %%2E", escaped, i+1, s)
		}
		name, err := url.PathUnescape(s)
		if err != nil {
			return nil, storekit.Invalidf("path %q: segment %d: %v", escaped, i+1, err)
		}
		if !utf8.ValidString(name) {
			return nil, storekit.Invalidf("path %q: segment %d is not UTF-8: escape the bytes of UTF-8", escaped, i+1)
		}
		segments[i] = name
	}
	return segments, nil
}
