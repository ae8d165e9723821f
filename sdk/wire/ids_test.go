package wire

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestCallID_CoversEveryPart(t *testing.T) {
	t.Parallel()
	run, init := NewRunKey("trip"), InitToken("/cli", "1")
	seen := map[string]string{}
	for name, id := range map[string]string{
		"base":  CallID(run, init, 1, 2, "book", []byte(`{}`)),
		"run":   CallID(NewRunKey("other"), init, 1, 2, "book", []byte(`{}`)),
		"init":  CallID(run, InitToken("/cli", "2"), 1, 2, "book", []byte(`{}`)),
		"step":  CallID(run, init, 2, 2, "book", []byte(`{}`)),
		"index": CallID(run, init, 1, 3, "book", []byte(`{}`)),
		"tool":  CallID(run, init, 1, 2, "cancel", []byte(`{}`)),
		"args":  CallID(run, init, 1, 2, "book", []byte(`{"a":1}`)),
	} {
		_, digest, _ := strings.Cut(id[1:], "-")
		_, digest, _ = strings.Cut(digest, "-")
		if other, ok := seen[digest]; ok {
			t.Errorf("changing %s or %s gives the same digest %s", name, other, digest)
		}
		seen[digest] = name
	}
	if id := CallID(run, init, 999_999, 9999, "book", []byte(`{}`)); len(id) > 40 {
		t.Errorf("the longest id %s has %d characters", id, len(id))
	}
}

func TestCallRef_RoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		step, index := rapid.IntRange(0, 999_999).Draw(t, "step"), rapid.IntRange(0, 9999).Draw(t, "index")
		ref := CallRef{
			ID:   CallID(NewRunKey(rapid.String().Draw(t, "subject")), InitToken("s", "i"), step, index, "tool", []byte(`{}`)),
			Step: step, Index: index, Attempt: rapid.IntRange(1, 9999).Draw(t, "attempt"),
		}
		if rapid.Bool().Draw(t, "in a further domain") {
			name := rapid.OneOf(
				rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9_-]{0,20}(\.[A-Za-z0-9_-]{1,20}){0,2}`),
				rapid.StringMatching(`r[0-9]{0,6}[-._a-z]{0,3}[0-9]{0,2}`), // what looks most like an attempt
			).Filter(func(name string) bool { return CheckDomain(name) == nil }).Draw(t, "domain")
			ref.Domain = DomainToken(name)
		}
		got, ok := ParseCallRef(ref.EventID())
		if !ok || got != ref {
			t.Fatalf("ParseCallRef(%s) = %+v, %t; want %+v", ref.EventID(), got, ok, ref)
		}
		if len(ref.EventID()) > 128 {
			t.Fatalf("event id %s has %d characters, more than a token may have", ref.EventID(), len(ref.EventID()))
		}
	})
}

func TestParseCallRef_RefusesOthers(t *testing.T) {
	t.Parallel()
	const digest = "abcdefghijklmnopqrstuvwxyz"
	for _, token := range []string{
		"", "c1-0-", "c1-0-" + digest[1:], "c1-0-" + digest + "a", "C1-0-" + digest, "c01-0-" + digest, "c1-00-" + digest,
		"c1000000-0-" + digest, "c1-10000-" + digest, "c-1-0-" + digest, "c1-0-" + strings.ToUpper(digest),
		"c1-0-" + digest + "-", "c1-0-" + digest + "-r1", "c1-0-" + digest + "-r2-", "c1-0-" + digest + "-a.b",
		"c1-0-" + digest + "-" + strings.Repeat("d", 65), "c1-0-" + digest + "\n", " c1-0-" + digest, "t-" + digest,
	} {
		if ref, ok := ParseCallRef(token); ok {
			t.Errorf("ParseCallRef(%q) = %+v", token, ref)
		}
	}
}

func TestRunKey_OneSpellingIsValid(t *testing.T) {
	t.Parallel()
	key := NewRunKey("trip")
	if !key.valid() {
		t.Fatalf("key %s of a run is not valid", key)
	}
	last := strings.IndexByte("abcdefghijklmnopqrstuvwxyz234567", key.Token[25])
	for _, bad := range []RunKey{
		{key.Partition, ""},
		{"", key.Token},
		{key.Partition, strings.ToUpper(key.Token)},
		{"256", key.Token},
		{fmt.Sprintf("%03d", (int(key.Token[0])+1)%256), key.Token},
		// The same 16 bytes, with a bit set that is not part of them.
		{key.Partition, key.Token[:25] + string("abcdefghijklmnopqrstuvwxyz234567"[last|1])},
	} {
		if bad.valid() {
			t.Errorf("key %s is valid", bad)
		}
	}
}
