package server

import (
	"math"
	"net/http"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/access"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
)

// route is one row of the table of routes: method, path, parameters, bodies, who may use it, and
// its handler.
type route struct {
	method string
	// path has parameters in braces: /v1/topics/{topic}.
	path string
	// action is the right that the route needs, on the topic that the path names, or on all topics
	// if the path names none. A route marked perItem whose path names none is about topics in its
	// body, query or answer, and the handler checks the right on each of them.
	action  access.Action
	perItem bool
	// orAction is the right that some items of the body need instead of action, 0 if there are
	// none. A route whose path names a topic needs action for these items as well.
	orAction access.Action
	// anyPrincipal opens a route to everybody who is authenticated, public also to everybody else.
	// A route with neither of them and without an action is refused to everybody.
	anyPrincipal, public bool
	// again is what keeps a request that is sent again from being carried out twice, where that
	// would do more than once does. Such a route refuses a key that it does not know: an
	// Idempotency-Key, and also a Punctual-Request unless again is byRequest.
	again         string
	params        []param
	body          bodyKind
	mayHaveNoBody bool // the body can be left out
	// request and answer are values of the types of the bodies in JSON; nil for none. The OpenAPI
	// description is made from these types, and a request that is not the zero value is also the
	// example there.
	request, answer any
	// compact says that the request's body can be in wire.TypeCompact; forms are the forms that the
	// answer's body can have beside the JSON of answer.
	compact bool
	forms   []form
	// statuses are those of answers that are no errors. errors are the codes that the description
	// names beside those that it names for every route (see responses).
	statuses []int
	errors   []string
	// id and summary describe the route; detail, if there, says more.
	id, summary, detail string
	handle              func(c *call) error
}

// pattern returns what httproute.New needs of a route.
func (rt *route) pattern() (method, path string) { return rt.method, rt.path }

// bodyKind is the kind of a request's body.
type bodyKind uint8

const (
	bodyNone    bodyKind = iota
	bodyMessage          // the message itself
	bodyJSON
	bodyLines // JSON or NDJSON
)

// form is one form of an answer's body.
type form struct {
	mediaType string
	schema    object
	// line, if not nil, is a value of the type of each line of a stream, and stands in the place of
	// schema. text then says what the lines are.
	line any
	text string
}

// place is the part of a request in which a parameter stands.
type place string

const (
	inPath  place = "path"
	inQuery place = "query"
)

// param is a parameter of a route.
type param struct {
	name string
	in   place
	text string
	// values are all values that the parameter takes; nil if they cannot be listed.
	values   []string
	required bool
	// schema is the schema of a value that is neither any text nor one of values; nil otherwise.
	schema object
	// mayBeEmpty allows the parameter without a value. Any other parameter is refused then, because
	// a shell writes it so when a variable is not set.
	mayBeEmpty bool
}

// byRequest is the again of routes that call the Store itself.
const byRequest = "give a key of yours in " + wire.HeaderRequest

// param returns the route's parameter with this name, nil if there is none.
func (rt *route) param(in place, name string) *param {
	for i, p := range rt.params {
		if p.in == in && p.name == name {
			return &rt.params[i]
		}
	}
	return nil
}

func (rt *route) takes(in place, name string) bool { return rt.param(in, name) != nil }

func (rt *route) queryNames() []string {
	var names []string
	for _, p := range rt.params {
		if p.in == inQuery {
			names = append(names, p.name)
		}
	}
	return names
}

// The parameters that several routes take.
var (
	paramTopic = param{name: "topic", in: inPath, text: "The topic; a / in it is written %2F.", required: true, schema: name(limits.MaxTopicBytes)}
	paramID    = param{name: "id", in: inPath, text: "The message's ID within its topic.", required: true, schema: name(limits.MaxIDBytes)}
	paramIn    = param{name: "in", in: inQuery, text: "Due this long after now: 30m, 2h30m, 2d.", schema: length()}
	paramAt    = param{name: "at", in: inQuery, text: "Due at this time: 2026-11-20T10:00:00Z.", schema: instant()}
	paramDue   = param{name: "due", in: inQuery, text: "The same as at, as it is called in JSON.", schema: instant()}
	paramLocal = param{name: "at_local", in: inQuery, text: "Due at this date and time in the zone: 2026-11-20 09:00. One that clocks are set forward over is the first instant behind the gap, one that they show twice the first of the two."}
	paramZone  = param{name: "zone", in: inQuery, text: "The zone of at_local: Europe/Berlin."}
	whenParams = []param{paramIn, paramAt, paramDue, paramLocal, paramZone}
	paramIfDue = param{name: "if_due", in: inQuery, text: "Only if the message is due at this time; otherwise nothing is changed, and the answer is 409.", schema: instant()}
	paramToken = param{name: "token", in: inQuery, text: "The token of the lease, from the claim.", required: true, schema: tokenOfLease()}
	paramAfter = param{name: "after", in: inQuery, text: "Continues a list: next of the page before; empty: the first page.", mayBeEmpty: true}
	paramFrom  = param{name: "from", in: inQuery, text: "Only messages at this time or later.", schema: instant()}
	paramTo    = param{name: "to", in: inQuery, text: "Only messages before this time.", schema: instant()}
	pushParams = params(whenParams, []param{
		{name: "if_exists", in: inQuery, text: "What to do when the ID is already in use. Default keep.", values: ifExistsWords},
		{name: "max_attempts", in: inQuery, text: "How many deliveries it gets; left out: as the topic says.", schema: count(0, limits.MaxAttemptsLimit)},
		{name: "expire", in: inQuery, text: "Do not deliver any more this long after the due time.", schema: length()},
		{name: "drop_expired", in: inQuery, text: "Drop it when it expires, instead of keeping it among the dead.", values: []string{"true", "false"}},
		{name: "if_due", in: inQuery, text: "With if_exists=replace: replace only a message that is due at this time; otherwise the answer is 409.", schema: instant()},
	}, attributeParams())
	claimParams = []param{
		{name: "max", in: inQuery, text: "How many messages at most. Default 1.", schema: count(1, limits.MaxClaim)},
		{name: "wait", in: inQuery, text: "How long to wait when nothing is due, at most max_wait of GET /v1. Default 0s.", schema: length()},
		{name: "lease", in: inQuery, text: "How long the lease lasts; left out: as the topic says.", schema: length()},
		{name: "window", in: inQuery, text: "With Accept: application/x-ndjson, how many messages of the stream may be unsettled at once.", schema: count(1, math.MaxInt32)},
	}
)

var (
	ifExistsWords = []string{"keep", "replace", "replace-dead", "fail"}
	reasons       = []string{string(punctual.ReasonDiscarded), string(punctual.ReasonAttemptsUsedUp), string(punctual.ReasonExpired)}
)

// The examples of requests.
var (
	exampleTime = wire.Given("2026-11-20T10:00:00Z")
	exampleThen = wire.FollowUps{{
		Topic: "invoice", ID: "A-17~invoice", When: wire.When{In: "2d"}, Body: wire.Body{Text: wire.Text(`{"order":"A-17"}`)},
	}}
	examplePush = wire.PushRequest{Messages: wire.Items[wire.PushItem]{
		{Topic: "mail", ID: "m1", When: wire.When{In: "30m"}, Body: wire.Body{Text: wire.Text("hello")}},
		{Topic: "reminder", When: wire.When{AtLocal: "2026-11-20 09:00", Zone: "Europe/Berlin"}, Body: wire.Body{Text: wire.Text("your visit")}},
		{Topic: "mail", ID: "m2", When: wire.When{In: "1h"}, Body: wire.Body{Text: wire.Text("hello again")}, IfExists: "replace", IfDue: exampleTime},
	}}
	exampleSettle = wire.SettleRequest{Settlements: wire.Items[wire.SettleItem]{
		{Topic: "order.close", ID: "A-17", Token: 17, Verb: "ack", Then: exampleThen},
		{Topic: "mail", ID: "m1", Token: 18, Verb: "snooze", When: wire.When{At: exampleTime}},
		{Topic: "mail", ID: "m2", Token: 19, Verb: "discard", Error: "no such address"},
	}}
	exampleAmend = wire.AmendRequest{Amendments: wire.Items[wire.AmendItem]{
		{Change: "cancel", Topic: "mail", ID: "m1", IfDue: exampleTime},
		{Change: "reschedule", Topic: "mail", ID: "m2", When: wire.When{In: "1h"}},
	}}
)

// attributeParams returns the parameters for the attributes of a message.
func attributeParams() (out []param) {
	for _, f := range &wire.AttributeFields {
		out = append(out, param{name: f.Name, in: inQuery, text: "Say " + f.Help + ".", schema: attribute(f)})
	}
	return out
}

func params(groups ...any) []param {
	var out []param
	for _, g := range groups {
		switch g := g.(type) {
		case param:
			out = append(out, g)
		case []param:
			out = append(out, g...)
		}
	}
	return out
}

// The forms of bodies beside JSON.
var (
	compactForm = form{mediaType: wire.TypeCompact, schema: rawBytes("The compact form, which " + wire.PathProto + " describes, and whose version is compact of GET /v1.")}

	rawBody   = form{mediaType: wire.TypeRaw, schema: rawBytes("The message's body, with Accept: application/octet-stream.")}
	pushLines = form{mediaType: wire.TypeNDJSON, line: wire.PushResult{}, text: "Each line is the result of the message on that line of the request."}

	claimStream = form{
		mediaType: wire.TypeNDJSON, line: wire.StreamLine{},
		text: "With Accept: application/x-ndjson. Each line has a message as soon as it is due, or neither message nor error, which shows that the " +
			"stream is alive. A line with an error is the last one.",
	}
	checkStream = form{
		mediaType: wire.TypeNDJSON, line: wire.CheckLine{},
		text: "With Accept: application/x-ndjson. Each line has how many messages were read so far, and the last one the report or an error.",
	}
)

const (
	pathTopic    = wire.PathTopics + "/{topic}"
	pathMessages = pathTopic + "/messages"
	pathMessage  = pathMessages + "/{id}"
	pathFinished = pathTopic + "/finished"
)

// routes returns the table of routes.
func routes() []*route {
	var out []*route
	out = append(out, messageRoutes()...)
	out = append(out, batchRoutes()...)
	out = append(out, topicRoutes()...)
	out = append(out, scheduleRoutes()...)
	out = append(out, serverRoutes()...)
	return out
}

func messageRoutes() []*route {
	pushErrors := []string{"too_large", "duplicate", "changed", "paused", "no_space"}
	created := []int{http.StatusCreated, http.StatusOK}
	settle := func(verb, summary string, extra ...any) *route {
		return &route{
			method: http.MethodPost, path: pathMessage + "/" + verb, action: access.Work,
			params: params(append([]any{paramTopic, paramID, paramToken}, extra...)...),
			answer: wire.SettleResult{}, statuses: []int{http.StatusOK}, errors: []string{"lease_lost", "cancelled"},
			id: verb, summary: summary, handle: (*call).settleOne,
		}
	}
	// withThen makes a route of settle one whose body may have follow-ups, and returns it.
	withThen := func(rt *route) *route {
		rt.body, rt.mayHaveNoBody, rt.request = bodyJSON, true, wire.SettleBody{Then: exampleThen}
		rt.errors = append(rt.errors, "too_large", "unsupported", "duplicate", "changed", "paused", "no_space")
		rt.detail = "The body, which may be left out, has follow-ups: messages that are stored in the same step, or none of it happens. " +
			"Each of them needs the action push on its topic."
		return rt
	}
	why := param{name: "error", in: inQuery, text: "What went wrong. It is stored in the message's history.", mayBeEmpty: true}
	next := param{name: "in", in: inQuery, text: "The next attempt is due this long after now; left out: as the topic's backoff says.", schema: length()}
	again := param{name: "in", in: inQuery, text: "The next attempt is due this long after now. Default 0s.", schema: length()}
	longer := param{name: "in", in: inQuery, text: "The lease ends this long after now; left out: the topic's length of a lease.", schema: length()}
	return []*route{
		{
			method: http.MethodPost, path: pathMessages, action: access.Push, body: bodyMessage,
			params: params(paramTopic, param{name: "id", in: inQuery, text: "The message's ID; left out: a new one.", schema: name(limits.MaxIDBytes)}, pushParams),
			answer: wire.PushResult{}, statuses: created, errors: pushErrors,
			id: "push", summary: "Push a message: the request's body is the message itself",
			detail: "Headers Punctual-Header-NAME and Content-Type become headers of the message. An Idempotency-Key becomes the ID, " +
				"and the ID is remembered for 24h after the message finished. " +
				"201 says that it is stored, 200 that the ID was in use and what became of that.",
			handle: (*call).pushOne,
		},
		{
			method: http.MethodPut, path: pathMessage, action: access.Push, body: bodyMessage, params: params(paramTopic, paramID, pushParams),
			answer: wire.PushResult{}, statuses: created, errors: pushErrors,
			id: "pushWithID", summary: "Push a message with an ID, so that it can be sent again", handle: (*call).pushOne,
		},
		{
			method: http.MethodGet, path: pathMessages, action: access.Inspect,
			params: params(
				paramTopic,
				param{name: "state", in: inQuery, text: "Which messages.", values: []string{"scheduled", "ready", "leased", "dead"}, required: true},
				param{name: "reason", in: inQuery, text: "Only dead messages that died of this.", values: reasons},
				paramFrom, paramTo,
				param{name: "limit", in: inQuery, text: "How many on a page, 1 to 10000. Default 100.", schema: count(1, 10_000)},
				paramAfter,
				param{name: "descending", in: inQuery, text: "true: the latest first. Default false.", values: []string{"true", "false"}},
				param{name: "bare", in: inQuery, text: "true: without the bodies. Default false.", values: []string{"true", "false"}},
			),
			answer: wire.Page{}, statuses: []int{http.StatusOK},
			id: "list", summary: "List a topic's messages of one state, in the order of their time", handle: (*call).list,
		},
		{
			method: http.MethodGet, path: pathMessage, action: access.Inspect, params: params(paramTopic, paramID),
			answer: wire.Message{}, forms: []form{rawBody}, statuses: []int{http.StatusOK}, errors: []string{"not_found"},
			id: "get", summary: "Look at a message; with Accept: application/octet-stream at its body alone", handle: (*call).get,
		},
		{
			method: http.MethodGet, path: pathFinished, action: access.Inspect,
			params: params(
				paramTopic,
				param{name: "outcome", in: inQuery, text: "Only messages that ended in this way.", values: wire.OutcomeWords()},
				param{name: "from", in: inQuery, text: "Only messages that finished at this time or later.", schema: instant()},
				param{name: "to", in: inQuery, text: "Only messages that finished before this time.", schema: instant()},
				param{name: "limit", in: inQuery, text: "How many on a page, 1 to 10000; an answer has 1000 at most. Default 100.", schema: count(1, 10_000)},
				paramAfter,
				param{name: "descending", in: inQuery, text: "true: the message that finished last comes first. Default false.", values: []string{"true", "false"}},
			),
			answer: wire.FinishedPage{}, statuses: []int{http.StatusOK}, errors: []string{"unsupported"},
			id: "listFinished", summary: "List the records of a topic's finished messages, in the order of kept_until",
			detail: "That is the order in which they finished, unless the topic's finished_retention was changed meanwhile. " +
				"A page may have fewer records than its limit, even none, and a next all the same: the list goes on as long as there is a next.",
			handle: (*call).listFinished,
		},
		{
			method: http.MethodGet, path: pathFinished + "/{id}", action: access.Inspect, params: params(paramTopic, paramID),
			answer: wire.Finished{}, statuses: []int{http.StatusOK}, errors: []string{"not_found", "unsupported"},
			id: "finished", summary: "Read the record of a finished message: did it fire, when, how late",
			detail: "It is kept for the topic's finished_retention, without body and headers. A stored message may have the same ID by now.",
			handle: (*call).finished,
		},
		{
			method: http.MethodDelete, path: pathMessage, action: access.Amend, params: params(paramTopic, paramID, paramIfDue),
			answer: wire.AmendResult{}, statuses: []int{http.StatusOK}, errors: []string{"not_found", "leased", "changed"},
			id: "cancel", summary: "Cancel a message: 200 it is never delivered, 409 it is being worked on, 404 it is dead or not stored",
			handle: (*call).cancel,
		},
		{
			method: http.MethodPost, path: pathMessage + "/reschedule", action: access.Amend, params: params(paramTopic, paramID, whenParams, paramIfDue),
			answer: wire.AmendResult{}, statuses: []int{http.StatusOK}, errors: []string{"not_found", "leased", "changed"},
			again: byRequest, id: "reschedule", summary: "Move a message to another time; one of in, at and at_local is required", handle: (*call).reschedule,
		},
		{
			method: http.MethodPost, path: pathMessage + "/requeue", action: access.Amend, params: params(paramTopic, paramID, whenParams, paramIfDue),
			answer: wire.AmendResult{}, statuses: []int{http.StatusOK}, errors: []string{"not_found", "not_dead", "changed"},
			again: byRequest, id: "requeue", summary: "Deliver a dead message again, now unless in, at or at_local says when", handle: (*call).requeue,
		},
		{
			method: http.MethodPost, path: pathMessage + "/delete", action: access.Admin, params: params(paramTopic, paramID, paramIfDue),
			answer: wire.AmendResult{}, statuses: []int{http.StatusOK}, errors: []string{"not_found", "changed"},
			id: "deleteMessage", summary: "Remove a message in any state without a trace; who works on it loses its lease", handle: (*call).deleteMessage,
		},
		{
			method: http.MethodPost, path: pathTopic + "/claim", action: access.Work, params: params(paramTopic, claimParams),
			answer: wire.ClaimAnswer{}, forms: []form{rawBody, compactForm, claimStream}, statuses: []int{http.StatusOK, http.StatusNoContent},
			again: byRequest, id: "claimTopic", summary: "Claim messages whose time has come; 204 when none came",
			detail: "With Accept: application/octet-stream and max=1 the answer's body is the message itself, with Punctual-Id, Punctual-Token and " +
				"Punctual-Due beside it. With Accept: application/x-ndjson the answer is a stream of lines until the client ends it.",
			handle: (*call).claimTopic,
		},
		{
			method: http.MethodPost, path: pathMessage + "/claim", action: access.Work, params: params(paramTopic, paramID, claimParams[2]),
			answer: wire.ClaimAnswer{}, forms: []form{rawBody, compactForm}, statuses: []int{http.StatusOK, http.StatusNoContent}, errors: []string{"not_found", "leased", "changed"},
			again: byRequest, id: "claimMessage", summary: "Claim one message if it is ready; 404 it is dead or not stored, 409 it is not due, leased, or held back",
			handle: (*call).claimMessage,
		},
		withThen(settle("ack", "Finish a message")),
		settle("retry", "Give a message back for another attempt", next, whenParams[1:], why),
		withThen(settle("snooze", "Give a message back without counting the attempt", again, whenParams[1:])),
		withThen(settle("discard", "Give up on a message: it becomes dead", why)),
		settle("release", "Give a message back unstarted, at once"),
		settle("extend", "Extend the lease of a message", longer),
	}
}

func batchRoutes() []*route {
	return []*route{
		{
			method: http.MethodPost, path: wire.PathPush, action: access.Push, perItem: true, body: bodyLines,
			params:  params(param{name: "topic", in: inQuery, text: "The topic of messages that name none."}),
			request: examplePush, answer: wire.PushAnswer{}, compact: true, forms: []form{compactForm, pushLines}, statuses: []int{http.StatusOK}, errors: []string{"too_large"},
			id: "pushMany", summary: "Push many messages: a JSON array, an object with messages, or NDJSON",
			detail: "With Content-Type: application/x-ndjson each line is a message, and each line of the answer its result. Items that fail have an error; " +
				"the others are stored.",
			handle: (*call).pushMany,
		},
		{
			method: http.MethodPost, path: wire.PathClaim, action: access.Work, perItem: true, body: bodyJSON,
			params:  params(claimParams[3]),
			request: wire.ClaimRequest{}, answer: wire.ClaimAnswer{}, forms: []form{rawBody, compactForm, claimStream}, statuses: []int{http.StatusOK, http.StatusNoContent},
			again: byRequest, id: "claim", summary: "Claim messages of several topics; 204 when none came", handle: (*call).claimMany,
		},
		{
			method: http.MethodPost, path: wire.PathSettle, action: access.Work, perItem: true, body: bodyJSON,
			params: params(param{
				name: "after_header", in: inQuery, values: []string{"true", "false"},
				text: "false: follow-ups do not get the header " + storekit.AfterHeader + ", because the client sets it itself where it is wanted. Default true.",
			}),
			request: exampleSettle, answer: wire.SettleAnswer{}, compact: true, forms: []form{compactForm}, statuses: []int{http.StatusOK}, errors: []string{"too_large"},
			id: "settleMany", summary: "Ack, retry, snooze, discard, release and extend many messages",
			detail: "An ack, a snooze and a discard may have follow-ups in then: messages that are stored in the same step, or none of it happens. " +
				"Each of them needs the action push on its topic.",
			handle: (*call).settleMany,
		},
		{
			method: http.MethodPost, path: wire.PathAmend, action: access.Amend, perItem: true, orAction: access.Admin, body: bodyJSON,
			request: exampleAmend, answer: wire.AmendAnswer{}, statuses: []int{http.StatusOK}, errors: []string{"too_large"},
			again: byRequest, id: "amendMany", summary: "Cancel, reschedule, requeue and delete many messages", detail: "A delete needs the action admin.", handle: (*call).amendMany,
		},
	}
}

func topicRoutes() []*route {
	ok := []int{http.StatusOK}
	return []*route{
		{
			method: http.MethodGet, path: wire.PathTopics, action: access.Inspect, perItem: true,
			answer: wire.Topics{}, statuses: ok, id: "topics", summary: "Count the messages of every topic that the client may inspect", handle: (*call).topics,
		},
		{
			method: http.MethodGet, path: wire.PathNames, action: access.Inspect, perItem: true,
			params: params(
				param{name: "prefix", in: inQuery, text: "Only topics whose name begins with this: orders@ for the companions of orders."},
				param{name: "suffix", in: inQuery, text: "Only topics whose name ends with this: @cron."},
				param{name: "mark", in: inQuery, mayBeEmpty: true, text: "Only companions that have come into being since the answer that had this mark; empty for a first mark, without names."},
				param{name: "wait", in: inQuery, text: "With a mark: how long to wait for a new companion, such as 1s, which is the most."},
			),
			answer: wire.Names{}, statuses: ok, errors: []string{"unsupported"},
			id: "names", summary: "Name the topics that the client may inspect, without counting their messages", handle: (*call).names,
		},
		{
			method: http.MethodGet, path: pathTopic, action: access.Inspect, params: params(paramTopic),
			answer: wire.Topic{}, statuses: ok, errors: []string{"not_found"}, id: "stats", summary: "Count the messages of a topic", handle: (*call).stats,
		},
		{
			method: http.MethodGet, path: pathTopic + "/consumers", action: access.Inspect, params: params(paramTopic),
			answer: wire.Consumers{}, statuses: ok,
			id: "consumers", summary: "Look who works on a topic: claims under way, leases held, messages of the last five minutes",
			detail: "This server tells what it saw itself. A consumer is a token or certificate, an address, and what a claim's header Punctual-Consumer says.",
			handle: (*call).consumers,
		},
		{
			method: http.MethodDelete, path: pathTopic, action: access.Admin, params: params(paramTopic),
			answer: wire.Purged{}, statuses: ok, errors: []string{"not_found"},
			id: "deleteTopic", summary: "Delete a topic with its settings and all its messages", handle: (*call).deleteTopic,
		},
		{
			method: http.MethodGet, path: pathTopic + "/settings", action: access.Inspect, params: params(paramTopic),
			answer: wire.Settings{}, statuses: ok, id: "settings", summary: "Look at a topic's settings", handle: (*call).settings,
		},
		{
			method: http.MethodPatch, path: pathTopic + "/settings", action: access.Admin, params: params(paramTopic), body: bodyJSON,
			request: wire.SettingsPatch{}, answer: wire.Settings{}, statuses: ok,
			id: "configure", summary: "Change those of a topic's settings that are given", handle: (*call).configure,
		},
		{
			method: http.MethodPost, path: pathTopic + "/pause", action: access.Admin, params: params(paramTopic, pauseParams),
			answer: wire.Settings{}, statuses: ok, id: "pause", summary: "Hold back deliveries, unless push=true alone, and refuse pushes with push=true",
			handle: (*call).pause,
		},
		{
			method: http.MethodPost, path: pathTopic + "/resume", action: access.Admin, params: params(paramTopic, pauseParams),
			answer: wire.Settings{}, statuses: ok, id: "resume", summary: "End a pause: that which is named, or both", handle: (*call).resume,
		},
		{
			method: http.MethodPost, path: pathTopic + "/purge", action: access.Admin,
			params: params(paramTopic, param{
				name: "state", in: inQuery, required: true, text: "Which messages; live is all but the dead.",
				values: []string{"scheduled", "ready", "leased", "dead", wire.StateLive},
			}, paramFrom, paramTo),
			answer: wire.Purged{}, statuses: ok, id: "purge", summary: "Remove messages without delivering them", handle: (*call).purge,
		},
		{
			method: http.MethodPost, path: pathTopic + "/bulk", action: access.Amend, perItem: true, orAction: access.Admin, body: bodyJSON,
			params: params(paramTopic), request: wire.BulkRequest{}, answer: wire.BulkReport{}, forms: []form{bulkStream}, statuses: ok,
			errors: []string{"unsupported"},
			again:  "name a shift by id, which is then made once",
			id:     "bulk", summary: "Cancel, delete, requeue, reschedule or shift all messages that match",
			detail: "The bulk goes on for as long as the client waits. If it ends early the answer has an error beside the counts; send the request " +
				"again, which continues a shift where it has stopped. With Accept: application/x-ndjson lines tell how far the bulk is. A delete needs the action admin.",
			handle: (*call).bulk,
		},
		{
			method: http.MethodGet, path: wire.PathForecast, action: access.Inspect, perItem: true,
			params: params(
				param{name: "topic", in: inQuery, text: "The topic; left out: all."},
				param{name: "from", in: inQuery, text: "Where the first bucket begins, at the latest now, which is the default.", schema: instant()},
				param{name: "step", in: inQuery, text: "The width of a bucket. Default 1m.", schema: length()},
				param{name: "buckets", in: inQuery, text: "Their number, 1 to 10000. Default 60.", schema: count(1, 10_000)},
			),
			answer: wire.Forecast{}, statuses: ok, id: "forecast", summary: "Count the messages due in each step ahead", handle: (*call).forecast,
		},
	}
}

var pauseParams = []param{
	{name: "push", in: inQuery, text: "Pushes.", values: []string{"true", "false"}},
	{name: "delivery", in: inQuery, text: "Deliveries.", values: []string{"true", "false"}},
}

func serverRoutes() []*route {
	ok := []int{http.StatusOK}
	return []*route{
		{
			method: http.MethodGet, path: wire.PathInfo, anyPrincipal: true, answer: wire.Info{}, statuses: ok,
			id: "info", summary: "Version, durability and limits", handle: (*call).showInfo,
		},
		{
			method: http.MethodGet, path: wire.PathClock, anyPrincipal: true, answer: wire.Clock{}, statuses: ok,
			id: "clock", summary: "The store's clock", handle: (*call).clock,
		},
		{
			method: http.MethodGet, path: wire.PathStanding, action: access.Inspect, answer: wire.ClockState{}, statuses: ok, errors: []string{"unsupported"},
			id: "clockState", summary: "How the store's clock stands to the one that it follows", handle: (*call).showClockState,
		},
		{
			method: http.MethodPost, path: wire.PathStanding, action: access.Admin, answer: wire.ClockState{}, statuses: ok, errors: []string{"unsupported"},
			id: "stepClock", summary: "Step the store's clock back at once if it is ahead", handle: (*call).stepClock,
		},
		{
			method: http.MethodGet, path: wire.PathSpace, action: access.Inspect, answer: wire.Space{}, statuses: ok, errors: []string{"unsupported"},
			id: "space", summary: "How much room the store's medium has, in bytes", handle: (*call).showSpace,
		},
		{
			method: http.MethodGet, path: wire.PathCheck, action: access.Admin, answer: wire.CheckReport{}, forms: []form{checkStream}, statuses: ok,
			id: "check", summary: "Read everything and report damage",
			detail: "It can take long. With Accept: application/x-ndjson lines tell how far it is, and the last one has the report or an error.", handle: (*call).check,
		},
		{
			method: http.MethodGet, path: wire.PathExamine, action: access.Admin, answer: wire.Examination{}, statuses: ok,
			id: "examine", summary: "What the store stands on, and whether that can keep the promises", handle: (*call).examine,
		},
		{
			method: http.MethodGet, path: wire.PathBackup, action: access.Admin | access.Inspect, forms: []form{{mediaType: wire.TypeTar, schema: rawBytes("The archive.")}}, statuses: ok, errors: []string{"unsupported"},
			id: "backup", summary: "Copy the whole store as it is at one instant: a tar archive of the files of a directory",
			detail: "The archive is complete when it has as many bytes as Content-Length says. One copy is made at a time. It has all that there is to see, so it takes both admin and inspect on all topics.", handle: (*call).backup,
		},
		{
			method: http.MethodGet, path: wire.PathOpenAPI, anyPrincipal: true, forms: []form{{mediaType: wire.TypeJSON, schema: object{"type": "object"}}}, statuses: ok,
			id: "openapi", summary: "This description", handle: (*call).showOpenAPI,
		},
		{
			method: http.MethodGet, path: wire.PathProto, anyPrincipal: true, forms: []form{{mediaType: "text/plain", schema: object{"type": "string"}}}, statuses: ok,
			id: "proto", summary: "The messages of the compact form, for the compiler of Protocol Buffers", handle: (*call).showProto,
		},
		{
			method: http.MethodGet, path: wire.PathLive, public: true, answer: wire.Health{}, statuses: ok,
			id: "live", summary: "200 as long as the process answers", handle: (*call).live,
		},
		{
			method: http.MethodGet, path: wire.PathReady, public: true, answer: wire.Health{}, statuses: ok,
			id: "ready", summary: "200 as long as the store answers and the server is not ending", handle: (*call).ready,
		},
		{
			method: http.MethodGet, path: wire.PathMetrics, action: access.Inspect, forms: []form{{mediaType: "text/plain", schema: object{"type": "string"}}}, statuses: ok, errors: []string{"unsupported"},
			id: "metrics", summary: "Metrics for Prometheus", handle: (*call).metrics,
		},
	}
}
