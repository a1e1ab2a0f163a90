package wire

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
)

// The compact form is a binary encoding of the requests and answers that remotestore and a server
// exchange most, at a fraction of JSON's CPU time. GET /v1 says which version a server knows. A
// client sets Content-Type for a request in this form, and Accept to allow an answer in it.
// Everything that is not listed below is JSON: claims, amendments, all routes of a single message,
// problems that are the whole answer, and whole requests of which one item has follow-ups, a
// condition (IfDue) or, as a settlement, a due time.
//
//	body      version (1 byte: 3), kind (1 byte), number of items, items, and no further bytes
//
//	number    unsigned LEB128, in as few bytes as it needs, at most 2^63-1
//	signed    as a number, but up to 2^64-1: 2n for n >= 0, else -2n-1
//	text      number of bytes, bytes
//	time      8 bytes, two's complement, little-endian: milliseconds since 1970; the first instant of the year 1 stands for no time
//	flags     number with a bit for each part that is there; bits without a meaning are 0
//	headers   number of them, for each in the order of names text name, text value
//	error     number status, text code, text detail, number 1 if it is definite, otherwise 0
//
//	kind 1, push: flags, text body, then for each bit
//	    1 text topic (else that of the previous item) 2 text ID           4 headers
//	    8 time due                                   16 number delay     32 number max attempts
//	   64 number expire after                       128 drop expired    256 number if exists (as punctual.IfExists)
//	  512 text attributes (as storekit.Attributes)
//	kind 2, answer to a push: flags, number status, number existing state, then for each bit
//	    1 text topic                                  2 text ID           4 time due                8 error
//	kind 3, answer to a claim: flags, text ID, signed token, text body, times due, created, delivered, lease until,
//	number attempt, then for each bit
//	    1 text topic                                  2 headers           4 time first due (else due)
//	    8 number max attempts                        16 time expires     32 drop expired
//	   64 number of failures, for each number attempt, time at, text error                 128 text attributes
//	kind 4, settle: flags, text ID, signed token, number verb (as punctual.Verb), then for each bit
//	    1 text topic                                  2 number delay (without it a retry follows the backoff) 4 text error
//	kind 5, answer to a settle: number of errors, for each number of the item (ascending), error
//
// A delay and expire after are in nanoseconds. Every change of this layout needs a new version.

// CompactVersion is the version of the compact form.
const CompactVersion = 3

const (
	kindPush byte = iota + 1
	kindPushAnswer
	kindClaimAnswer
	kindSettle
	kindSettleAnswer
)

// The bits of flags.
const (
	flagTopic = 1

	pushID          = 2
	pushHeaders     = 4
	pushDue         = 8
	pushDelay       = 16
	pushMaxAttempts = 32
	pushExpire      = 64
	pushDropExpired = 128
	pushIfExists    = 256
	pushAttributes  = 512
	pushFlags       = 2*pushAttributes - 1

	answerID    = 2
	answerDue   = 4
	answerError = 8
	answerFlags = 2*answerError - 1

	claimHeaders     = 2
	claimFirstDue    = 4
	claimMaxAttempts = 8
	claimExpires     = 16
	claimDropExpired = 32
	claimFailures    = 64
	claimAttributes  = 128
	claimFlags       = 2*claimAttributes - 1

	settleDelay = 2
	settleError = 4
	settleFlags = 2*settleError - 1
)

// compactWriter is the bytes of a body in the compact form. Each method appends one value.
type compactWriter []byte

func newCompactWriter(kind byte, items, size int) compactWriter {
	w := make(compactWriter, 0, size+16)
	w = append(w, CompactVersion, kind)
	w.number(items)
	return w
}

func (w *compactWriter) number(n int) { *w = binary.AppendUvarint(*w, uint64(n)) }

func (w *compactWriter) signed(n int64) { *w = binary.AppendVarint(*w, n) }

func (w *compactWriter) time(t time.Time) {
	*w = binary.LittleEndian.AppendUint64(*w, uint64(t.UnixMilli()))
}

// headers are written in the order of their names, so that equal messages have equal bytes.
func (w *compactWriter) headers(h map[string]string) {
	w.number(len(h))
	for _, name := range slices.Sorted(maps.Keys(h)) {
		writeText(w, name)
		writeText(w, h[name])
	}
}

func writeText[T ~string | ~[]byte](w *compactWriter, s T) {
	w.number(len(s))
	*w = append(*w, s...)
}

func (w *compactWriter) problem(p *Problem) {
	w.number(p.Status)
	writeText(w, p.Code)
	writeText(w, p.Detail)
	w.number(bit(p.Definite, 1))
}

// bit returns flag if set, otherwise 0.
func bit(set bool, flag int) int {
	if set {
		return flag
	}
	return 0
}

func sizeOfHeaders(h map[string]string) int {
	n := 0
	for name, value := range h {
		n += len(name) + len(value) + 6
	}
	return n
}

// compactPush returns the body of a push. storekit.CheckPush must have accepted the messages, and
// their due times must be whole milliseconds.
func compactPush(ms []punctual.NewMessage) []byte {
	size := 0
	for i := range ms {
		size += len(ms[i].Topic) + len(ms[i].ID) + len(ms[i].Body) + sizeOfHeaders(ms[i].Headers) + 40
	}
	w := newCompactWriter(kindPush, len(ms), size)
	topic := ""
	for i := range ms {
		m := &ms[i]
		attributes := storekit.NewAttributes(m).Block()
		flags := bit(i == 0 || m.Topic != topic, flagTopic) | bit(m.ID != "", pushID) | bit(len(m.Headers) > 0, pushHeaders) |
			bit(!m.Due.IsZero(), pushDue) | bit(m.Delay != 0, pushDelay) | bit(m.MaxAttempts != 0, pushMaxAttempts) |
			bit(m.ExpireAfter != 0, pushExpire) | bit(m.DropExpired, pushDropExpired) | bit(m.IfExists != punctual.IfExistsKeep, pushIfExists) |
			bit(attributes != nil, pushAttributes)
		topic = m.Topic
		w.number(flags)
		writeText(&w, m.Body)
		if flags&flagTopic != 0 {
			writeText(&w, m.Topic)
		}
		if flags&pushID != 0 {
			writeText(&w, m.ID)
		}
		if flags&pushHeaders != 0 {
			w.headers(m.Headers)
		}
		if flags&pushDue != 0 {
			w.time(m.Due)
		}
		if flags&pushDelay != 0 {
			w.number(int(m.Delay))
		}
		if flags&pushMaxAttempts != 0 {
			w.number(m.MaxAttempts)
		}
		if flags&pushExpire != 0 {
			w.number(int(m.ExpireAfter))
		}
		if flags&pushIfExists != 0 {
			w.number(int(m.IfExists))
		}
		if flags&pushAttributes != 0 {
			writeText(&w, attributes)
		}
	}
	return w
}

func compactPushAnswer(rs []punctual.PushResult) []byte {
	size := 0
	for i := range rs {
		size += len(rs[i].ID) + 24
	}
	w := newCompactWriter(kindPushAnswer, len(rs), size)
	topic := ""
	for i := range rs {
		r := &rs[i]
		flags := bit(i == 0 || r.Topic != topic, flagTopic) | bit(r.ID != "", answerID) | bit(!r.Due.IsZero(), answerDue) | bit(r.Err != nil, answerError)
		topic = r.Topic
		w.number(flags)
		w.number(int(r.Status))
		w.number(int(r.Existing))
		if flags&flagTopic != 0 {
			writeText(&w, r.Topic)
		}
		if flags&answerID != 0 {
			writeText(&w, r.ID)
		}
		if flags&answerDue != 0 {
			w.time(r.Due)
		}
		if flags&answerError != 0 {
			w.problem(ItemProblem(r.Err))
		}
	}
	return w
}

func compactClaimAnswer(ds []punctual.Delivery) []byte {
	size := 0
	for i := range ds {
		size += len(ds[i].ID) + len(ds[i].Body) + sizeOfHeaders(ds[i].Headers) + 72
		for j := range ds[i].Failures {
			size += len(ds[i].Failures[j].Error) + 14
		}
	}
	w := newCompactWriter(kindClaimAnswer, len(ds), size)
	topic := ""
	for i := range ds {
		d := &ds[i]
		attributes := storekit.AttributesOf(&d.Message).Block()
		flags := bit(i == 0 || d.Topic != topic, flagTopic) | bit(len(d.Headers) > 0, claimHeaders) | bit(!d.FirstDue.Equal(d.Due), claimFirstDue) |
			bit(d.MaxAttempts != 0, claimMaxAttempts) | bit(!d.Expires.IsZero(), claimExpires) | bit(d.DropExpired, claimDropExpired) |
			bit(len(d.Failures) > 0, claimFailures) | bit(attributes != nil, claimAttributes)
		topic = d.Topic
		w.number(flags)
		writeText(&w, d.ID)
		w.signed(d.Token)
		writeText(&w, d.Body)
		w.time(d.Due)
		w.time(d.Created)
		w.time(d.Delivered)
		w.time(d.LeaseUntil)
		w.number(d.Attempt)
		if flags&flagTopic != 0 {
			writeText(&w, d.Topic)
		}
		if flags&claimHeaders != 0 {
			w.headers(d.Headers)
		}
		if flags&claimFirstDue != 0 {
			w.time(d.FirstDue)
		}
		if flags&claimMaxAttempts != 0 {
			w.number(d.MaxAttempts)
		}
		if flags&claimExpires != 0 {
			w.time(d.Expires)
		}
		if flags&claimFailures != 0 {
			w.number(len(d.Failures))
			for _, f := range d.Failures {
				w.number(f.Attempt)
				w.time(f.At)
				writeText(&w, f.Error)
			}
		}
		if flags&claimAttributes != 0 {
			writeText(&w, attributes)
		}
	}
	return w
}

// compactSettle returns the body of a settle. storekit.CheckSettlement must have accepted the
// settlements.
func compactSettle(ss []punctual.Settlement) []byte {
	size := 0
	for i := range ss {
		size += len(ss[i].ID) + len(ss[i].Error) + 28
	}
	w := newCompactWriter(kindSettle, len(ss), size)
	topic := ""
	for i := range ss {
		s := &ss[i]
		retry := s.Verb == punctual.SettleRetry
		flags := bit(i == 0 || s.Topic != topic, flagTopic) | bit(retry && s.Delay != punctual.UseBackoff || !retry && s.Delay != 0, settleDelay) |
			bit(s.Error != "", settleError)
		topic = s.Topic
		w.number(flags)
		writeText(&w, s.ID)
		w.signed(s.Token)
		w.number(int(s.Verb))
		if flags&flagTopic != 0 {
			writeText(&w, s.Topic)
		}
		if flags&settleDelay != 0 {
			w.number(int(s.Delay))
		}
		if flags&settleError != 0 {
			writeText(&w, s.Error)
		}
	}
	return w
}

func compactSettleAnswer(errs []error) []byte {
	failed := 0
	for _, err := range errs {
		failed += bit(err != nil, 1)
	}
	w := newCompactWriter(kindSettleAnswer, len(errs), 200*failed)
	w.number(failed)
	for i, err := range errs {
		if err != nil {
			w.number(i)
			w.problem(ItemProblem(err))
		}
	}
	return w
}

// compactReader reads a body in the compact form. After the first error its methods read nothing
// and return what is zero or empty, so callers check err once per item.
type compactReader struct {
	data []byte
	at   int
	err  error
}

// newCompactReader returns a reader behind version and kind. It notes an error if they are not the
// expected ones.
func newCompactReader(data []byte, kind byte) *compactReader {
	r := &compactReader{data: data}
	switch {
	case len(data) < 2:
		r.fail("it is not complete")
	case data[0] != CompactVersion:
		r.fail("version %d is not known, only %d", data[0], CompactVersion)
	case data[1] != kind:
		r.fail("kind %d where %d is expected", data[1], kind)
	}
	r.at = 2
	return r
}

func (r *compactReader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = storekit.Invalidf("compact form at byte %d: %s", r.at, fmt.Sprintf(format, args...))
	}
}

// end returns the first error. Bytes that are left over are an error, too.
func (r *compactReader) end() error {
	if r.err == nil && r.at != len(r.data) {
		r.fail("%d bytes too many", len(r.data)-r.at)
	}
	return r.err
}

func (r *compactReader) number() int {
	if r.err != nil {
		return 0
	}
	if r.at < len(r.data) && r.data[r.at] < 0x80 { // most numbers are small
		r.at++
		return int(r.data[r.at-1])
	}
	n := r.unsigned()
	if n > math.MaxInt64 {
		r.fail("a number is too large")
		return 0
	}
	return int(n)
}

func (r *compactReader) unsigned() uint64 {
	if r.err != nil {
		return 0
	}
	n, size := binary.Uvarint(r.data[r.at:])
	switch {
	case size == 0:
		r.fail("it is not complete")
		return 0
	case size < 0:
		r.fail("a number is too large")
		return 0
	case size > 1 && r.data[r.at+size-1] == 0:
		r.fail("a number has more bytes than it needs")
		return 0
	}
	r.at += size
	return n
}

func (r *compactReader) signed() int64 {
	n := r.unsigned()
	return int64(n>>1) ^ -int64(n&1)
}

// count reads the number of parts that follow, each of which takes at least least bytes. It refuses
// a number for which too few bytes are left, so that a short body cannot make the caller allocate
// much memory.
func (r *compactReader) count(least int) int {
	n := r.number()
	if r.err == nil && n > (len(r.data)-r.at)/least {
		r.fail("it is not complete")
	}
	if r.err != nil {
		return 0
	}
	return n
}

// items reads the number of items as count does. More than most are an ErrTooLarge.
func (r *compactReader) items(least, most int) int {
	n := r.count(least)
	if n > most {
		r.err = fmt.Errorf("%d items in one request: at most %d are allowed: %w", n, most, punctual.ErrTooLarge)
		return 0
	}
	return n
}

// choice reads a number that is at most most. what names it in the error.
func (r *compactReader) choice(what string, most int) int {
	n := r.number()
	if n > most {
		r.fail("%s %d is not known", what, n)
		return 0
	}
	return n
}

// bytes reads a text and returns it as a part of data, without a copy. An empty text is nil.
func (r *compactReader) bytes() []byte {
	n := r.count(1)
	if n == 0 {
		return nil
	}
	from := r.at
	r.at += n
	return r.data[from:r.at:r.at]
}

func (r *compactReader) text() string { return string(r.bytes()) }

func (r *compactReader) duration() time.Duration { return time.Duration(r.number()) }

func (r *compactReader) time() time.Time {
	if r.err == nil && len(r.data)-r.at < 8 {
		r.fail("it is not complete")
	}
	if r.err != nil {
		return time.Time{}
	}
	n := binary.LittleEndian.Uint64(r.data[r.at:])
	r.at += 8
	return time.UnixMilli(int64(n)).UTC()
}

// given reads a time whose flag says that it is there, so "no time" is an error.
func (r *compactReader) given() time.Time {
	t := r.time()
	if t.IsZero() {
		r.fail("no time where one is said to be")
	}
	return t
}

func (r *compactReader) headers() map[string]string {
	n := r.count(2)
	if n > maxHeaders {
		r.fail("more than %d headers", maxHeaders)
		return nil
	}
	h := make(map[string]string, min(n, 100))
	for range n {
		if r.err != nil {
			return nil
		}
		name := r.text()
		if _, twice := h[name]; twice {
			r.fail("the header %q is given twice", name)
		}
		h[name] = r.text()
	}
	return h
}

// attributes passes over those that only a newer program knows.
func (r *compactReader) attributes() storekit.Attributes {
	a, err := storekit.ReadAttributes(r.bytes())
	if err != nil {
		r.fail("%v", err)
	}
	return a
}

// pushedAttributes refuses attributes that only a newer program knows, because the message would be
// stored without them.
func (r *compactReader) pushedAttributes() storekit.Attributes {
	block := r.bytes()
	a, err := storekit.ReadAttributes(block)
	switch {
	case err != nil:
		r.fail("%v", err)
	case block == nil || !bytes.Equal(a.Block(), block):
		r.fail("the attributes have one that this program does not know")
	}
	return a
}

func (r *compactReader) problem() *Problem {
	return &Problem{Status: r.number(), Code: r.text(), Detail: r.text(), Definite: r.choice("definite", 1) == 1}
}

// flags reads the flags of an item and refuses bits that are not in known. The first item has to
// name its topic, because no item before it does.
func (r *compactReader) flags(known int, first bool) int {
	f := r.number()
	if f&^known != 0 {
		r.fail("flags %#x are not known", f&^known)
	}
	if first && f&flagTopic == 0 {
		r.fail("the first item names no topic")
	}
	return f
}

// DecodeCompactPush reads a push. The bodies of the messages are parts of data, without copies. A
// malformed push is an ErrInvalid that names the byte, and more than most items are an ErrTooLarge.
// The memory that the items take beside data is counted with take.
func DecodeCompactPush(data []byte, most int, take Take) ([]punctual.NewMessage, error) {
	r := newCompactReader(data, kindPush)
	n := r.items(2, most)
	if err := take(ItemBytes(n)); err != nil {
		return nil, err
	}
	ms := make([]punctual.NewMessage, n)
	topic := ""
	for i := range ms {
		m := &ms[i]
		flags := r.flags(pushFlags, i == 0)
		m.Body = r.bytes()
		if flags&flagTopic != 0 {
			topic = r.text()
		}
		m.Topic = topic
		if flags&pushID != 0 {
			m.ID = r.text()
		}
		if flags&pushHeaders != 0 {
			m.Headers = r.headers()
			if err := take(sizeInMemory(m.Headers)); err != nil {
				return nil, err
			}
		}
		if flags&pushDue != 0 {
			m.Due = r.given()
		}
		if flags&pushDelay != 0 {
			m.Delay = r.duration()
		}
		if flags&pushMaxAttempts != 0 {
			m.MaxAttempts = r.number()
		}
		if flags&pushExpire != 0 {
			m.ExpireAfter = r.duration()
		}
		m.DropExpired = flags&pushDropExpired != 0
		if flags&pushIfExists != 0 {
			m.IfExists = punctual.IfExists(r.choice("if exists", len(ifExistsWords)-1))
		}
		if flags&pushAttributes != 0 {
			r.pushedAttributes().SetNew(m)
		}
		if r.err != nil {
			break
		}
	}
	return ms, r.end()
}

func decodeCompactPushAnswer(data []byte) ([]punctual.PushResult, error) {
	r := newCompactReader(data, kindPushAnswer)
	rs := make([]punctual.PushResult, r.items(3, limits.MaxBatch))
	topic := ""
	for i := range rs {
		out := &rs[i]
		flags := r.flags(answerFlags, i == 0)
		out.Status = punctual.PushStatus(r.choice("status", int(punctual.PushReplaced)))
		out.Existing = punctual.State(r.choice("state", int(punctual.StateDead)))
		if flags&flagTopic != 0 {
			topic = r.text()
		}
		out.Topic = topic
		if flags&answerID != 0 {
			out.ID = r.text()
		}
		if flags&answerDue != 0 {
			out.Due = r.given()
		}
		if flags&answerError != 0 {
			out.Err = r.problem().Err()
		}
		if (out.Status == punctual.PushNone) != (out.Err != nil) {
			r.fail("a result and an error, or neither")
		}
		if r.err != nil {
			break
		}
	}
	return rs, r.end()
}

func decodeCompactClaimAnswer(data []byte) ([]punctual.Delivery, error) {
	r := newCompactReader(data, kindClaimAnswer)
	ds := make([]punctual.Delivery, r.items(37, limits.MaxClaim))
	topic := ""
	for i := range ds {
		d := &ds[i]
		flags := r.flags(claimFlags, i == 0)
		d.ID = r.text()
		d.Token = r.signed()
		if body := r.bytes(); body != nil {
			d.Body = append(make([]byte, 0, len(body)), body...) // a copy, so that a caller who keeps one body does not keep the whole answer in memory
		}
		d.Due, d.Created, d.Delivered, d.LeaseUntil = r.time(), r.time(), r.time(), r.time()
		d.Attempt = r.number()
		if flags&flagTopic != 0 {
			topic = r.text()
		}
		d.Topic = topic
		if flags&claimHeaders != 0 {
			d.Headers = r.headers()
		}
		d.FirstDue = d.Due
		if flags&claimFirstDue != 0 {
			d.FirstDue = r.time()
		}
		if flags&claimMaxAttempts != 0 {
			d.MaxAttempts = r.number()
		}
		if flags&claimExpires != 0 {
			d.Expires = r.given()
		}
		d.DropExpired = flags&claimDropExpired != 0
		if flags&claimFailures != 0 {
			d.Failures = make([]punctual.Failure, r.count(10))
			for j := range d.Failures {
				d.Failures[j] = punctual.Failure{Attempt: r.number(), At: r.time(), Error: r.text()}
			}
		}
		if flags&claimAttributes != 0 {
			r.attributes().Set(&d.Message)
		}
		if r.err != nil {
			break
		}
	}
	return ds, r.end()
}

// DecodeCompactSettle reads a settle. Its errors are those of DecodeCompactPush.
func DecodeCompactSettle(data []byte, most int, take Take) ([]punctual.Settlement, error) {
	r := newCompactReader(data, kindSettle)
	n := r.items(4, most)
	if err := take(ItemBytes(n)); err != nil {
		return nil, err
	}
	ss := make([]punctual.Settlement, n)
	topic := ""
	for i := range ss {
		s := &ss[i]
		flags := r.flags(settleFlags, i == 0)
		s.ID = r.text()
		s.Token = r.signed()
		s.Verb = punctual.Verb(r.choice("verb", int(punctual.SettleExtend)))
		if flags&flagTopic != 0 {
			topic = r.text()
		}
		s.Topic = topic
		switch {
		case flags&settleDelay != 0:
			s.Delay = r.duration()
		case s.Verb == punctual.SettleRetry:
			s.Delay = punctual.UseBackoff
		}
		if flags&settleError != 0 {
			s.Error = r.text()
		}
		if r.err != nil {
			break
		}
	}
	return ss, r.end()
}

func decodeCompactSettleAnswer(data []byte) ([]error, error) {
	r := newCompactReader(data, kindSettleAnswer)
	errs := make([]error, r.choice("number of items", limits.MaxBatch))
	last := -1
	for range r.count(5) {
		i := r.number()
		if r.err == nil && (i <= last || i >= len(errs)) {
			r.fail("an error of item %d behind that of %d, of %d items", i, last, len(errs))
		}
		p := r.problem()
		if r.err != nil {
			break
		}
		errs[i], last = p.Err(), i
	}
	return errs, r.end()
}
