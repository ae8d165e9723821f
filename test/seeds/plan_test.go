package seeds_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

// planTracking is row F58: an agent keeps its plan, is shown it in every further prompt, and who watches is told of each change.
func planTracking(t *testing.T) {
	step := func(description string, completed bool, result string) map[string]any {
		return map[string]any{"description": description, "completed": completed, "result": result}
	}
	plan := func(current int, steps ...map[string]any) sdk.ToolRequest {
		return sdktest.Tool(sdk.ToolUpdatePlan, map[string]any{"goal": "Book a trip.", "steps": steps, "current": current})
	}
	const large = 4000
	a := desk(service("shop.find"))
	a.Spec.Builtin = []string{sdk.ToolUpdatePlan}
	a.Spec.Memory = &sdk.Memory{Window: 1600} // the call that wrote the plan is left out of later prompts
	a.Tools = []sdk.Tool{internal("read", func(context.Context, sdk.ToolCall) ([]byte, error) {
		return json.Marshal(strings.Repeat("text ", large/5))
	})}
	model := sdktest.Script(
		sdktest.Ask(plan(1, step("Look", false, ""), step("Book", false, ""))),
		sdktest.Ask(plan(7, step("Look", true, ""))),
		sdktest.Ask(sdktest.Tool("shop_find", n(1))),
		sdktest.Ask(plan(2, step("Look", true, "LX 1"), step("Book", false, ""))),
		sdktest.Ask(sdktest.Tool("read", n(1))),
		sdktest.Say("done"))
	h := start(t, model, a)
	r, events := watchedRun(t, h, func() {
		h.Restart()
		h.Call("shop.find").Answer(done("shop.find"), value("LX 1"))
	})
	equal(t, "reason", reason(h, r), "completed:answer")

	first := "Your plan. Goal: Book a trip.\n1. [>] Look\n2. [ ] Book"
	second := "Your plan. Goal: Book a trip.\n1. [x] Look: LX 1\n2. [>] Book"
	var shown []string
	for _, req := range model.Requests() {
		text := ""
		for _, section := range req.Turn {
			text += section.Text
		}
		shown = append(shown, text)
	}
	equal(t, "plans in the prompts", shown, []string{"", first, first, first, second, second})
	last := model.Requests()[5]
	for _, m := range last.Messages {
		for _, c := range m.Content {
			if c.Tool == sdk.ToolUpdatePlan {
				t.Errorf("the last prompt still has the call %s", c.Args)
			}
		}
	}
	told := told(events, wire.MilestonePlan)
	equal(t, "plans that are told of", len(told), 2)
	ordered(t, told[1], `"plan":{"current":2,"goal":"Book a trip."`, `"result":"LX 1"`)
	results := results(t, h.Messages(r), 5)
	equal(t, "a step that is none", problem(t, results[1]).Code, sdk.CodeContractViolation)
}
