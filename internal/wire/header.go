package wire

import (
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// The names of headers.
const (
	// HeaderRequest carries the key of a request, by which the server recognizes the request when
	// it is sent again: see MaxRequestKey.
	HeaderRequest = "Punctual-Request"
	// HeaderNotAfter is until when a request with a HeaderRequest may be carried out, by the
	// store's clock, as RFC 3339.
	HeaderNotAfter = "Punctual-Not-After"
	// HeaderCopy is 1 in a request with a HeaderRequest that is sent for the first time. On some
	// stores a claim is quicker then.
	HeaderCopy = "Punctual-Copy"
	// HeaderInstance names the memory of a server that keeps answers in memory. Such a server sends
	// it with every answer. It answers a request for another instance with StatusOtherInstance and
	// does not carry the request out.
	HeaderInstance = "Punctual-Instance"
	// HeaderAnswered lists keys of requests, separated by commas, whose answers have arrived and
	// may be forgotten.
	HeaderAnswered = "Punctual-Answered"
	// HeaderNotBegun is 1 in an answer without a body, which tells that the connection ends and
	// that the request was not begun on it.
	HeaderNotBegun = "Punctual-Not-Begun"
	// HeaderConsumer is a name that the sender of a claim gives itself, which people see who
	// inspect the topic: see MaxConsumerName.
	HeaderConsumer = "Punctual-Consumer"
	// HeaderID, HeaderTopic, HeaderToken, HeaderDue, HeaderAttempt and HeaderLeaseUntil describe a
	// message whose body is the body of the answer.
	HeaderID         = "Punctual-Id"
	HeaderTopic      = "Punctual-Topic"
	HeaderToken      = "Punctual-Token"
	HeaderDue        = "Punctual-Due"
	HeaderAttempt    = "Punctual-Attempt"
	HeaderLeaseUntil = "Punctual-Lease-Until"
	// HeaderPrefix is put in front of the names of a message's own headers where the HTTP body is
	// the message's body.
	HeaderPrefix = "Punctual-Header-"
	// HeaderOthers carries those headers of a message that cannot be HTTP headers, as standard
	// base64 of the JSON of Headers.
	HeaderOthers = "Punctual-Headers"
	// ContentTypeHeader is the message header that keeps the Content-Type of a request whose body
	// was pushed as a message.
	ContentTypeHeader = "content-type"
)

// The media types of bodies.
const (
	TypeJSON   = "application/json"
	TypeNDJSON = "application/x-ndjson"
	TypeTar    = "application/x-tar"
	TypeRaw    = "application/octet-stream"
	// TypeCompact is the media type of the form Compact.
	TypeCompact = "application/vnd.punctual.compact"
)

// StatusOtherInstance is the status of the answer to a request whose HeaderInstance is not the
// server's.
const StatusOtherInstance = http.StatusMisdirectedRequest

// MaxRequestKey bounds the bytes of a HeaderRequest, which has to consist of printable ASCII
// without spaces.
const MaxRequestKey = 128

// MaxConsumerName bounds the bytes of a HeaderConsumer. A server ignores a name that
// CheckConsumerName refuses.
const MaxConsumerName = 128

// OwnName returns the name HOST/PID under which this program appears among the consumers of a topic
// unless it chooses another one.
func OwnName() string {
	host, _ := os.Hostname() // a name without the host says less, and does no harm
	return fmt.Sprintf("%s/%d", host, os.Getpid())
}

// CheckConsumerName returns an ErrInvalid unless name can be a HeaderConsumer.
func CheckConsumerName(name string) error {
	if len(name) > MaxConsumerName || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r > '~' }) {
		return fmt.Errorf("name %q: use at most %d printable ASCII characters: %w", name, MaxConsumerName, punctual.ErrInvalid)
	}
	return nil
}

// CheckRequestKey returns an ErrInvalid unless key can be a HeaderRequest.
func CheckRequestKey(key string) error {
	if key == "" || len(key) > MaxRequestKey {
		return storekit.Invalidf("%s has %d bytes: use 1 to %d", HeaderRequest, len(key), MaxRequestKey)
	}
	for i := range len(key) {
		if key[i] <= ' ' || key[i] > '~' {
			return storekit.Invalidf("%s: byte %d is not printable ASCII without spaces", HeaderRequest, i+1)
		}
	}
	return nil
}
