// Package tokens keeps the principals of package access in a file: tokens and the subjects of
// client certificates, each with what its holder may do with which topics.
//
// The file is JSON, as drawn here, and the command "punctual token" writes it. It holds no secrets,
// only the hash of each.
//
//	{"entries": [
//	  {"id": "k3wq5y7ahx", "name": "billing", "sha256": "9f86d0...", "actions": ["push"], "topics": ["order.*"],
//	   "created": "2026-11-22T09:00:00Z", "expires": "2027-02-20T09:00:00Z"},
//	  {"id": "m2x7c4tnqd", "name": "worker-1", "subject": "CN=worker-1,O=Example", "actions": ["work"], "topics": ["*"],
//	   "created": "2026-11-22T09:00:00Z", "revoked": "2026-11-23T10:00:00Z"}
//	]}
//
// A change of the file counts within a tenth of a second, without a restart. A field that is not
// known is refused, because whoever wrote it wanted it to have an effect.
package tokens

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/access"
	"github.com/punctualmq/punctual/storekit"
)

// Entry is one token, or one subject of client certificates, and what it may do.
type Entry struct {
	// ID names the entry in commands and logs.
	ID string `json:"id"`
	// Name is what people call its holder.
	Name string `json:"name"`
	// SHA256 is the hash of the token's secret, in hexadecimal digits; Subject is the distinguished
	// name of a certificate as RFC 2253 writes it: "CN=worker-1,O=Example". An entry has one of
	// them.
	SHA256  string `json:"sha256,omitempty"`
	Subject string `json:"subject,omitempty"`
	// Actions are words that access.ParseActions reads: "inspect", "push", "amend", "work", "admin"
	// or "all".
	Actions []string `json:"actions"`
	// Topics are names, or prefixes that end with "*". A name stands for the companions of the
	// topic as well (access.Grant).
	Topics []string `json:"topics"`
	// Created is when the entry was made.
	Created time.Time `json:"created"`
	// Expires, if not zero, is when it ends.
	Expires time.Time `json:"expires,omitzero"`
	// Revoked, if not zero, is when it was revoked.
	Revoked time.Time `json:"revoked,omitzero"`

	// principal is what Authenticate returns for the holder. It is made by check.
	principal *access.Principal
}

// Live tells whether the entry counts at an instant.
func (e *Entry) Live(now time.Time) bool {
	return e.Revoked.IsZero() && (e.Expires.IsZero() || now.Before(e.Expires))
}

// check refuses an entry that is malformed, and makes its principal.
func (e *Entry) check() error {
	switch {
	case !isID(e.ID):
		return fmt.Errorf("entry %q: its ID is not %d letters and digits: %w", e.ID, idLength, punctual.ErrInvalid)
	case e.Name == "":
		return fmt.Errorf("entry %s has no name: %w", e.ID, punctual.ErrInvalid)
	case (e.SHA256 == "") == (e.Subject == ""):
		return fmt.Errorf("entry %s needs the hash of a token or the subject of a certificate, and not both: %w", e.ID, punctual.ErrInvalid)
	case len(e.Actions) == 0 || len(e.Topics) == 0:
		return fmt.Errorf("entry %s allows nothing: give it actions and topics: %w", e.ID, punctual.ErrInvalid)
	}
	if hash, err := hex.DecodeString(e.SHA256); e.SHA256 != "" && (err != nil || len(hash) != sha256.Size) {
		return fmt.Errorf("entry %s: its hash is not %d hexadecimal digits: %w", e.ID, 2*sha256.Size, punctual.ErrInvalid)
	}
	actions, err := access.ParseActions(strings.Join(e.Actions, ","))
	if err != nil {
		return fmt.Errorf("entry %s: %w", e.ID, err)
	}
	e.principal = &access.Principal{ID: e.ID, Name: e.Name}
	for _, pattern := range e.Topics {
		if !isPattern(pattern) {
			return fmt.Errorf("entry %s: topic %q: use a topic's name, or the beginning of one and a *: %w", e.ID, pattern, punctual.ErrInvalid)
		}
		e.principal.Grants = append(e.principal.Grants, access.Grant{Actions: actions, Topics: pattern})
	}
	return nil
}

// isPattern reports whether there can be a topic that an access.Grant with the pattern covers.
func isPattern(pattern string) bool {
	name, isPrefix := strings.CutSuffix(pattern, "*")
	return storekit.CheckTopic(name) == nil || isPrefix && storekit.CheckTopic(name+"x") == nil
}

// A token is "punctual", the entry's ID and the secret, with underscores between. The prefix lets
// programs that look for secrets in published code find it.
const (
	tokenPrefix = "punctual_"
	idLength    = 10
)

func isID(s string) bool {
	return len(s) == idLength && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
}

// NewToken gives e an ID and the hash of a new token, and returns the token. The token cannot be
// found from e, so only the caller has it.
func NewToken(e *Entry) string {
	e.ID = newID()
	secret := strings.ToLower(rand.Text()) // 130 random bits
	hash := sha256.Sum256([]byte(secret))
	e.SHA256 = hex.EncodeToString(hash[:])
	return tokenPrefix + e.ID + "_" + secret
}

// NewSubject gives e an ID and the subject of a client certificate.
func NewSubject(e *Entry, subject string) { e.ID, e.Subject = newID(), subject }

func newID() string { return strings.ToLower(rand.Text()[:idLength]) }

// Entries are what a file holds. They do not change once they are read, so they are safe for
// concurrent use.
type Entries struct {
	list []Entry
	// tokens and subjects find the entries that have one.
	tokens, subjects map[string]*Entry
}

// Parse reads the text of a file.
func Parse(text []byte) (*Entries, error) {
	var file struct {
		Entries []Entry `json:"entries"`
	}
	if err := json.Unmarshal(text, &file, json.RejectUnknownMembers(true)); err != nil {
		return nil, fmt.Errorf("the file of tokens is malformed: %w: %w", err, punctual.ErrInvalid)
	}
	return newEntries(file.Entries)
}

func newEntries(list []Entry) (*Entries, error) {
	es := &Entries{list: list, tokens: make(map[string]*Entry), subjects: make(map[string]*Entry)}
	seen := make(map[string]bool)
	for i := range list {
		e := &list[i]
		if err := e.check(); err != nil {
			return nil, err
		}
		if seen[e.ID] {
			return nil, fmt.Errorf("two entries have the ID %s: %w", e.ID, punctual.ErrInvalid)
		}
		seen[e.ID] = true
		if e.SHA256 != "" {
			es.tokens[e.ID] = e
			continue
		}
		if old := es.subjects[e.Subject]; old != nil && old.Revoked.IsZero() && e.Revoked.IsZero() {
			return nil, fmt.Errorf("entries %s and %s have the same subject %q: revoke one: %w", old.ID, e.ID, e.Subject, punctual.ErrInvalid)
		}
		if e.Revoked.IsZero() || es.subjects[e.Subject] == nil {
			es.subjects[e.Subject] = e
		}
	}
	return es, nil
}

// All returns the entries in the order of the file.
func (es *Entries) All() []Entry { return slices.Clone(es.list) }

func (es *Entries) text() ([]byte, error) {
	list := es.list
	if list == nil {
		list = []Entry{}
	}
	text, err := json.Marshal(map[string][]Entry{"entries": list}, jsontext.WithIndent("  "))
	return append(text, '\n'), err
}

// Token returns the live entry of a token. The error wraps punctual.ErrUnauthenticated, and never
// holds the token. The time that Token takes does not depend on how much of the secret is right.
func (es *Entries) Token(token string, now time.Time) (*Entry, error) {
	rest, ok := strings.CutPrefix(token, tokenPrefix)
	id, secret, cut := strings.Cut(rest, "_")
	if !ok || !cut || !isID(id) {
		return nil, fmt.Errorf("the token is malformed: use one that 'punctual token new' printed: %w", punctual.ErrUnauthenticated)
	}
	var want [sha256.Size]byte // matches nothing
	e := es.tokens[id]
	if e != nil {
		if _, err := hex.Decode(want[:], []byte(e.SHA256)); err != nil {
			return nil, fmt.Errorf("the hash of token %s: %w: %w", id, err, punctual.ErrUnauthenticated)
		}
	}
	hash := sha256.Sum256([]byte(secret))
	if same := subtle.ConstantTimeCompare(hash[:], want[:]) == 1; e == nil || !same {
		return nil, fmt.Errorf("the token is not known here: %w", punctual.ErrUnauthenticated)
	}
	return e.alive("token", now)
}

// Certificate returns the live entry of the subject of a certificate that has been verified.
func (es *Entries) Certificate(subject string, now time.Time) (*Entry, error) {
	e := es.subjects[subject]
	if e == nil {
		return nil, fmt.Errorf("the certificate's subject %q is not known here: %w", subject, punctual.ErrUnauthenticated)
	}
	return e.alive("certificate", now)
}

func (e *Entry) alive(what string, now time.Time) (*Entry, error) {
	switch {
	case !e.Revoked.IsZero():
		return nil, fmt.Errorf("the %s (%s) has been revoked: %w", what, e.ID, punctual.ErrUnauthenticated)
	case !e.Live(now):
		return nil, fmt.Errorf("the %s (%s) expired at %s: %w", what, e.ID, e.Expires.UTC().Format(time.RFC3339), punctual.ErrUnauthenticated)
	}
	return e, nil
}
