package contracts

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/sdk"
	"agentd/sdk/wire"
)

// booking is a contract with versions that all accept the same.
func booking(versions ...string) sdk.Contract {
	c := sdk.Contract{URI: "#/airline/book", Type: "airline.book", Versions: map[string]sdk.ContractVersion{}}
	for _, v := range versions {
		c.Versions[v] = sdk.ContractVersion{
			Accepts: json.RawMessage(`{"type": "object", "properties": {"flight": {"type": "string"}}}`),
			Emits:   map[string]json.RawMessage{"airline.booked": json.RawMessage(`{"type": "object"}`)},
		}
	}
	return c
}

// registry has the versions of booking; those with a "-" before them were removed.
func registry(t *testing.T, versions ...string) *Registry {
	t.Helper()
	var r Registry
	for _, v := range versions {
		name, removed := strings.CutPrefix(v, "-")
		record, err := EncodeVersion(booking(name), name)
		if err != nil {
			t.Fatal(err)
		}
		key := RegistryKey("airline.book", name)
		if err := r.Apply(key, record); err != nil {
			t.Fatal(err)
		}
		if removed {
			r.Remove(key)
		}
	}
	return &r
}

func TestRegistry_ResolvesByTypeAndURI(t *testing.T) {
	t.Parallel()
	r := registry(t, "1.9.0", "1.10.0", "-1.11.0", "2.0.0", "3.0.0-rc.1")
	for _, tt := range []struct{ ref, wanted, version, fault string }{
		{"airline.book", "", "2.0.0", ""},
		{"#/airline/book", "^1", "1.10.0", ""},
		{"airline.book", "~1.9", "1.9.0", ""},
		{"airline.book", "3.0.0-rc.1", "3.0.0-rc.1", ""},
		{"airline.book", "1.11.0", "", "version 1.11.0 of contract airline.book was removed from the registry; it has 1.9.0, 1.10.0, 2.0.0, 3.0.0-rc.1"},
		{"airline.book", "^4", "", `contract #/airline/book has no version for "^4"; it has 1.9.0, 1.10.0, 2.0.0, 3.0.0-rc.1`},
		{"airline.fly", "", "", "the registry has no contract airline.fly; it has airline.book"},
	} {
		p, err := r.Resolve(tt.ref, tt.wanted)
		if p.Version != tt.version || tt.fault == "" && (err != nil || len(p.Contract.Versions) != 1) {
			t.Errorf("%s@%s is %s, %v; want %s", tt.ref, tt.wanted, p.Version, err, tt.version)
		}
		if tt.fault != "" && (!errors.Is(err, &sdk.Error{Code: sdk.CodeContractMissing}) || sdk.AsError(err).Message != tt.fault) {
			t.Errorf("%s@%s: %v\nwant %s", tt.ref, tt.wanted, err, tt.fault)
		}
	}
}

func TestRegistry_RecordsThatLieAreRefused(t *testing.T) {
	t.Parallel()
	r := registry(t, "1.0.0")
	good, err := EncodeVersion(booking("1.0.0"), "1.0.0")
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct{ key, record, fault string }{
		"another key":     {"airline_book.2_0_0", string(good), "is that of version"},
		"another content": {"airline_book.1_0_0", strings.Replace(string(good), "flight", "train", 1), "other content"},
		"no JSON":         {"airline_book.1_0_0", "{", "cannot be read"},
		"no versions":     {"airline_book.1_0_0", `{"type":"airline.book"}`, "0 versions"},
		"a bad domain": {
			"airline_book.3_0_0", strings.NewReplacer("1.0.0", "3.0.0", `"type":"airline`, `"domain":"a b","type":"airline`).Replace(string(good)),
			"no usable uri, type or domain",
		},
	} {
		if err := r.Apply(tt.key, []byte(tt.record)); err == nil || !strings.Contains(err.Error(), tt.fault) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := r.Resolve("airline.book", "1.0.0"); err != nil || len(r.List()) != 1 {
		t.Errorf("what was there before: %v, %v", r.List(), err)
	}
}

// Who publishes versions of one type may write whatever they like into them, and take another contract's place by none of it: nobody's calls come
// to them, and none of another's versions is withdrawn with theirs.
func TestRegistry_NoContractPassesForAnother(t *testing.T) {
	t.Parallel()
	for _, uri := range []string{"#/airline/book", "agentd:/airline/book", "airline.book"} {
		t.Run(uri, func(t *testing.T) {
			t.Parallel()
			r := registry(t, "1.0.0", "1.1.0")
			for _, version := range []string{"1.0.0", "1.9.0", "9.0.0"} {
				forged := booking(version)
				forged.Type, forged.URI = "weather.now", uri
				record, err := EncodeVersion(forged, version)
				if err != nil {
					t.Fatal(err)
				}
				key := RegistryKey("weather.now", version)
				err = r.Apply(key, record)
				if taken := uri != "airline.book"; taken != errors.Is(err, &sdk.Error{Code: sdk.CodeConflict}) {
					t.Errorf("version %s: %v", version, err)
				}
				if version == "1.0.0" {
					r.Remove(key)
				}
			}
			for _, ref := range []string{"airline.book", "#/airline/book", "agentd:/airline/book"} {
				for wanted, version := range map[string]string{"^1": "1.1.0", "latest": "1.1.0", "1.0.0": "1.0.0"} {
					if p, err := r.Resolve(ref, wanted); err != nil || p.Contract.Type != "airline.book" || p.Version != version || p.Removed {
						t.Errorf("%s@%s is %s of %s, removed %t: %v", ref, wanted, p.Version, p.Contract.Type, p.Removed, err)
					}
				}
				for range 32 { // versions are looked for in no order
					if p, known := r.Version(ref, "1.0.0"); !known || p.Contract.Type != "airline.book" {
						t.Fatalf("version 1.0.0 of %s is that of %s", ref, p.Contract.Type)
					}
				}
			}
			if _, known := r.Version("airline.book", "9.0.0"); known {
				t.Error("airline.book has a version of another type")
			}
			for _, p := range r.List() {
				if p.Contract.Type != "airline.book" && wire.SameURI(p.Contract.URI, "#/airline/book") {
					t.Errorf("%s of %s has the uri %s", p.Version, p.Contract.Type, p.Contract.URI)
				}
			}
		})
	}
}

// Once it is known of which type a contract is, its versions are looked for by that: a URI that another type got first is not followed.
func TestBind_LooksAgainByType(t *testing.T) {
	t.Parallel()
	spec := sdk.AgentSpec{Name: "desk", Services: []sdk.ServiceTool{{Contract: sdk.Contract{Type: "airline.book"}, Version: "^1", As: "book"}}}
	bound, err := Bind(spec, registry(t, "1.0.0"))
	if err != nil {
		t.Fatal(err)
	}
	var anew Registry // as after it was lost, and the other one came first
	forged := booking("1.9.0")
	forged.Type = "weather.now"
	record, err := EncodeVersion(forged, "1.9.0")
	if err == nil {
		err = anew.Apply(RegistryKey("weather.now", "1.9.0"), record)
	}
	if err != nil {
		t.Fatal(err)
	}
	if again, err := Bind(bound, &anew); !errors.Is(err, &sdk.Error{Code: sdk.CodeContractMissing}) {
		t.Errorf("book is version %s of %s, %v", again.Services[0].Version, again.Services[0].Contract.Type, err)
	}
}

func TestRegistry_KeysOfVersionsDiffer(t *testing.T) {
	t.Parallel()
	keys := map[string]string{}
	for _, v := range []string{"1.0.0", "10.0.0", "1.0.0-rc.1", "1.0.0-rc-1", "1.0.0+rc.1", "1.0.0-a+b", "1.0.0-a-b"} {
		key := RegistryKey("a.b", v)
		if other, taken := keys[key]; taken {
			t.Errorf("versions %s and %s have the key %s", other, v, key)
		}
		keys[key] = v
	}
}

func TestBind_PinsWhatTheRegistryHas(t *testing.T) {
	t.Parallel()
	own := booking("9.0.0")
	spec := sdk.AgentSpec{Name: "desk", Services: []sdk.ServiceTool{
		{Contract: sdk.Contract{Type: "airline.book"}, Version: "^1", As: "book"},
		{Contract: own, Version: "9.0.0", As: "own"},
		{Contract: sdk.Contract{URI: "#/airline/book"}, As: "newest"},
	}}
	show := func(s sdk.AgentSpec) (all []string) {
		for _, tool := range s.Services {
			all = append(all, fmt.Sprint(tool.As, " ", tool.Version, " ", tool.Range, " ", len(tool.Contract.Versions)))
		}
		return all
	}
	bound, err := Bind(spec, registry(t, "1.0.0", "2.0.0"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"book 1.0.0 ^1 1", "own 9.0.0  1", "newest 2.0.0 latest 1"}, show(bound)); diff != "" {
		t.Errorf("services (-want +got):\n%s", diff)
	}
	if again, err := Bind(bound, registry(t, "1.0.0", "-1.1.0", "1.2.0", "-2.0.0")); err != nil {
		t.Error(err)
	} else if diff := cmp.Diff([]string{"book 1.2.0 ^1 1", "own 9.0.0  1", "newest 1.2.0 latest 1"}, show(again)); diff != "" {
		t.Errorf("services after a change (-want +got):\n%s", diff)
	}
	// An agent whose only version was removed is served all the same.
	if gone, err := Bind(bound, registry(t, "-1.0.0", "2.0.0")); err != nil || gone.Services[0].Version != "1.0.0" {
		t.Errorf("after the removal: %v, %v", show(gone), err)
	}
	_, err = Bind(spec, &Registry{})
	want := "contract_missing: agent desk uses contracts that the registry does not have; " +
		"$.services[0]: expected airline.book@^1, got the registry has no contract airline.book; it has none; " +
		"$.services[2]: expected #/airline/book@latest, got the registry has no contract #/airline/book; it has none"
	if err == nil || err.Error() != want {
		t.Errorf("an empty registry: %v\nwant %s", err, want)
	}
	spec.Services[0].Version = "newest"
	if _, err = Bind(spec, registry(t, "1.0.0")); !errors.Is(err, &sdk.Error{Code: sdk.CodeConfig}) {
		t.Errorf("a range that is none: %v", err)
	}
	if diff := cmp.Diff([]string{"airline.book@newest", "#/airline/book@latest"}, Unresolved(spec)); diff != "" {
		t.Errorf("unresolved (-want +got):\n%s", diff)
	}
}
