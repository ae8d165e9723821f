package signature

import (
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"agentd/sdk"
	"agentd/sdk/wire"
)

func signedDecision(t *testing.T) (wire.Event, Keys) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(strings.NewReader(strings.Repeat("k", 64)))
	if err != nil {
		t.Fatal(err)
	}
	ev := wire.Event{
		ID: "d1", Source: "desk", Type: sdk.TypePermissionDecided, Subject: "order 7", DataContentType: wire.ContentTypeJSON,
		Time: time.Date(2026, 5, 1, 12, 0, 0, 987e6, time.FixedZone("", 3600)), ParentID: "c1-0-x",
		Data: json.RawMessage(`{ "decision": "allow", "args_sha256": "00" }`),
	}
	signed, err := Sign(ev, "anna", private)
	if err != nil {
		t.Fatal(err)
	}
	data, err := signed.Encode()
	if err != nil {
		t.Fatal(err)
	}
	received, err := wire.DecodeEvent(map[string][]string{"Content-Type": {wire.ContentTypeStructured}}, data)
	if err != nil {
		t.Fatal(err)
	}
	return received, Keys{"finance": {{Public: public}}}
}

func TestVerify_AcceptsWhatWasSigned(t *testing.T) {
	t.Parallel()
	ev, keys := signedDecision(t)
	if key, err := keys.Verify([]string{"finance"}, ev, "anna"); err != nil || key != Fingerprint(keys["finance"][0].Public) {
		t.Errorf("key %q, %v", key, err)
	}
}

func TestVerify_RefusesAllElse(t *testing.T) {
	t.Parallel()
	changes := map[string]func(*wire.Event){
		"id":         func(ev *wire.Event) { ev.ID = "d2" },
		"source":     func(ev *wire.Event) { ev.Source = "model" },
		"type":       func(ev *wire.Event) { ev.Type = "other" },
		"subject":    func(ev *wire.Event) { ev.Subject = "order 8" },
		"time":       func(ev *wire.Event) { ev.Time = ev.Time.Add(time.Second) },
		"data":       func(ev *wire.Event) { ev.Data = json.RawMessage(`{"decision":"deny","args_sha256":"00"}`) },
		"request":    func(ev *wire.Event) { ev.ParentID = "c2-0-x" },
		"no list":    func(ev *wire.Event) { ev.Extensions[attributeSigned] = "" },
		"core twice": func(ev *wire.Event) { ev.Extensions[attributeSigned] = "parentid,id" },
		"unsigned":   func(ev *wire.Event) { delete(ev.Extensions, attributeMaterial) },
		"garbage":    func(ev *wire.Event) { ev.Extensions[attributeMaterial] = "e30=" },
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ev, keys := signedDecision(t)
			change(&ev)
			if _, err := keys.Verify([]string{"finance"}, ev, "anna"); !errors.Is(err, &sdk.Error{Code: sdk.CodeDecisionRefused}) {
				t.Errorf("got %v", err)
			}
		})
	}
	ev, keys := signedDecision(t)
	if _, err := keys.Verify([]string{sdk.HumanDomain}, ev, "anna"); err == nil {
		t.Error("a key of another domain counts")
	}
}

func TestVerify_BindsAKeyToItsPrincipal(t *testing.T) {
	t.Parallel()
	ev, keys := signedDecision(t)
	keys["finance"][0].Principal = "anna"
	if _, err := keys.Verify([]string{"finance"}, ev, "anna"); err != nil {
		t.Error(err)
	}
	for _, who := range []string{"bob", ""} {
		if _, err := keys.Verify([]string{"finance"}, ev, who); err == nil || !strings.Contains(err.Error(), `the key of "anna"`) {
			t.Errorf("published by %q: %v", who, err)
		}
	}
}
