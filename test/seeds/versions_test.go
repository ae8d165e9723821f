package seeds_test

import (
	"testing"

	"agentd/internal/broker"
	"agentd/internal/broker/streams"
	"agentd/internal/contracts"
	"agentd/internal/harness"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

// contractVersions is row B18.
func contractVersions(t *testing.T) {
	published := contract("shop.find", numberInput, valueAnswer)
	for _, v := range []string{"1.9.0", "1.10.0", "2.0.0", "2.1.0-rc.1"} {
		published.Versions[v] = published.Versions[version]
	}
	refer := func(as, wanted string) sdk.ServiceTool {
		return sdk.ServiceTool{Contract: sdk.Contract{Type: "shop.find"}, Version: wanted, As: as}
	}
	a := desk(refer("caret", "^1"), refer("tilde", "~1.9"), refer("exact", "1.0.0"), refer("newest", ""))
	a.Spec.Builtin = []string{"ask_question"}
	model := sdktest.Script(sdktest.Ask(
		sdktest.Tool("caret", n(1)), sdktest.Tool("tilde", n(2)), sdktest.Tool("exact", n(3)), sdktest.Tool("newest", n(4)),
		sdktest.Tool("ask_question", map[string]any{"question": "Really?"})), sdktest.Say("done"))
	h := harness.Start(t, harness.Options{Agents: []sdk.Agent{a}, Contracts: []sdk.Contract{published}, Model: model})

	// A version that the agent does not have is refused where the run would begin.
	wrong := other(h, "desk", "wrong version", message("hello"))
	wrong.DataSchema = sdk.SchemaRef("#/test/"+deskType, "1.1.0")
	refused := fails(t, h, h.Send("desk", wrong), deskType)
	equal(t, "code and place", []string{string(refused.Code), refused.Faults[0].Path}, []string{"contract_missing", "$.dataschema"})

	right := h.Init("desk", message("hello"))
	right.DataSchema = sdk.SchemaRef("#/test/"+deskType, version)
	r := h.Send("desk", right)
	h.Suspended(r, 5)
	for _, want := range []string{"1.10.0", "1.9.0", "1.0.0", "2.0.0"} {
		call := h.Call("shop.find")
		equal(t, "version of the call", call.Event.DataSchema, "#/test/shop.find/"+want)
		answer := call.Response("shop.find.done", value("it"))
		if want == "1.9.0" {
			answer.DataSchema = "#/test/shop.find/1.10.0"
		}
		call.Send(answer)
	}
	h.Call(sdk.TypeQuestion).Answer(sdk.TypeQuestionAnswered, map[string]any{"answer": "yes"})
	end := succeeds(t, h, r, `{"response": "done"}`)
	equal(t, "version of the output", end.DataSchema, right.DataSchema)
	// So is an answer of another version than the one that was called: the model is told.
	p := problem(t, results(t, last(t, model).Messages, 5)[1])
	equal(t, "the answer of another version", []any{p.Code, paths(p.Faults)}, []any{sdk.CodeContractViolation, []string{"$.dataschema"}})
	everyEventNamesItsVersion(t, h)
}

// everyEventNamesItsVersion looks at all calls and ends.
func everyEventNamesItsVersion(t *testing.T, h *harness.Harness) {
	t.Helper()
	events := 0
	for zone, filter := range map[streams.Zone]string{streams.Out: "agentd.out.>", streams.Done: "agentd.done.>"} {
		err := h.Conn().Scan(t.Context(), zone, filter, 1, func(m broker.Stored) (bool, error) {
			event, err := wire.DecodeEvent(m.Headers, m.Data)
			if err != nil {
				return false, err
			}
			events++
			if _, _, ok := contracts.ParseSchemaRef(event.DataSchema); !ok {
				t.Errorf("the event on %s has the dataschema %q", m.Subject, event.DataSchema)
			}
			return true, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	equal(t, "events", events, 5+2)
}
