package pipeline

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"agentd/internal/core"
	"agentd/internal/harness"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
	"agentd/test/peak"
)

// envelope is an event with data, as somebody without agentd's libraries writes it.
func envelope(members, data string) string {
	return `{"specversion":"1.0","id":"x","source":"y","type":"desk",` + members + `"data":` + data + `}`
}

func repeated(n int, member func(i int) string) string {
	members := make([]string, n)
	for i := range members {
		members[i] = member(i)
	}
	return strings.Join(members, ",")
}

// garbage is what no event may be, with what its sender is told.
func garbage() []struct{ body, told string } {
	return []struct{ body, told string }{
		{``, "a JSON value, got nothing"},
		{`{"specversion":`, "valid JSON in UTF-8"},
		{envelope("", "{\"a\":\"\xff\"}"), "valid JSON in UTF-8"},
		{envelope("", "{}") + "{}", "one JSON value, got more after it"},
		{`["an event"]`, "an object with the attributes of an event"},
		{`{"specversion":"1.0","data":{}}`, "$.id: expected a non-empty string"},
		{strings.Replace(envelope("", "{}"), `"1.0"`, `"9.9"`, 1), `$.specversion: expected "1.0"`},
		{envelope("", `"text"`), "$.data: expected an object"},
		{envelope("", `{"a":1,"b":{"c":1,"c":2}}`), "$.data.b.c: expected each name once in an object"},
		{envelope(`"id":"z",`, "{}"), "$.id: expected each name once in an object"},
		{envelope("", `{"a":`+strings.Repeat("[", wire.MaxDepth)+strings.Repeat("]", wire.MaxDepth)+`}`), "levels of nesting"},
		{envelope("", strings.Repeat(`{"a":`, 100_000)), "levels of nesting"},
		{envelope("", "{"+repeated(50_000, func(i int) string { return fmt.Sprintf(`"k%d":0`, i) })+"}"), "object members in total"},
		{envelope(`"accesscontrol":"`+strings.Repeat("a", wire.MaxAttribute+1)+`",`, "{}"), "$.accesscontrol: expected at most 8192 bytes"},
		{envelope(`"mine":"`+strings.Repeat("a", 900_000)+`",`, "{}"), "$.mine: expected at most 8192 bytes"},
		{envelope(`"subject":"a\u0000b",`, "{}"), "$.subject: expected text without control characters"},
		{envelope(repeated(wire.MaxExtensions+1, func(i int) string { return fmt.Sprintf(`"x%d":"v"`, i) })+",", "{}"), "at most 64 extension attributes"},
		{envelope(`"X-Evil":"v",`, "{}"), "an attribute name of 1 to 64"},
		{envelope(`"deep":[[]],`, "{}"), "$.deep: expected a string, boolean, number or null"},
		{envelope(`"executionunits":1e999999999,`, "{}"), "$.executionunits: expected a number from"},
		{envelope(`"time":"tomorrow",`, "{}"), "$.time: expected a time"},
		{envelope(`"data_base64":"e30=",`, "{}"), "data or data_base64"},
	}
}

func TestHostile_EventsOfEveryKindAreDeadLettered(t *testing.T) {
	t.Parallel()
	h := start(t, desk(), sdktest.Script(sdktest.Say("hi")))
	subjects, r := wire.DefaultSubjects(), wire.NewRunKey("nobody")
	answer := subjects.Reply(wire.CallAddress{
		Domain: "local", Type: "calc_add", Agent: "desk", Run: r, Call: wire.CallID(r, "init", 1, 0, "calc_add", []byte("{}")),
	})
	for _, g := range garbage() {
		for _, subject := range []string{subjects.Start("desk"), answer, subjects.Control(wire.ControlCancel, "desk", r)} {
			h.PublishRaw(subject, []byte(g.body))
			d := h.DeadLetter()
			if d.Reason != string(sdk.CodeInvalidEvent) || d.Subject != subject || !strings.Contains(d.Detail, g.told) {
				t.Errorf("%.80q: dead letter with reason %s, want %q: %.500s", g.body, d.Reason, g.told, d.Detail)
			}
			if len(g.body) < 1000 && string(d.Data) != g.body {
				t.Errorf("%q: the dead letter holds %q", g.body, d.Data)
			}
			if len(d.Detail) > 8<<10 {
				t.Errorf("%.80q: the reason has %d bytes", g.body, len(d.Detail))
			}
		}
	}
	wantResponse(t, h.Done(h.Run("desk", hello())), "hi")
	h.NoDeadLetter()
}

// open is the desk with a contract that takes anything.
func open() sdk.AgentSpec {
	spec := desk()
	spec.Contract = contract("desk", "", `{"type":"object"}`, "desk.done", `{"type":"object"}`)
	return spec
}

// TestHostile_DataThatHasNoMeaningIsRefused: what would not survive a tool is said to whoever sent it.
func TestHostile_DataThatHasNoMeaningIsRefused(t *testing.T) {
	t.Parallel()
	h := start(t, open(), sdktest.Script())
	for i, data := range []string{
		`{"n":9007199254740993}`, `{"n":1e400}`,
		"{" + repeated(wire.MaxKeys+1, func(i int) string { return fmt.Sprintf(`"k%d":0`, i) }) + "}",
	} {
		ev := h.Init("desk", hello())
		ev.ID, ev.Subject, ev.Data = fmt.Sprint("init-", i), fmt.Sprint("run ", i), json.RawMessage(data)
		p := wantProblem(t, h.Done(h.Send("desk", ev)), "desk", sdk.CodeContractViolation)
		if len(p.Faults) == 0 {
			t.Errorf("%.40s: no fault is named", data)
		}
	}
	h.NoDeadLetter()
}

func TestHostile_AnInitEventThatCannotBeStoredIsRefused(t *testing.T) {
	t.Parallel()
	spec := desk()
	spec.System = "You were told: {{.Input.message}}"
	h := start(t, spec, sdktest.Script())
	r := h.Run("desk", map[string]string{"message": strings.Repeat("x", 700_000)})
	wantProblem(t, h.Done(r), "desk", sdk.CodeTooLarge)
	h.NoDeadLetter()
}

// Templates go over what clients send: one that takes too much of it ends its run, and no worker.
func TestHostile_InputThatMultipliesInATemplateEndsItsRun(t *testing.T) {
	t.Parallel()
	const nested = "{{range .Input.items}}{{range $.Input.items}}{{range $.Input.items}}{{.}}{{end}}{{end}}{{end}}"
	for name, change := range map[string]func(*sdk.AgentSpec){
		"prompt":   func(s *sdk.AgentSpec) { s.Prompt = nested },
		"guidance": func(s *sdk.AgentSpec) { s.Guidance = &sdk.Guidance{Loop: nested} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			peak.Memory(t, func(t *testing.T) {
				spec := open()
				change(&spec)
				h := start(t, spec, sdktest.Script(sdktest.Say("fine")))
				p := wantProblem(t, h.Done(h.Run("desk", map[string][]int{"items": make([]int, 5000)})), "desk", sdk.CodeTooLarge)
				if !strings.Contains(p.ErrorMessage, "takes more than 100000 steps with this input") {
					t.Error(p.ErrorMessage)
				}
				ev := h.Init("desk", map[string][]int{"items": {1}})
				ev.ID, ev.Subject = "second", "another run"
				wantResponse(t, h.Done(h.Send("desk", ev)), "fine")
				h.NoDeadLetter()
			})
		})
	}
}

// What a template cannot be filled in with is told to whoever sent it, and not only to who reads the worker's log.
func TestTemplate_WhatItLacksIsToldInTheTerminalEvent(t *testing.T) {
	t.Parallel()
	for part, change := range map[string]func(*sdk.AgentSpec){
		"context": func(s *sdk.AgentSpec) { s.System = "Plan a trip\nfor {{.Input.who.name}}." },
		"prompt":  func(s *sdk.AgentSpec) { s.Guidance = &sdk.Guidance{Loop: "Plan a trip\nfor {{.Input.who.name}}."} },
	} {
		t.Run(part, func(t *testing.T) {
			t.Parallel()
			spec := open()
			change(&spec)
			h := start(t, spec, sdktest.Script(sdktest.Say("fine")))
			p := wantProblem(t, h.Done(h.Run("desk", map[string]any{"who": map[string]string{"card": "4111-1111"}})), "desk", sdk.CodeConfig)
			name := map[string]string{"context": "system", "prompt": "agent_loop"}[part]
			want := fmt.Sprintf(`the agent's %s could not be built: the template %q cannot be filled in, line 2: .Input.who.name: "name" is missing`, part, name)
			if p.ErrorMessage != want {
				t.Errorf("the terminal event says\n%s\nwant\n%s", p.ErrorMessage, want)
			}
			h.NoDeadLetter()
		})
	}
}

func TestHostile_ALongReasonToCancelIsClipped(t *testing.T) {
	t.Parallel()
	h := start(t, desk(), sdktest.Script(sdktest.Ask(add(1, 2))))
	r := h.Run("desk", hello())
	h.Suspended(r, 1)
	h.Cancel(r, strings.Repeat("no ", 300_000))
	p := wantProblem(t, h.Done(r), "desk", sdk.CodeCancelled)
	if !strings.HasPrefix(p.ErrorMessage, "the run was cancelled: no no") || len(p.ErrorMessage) > 8<<10 {
		t.Errorf("the message has %d bytes: %.60s", len(p.ErrorMessage), p.ErrorMessage)
	}
}

func TestHostile_ModelThatAsksForTooMuchIsTold(t *testing.T) {
	t.Parallel()
	var many []sdk.ToolRequest
	for i := range 500 {
		many = append(many, add(i, 1))
	}
	long := strings.Repeat("x", core.MaxArguments)
	h := start(t, desk(), sdktest.Script(
		sdktest.Ask(many...),
		sdktest.Ask(sdk.ToolRequest{Name: long, Arguments: "{}"}, sdktest.Tool("calc_add", map[string]any{"a": 1, "b": 2, "c": long})),
		sdktest.Say("enough"),
	))
	r := h.Run("desk", hello())
	h.Suspended(r, core.MaxRound)
	for range core.MaxRound {
		h.Call("calc.add").Answer("calc.added", sum(3))
	}
	wantResponse(t, h.Done(r), "enough")
	h.NoCall("calc.add")
	told := map[sdk.Code]int{}
	for _, m := range h.Messages(r) {
		for _, c := range m.Content {
			for _, code := range []sdk.Code{sdk.CodeTooLarge, sdk.CodeUnknownTool} {
				if c.Kind == sdk.ContentToolResult && containsCode(c.Text, code) {
					told[code]++
				}
			}
		}
	}
	if told[sdk.CodeTooLarge] != core.MaxRound+1 || told[sdk.CodeUnknownTool] != 1 {
		t.Errorf("the model was told %v", told)
	}
}

func TestHostile_RepliesAndOutputsThatNoEventHoldsEndTheRun(t *testing.T) {
	t.Parallel()
	for what, size := range map[string]int{"output": wire.MaxData, "reply": core.MaxReply + 1} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			h := start(t, desk(), sdktest.Script(sdktest.Say(strings.Repeat("x", size))))
			p := wantProblem(t, h.Done(h.Run("desk", hello())), "desk", sdk.CodeTooLarge)
			if !strings.Contains(p.ErrorMessage, what) {
				t.Errorf("message %q", p.ErrorMessage)
			}
		})
	}
}

func TestHostile_AConversationThatNoEventHoldsIsLeftOut(t *testing.T) {
	t.Parallel()
	spec := open()
	spec.History = true
	nested := strings.Repeat(`{"a":`, 60) + "{}" + strings.Repeat("}", 60)
	spec.Services[0].Contract = contract("calc.add", "", `{"type":"object"}`, "calc.added", `{"type":"object"}`)
	h := start(t, spec, sdktest.Script(sdktest.Ask(sdk.ToolRequest{Name: "calc_add", Arguments: nested}), sdktest.Say(`{"response":"deep"}`)))
	r := h.Run("desk", hello())
	h.Call("calc.add").Answer("calc.added", sum(3))
	wantResponse(t, h.Done(r), "deep")
}

// tool is an inline tool of an agent.
func tool(name string, run func(context.Context, sdk.ToolCall) (json.RawMessage, error)) sdk.Tool {
	return sdk.Tool{Definition: sdk.ToolDefinition{Name: name, Parameters: json.RawMessage(`{"type":"object"}`)}, Run: run}
}

func text(size int) json.RawMessage { return json.RawMessage(`"` + strings.Repeat("x", size-2) + `"`) }

func TestHostile_AToolThatReturnsTooMuchIsAnError(t *testing.T) {
	t.Parallel()
	h := harness.Start(t, harness.Options{
		Agents: []sdk.Agent{{Spec: desk(), Tools: []sdk.Tool{
			tool("dump", func(context.Context, sdk.ToolCall) (json.RawMessage, error) { return text(core.MaxResult + 1), nil }),
		}}},
		Model: sdktest.Script(sdktest.Ask(sdktest.Tool("dump", struct{}{})), sdktest.Say("too much")),
	})
	r := h.Run("desk", hello())
	wantResponse(t, h.Done(r), "too much")
	if c := h.Messages(r)[2].Content[0]; !c.IsError || !containsCode(c.Text, sdk.CodeTooLarge) {
		t.Errorf("the model was told %.200s", c.Text)
	}
}

func TestHostile_AConversationThatNoModelReadsEnds(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", core.MaxHistory+1)
	h := harness.Start(t, harness.Options{
		Agents: []sdk.Agent{{Spec: desk(), Hooks: sdk.Hooks{Context: func(context.Context, sdk.ContextInput) (sdk.Context, error) {
			return sdk.Context{Messages: []sdk.Message{sdk.Text(sdk.RoleUser, long)}}, nil
		}}}},
		Model: sdktest.Script(),
	})
	p := wantProblem(t, h.Done(h.Run("desk", hello())), "desk", sdk.CodeTooLarge)
	if !strings.Contains(p.ErrorMessage, "conversation") {
		t.Errorf("message %q", p.ErrorMessage)
	}
}

// TestHostile_AgentsThatCallThemselvesStop: the deepest call is refused, and every agent above goes on from there.
func TestHostile_AgentsThatCallThemselvesStop(t *testing.T) {
	t.Parallel()
	spec := open()
	spec.Services = []sdk.ServiceTool{{Version: version, TimeoutMillis: 60_000, As: "delegate", Contract: spec.Contract}}
	var deepest atomic.Value
	var asked atomic.Int64
	h := start(t, spec, sdktest.ModelFunc(func(_ context.Context, req sdk.ModelRequest) (sdk.ModelReply, error) {
		asked.Add(1)
		last := req.Messages[len(req.Messages)-1].Content[0]
		switch {
		case last.Kind != sdk.ContentToolResult:
			return sdktest.Ask(sdktest.Tool("delegate", hello())), nil
		case last.IsError:
			deepest.Store(last.Text)
		}
		return sdktest.Say(`{"response":"done"}`), nil
	}))
	wantResponse(t, h.Done(h.Run("desk", hello())), "done")
	if told, _ := deepest.Load().(string); !containsCode(told, sdk.CodeQuotaExhausted) || !strings.Contains(told, "8 levels") {
		t.Errorf("the deepest agent was told %q", told)
	}
	if n := asked.Load(); n != 2*9 {
		t.Errorf("the model was asked %d times, want twice by the first agent and each of 8 below", n)
	}
}

// TestHostile_ANameThatGrowsTooLongIsRefused: every delegation makes the name of a run longer.
func TestHostile_ANameThatGrowsTooLongIsRefused(t *testing.T) {
	t.Parallel()
	spec := open()
	spec.Services = []sdk.ServiceTool{{Version: version, TimeoutMillis: 60_000, As: "delegate", Contract: spec.Contract}}
	h := start(t, spec, sdktest.Script(sdktest.Ask(sdktest.Tool("delegate", hello())), sdktest.Say(`{"response":"done"}`)))
	ev := h.Init("desk", hello())
	ev.Subject = strings.Repeat("n", wire.MaxAttribute)
	r := h.Send("desk", ev)
	wantResponse(t, h.Done(r), "done")
	if c := h.Messages(r)[2].Content[0]; !c.IsError || !containsCode(c.Text, sdk.CodeTooLarge) {
		t.Errorf("the model was told %.200s", c.Text)
	}
}
