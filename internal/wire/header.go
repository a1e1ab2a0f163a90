package wire

import (
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/punctualmq/punctual"
)

// The names of headers.
const (
	// HeaderRequest names a request, so that the server recognises its repetition: see MaxRequestKey.
	HeaderRequest = "Punctual-Request"
	// HeaderNotAfter is until when a request with a HeaderRequest may be carried out, by the store's clock, as RFC 3339.
	HeaderNotAfter = "Punctual-Not-After"
	// HeaderCopy is 1 in a request with a HeaderRequest of which no copy was sent before. A claim is quicker then.
	HeaderCopy = "Punctual-Copy"
	// HeaderInstance comes with every answer of a server that keeps the answers in its memory, and names that memory. A request
	// for another one is answered with StatusOtherInstance and not carried out.
	HeaderInstance = "Punctual-Instance"
	// HeaderAnswered lists keys of requests, separated by commas, whose answers have arrived and may be forgotten.
	HeaderAnswered = "Punctual-Answered"
	// HeaderConsumer is what the sender of a claim calls itself, for people who look at a topic: see MaxConsumerName.
	HeaderConsumer = "Punctual-Consumer"
	// HeaderID, HeaderTopic, HeaderToken, HeaderDue, HeaderAttempt and HeaderLeaseUntil come with a message whose body is the answer's.
	HeaderID         = "Punctual-Id"
	HeaderTopic      = "Punctual-Topic"
	HeaderToken      = "Punctual-Token"
	HeaderDue        = "Punctual-Due"
	HeaderAttempt    = "Punctual-Attempt"
	HeaderLeaseUntil = "Punctual-Lease-Until"
	// HeaderPrefix begins the names under which a message's own headers travel beside a body that is the message itself.
	HeaderPrefix = "Punctual-Header-"
	// HeaderOthers carries a message's headers that cannot stand in HTTP, as standard base64 of the JSON of Headers.
	HeaderOthers = "Punctual-Headers"
	// ContentTypeHeader is the message header that keeps the Content-Type of a body that was pushed as it is.
	ContentTypeHeader = "content-type"
)

// The media types of bodies.
const (
	TypeJSON   = "application/json"
	TypeNDJSON = "application/x-ndjson"
	TypeTar    = "application/x-tar"
	TypeRaw    = "application/octet-stream"
	// TypeCompact is Form Compact.
	TypeCompact = "application/vnd.punctual.compact"
)

// StatusOtherInstance is the status of the answer to a request whose HeaderInstance is not the server's.
const StatusOtherInstance = http.StatusMisdirectedRequest

// MaxRequestKey bounds the bytes of a HeaderRequest, which are printable ASCII without spaces.
const MaxRequestKey = 128

// MaxConsumerName bounds the bytes of a HeaderConsumer; a server leaves out what CheckConsumerName refuses.
const MaxConsumerName = 128

// OwnName is what this program is called among the consumers of a topic, unless it has a name of its own.
func OwnName() string {
	host, _ := os.Hostname() // a name without it says less, and does no harm
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
		return invalidf("%s has %d bytes: use 1 to %d", HeaderRequest, len(key), MaxRequestKey)
	}
	for i := range len(key) {
		if key[i] <= ' ' || key[i] > '~' {
			return invalidf("%s: byte %d is not printable ASCII without spaces", HeaderRequest, i+1)
		}
	}
	return nil
}
