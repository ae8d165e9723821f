package pipeline

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/core"
	"agentd/internal/harness"
	"agentd/internal/schema"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/service"
	"agentd/sdk/wire"
)

// Validation happens at five places. The tests follow an event through them: each refusal is typed, is recorded where the
// run's story is kept, and goes to whoever can act on it.

// strict is desk whose service has a default and refuses what it does not know.
func strict() sdk.AgentSpec {
	spec := desk()
	spec.Services[0].Contract = contract("calc.add", "", `{"type":"object","properties":{"a":{"type":"number"},
		"b":{"type":"number","default":10}},"required":["a","b"],"additionalProperties":false}`,
		"calc.added", `{"type":"object","properties":{"sum":{"type":"number"}},"required":["sum"]}`)
	return spec
}

// serve runs a service of the harness's contract until the test ends.
func serve[Out any](t *testing.T, h *harness.Harness, c sdk.Contract, handle func(in map[string]any) (Out, error)) {
	t.Helper()
	s, err := service.New(c, service.Unlisted())
	if err != nil {
		t.Fatal(err)
	}
	service.Handle(s, func(_ context.Context, _ service.Call, in map[string]any) (Out, error) { return handle(in) })
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	server := service.Server{InProcess: h, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}
	go func() { done <- server.Run(ctx, s) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// toldError is the error that the model was told with the result in message i.
func toldError(t *testing.T, h *harness.Harness, r harness.Run, i int) sdk.Error {
	t.Helper()
	c := h.Messages(r)[i].Content[0]
	var shown struct {
		Error struct {
			Code    sdk.Code
			Message string
			Faults  []sdk.Fault
		}
	}
	if err := json.Unmarshal([]byte(c.Text), &shown); err != nil || !c.IsError {
		t.Fatalf("result %+v is not an error: %v", c, err)
	}
	return sdk.Error{Code: shown.Error.Code, Message: shown.Error.Message, Faults: shown.Error.Faults}
}

func faultPaths(faults []sdk.Fault) string {
	var paths []string
	for _, f := range faults {
		paths = append(paths, f.Path)
	}
	slices.Sort(paths)
	return strings.Join(paths, " ")
}

func TestValidation_AgentInputIsRefusedToTheInitiator(t *testing.T) {
	t.Parallel()
	h := start(t, desk(), sdktest.Script())
	r := h.Run("desk", map[string]any{"count": "many"})
	end := h.Done(r)
	p := wantProblem(t, end, "desk", sdk.CodeContractViolation)
	if got := faultPaths(p.Faults); got != "$.count $.message" && got != "$ $.count" {
		t.Errorf("faults at %s", got)
	}
	if want := "#/desk/0.0.0"; end.DataSchema != want || end.ParentID != "init-1" || end.To != "com.test.client" {
		t.Errorf("the error is of %s, answers %s and goes to %s", end.DataSchema, end.ParentID, end.To)
	}
	if entries := h.Journal(r); len(entries) != 0 {
		t.Errorf("a run began: %d entries", len(entries))
	}
}

func TestValidation_AVersionThatNobodyHasIsNamed(t *testing.T) {
	t.Parallel()
	h := start(t, desk(), sdktest.Script())
	for dataschema, code := range map[string]sdk.Code{
		"#/desk/2.0.0":  sdk.CodeContractMissing,   // the agent's contract, and no version of it
		"#/other/1.0.0": sdk.CodeContractViolation, // another contract
		"latest":        sdk.CodeContractViolation,
	} {
		ev := again(h, "desk", dataschema)
		ev.DataSchema = dataschema
		p := wantProblem(t, h.Done(h.Send("desk", ev)), "desk", code)
		if want := "$.dataschema: expected #/desk/1.0.0, got " + dataschema; len(p.Faults) != 1 || p.Faults[0].String() != want {
			t.Errorf("faults %v, want %s", p.Faults, want)
		}
	}
}

func TestValidation_DefaultsAreSentAndHashed(t *testing.T) {
	t.Parallel()
	h := start(t, strict(), sdktest.Script(sdktest.Ask(sdktest.Tool("calc_add", map[string]any{"a": 1})), sdktest.Say("eleven")))
	r := h.Run("desk", hello())
	call := h.Call("calc.add")
	if got := string(call.Event.Data); got != `{"a":1,"b":10}` {
		t.Errorf("the call carries %s", got)
	}
	call.Answer("calc.added", sum(11))
	wantResponse(t, h.Done(r), "eleven")
}

func TestValidation_AServiceRefusesWhatItsOwnContractDoes(t *testing.T) {
	t.Parallel()
	h := start(t, desk(), sdktest.Script(sdktest.Ask(add(1, -2)), sdktest.Say("sorry")))
	narrower := contract("calc.add", "", `{"type":"object","properties":{"a":{"type":"number"},"b":{"type":"number","minimum":0}}}`,
		"calc.added", `{"type":"object","properties":{"sum":{"type":"number"}}}`)
	serve(t, h, narrower, func(map[string]any) (map[string]int, error) { return sum(0), nil })
	r := h.Run("desk", hello())
	wantResponse(t, h.Done(r), "sorry")
	e := toldError(t, h, r, 2)
	if got := faultPaths(e.Faults); e.Code != sdk.CodeContractViolation || got != "$.b" {
		t.Errorf("the model was told %s at %s", e.Code, got)
	}
}

func TestValidation_AServiceWithoutTheVersionSaysSo(t *testing.T) {
	t.Parallel()
	h := start(t, desk(), sdktest.Script(sdktest.Ask(add(1, 2)), sdktest.Say("sorry")))
	newer := desk().Services[0].Contract
	newer.Versions = map[string]sdk.ContractVersion{"2.0.0": newer.Versions[version]}
	serve(t, h, newer, func(map[string]any) (map[string]int, error) { return sum(3), nil })
	r := h.Run("desk", hello())
	wantResponse(t, h.Done(r), "sorry")
	if e := toldError(t, h, r, 2); e.Code != sdk.CodeContractMissing || e.Message != "contract #/calc.add has no version 1.0.0; it has 2.0.0" {
		t.Errorf("the model was told %s: %s", e.Code, e.Message)
	}
}

func TestValidation_AnswersOfServicesAreResultsWithEveryFault(t *testing.T) {
	t.Parallel()
	wrong := []struct {
		what   string
		change func(*wire.Event)
		paths  string
	}{
		{"data", func(e *wire.Event) { e.Data = []byte(`{"sum":"three"}`) }, "$.sum"},
		{"a type", func(e *wire.Event) { e.Type = "calc.subtracted" }, "$.type"},
		{"a version", func(e *wire.Event) { e.DataSchema = "#/calc.add/7.0.0" }, "$.dataschema"},
		{"everything", func(e *wire.Event) { e.DataSchema, e.Data = "#/x/1.0.0", []byte(`{}`) }, "$ $.dataschema"},
	}
	var calls []sdk.ToolRequest
	for i := range wrong {
		calls = append(calls, add(i, 1))
	}
	h := start(t, desk(), sdktest.Script(sdktest.Ask(calls...), sdktest.Say("sorry")))
	r := h.Run("desk", hello())
	var sent []string
	for _, w := range wrong {
		call := h.Call("calc.add")
		answer := call.Response("calc.added", sum(3))
		w.change(&answer)
		call.Send(answer)
		sent = append(sent, fmt.Sprint(core.ResultAnswer, " of ", answer.ID))
	}
	wantResponse(t, h.Done(r), "sorry")
	for i, w := range wrong {
		e := toldError(t, h, r, 2+i)
		got := strings.Replace(faultPaths(e.Faults), "$.dataschema $.sum", "$ $.dataschema", 1)
		if e.Code != sdk.CodeContractViolation || got != w.paths {
			t.Errorf("of %s the model was told %s at %s, want %s", w.what, e.Code, got, w.paths)
		}
	}
	var recorded []string
	for _, e := range h.Parts(r) {
		for _, result := range e.Results {
			recorded = append(recorded, fmt.Sprint(result.Kind, " of ", result.Event))
		}
	}
	slices.Sort(recorded) // they come in any order
	slices.Sort(sent)
	if diff := cmp.Diff(sent, recorded); diff != "" {
		t.Errorf("what is recorded (-want +got):\n%s", diff)
	}
}

func TestValidation_APersonsBadAnswerIsDeadLetteredAndTheyMayAnswerAgain(t *testing.T) {
	t.Parallel()
	spec := desk()
	spec.Builtin = []string{"ask_question"}
	h := start(t, spec, sdktest.Script(sdktest.Ask(sdktest.Tool("ask_question", map[string]string{"question": "Why?"})), sdktest.Say("ok")))
	r := h.Run("desk", hello())
	question := h.Call(sdk.TypeQuestion)
	bad := question.Response("agentd.question.answered", map[string]int{"answer": 42})
	answer := func(ev wire.Event) { // as a front end for people does: `agentd run`, for one
		t.Helper()
		if err := h.Conn().Answer(t.Context(), question.Subject, ev); err != nil {
			t.Fatal(err)
		}
	}
	answer(bad)
	if d := h.DeadLetter(); d.Reason != string(sdk.CodeContractViolation) || !strings.Contains(d.Detail, "$.answer: expected string") {
		t.Errorf("dead letter %+v", d)
	}
	good := question.Response("agentd.question.answered", map[string]string{"answer": "because"})
	good.ID = "second"
	answer(good)
	wantResponse(t, h.Done(r), "ok")
}

func TestValidation_NothingIsCompiledPerCall(t *testing.T) {
	// Not parallel: it counts what the whole process compiles.
	h := start(t, desk(), sdktest.Script(sdktest.Ask(add(1, 2)), sdktest.Say("three")))
	run := func(subject string) {
		r := h.Send("desk", again(h, "desk", subject))
		h.Call("calc.add").Answer("calc.added", sum(3))
		wantResponse(t, h.Done(r), "three")
	}
	run("first")
	before := schema.Compilations()
	run("second")
	if n := schema.Compilations() - before; n != 0 {
		t.Errorf("%d schemas were compiled for a call", n)
	}
}

func TestServices_AreDiscoveredWithTheirContracts(t *testing.T) {
	t.Parallel()
	h := start(t, desk(), sdktest.Script(sdktest.Ask(add(1, 2)), sdktest.Say("three")))
	c := desk().Services[0].Contract
	serve(t, h, c, func(map[string]any) (map[string]int, error) { return sum(3), nil })
	r := h.Run("desk", hello())
	wantResponse(t, h.Done(r), "three")
	for _, want := range []sdk.Contract{c, desk().Contract} {
		var got sdk.Contract
		if err := h.Conn().Request(t.Context(), h.Conn().Subjects().Contract(want.Type), nil, &got); err != nil {
			t.Fatal(err)
		}
		if got.URI != want.URI || len(got.Versions) != len(want.Versions) {
			t.Errorf("the contract of %s is %+v", want.Type, got)
		}
	}
	info := func(name string, answer any) {
		t.Helper()
		if err := h.Conn().Request(t.Context(), "$SRV."+name, nil, answer); err != nil {
			t.Fatal(err)
		}
	}
	var shown struct {
		Version   string
		Metadata  map[string]string
		Endpoints []struct{ Name, Subject string }
	}
	info("INFO.calc_add", &shown)
	if shown.Version != version || shown.Metadata["uri"] != "#/calc.add" || shown.Metadata["domain"] != "local" ||
		shown.Metadata["dialect"] != "https://json-schema.org/draft/2020-12/schema" || len(shown.Endpoints) != 1 {
		t.Errorf("the service is shown as %+v", shown)
	}
	info("INFO.desk", &shown)
	if shown.Metadata["agent"] != "desk" || len(shown.Endpoints) != 3 || shown.Endpoints[1].Subject != "agentd.get.desk" ||
		shown.Endpoints[2].Subject != "agentd.get.desk.*" {
		t.Errorf("the agent is shown as %+v", shown)
	}
	var stats struct {
		Endpoints []struct {
			Data struct{ Calls, Errors int }
		}
	}
	info("STATS.calc_add", &stats)
	if s := stats.Endpoints[0].Data; s.Calls != 1 || s.Errors != 0 {
		t.Errorf("the service counts %+v", s)
	}
	var status wire.RunStatus
	if err := h.Conn().Ask(t.Context(), "desk", wire.Query{Run: r.Subject}, &status); err != nil || status.Status != core.StatusDone {
		t.Errorf("the query is answered with %+v, %v", status, err)
	}
}
