package seeds_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"agentd/internal/core"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

// providing is a service that is asked for a section of the prompt.
func providing(contractType string, use sdk.ContextUse) sdk.ServiceTool {
	const question = `{"type": "object", "properties": {"task": {"type": "string"}}, "required": ["task"]}`
	return sdk.ServiceTool{Contract: contract(contractType, question, anyObject), Version: version, Context: &use}
}

// contextSections is rows F6 and F7: what is planned and what was looked up come from code, or from services.
func contextSections(t *testing.T) {
	t.Run("code", func(t *testing.T) { show(t, promptAssembly) })
	t.Run("services", contextServices)
	t.Run("missing", missingContextSection)
	t.Run("required", requiredContextSection)
}

// contextServices asks services for both sections: the run is suspended meanwhile, another worker goes on, and nothing of it is
// a tool call or a part of the conversation.
func contextServices(t *testing.T) {
	a := desk(
		providing("plan.make", sdk.ContextUse{Section: sdk.SectionPlanning, Ask: sdk.AskOnce}),
		providing("docs.search", sdk.ContextUse{Section: sdk.SectionRetrieval}))
	a.Tools = []sdk.Tool{echo("note")}
	model := sdktest.Script(sdktest.Ask(sdktest.Tool("note", n(1))), sdktest.Say("done"))
	h := start(t, model, a)
	r := h.Run("desk", message("How far is it?"))
	h.Suspended(r, 2)
	equal(t, "model calls before its context is there", len(model.Requests()), 0)
	plan, search := h.Call("plan.make"), h.Call("docs.search")
	equal(t, "task", plan.Data()["task"], any("How far is it?"))
	h.Restart()
	plan.Answer(done("plan.make"), map[string]any{"text": "First look, then tell."})
	search.Answer(done("docs.search"), map[string]any{"found": []string{"a"}})

	again := h.Call("docs.search") // for the second model call; the plan is made once
	said, _ := again.Data()["messages"].([]any)
	equal(t, "messages in the second question", len(said), 3)
	again.Answer(done("docs.search"), map[string]any{"text": "It is 7 km."})
	succeeds(t, h, r, `{"response": "done"}`)
	h.NoCall("plan.make")

	asked := model.Requests()
	equal(t, "model calls", len(asked), 2)
	for i, found := range []string{`{"found":["a"]}`, "It is 7 km."} {
		equal(t, "sections", asked[i].Turn, []sdk.Section{
			{Name: sdk.SectionPlanning, Text: "First look, then tell."}, {Name: sdk.SectionRetrieval, Text: found},
		})
		equal(t, "tools", len(asked[i].Tools), 1)
	}
	equal(t, "messages in the history", len(h.Messages(r)), 4)
	for _, m := range h.Messages(r) {
		if strings.Contains(m.PlainText(), "7 km") {
			t.Errorf("the history has %q", m.PlainText())
		}
	}
	equal(t, "interactions", h.State(r).Turns, 2)
}

// missingContextSection lets a service fail: the model is told, and the run goes on.
func missingContextSection(t *testing.T) {
	model := sdktest.Script(sdktest.Say("done"))
	h := start(t, model, desk(providing("docs.search", sdk.ContextUse{Section: sdk.SectionRetrieval})))
	r, events := watchedRun(t, h, func() {
		h.Call("docs.search").Fail(wire.Problem{ErrorName: "e", ErrorMessage: "the index is gone", Code: sdk.CodeUnavailable})
	})
	equal(t, "reason", h.State(r).Reason, core.ReasonCompleted)
	ordered(t, last(t, model).Turn[0].Text, "This is missing", "unavailable")
	equal(t, "events of the question", len(told(events, wire.MilestoneInquired)), 1)
	ordered(t, strings.Join(told(events, wire.MilestoneInformed), "\n"), `"section":"retrieval"`, "the index is gone", `"error":true`)
}

// requiredContextSection lets a service fail that the run cannot do without.
func requiredContextSection(t *testing.T) {
	model := sdktest.Script(sdktest.Say("never"))
	use := sdk.ContextUse{Section: sdk.SectionPlanning, OnFailure: sdk.ContextFail}
	h := start(t, model, desk(providing("plan.make", use)))
	r := h.Run("desk", message("hello"))
	h.Call("plan.make").Fail(wire.Problem{ErrorName: "e", ErrorMessage: "no", Code: sdk.CodeTool})
	problem := fails(t, h, r, deskType)
	equal(t, "code", problem.Code, sdk.CodeUnavailable)
	equal(t, "reason", h.State(r).ReasonCode, sdk.SectionPlanning)
	equal(t, "model calls", len(model.Requests()), 0)
}

// compactionHolds is row F43 where prompts never fit, because of what else is in them: the model is asked for a summary when
// there is enough to summarise, and not before every call.
func compactionHolds(t *testing.T) {
	const calls = 16
	var replies []sdk.ModelReply
	for i := range calls {
		replies = append(replies, sdktest.Ask(sdktest.Tool("note", n(i))))
	}
	script := sdktest.Script(append(replies, sdktest.Say("done"))...)
	var summaries atomic.Int64
	model := sdktest.ModelFunc(func(ctx context.Context, req sdk.ModelRequest) (sdk.ModelReply, error) {
		if strings.HasPrefix(req.System, "You keep the memory") {
			summaries.Add(1)
			return sdktest.Say("I noted things."), nil
		}
		return script.Generate(ctx, req, nil)
	})
	a := desk()
	a.Spec.Memory = &sdk.Memory{Window: 1200, Compact: true}
	a.Tools = []sdk.Tool{echo("note")}
	a.Hooks.Planning = func(context.Context, sdk.TurnInput) (string, error) { return strings.Repeat("plan ", 1000), nil }
	h := start(t, model, a)
	r := h.Run("desk", message("hello"))
	succeeds(t, h, r, `{"response": "done"}`)
	if made := summaries.Load(); made < 1 || made > calls/4 {
		t.Errorf("%d summaries in %d model calls", made, calls+1)
	}
}

// allCompaction is row F43.
func allCompaction(t *testing.T) {
	t.Run("summary", compaction)
	t.Run("older half at 80 %", olderHalf)
	t.Run("hysteresis", compactionHolds)
}
