package server

import (
	"strconv"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/storekit"
)

// once prepares a message of a request with an Idempotency-Key so that it is stored once until its
// duplicate window is over, however often the request is sent. It is stored anew only after
// somebody has deleted or purged it, or by if_exists=replace-dead when it is dead. With byDefault,
// a message without a duplicate window of its own gets keyWindow.
func once(m *punctual.NewMessage, byDefault bool) error {
	if m.IfExists == punctual.IfExistsReplace {
		return storekit.Invalidf("an Idempotency-Key and if_exists=replace: a request that is sent again would store its message anew; use one of them")
	}
	if m.Remember == 0 && byDefault {
		m.Remember = keyWindow
	}
	return nil
}

// idempotencyKey returns the value of the header Idempotency-Key without quotes, or "".
func (c *call) idempotencyKey() (string, error) {
	keys := c.r.Header.Values("Idempotency-Key")
	if len(keys) == 0 {
		return "", nil
	}
	key := keys[0]
	if unquoted, err := strconv.Unquote(key); err == nil && key[0] == '"' {
		key = unquoted // the draft of the header puts the key in quotes
	}
	if len(keys) > 1 || key == "" {
		return "", storekit.Invalidf("Idempotency-Key: give one that is not empty")
	}
	return key, nil
}

// checkKeys refuses a key that does not keep the request from being carried out twice.
func (c *call) checkKeys() error {
	again := c.route.again
	if again == "" {
		return nil
	}
	for _, name := range []string{"Idempotency-Key", wire.HeaderRequest} {
		if _, given := c.r.Header[name]; given && !(name == wire.HeaderRequest && again == byRequest) {
			return storekit.Invalidf("%s does nothing here, so that this request would be carried out each time that it is sent: leave the header out, and %s", name, again)
		}
	}
	return nil
}

// keyWindow is the duplicate window of a message that was pushed with an Idempotency-Key, unless
// the request gives another one.
const keyWindow = 24 * time.Hour
