package compare_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storetest/compare"
)

// TestMessageComparesEveryField: compare.Message finds a difference in any single field. Otherwise
// random histories would not notice that a store forgets a field.
func TestMessageComparesEveryField(t *testing.T) {
	all := reflect.TypeFor[punctual.Message]()
	for i := range all.NumField() {
		var a, b punctual.Message
		field := reflect.ValueOf(&b).Elem().Field(i)
		switch v := field.Addr().Interface().(type) {
		case *string:
			*v = "other"
		case *[]byte:
			*v = []byte("other")
		case *map[string]string:
			*v = map[string]string{"other": "value"}
		case *time.Time:
			*v = time.Unix(1, 0)
		case *time.Duration:
			*v = time.Second
		case *int:
			*v = 7
		case *bool:
			*v = true
		default:
			t.Errorf("field %s is a %s: say here how it may differ", all.Field(i).Name, field.Type())
		}
		if compare.Message(a, b) == "" {
			t.Errorf("two messages that differ in %s alone are the same to Message", all.Field(i).Name)
		}
	}
}
