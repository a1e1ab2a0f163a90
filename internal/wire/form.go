package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/punctualmq/punctual"
)

// Form is how requests and answers that carry many messages are written.
type Form uint8

const (
	// JSON is what every client can read.
	JSON Form = iota
	// Compact is for remotestore: see compact.go.
	Compact
)

// String is the form's media type.
func (f Form) String() string {
	if f == Compact {
		return TypeCompact
	}
	return TypeJSON
}

// FormOf is the form that a media type names: Compact, or else JSON.
func FormOf(mediaType string) Form {
	mediaType, _, _ = strings.Cut(mediaType, ";")
	if strings.EqualFold(strings.TrimSpace(mediaType), TypeCompact) {
		return Compact
	}
	return JSON
}

// EncodePush writes the body of a push of messages that storekit.CheckPush accepts, due at whole milliseconds.
func EncodePush(f Form, ms []punctual.NewMessage) ([]byte, error) {
	if f == Compact {
		return compactPush(ms), nil
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

// EncodePushAnswer writes the answer to a push.
func EncodePushAnswer(f Form, rs []punctual.PushResult) ([]byte, error) {
	if f == Compact {
		return compactPushAnswer(rs), nil
	}
	return jsonPushAnswer(rs)
}

// DecodePushAnswer reads the answer to a push. One that no server gives is an ErrIndeterminate.
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

// EncodeClaimAnswer writes the answer to a claim that brought messages.
func EncodeClaimAnswer(f Form, ds []punctual.Delivery) ([]byte, error) {
	var b bytes.Buffer
	err := WriteClaimAnswer(&b, f, ds)
	return b.Bytes(), err
}

// WriteClaimAnswer writes the answer to a claim that brought messages. JSON, which may take six times the bytes of the messages, goes
// to out in pieces.
func WriteClaimAnswer(out io.Writer, f Form, ds []punctual.Delivery) error {
	if f == JSON {
		return jsonClaimAnswer(out, ds)
	}
	_, err := out.Write(compactClaimAnswer(ds))
	return err
}

// DecodeClaimAnswer reads the answer to a claim. One that no server gives is an ErrIndeterminate.
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

// EncodeSettle writes the body of a settle of settlements that storekit.CheckSettlement accepts, with errors as
// storekit.TrimError makes them.
func EncodeSettle(f Form, ss []punctual.Settlement) ([]byte, error) {
	if f == Compact {
		return compactSettle(ss), nil
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

// EncodeSettleAnswer writes the answer to a settle of ss.
func EncodeSettleAnswer(f Form, ss []punctual.Settlement, errs []error) ([]byte, error) {
	if f == Compact {
		return compactSettleAnswer(errs), nil
	}
	return jsonSettleAnswer(ss, errs)
}

// DecodeSettleAnswer reads the answer to a settle. One that no server gives is an ErrIndeterminate.
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

// ofAnswer is the error of an answer that could not be read, nil for nil. What it asked for may have been done.
func ofAnswer(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("the server's answer is not understood: %w; %w", punctual.ErrIndeterminate, errors.New(err.Error()))
}
