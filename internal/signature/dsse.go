// Package signature signs events and verifies their signatures, by the DSSE extension of CloudEvents: decisions of people.
package signature

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"agentd/sdk/wire"
)

// The attributes and the payload type of the CloudEvents extension "Verifiable CloudEvents with DSSE", version 0.1.
const (
	attributeMaterial = "dssematerial"
	attributeSigned   = "signedextattrs"
	attributeParent   = "parentid"
	payloadType       = "https://cloudevents.io/verifiability/dsse/v0.1"
	specVersion       = "1.0"
)

// envelope is a DSSE envelope.
type envelope struct {
	Payload     []byte      `json:"payload"`
	PayloadType string      `json:"payloadType"`
	Signatures  []signature `json:"signatures"`
}

type signature struct {
	KeyID string `json:"keyid"`
	Sig   []byte `json:"sig"`
}

// Sign returns the event with its signature. It covers the core attributes, the data and the parent id, which binds a
// decision to its request. The data is made canonical first, so that the bytes survive being decoded and encoded.
func Sign(ev wire.Event, keyID string, key ed25519.PrivateKey) (wire.Event, error) {
	canonical, err := wire.Canonicalize(ev.Data)
	if err != nil {
		return wire.Event{}, fmt.Errorf("canonical data of event %s: %w", ev.ID, err)
	}
	ev.Data = canonical
	payload := material(ev, []string{attributeParent})
	data, err := json.Marshal(envelope{
		Payload: payload, PayloadType: payloadType,
		Signatures: []signature{{keyID, ed25519.Sign(key, preAuthentication(payload))}},
	})
	if err != nil {
		return wire.Event{}, fmt.Errorf("encode the signature of event %s: %w", ev.ID, err)
	}
	extensions := map[string]any{attributeMaterial: base64.StdEncoding.EncodeToString(data), attributeSigned: attributeParent}
	for name, value := range ev.Extensions {
		extensions[name] = value
	}
	ev.Extensions = extensions
	return ev, nil
}

// verified reports whether the event is signed with the key, and the signature covers the parent id.
func verified(key ed25519.PublicKey, ev wire.Event) bool {
	text, _ := ev.Extensions[attributeMaterial].(string)
	raw, err := base64.StdEncoding.DecodeString(text)
	var e envelope
	if err != nil || json.Unmarshal(raw, &e) != nil || e.PayloadType != payloadType || len(e.Payload) != sha256.Size {
		return false
	}
	signed, ok := signedAttributes(ev)
	if !ok || !slices.Contains(signed, attributeParent) || !covers(e.Payload, ev, signed) {
		return false
	}
	return slices.ContainsFunc(e.Signatures, func(s signature) bool {
		return ed25519.Verify(key, preAuthentication(e.Payload), s.Sig)
	})
}

// covers reports whether the digest is of the event. Who wrote the data may have signed its bytes as they were sent, or its
// canonical form.
func covers(digest []byte, ev wire.Event, signed []string) bool {
	if bytes.Equal(material(ev, signed), digest) {
		return true
	}
	canonical, err := wire.Canonicalize(ev.Data)
	ev.Data = canonical
	return err == nil && bytes.Equal(material(ev, signed), digest)
}

// signedAttributes are the extension attributes that the signature says it covers; it is not ok when the extension forbids
// such a list.
func signedAttributes(ev wire.Event) ([]string, bool) {
	text, _ := ev.Extensions[attributeSigned].(string)
	if text == "" {
		return nil, true
	}
	names := strings.Split(text, ",")
	core := []string{
		"id", "source", "specversion", "type", "datacontenttype", "dataschema", "subject", "time", attributeMaterial, attributeSigned,
	}
	for i, name := range names {
		if name == "" || slices.Contains(core, name) || slices.Contains(names[:i], name) {
			return nil, false
		}
	}
	return names, true
}

// material is the digest that is signed: of the digests of the core attributes, the data, and the named attributes.
func material(ev wire.Event, extensions []string) []byte {
	var list bytes.Buffer
	add := func(data []byte) {
		sum := sha256.Sum256(data)
		list.Write(sum[:])
	}
	at := ""
	if !ev.Time.IsZero() {
		at = ev.Time.UTC().Format(time.RFC3339)
	}
	for _, attribute := range []string{ev.ID, ev.Source, specVersion, ev.Type, ev.DataContentType, ev.DataSchema, ev.Subject, at} {
		add([]byte(attribute))
	}
	add(ev.Data)
	for _, name := range extensions {
		add([]byte(name))
		add([]byte(attribute(ev, name)))
	}
	sum := sha256.Sum256(list.Bytes())
	return sum[:]
}

// attribute is the value of an extension attribute, of which the envelope knows some by name.
func attribute(ev wire.Event, name string) string {
	switch name {
	case attributeParent:
		return ev.ParentID
	case "domain":
		return ev.Domain
	case "accesscontrol":
		return ev.AccessControl
	case "to":
		return ev.To
	}
	if value, ok := ev.Extensions[name]; ok {
		return fmt.Sprint(value)
	}
	return ""
}

// preAuthentication is what DSSE signs of a payload.
func preAuthentication(payload []byte) []byte {
	return fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(payloadType), payloadType, len(payload), payload)
}
