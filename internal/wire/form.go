package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// Form is an encoding of requests and answers that carry many messages.
type Form uint8

const (
	// JSON is the form that every client can read.
	JSON Form = iota
	// Compact is Protocol Buffers, the form that remotestore uses.
	Compact
)

// String returns the form's media type.
func (f Form) String() string {
	if f == Compact {
		return TypeCompact
	}
	return TypeJSON
}

// FormOf returns Compact for its media type, and JSON for every other one.
func FormOf(mediaType string) Form {
	mediaType, _, _ = strings.Cut(mediaType, ";")
	if strings.EqualFold(strings.TrimSpace(mediaType), TypeCompact) {
		return Compact
	}
	return JSON
}

// SettleNeedsJSON reports whether a settlement has something that the compact form cannot carry:
// follow-ups.
func SettleNeedsJSON(ss []punctual.Settlement) bool {
	return slices.ContainsFunc(ss, func(s punctual.Settlement) bool { return len(s.Then) > 0 })
}

// EncodePush returns the body of a push. storekit.CheckPush must have accepted the messages, and
// their due times must be whole milliseconds.
func EncodePush(f Form, ms []punctual.NewMessage) ([]byte, error) {
	if f == Compact {
		return compactPush(ms)
	}
	r := PushRequest{Messages: make(Items[PushItem], len(ms))}
	for i := range ms {
		var err error
		if r.Messages[i], err = PushItemOf(&ms[i]); err != nil {
			return nil, err
		}
	}
	return Encode(r)
}

// EncodePushAnswer returns the answer to a push.
func EncodePushAnswer(f Form, rs []punctual.PushResult) ([]byte, error) {
	if f == Compact {
		return compactPushAnswer(rs)
	}
	return jsonPushAnswer(rs)
}

// DecodePushAnswer reads the answer to a push. A malformed answer is an ErrIndeterminate.
func DecodePushAnswer(f Form, data []byte) ([]punctual.PushResult, error) {
	if f == Compact {
		rs, err := decodeCompactPushAnswer(data)
		return rs, ofAnswer(err)
	}
	var a PushAnswer
	if err := DecodeAnswer(data, &a); err != nil {
		return nil, ofAnswer(err)
	}
	rs := make([]punctual.PushResult, len(a.Results))
	for i := range rs {
		rs[i] = a.Results[i].PushResult()
	}
	return rs, nil
}

// EncodeClaimAnswer returns the answer to a claim that brought messages.
func EncodeClaimAnswer(f Form, ds []punctual.Delivery) ([]byte, error) {
	var b bytes.Buffer
	err := WriteClaimAnswer(&b, f, ds)
	return b.Bytes(), err
}

// WriteClaimAnswer writes the answer to a claim that brought messages to out. It writes JSON in
// pieces, because JSON can take six times the bytes of the messages.
func WriteClaimAnswer(out io.Writer, f Form, ds []punctual.Delivery) error {
	if f == JSON {
		return jsonClaimAnswer(out, ds)
	}
	data, err := compactClaimAnswer(ds)
	if err != nil {
		return err
	}
	_, err = out.Write(data)
	return err
}

// DecodeClaimAnswer reads the answer to a claim. A malformed answer is an ErrIndeterminate.
func DecodeClaimAnswer(f Form, data []byte) ([]punctual.Delivery, error) {
	if f == Compact {
		ds, err := decodeCompactClaimAnswer(data)
		return ds, ofAnswer(err)
	}
	var a ClaimAnswer
	if err := DecodeAnswer(data, &a); err != nil {
		return nil, ofAnswer(err)
	}
	ds := make([]punctual.Delivery, len(a.Messages))
	for i := range ds {
		var err error
		if ds[i], err = a.Messages[i].Delivery(); err != nil {
			return nil, err
		}
	}
	return ds, nil
}

// EncodeSettle returns the body of a settle. With Compact, SettleNeedsJSON must be false.
// storekit.CheckSettlement must have accepted the settlements, and storekit.TrimError must have
// trimmed their errors.
func EncodeSettle(f Form, ss []punctual.Settlement) ([]byte, error) {
	if f == Compact {
		if SettleNeedsJSON(ss) {
			return nil, storekit.Invalidf("the compact form has no follow-ups: send the request as JSON")
		}
		return compactSettle(ss)
	}
	r := SettleRequest{Settlements: make([]SettleItem, len(ss))}
	for i := range ss {
		var err error
		if r.Settlements[i], err = SettleItemOf(&ss[i]); err != nil {
			return nil, err
		}
	}
	return Encode(r)
}

// EncodeSettleAnswer returns the answer to a settle of ss.
func EncodeSettleAnswer(f Form, ss []punctual.Settlement, errs []error) ([]byte, error) {
	if f == Compact {
		return compactSettleAnswer(errs)
	}
	return jsonSettleAnswer(ss, errs)
}

// DecodeSettleAnswer reads the answer to a settle. A malformed answer is an ErrIndeterminate.
func DecodeSettleAnswer(f Form, data []byte) ([]error, error) {
	if f == Compact {
		errs, err := decodeCompactSettleAnswer(data)
		return errs, ofAnswer(err)
	}
	var a SettleAnswer
	if err := DecodeAnswer(data, &a); err != nil {
		return nil, ofAnswer(err)
	}
	errs := make([]error, len(a.Results))
	for i := range errs {
		errs[i] = a.Results[i].Error.Err()
	}
	return errs, nil
}

// ofAnswer turns the error of an answer that could not be read into an ErrIndeterminate, because
// the server may have done what it was asked for. It returns nil for nil.
func ofAnswer(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("the server's answer is not understood: %w; %w", punctual.ErrIndeterminate, errors.New(err.Error()))
}
