package tokens

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"testing"
)

var (
	oidCN = asn1.ObjectIdentifier{2, 5, 4, 3}
	oidO  = asn1.ObjectIdentifier{2, 5, 4, 10}
	oidOU = asn1.ObjectIdentifier{2, 5, 4, 11}
)

func part(pairs ...any) (out pkix.RelativeDistinguishedNameSET) {
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, pkix.AttributeTypeAndValue{Type: pairs[i].(asn1.ObjectIdentifier), Value: pairs[i+1]})
	}
	return out
}

// TestSubjects: names that differ in a repeated part, in the order, or in which values one part has
// are different subjects.
func TestSubjects(t *testing.T) {
	names := map[string]pkix.RDNSequence{
		"CN=worker-1,O=Example":         {part(oidO, "Example"), part(oidCN, "worker-1")},
		"O=Example,CN=worker-1":         {part(oidCN, "worker-1"), part(oidO, "Example")},
		"CN=worker-1,CN=evil,O=Example": {part(oidO, "Example"), part(oidCN, "evil"), part(oidCN, "worker-1")},
		"CN=evil,CN=worker-1,O=Example": {part(oidO, "Example"), part(oidCN, "worker-1"), part(oidCN, "evil")},
		"OU=a+CN=worker-1,O=Example":    {part(oidO, "Example"), part(oidCN, "worker-1", oidOU, "a")},
		"CN=worker-1,OU=a,O=Example":    {part(oidO, "Example"), part(oidOU, "a"), part(oidCN, "worker-1")},
		`CN=worker-1\,O=Example`:        {part(oidCN, "worker-1,O=Example")},
		"OU=a+OU=b,CN=worker-1":         {part(oidCN, "worker-1"), part(oidOU, "a", oidOU, "b")},
		"OU=b,OU=a,CN=worker-1":         {part(oidCN, "worker-1"), part(oidOU, "a"), part(oidOU, "b")},
		"2.5.4.100=#13017a,CN=worker-1": {part(oidCN, "worker-1"), part(asn1.ObjectIdentifier{2, 5, 4, 100}, "z")},
	}
	seen := make(map[string]string)
	for want, name := range names {
		raw, err := asn1.Marshal(name)
		if err != nil {
			t.Fatalf("%s: %v", want, err)
		}
		got, err := subjectOf(&x509.Certificate{RawSubject: raw})
		if err != nil || got != want {
			t.Errorf("%s: got %s, %v", want, got, err)
		}
		if other := seen[got]; other != "" {
			t.Errorf("%s and %s are equal", other, want)
		}
		seen[got] = want
	}
	raw, err := asn1.Marshal(pkix.RDNSequence{part(oidCN, 5)})
	if err != nil {
		t.Fatal(err)
	}
	for what, raw := range map[string][]byte{"a number": raw, "nothing": nil, "data behind it": append([]byte{0x30, 0}, 0)} {
		if got, err := subjectOf(&x509.Certificate{RawSubject: raw}); err == nil {
			t.Errorf("a subject of %s: %s; want an error", what, got)
		}
	}
}
