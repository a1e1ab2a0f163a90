// Package attributesrig has a value for every attribute of messages, so that the tests of each
// place that hands attributes on fail when an attribute is added and that place does not have it.
package attributesrig

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/punctualmq/punctual/storekit"
)

// Full returns attributes that are all set, each to another value.
func Full(t testing.TB) (a storekit.Attributes) {
	t.Helper()
	all := reflect.ValueOf(&a).Elem()
	for i := range all.NumField() {
		switch all.Field(i).Type() {
		case reflect.TypeFor[time.Duration]():
			all.Field(i).SetInt(int64(time.Duration(i+1) * time.Minute))
		case reflect.TypeFor[string]():
			all.Field(i).SetString(fmt.Sprintf("value-%d", i+1))
		default:
			t.Fatalf("say here which value the attribute %s gets", all.Type().Field(i).Name)
		}
	}
	return a
}
