package punctual

import "reflect"

// As returns s as a T, an optional interface of stores. For example, As[Inspector](s) returns the
// Inspector with which to list and count the messages of s. When s has the methods of T, As returns
// s itself. Otherwise, when s wraps another store and shows it by a method
//
//	Unwrap() Store
//
// As asks that store in the same way. A nil Store, as Queue.Store returns of the zero Queue, is an
// ErrInvalid. When no store has the methods, the error is an ErrUnsupported that says what the
// store cannot do.
//
// A wrapper without Unwrap hides the interfaces that it does not have itself, so that no call goes
// past a wrapper which has to count, guard or refuse it. Give a wrapper an Unwrap only if nothing
// that it does to Push, Claim, Settle and Amend has to be done to the calls of T as well, and if it
// hands those four on unchanged, with their context. Otherwise the promises of the store below,
// such as storekit.Repeater, do not hold above the wrapper.
func As[T any](s Store) (T, error) {
	var none T
	if s == nil {
		return none, invalidf("queue was not made by NewQueue with a store: use that")
	}
	for s != nil {
		if t, ok := s.(T); ok {
			return t, nil
		}
		w, ok := s.(interface{ Unwrap() Store })
		if !ok {
			break
		}
		s = w.Unwrap()
	}
	return none, errorf(ErrUnsupported, "this store %s", lacking[T]())
}

// lacking returns what a store that is no T cannot do, as the end of a sentence that begins with
// "this store".
func lacking[T any]() string {
	switch reflect.TypeFor[T]().Name() {
	case "Inspector":
		return "cannot be inspected"
	case "Checker":
		return "cannot be checked"
	case "Examiner":
		return "cannot be examined"
	case "FinishedKeeper":
		return "keeps no finished messages"
	case "Backuper":
		return "cannot be copied while it runs"
	case "DurabilityReporter":
		return "does not tell its class of durability"
	case "SpaceReporter":
		return "does not tell how much room it has"
	case "ConsumerReporter":
		return "does not know who claims"
	case "AbilityReporter":
		return "does not tell what it can do"
	case "TopicNamer":
		return "does not name its topics without counting them"
	case "ClockKeeper":
		return "does not tell how its clock stands"
	case "Surveyor":
		return "makes no surveys"
	}
	return "is no " + reflect.TypeFor[T]().String()
}
