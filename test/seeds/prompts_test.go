package seeds_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"agentd/internal/core"
	"agentd/internal/llm"
	"agentd/internal/llm/texttools"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

// inText makes a scripted model one that calls tools in its text.
func inText(t *testing.T, model sdk.Provider) sdk.Provider {
	t.Helper()
	return inFormat(t, model, sdk.ToolCallsText)
}

func inFormat(t *testing.T, model sdk.Provider, mode sdk.ToolCallMode) sdk.Provider {
	t.Helper()
	r, err := llm.New(llm.Config{Custom: map[string]sdk.Provider{"script": model}})
	if err != nil {
		t.Fatal(err)
	}
	p, err := r.Provider(sdk.ModelSpec{Provider: "script", Name: "m", ToolCalls: mode})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// writing is a reply with a call in its text.
func writing(server, tool, arguments string) sdk.ModelReply {
	return sdktest.Say(`I do it. <tool>{"server_name":"` + server + `","tool_name":"` + tool + `","arguments":` + arguments + `}</tool>`)
}

// ordered fails unless all parts are in text, in that order.
func ordered(t *testing.T, text string, parts ...string) {
	t.Helper()
	rest := text
	for _, part := range parts {
		_, after, ok := strings.Cut(rest, part)
		if !ok {
			t.Fatalf("%q is not where it belongs in:\n%s", part, text)
		}
		rest = after
	}
}

// fileTools stands for an MCP server.
type fileTools struct{}

func (*fileTools) Name() string { return "files" }

func (*fileTools) Tools(context.Context) ([]sdk.Tool, error) { return []sdk.Tool{echo("read")}, nil }

func (*fileTools) Close() error { return nil }

// promptAssembly is rows F1 to F3, F5 to F8 and F59: the whole prompt in its order, built anew for each call, from equal parts to
// equal bytes.
func promptAssembly(t *testing.T) {
	a := desk()
	a.Tools, a.Toolsets = []sdk.Tool{echo("zeta"), echo("alpha")}, []sdk.Toolset{&fileTools{}}
	a.Spec.System = "You are a desk."
	a.Spec.Guidance = &sdk.Guidance{
		Loop: "This is call {{.Interactions.Current}}.", Capabilities: "You know flights.", Thinking: "Think first.",
	}
	a.Hooks.Planning = func(_ context.Context, in sdk.TurnInput) (string, error) {
		return "planned for " + string(in.Input), nil
	}
	a.Hooks.Retrieval = func(context.Context, sdk.TurnInput) (string, error) { return "looked up", nil }
	ask := func() []sdk.ModelRequest {
		model := sdktest.Script(writing("local", "zeta", `{"n":1}`), writing("files", "read", `{"n":2}`), sdktest.Say("done"))
		h := start(t, inText(t, model), a)
		succeeds(t, h, h.Run("desk", message("hello")), `{"response": "done"}`)
		return model.Requests()
	}
	asked := ask()
	equal(t, "model calls", len(asked), 3)
	for i, req := range asked {
		ordered(t, req.System, "You are a desk.", "<agent_loop>\nThis is call "+string(rune('0'+i))+".", "<capabilities>\nYou know flights.",
			"<thinking>\nThink first.")
		current := req.Messages[len(req.Messages)-1].PlainText()
		input := []string{"hello", `{"n":1}`, `{"n":2}`}[i]
		const schema = `arguments: {"additionalProperties":false,"properties":{"n":{"type":"integer"}},"required":["n"],"type":"object"}`
		ordered(t, current, "<tools>", "tool_name: zeta", schema, "tool_name: alpha", schema, "</tools>",
			"<mcp_tools>", "tool_name: files_read", schema, "</mcp_tools>",
			"<tool_rules>", `<tool>{"server_name": `, `"tool_name": `, `"arguments": `, "Call one tool", "</tool_rules>",
			"<planning>\nplanned for", "<retrieval>\nlooked up", input)
		equal(t, "native tools", len(req.Tools), 0)
	}
	ordered(t, asked[2].Messages[0].PlainText()+asked[2].Messages[1].PlainText(), "hello", `"tool_name":"zeta"`)
	again := ask()
	for i := range again {
		equal(t, "system prompt", again[i].System, asked[i].System)
		equal(t, "messages", again[i].Messages, asked[i].Messages)
	}
	shippedPrompts(t)
}

// toolOrder is row F59: of two toolsets with two tools each, every prompt describes them in the same order.
func toolOrder(t *testing.T) {
	a := desk()
	a.Toolsets = []sdk.Toolset{&toolset{"b", []sdk.Tool{echo("z"), echo("y")}}, &toolset{"a", []sdk.Tool{echo("x"), echo("w")}}}
	again := writing("a", "x", `{"n":1}`)
	model := sdktest.Script(again, again, again, again, sdktest.Say("done"))
	h := start(t, inText(t, model), a)
	succeeds(t, h, h.Run("desk", message("hello")), `{"response": "done"}`)
	for _, r := range asked(t, model, 5) {
		ordered(t, lastSaid(r), "<mcp_tools>", "tool_name: b_z", "tool_name: b_y", "tool_name: a_x", "tool_name: a_w", "</mcp_tools>")
	}
}

func orderedPrompts(t *testing.T) {
	t.Run("whole", func(t *testing.T) { show(t, promptAssembly) })
	t.Run("tools", toolOrder)
}

// currentTools is row F1 for tools: a prompt describes those that can be used in its step.
func currentTools(t *testing.T) {
	a := desk()
	a.Tools = []sdk.Tool{echo("note"), echo("later")}
	a.Spec.Rules = []sdk.HookRule{{Name: "first", When: "interactions == 0", Hide: []string{"later"}}}
	model := sdktest.Script(writing("local", "note", `{"n":1}`), sdktest.Say("done"))
	h := start(t, inText(t, model), a)
	succeeds(t, h, h.Run("desk", message("hello")), `{"response": "done"}`)
	var described []bool
	for _, r := range asked(t, model, 2) {
		described = append(described, strings.Contains(lastSaid(r), "tool_name: later"))
	}
	equal(t, "the tool is described", described, []bool{false, true})
}

func dynamicPrompts(t *testing.T) {
	t.Run("whole", func(t *testing.T) { show(t, promptAssembly) })
	t.Run("current tools", currentTools)
}

// shippedPrompts is row F8 for the static parts that come with agentd: an agent includes them by name, and they are rendered with what it
// has to work with.
func shippedPrompts(t *testing.T) {
	for _, tools := range [][]sdk.Tool{{echo("zeta"), echo("alpha")}, nil} {
		a, guidance := desk(), sdk.StandardGuidance()
		a.Tools, a.Spec.System, a.Spec.Guidance = tools, "You are a desk.", &guidance
		model := sdktest.Script(sdktest.Say("done"))
		h := start(t, model, a)
		succeeds(t, h, h.Run("desk", message("hello")), `{"response": "done"}`)
		said, other := "\n- zeta\n- alpha\n", "You have no tools."
		if tools == nil {
			said, other = other, "- zeta"
		}
		system := last(t, model).System
		ordered(t, system, "You are a desk.", "<agent_loop>\n", "You work in rounds.", "<capabilities>\n", said, "<thinking>\n", "Think before each reply")
		if strings.Contains(system, other) || strings.Contains(system, "{{") {
			t.Errorf("the system prompt is %s", system)
		}
	}
}

// textCalls is rows F9 to F13: calls in text, and what becomes of those that cannot be understood or found.
func textCalls(t *testing.T) {
	a := desk()
	a.Tools = []sdk.Tool{echo("note")}
	model := sdktest.Script(
		writing("local", "note", `{"n":1}`),
		sdktest.Say("<tool><server_name>local</server_name><tool_name>note</tool_name><arguments><n>2</n></arguments></tool>"),
		sdktest.Say("<tool>{oops}</tool>"),
		sdktest.Say(`<tool>{"tool_name":"note"}</tool>`),
		writing("mcp", "note", `{"n":5}`),
		sdktest.Say(`<tool>{"server_name":"local","arguments":{}}</tool>`),
		sdktest.Say("<tool><server_name>local</tool_name></tool>"),
		sdktest.Say("<tool>{oops"+strings.Repeat("x", 1000)+"}</tool>"),
		sdktest.Say("done"))
	h := start(t, inText(t, model), a)
	r := h.Run("desk", message("hello"))
	succeeds(t, h, r, `{"response": "done"}`)
	told := func(i int) string {
		messages := model.Requests()[i].Messages
		return messages[len(messages)-1].PlainText()
	}
	ordered(t, told(1), `status="success"`, `{"n":1}`)
	ordered(t, told(2), `status="success"`, `{"n":2}`)
	ordered(t, told(3), "parse_error", "{oops}")
	ordered(t, told(4), "missing_field", "server_name is missing")
	ordered(t, told(5), `status="error"`, "unknown_tool", "mcp.note", "there is note")
	ordered(t, told(6), "missing_field", "tool_name is missing")
	ordered(t, told(7), "parse_error", "neither JSON nor XML", "<server_name>local</tool_name>")
	ordered(t, told(8), "parse_error", "{oopsxxx", "x…")
	equal(t, "200 characters of it are told", strings.Contains(told(8), strings.Repeat("x", 200)), false)
	equal(t, "replies that could not be understood", h.State(r).Misread, 5)
	equal(t, "a text without tags has a call", len(texttools.Parse("no tags", nil).Calls), 0)
}

// xmlBodies is row F10: entities, character data and lists of lists are read as they are meant.
func xmlBodies(t *testing.T) {
	a := desk()
	a.Tools = []sdk.Tool{echo("note")}
	a.Tools[0].Definition.Parameters = []byte(anyObject)
	model := sdktest.Script(
		sdktest.Say(`<tool><server_name>local</server_name><tool_name>note</tool_name><arguments>`+
			`<entity>1 &lt; 2 &amp; 3</entity><raw><![CDATA[a <b> & c]]></raw>`+
			`<rows><row><item>1</item><item>2</item></row><row><item>3</item><item>4</item></row></rows></arguments></tool>`),
		sdktest.Say("done"))
	h := start(t, inText(t, model), a)
	r := h.Run("desk", message("hello"))
	succeeds(t, h, r, `{"response": "done"}`)
	equalJSON(t, "arguments", []byte(results(t, h.Messages(r), 1)[0].Text), `{"entity":"1 < 2 & 3","raw":"a <b> & c","rows":[[1,2],[3,4]]}`)
}

func xmlCalls(t *testing.T) {
	t.Run("calls", func(t *testing.T) { show(t, textCalls) })
	t.Run("bodies", xmlBodies)
}

// textFormats is row L59: calls are read in the format that the configuration of the model names, beside prose, and the same text is an
// answer of a model of any other format. The model is told how to write them, and its history is written so.
func textFormats(t *testing.T) {
	native := sdktest.Ask(sdktest.Tool("note", n(1)))
	said := map[sdk.ToolCallMode]sdk.ModelReply{
		sdk.ToolCallsText:     sdktest.Say(`I do it. <tool>{"server_name":"local","tool_name":"note","arguments":{"n": 1}}</tool>`),
		sdk.ToolCallsPythonic: sdktest.Say("I do it.\nTool: note\nArguments: {\"n\": 1}"),
		sdk.ToolCallsBracket:  sdktest.Say("I do it.\n[note(n=1)]"),
	}
	history := map[sdk.ToolCallMode]string{
		sdk.ToolCallsText:     `<tool>{"server_name":"local","tool_name":"note","arguments":{"n":1}}</tool>`,
		sdk.ToolCallsPythonic: "Tool: note\nArguments: {\"n\":1}",
		sdk.ToolCallsBracket:  "<|tool_call_start|>[note(n=1)]<|tool_call_end|>",
	}
	rules := map[sdk.ToolCallMode]string{
		sdk.ToolCallsText: "write one element", sdk.ToolCallsPythonic: "two lines", sdk.ToolCallsBracket: "list of calls",
	}
	for _, mode := range sdk.ToolCallModes {
		for written, reply := range said {
			a := desk()
			a.Tools = []sdk.Tool{echo("note")}
			model := sdktest.Script(reply, sdktest.Say("done"))
			h := start(t, inFormat(t, model, mode), a)
			r := h.Run("desk", message("hello"))
			if mode != written {
				answer, err := json.Marshal(map[string]string{"response": reply.Text})
				if err != nil {
					t.Fatal(err)
				}
				succeeds(t, h, r, string(answer))
				equal(t, string(mode)+": model calls", len(model.Requests()), 1)
				continue
			}
			succeeds(t, h, r, `{"response": "done"}`)
			asked := model.Requests()
			ordered(t, asked[0].Messages[0].PlainText(), rules[mode], "hello")
			ordered(t, asked[1].Messages[1].PlainText(), "I do it.", history[mode])
			ordered(t, asked[1].Messages[2].PlainText(), `status="success"`, `{"n":1}`)
		}
	}
	a := desk()
	a.Tools = []sdk.Tool{echo("note")}
	h := start(t, inFormat(t, sdktest.Script(native, sdktest.Say("done")), sdk.ToolCallsNative), a)
	r := h.Run("desk", message("hello"))
	succeeds(t, h, r, `{"response": "done"}`)
	equal(t, "a native call's result", results(t, h.Messages(r), 1)[0].Text, `{"n":1}`)
}

// olderHalf is row F43: a prompt takes no more than 80 % of the window, and what is summarised to keep it so is the older half of the
// conversation, not little and not all of it.
func olderHalf(t *testing.T) {
	const (
		said   = 150
		prompt = 40_000 - 2000 - 768 // tokens of the window without the reply and what is kept for safety
	)
	a := desk()
	a.Spec.Model.ContextWindow, a.Spec.Memory = 40_000, &sdk.Memory{Compact: true}
	a.Hooks.Context = func(context.Context, sdk.ContextInput) (sdk.Context, error) {
		messages := []sdk.Message{sdk.Text(sdk.RoleUser, "hello")}
		for i := range said {
			role := []sdk.Role{sdk.RoleAssistant, sdk.RoleUser}[i%2]
			messages = append(messages, sdk.Text(role, fmt.Sprintf("turn %d, %s", i, strings.Repeat("and so on ", 64))))
		}
		return sdk.Context{Messages: messages}, nil
	}
	_, r, h, events := summarised(t, a, sdktest.Script(sdktest.Say("done")), func(string) (string, error) { return "We went on.", nil })
	for _, l := range ledgers(t, events) {
		if l.Remaining < prompt/5 {
			t.Errorf("a prompt takes more than 80 %%: %+v", l)
		}
	}
	if first := summaries(t, h, r)[0]; first.Messages < said/10 || first.Messages > said/2 {
		t.Errorf("%d of %d messages are summarised, which is not the older half", first.Messages, said)
	}
}

// compaction is row F43: the older part of a conversation becomes a summary, in an entry of its own; the originals stay.
func compaction(t *testing.T) {
	script := sdktest.Script(
		sdktest.Ask(sdktest.Tool("note", n(0))), sdktest.Ask(sdktest.Tool("note", n(1))), sdktest.Ask(sdktest.Tool("note", n(2))),
		sdktest.Ask(sdktest.Tool("note", n(3))), sdktest.Say("done"))
	model := sdktest.ModelFunc(func(ctx context.Context, req sdk.ModelRequest) (sdk.ModelReply, error) {
		if strings.HasPrefix(req.System, "You keep the memory") {
			return sdktest.Say("I noted things."), nil
		}
		return script.Generate(ctx, req, nil)
	})
	a := desk()
	a.Spec.Memory = &sdk.Memory{Window: 1200, Compact: true}
	a.Tools = []sdk.Tool{internal("note", func(context.Context, sdk.ToolCall) ([]byte, error) {
		return json.Marshal(strings.Repeat("long ", 150))
	})}
	h := start(t, model, a)
	r, events := watchedRun(t, h, nil)
	var summaries []*core.Summary
	for _, e := range h.Parts(r) {
		if e.Summary != nil {
			equal(t, "kind", e.Kind, "compacted")
			summaries = append(summaries, e.Summary)
		}
	}
	if len(summaries) == 0 {
		t.Fatal("nothing was summarised")
	}
	equal(t, "messages in the history", len(h.Messages(r)), 1+4*2+1)
	asked, forSummary := told(events, wire.LiveTurnStarted), 0
	for _, data := range asked {
		forSummary += strings.Count(data, `"purpose":"summary"`)
	}
	equal(t, "summaries that are told of", forSummary, len(summaries))
	equal(t, "model calls whose tokens are told", len(told(events, wire.LiveUsage)), len(asked))
	requests := script.Requests()
	last := requests[len(requests)-1]
	ordered(t, last.System, "<conversation_summary>", "I noted things.", "</conversation_summary>")
	equal(t, "the task", last.Messages[0].PlainText(), "hello")
	equal(t, "interactions", h.State(r).Turns, 5)
	equal(t, "units", h.State(r).Units, sdk.Units(1_000_000*(5+len(summaries))))
}
