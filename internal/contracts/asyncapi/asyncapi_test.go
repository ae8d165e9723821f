package asyncapi_test

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/config"
	"agentd/internal/contracts"
	"agentd/internal/contracts/asyncapi"
	"agentd/internal/golden"
	"agentd/internal/schema"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// official is the schema of the AsyncAPI initiative.
func official(t *testing.T) *schema.Schema {
	t.Helper()
	data, err := os.ReadFile("testdata/asyncapi-3.0.0.json")
	if err != nil {
		t.Fatal(err)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, data); err != nil {
		t.Fatal(err)
	}
	schema, err := schema.Compile(compact.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// deployment is a contract of two versions in two dialects, each with references, and an agent that calls it in two
// domains.
func deployment() asyncapi.Deployment {
	shop := sdk.Contract{
		URI: "#/shop/order", Type: "com.shop.order", Domain: "shop", Description: "Orders goods.",
		Versions: map[string]sdk.ContractVersion{
			"1.0.0": {
				Accepts: json.RawMessage(`{"$schema": "http://json-schema.org/draft-07/schema#", "$id": "http://example.com/order", "type": "object",
				  "properties": {"line": {"$ref": "#/definitions/line"}}, "definitions": {"line": {"type": "object", "dependencies": {"a": ["b"]}}}}`),
				Emits: map[string]json.RawMessage{"evt.shop.order.success": json.RawMessage(`{"type": "object"}`)},
			},
			"1.1.0": {
				Accepts: json.RawMessage(`{"type": "object", "properties": {"line": {"$ref": "#line"}},
				  "$defs": {"line": {"$anchor": "line", "type": "object", "dependentRequired": {"a": ["b"]}}}}`),
				Emits: map[string]json.RawMessage{
					"evt.shop.order.success": json.RawMessage(`{"type": "object"}`),
					"evt.shop.order.later":   json.RawMessage(`{"type": "object", "properties": {"again": {"$ref": "#"}}}`),
				},
			},
		},
	}
	desk := sdk.Contract{
		URI: "#/agent/desk", Type: "shop.desk",
		Versions: map[string]sdk.ContractVersion{"1.0.0": {
			Accepts: json.RawMessage(`{"type": "object"}`),
			Emits:   map[string]json.RawMessage{"shop.desk.done": json.RawMessage(`{"type": "object"}`)},
		}},
	}
	subjects, err := wire.NewSubjects("acme")
	if err != nil {
		panic(err) // a constant
	}
	return asyncapi.Deployment{
		Title: "Shop", Version: "2.3.4", View: asyncapi.ViewAgentd, Subjects: subjects,
		Servers:   []asyncapi.Server{{Name: "nats", Host: "nats.example.com:4222", Protocol: "nats"}},
		Contracts: []sdk.Contract{desk, shop},
		Lanes:     []asyncapi.Lane{{Domain: "shop.night", Type: shop.Type}, {Domain: "shop", Type: shop.Type}},
		Agents: []sdk.AgentSpec{{
			Name: "shop.desk", Description: "Sells.", Contract: desk, Version: "1.0.0",
			Services: []sdk.ServiceTool{{Contract: contracts.Pin(shop, "1.1.0"), Version: "1.1.0"}},
		}},
	}
}

// traveldesk is the example, as agentd contracts asyncapi reads it.
func traveldesk(t *testing.T) asyncapi.Deployment {
	t.Helper()
	cfg, err := config.Load("../../../examples/traveldesk/agentd.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return asyncapi.Deployment{
		Title: "Travel desk", Version: "1.0.0", View: asyncapi.ViewAgentd, Subjects: wire.DefaultSubjects(),
		Agents: cfg.Agents, Contracts: cfg.Contracts,
	}
}

func TestDocument_IsValidByTheOfficialSchema(t *testing.T) {
	t.Parallel()
	schema := official(t)
	for name, d := range map[string]asyncapi.Deployment{"shop": deployment(), "traveldesk": traveldesk(t)} {
		for _, view := range asyncapi.Views() {
			d.View = view
			document, err := asyncapi.Document(d)
			if err != nil {
				t.Fatal(err)
			}
			for _, fault := range schema.Validate(document) {
				t.Errorf("%s of %s: %s", view, name, fault)
			}
			for _, reference := range references(t, document) {
				if !resolves(t, document, reference) {
					t.Errorf("%s of %s: %s leads nowhere", view, name, reference)
				}
			}
		}
	}
	if faults := schema.Validate(json.RawMessage(`{"asyncapi": "3.0.0", "info": {"title": "no version"}}`)); len(faults) == 0 {
		t.Error("the schema takes anything")
	}
}

// references are all "$ref" of a document.
func references(t *testing.T, document json.RawMessage) []string {
	t.Helper()
	var all []string
	var walk func(value any)
	walk = func(value any) {
		switch value := value.(type) {
		case map[string]any:
			for name, member := range value {
				if ref, ok := member.(string); ok && name == "$ref" {
					all = append(all, ref)
				}
				walk(member)
			}
		case []any:
			for _, item := range value {
				walk(item)
			}
		}
	}
	var root any
	if err := json.Unmarshal(document, &root); err != nil {
		t.Fatal(err)
	}
	walk(root)
	return all
}

func resolves(t *testing.T, document json.RawMessage, reference string) bool {
	t.Helper()
	pointer, ok := strings.CutPrefix(reference, "#/")
	if !ok {
		return false
	}
	var value any
	if err := json.Unmarshal(document, &value); err != nil {
		t.Fatal(err)
	}
	for _, token := range strings.Split(pointer, "/") {
		members, ok := value.(map[string]any)
		if !ok {
			return false
		}
		if value, ok = members[strings.ReplaceAll(token, "~1", "/")]; !ok {
			return false
		}
	}
	return true
}

func TestDocument_OnFile(t *testing.T) {
	t.Parallel()
	document, err := asyncapi.Document(deployment())
	if err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "testdata/shop.golden.json", append(document, '\n'))
}

// view is what a test reads of a document.
type view struct {
	Channels map[string]struct {
		Address *string `json:"address"`
	} `json:"channels"`
	Operations map[string]struct {
		Action string `json:"action"`
	} `json:"operations"`
	Components struct {
		Schemas map[string]struct {
			SchemaFormat string `json:"schemaFormat"`
		} `json:"schemas"`
		Messages map[string]struct {
			Payload json.RawMessage `json:"payload"`
		} `json:"messages"`
	} `json:"components"`
}

func read(t *testing.T, d asyncapi.Deployment) view {
	t.Helper()
	document, err := asyncapi.Document(d)
	if err != nil {
		t.Fatal(err)
	}
	var v view
	if err := json.Unmarshal(document, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestDocument_PartiesSeeOneAnother(t *testing.T) {
	t.Parallel()
	actions := map[asyncapi.View]map[string]string{}
	for _, v := range asyncapi.Views() {
		d := deployment()
		d.View = v
		actions[v] = map[string]string{}
		for id, o := range read(t, d).Operations {
			actions[v][id] = o.Action
		}
	}
	client := map[string]string{
		"start.shop_desk": "send", "cancel.shop_desk": "send", "cancelCall.shop_desk": "send", "get.shop_desk": "send",
		"done.shop_desk": "receive", "live.shop_desk": "receive", "watch.shop_desk": "send",
	}
	service := map[string]string{}
	for _, lane := range []string{"shop.com_shop_order", "shop_night.com_shop_order"} {
		service["call."+lane], service["void."+lane], service["answer."+lane] = "receive", "receive", "send"
	}
	agentd := map[string]string{
		"deadLetters": "send", "retry.shop_desk": "receive", "undo.shop_desk": "receive", "pause.shop_desk": "receive", "resume.shop_desk": "receive",
		"unpark.shop_desk": "receive", "tag.shop_desk": "receive",
	}
	for _, other := range []map[string]string{client, service} {
		for id, action := range other {
			agentd[id] = map[string]string{"send": "receive", "receive": "send"}[action]
		}
	}
	want := map[asyncapi.View]map[string]string{
		asyncapi.ViewAgentd: agentd, asyncapi.ViewClient: client, asyncapi.ViewService: service,
	}
	if diff := cmp.Diff(want, actions); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A subject that is made from a channel's address is one of the wire's.
func TestDocument_AddressesAreSubjects(t *testing.T) {
	t.Parallel()
	d := deployment()
	run := wire.NewRunKey("trip-7")
	tokens := strings.NewReplacer("{agent}", "shop_desk", "{p}", run.Partition, "{run}", run.Token, "{call}", "c1-0-x", "{init}", wire.InitToken("a", "b"))
	parsed := 0
	for id, c := range read(t, d).Channels {
		kind, _, _ := strings.Cut(id, ".")
		if c.Address == nil || slices.Contains([]string{"live", "get", "deadLetters"}, kind) {
			continue
		}
		parsed++
		if _, err := d.Subjects.Parse(tokens.Replace(*c.Address)); err != nil {
			t.Errorf("%s: %s: %v", id, *c.Address, err)
		}
	}
	if parsed != 17 {
		t.Errorf("%d addresses", parsed)
	}
}

// The payload of a message takes the events that travel, and no others.
func TestDocument_PayloadsFitTheEvents(t *testing.T) {
	t.Parallel()
	document, err := asyncapi.Document(deployment())
	if err != nil {
		t.Fatal(err)
	}
	event := wire.Event{
		ID: "c1", Source: "desk", Type: "com.shop.order", DataSchema: "#/shop/order/1.0.0", Data: json.RawMessage(`{"line": {"a": 1, "b": 2}}`),
	}
	encoded, err := event.Encode()
	if err != nil {
		t.Fatal(err)
	}
	payload := payloadOf(t, document, "call.com.shop.order.1.0.0")
	if faults := payload.Validate(encoded); len(faults) > 0 {
		t.Errorf("%v", faults)
	}
	event.Data = json.RawMessage(`{"line": {"a": 1}}`)
	if encoded, err = event.Encode(); err != nil {
		t.Fatal(err)
	}
	want := []sdk.Fault{{Path: "$.data.line.b", Expected: "a value (required)", Got: "nothing"}}
	if diff := cmp.Diff(want, payload.Validate(encoded)); diff != "" {
		t.Error(diff)
	}
}

// payloadOf compiles the payload of a message with the whole document around it, which is where its references lead.
func payloadOf(t *testing.T, document json.RawMessage, name string) *schema.Schema {
	t.Helper()
	var root map[string]json.RawMessage
	if err := json.Unmarshal(document, &root); err != nil {
		t.Fatal(err)
	}
	root["$schema"] = json.RawMessage(`"http://json-schema.org/draft-07/schema#"`)
	root["allOf"] = json.RawMessage(`[{"$ref": "#/components/messages/` + name + `/payload/schema"}]`)
	raw, err := json.Marshal(root)
	if err != nil {
		t.Fatal(err)
	}
	schema, err := schema.Compile(raw)
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

func TestDocument_NamesTheFormatOfEverySchema(t *testing.T) {
	t.Parallel()
	got := map[string]string{}
	for name, s := range read(t, deployment()).Components.Schemas {
		if strings.Contains(name, "com.shop.order") {
			got[name] = strings.TrimPrefix(s.SchemaFormat, "application/schema+json;version=")
		}
	}
	want := map[string]string{
		"accepts.com.shop.order.1.0.0":                      "draft-07",
		"accepts.com.shop.order.1.1.0":                      "2020-12", // dependentRequired is newer
		"emits.com.shop.order.1.0.0.evt.shop.order.success": "draft-07",
		"emits.com.shop.order.1.1.0.evt.shop.order.success": "draft-07",
		"emits.com.shop.order.1.1.0.evt.shop.order.later":   "draft-07",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestDocument_RefusesWhatDoesNotCompile(t *testing.T) {
	t.Parallel()
	d := deployment()
	d.Contracts[1].Versions["1.0.0"] = sdk.ContractVersion{
		Accepts: json.RawMessage(`{"type": 1}`), Emits: map[string]json.RawMessage{"a.b.c": json.RawMessage(`{"$ref": "http://elsewhere"}`)},
	}
	_, err := asyncapi.Document(d)
	e := sdk.AsError(err)
	if e.Code != sdk.CodeConfig || len(e.Faults) < 2 || !strings.HasPrefix(e.Faults[0].Path, "accepts.com.shop.order.1.0.0: $.type") {
		t.Errorf("%v", err)
	}
}
