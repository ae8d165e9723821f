package seeds_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	mcpsdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"agentd/internal/core"
	"agentd/internal/harness"
	"agentd/internal/mcp"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

// toolset is one with those tools.
type toolset struct {
	name  string
	tools []sdk.Tool
}

func (s *toolset) Name() string                              { return s.name }
func (s *toolset) Tools(context.Context) ([]sdk.Tool, error) { return s.tools, nil }
func (s *toolset) Close() error                              { return nil }

// reading is echo, as a tool that changes nothing.
func reading(name string) sdk.Tool {
	tool := echo(name)
	tool.Labels.ReadOnly = true
	return tool
}

// corrections are those in the run's journal, without the ids of the calls.
func corrections(h *harness.Harness, r harness.Run) []core.Correction {
	var all []core.Correction
	for _, e := range h.Parts(r) {
		for _, c := range e.Corrections {
			c.Call = ""
			all = append(all, c)
		}
	}
	return all
}

// namesResolved is rows L55 and L56: a name that no tool has is taken for the tool that it means: without its server, by an alias,
// in another spelling, or similar, where a tool that acts has to be one slip of the pen away. The policy rules on that tool, and the
// result says what was corrected. Any other name is an error with the best suggestions.
func namesResolved(t *testing.T) {
	a := desk(service("shop.find"), service("shop.buy"))
	a.Toolsets = []sdk.Toolset{
		&toolset{"files", []sdk.Tool{reading("read_file"), echo("write_file"), reading("page_1"), echo("turn_on"), echo("turn_off")}},
		&toolset{"mail", []sdk.Tool{echo("send_now")}},
	}
	a.Spec.Aliases = map[string]string{"purchase": "shop_buy"}
	a.Spec.Corrections = &sdk.Corrections{Names: true}
	a.Spec.Permissions = &sdk.PermissionPolicy{Rules: []sdk.PermissionRule{
		{Tools: []string{"shop_buy"}, Verdict: "ask"}, {Tools: []string{"files_write_file"}, Verdict: "deny"}, {Verdict: "allow"},
	}}
	written := []string{
		"read_file", "find", "purchase", "files.readFile", "files_raed_fil", "files_write_flie", // are understood
		"files_wrte_fle", "mail_read_file", "files_page_2", "files_turn_of", "unheard", // are not
	}
	replies := make([]sdk.ModelReply, len(written))
	for i, name := range written {
		replies[i] = sdktest.Ask(sdktest.Tool(name, n(i)))
	}
	model := sdktest.Script(append(replies, sdktest.Say("done"))...)
	h := start(t, model, a)
	r, l := heardRun(t, h)
	found := h.Call("shop.find")
	found.Answer("shop.find.done", value("found"))
	request := request(t, h)
	equal(t, "the tool that people are asked for", []any{request.Data()["tool"], request.Data()["args"]}, []any{"shop_buy", map[string]any{"n": 2.0}})
	decide(request, allow)
	h.Call("shop.buy").Answer("shop.buy.done", value("bought"))
	succeeds(t, h, r, `{"response": "done"}`)

	meant := []core.Correction{
		{Name: "read_file", How: "unprefixed", Note: `Note: "read_file" is not a tool; files_read_file was taken for it (unprefixed).`},
		{Name: "find", How: "unprefixed", Note: `Note: "find" is not a tool; shop_find was taken for it (unprefixed).`},
		{Name: "purchase", How: "alias", Note: `Note: "purchase" is not a tool; shop_buy was taken for it (alias).`},
		{Name: "files.readFile", How: "spelling", Note: `Note: "files.readFile" is not a tool; files_read_file was taken for it (spelling).`},
		{Name: "files_raed_fil", How: "similar", Note: `Note: "files_raed_fil" is not a tool; files_read_file was taken for it (similar).`},
		{Name: "files_write_flie", How: "similar", Note: `Note: "files_write_flie" is not a tool; files_write_file was taken for it (similar).`},
	}
	equal(t, "corrections in the journal", corrections(h, r), meant)
	told := results(t, last(t, model).Messages, len(written))
	for i, want := range []string{
		meant[0].Note + "\n" + `{"n":0}`, meant[1].Note + "\n" + `{"value":"found"}`, meant[2].Note + "\n" + `{"value":"bought"}`,
		meant[3].Note + "\n" + `{"n":3}`, meant[4].Note + "\n" + `{"n":4}`,
	} {
		equal(t, "result of "+written[i], told[i].Text, want)
	}
	ordered(t, told[5].Text, meant[5].Note, "permission_denied") // the policy rules on the tool that is meant
	for i, suggestion := range []string{
		`did you mean "files_write_file" or`, `tool "mail_read_file" does not exist`, `did you mean "files_page_1"`, `did you mean "files_turn_`, `tool "unheard" does not exist`,
	} {
		ordered(t, told[6+i].Text, string(sdk.CodeUnknownTool), strings.ReplaceAll(suggestion, `"`, `\"`))
	}
	if text := told[7].Text; strings.Contains(text, `did you mean \"files`) {
		t.Errorf("a tool of another server is suggested: %s", text)
	}
	equal(t, "tool that the history has", uses(t, h.Messages(r), len(written))[0].Tool, "files_read_file")
	l.await(t, "run.finished", 1)
	heard := l.heard("call.corrected")
	equal(t, "corrections that are told live", len(heard), len(meant))
	ordered(t, heard[2], `"name":"purchase"`, `"how":"alias"`, `"note":"Note: \"purchase\" is not a tool`, `"tool":"shop_buy"`)

	withoutSimilarNames(t)
}

// withoutSimilarNames is an agent that does not ask for corrections: nothing is guessed.
func withoutSimilarNames(t *testing.T) {
	a := desk()
	a.Toolsets = []sdk.Toolset{&toolset{"files", []sdk.Tool{reading("read_file")}}}
	model := sdktest.Script(sdktest.Ask(sdktest.Tool("files_raed_file", n(1)), sdktest.Tool("read_file", n(2))), sdktest.Say("done"))
	h := start(t, model, a)
	r := h.Run("desk", message("hello"))
	succeeds(t, h, r, `{"response": "done"}`)
	told := results(t, last(t, model).Messages, 2)
	ordered(t, told[0].Text, string(sdk.CodeUnknownTool), `did you mean \"files_read_file\"?`)
	ordered(t, told[1].Text, "(unprefixed)", `{"n":2}`)
}

// argumentsRepaired is row L57: arguments that are not quite JSON are read as they must be meant, in calls of the provider's own form
// too; the contract and the policy hold them to the same as any others. What may have lost something is refused.
func argumentsRepaired(t *testing.T) {
	a := desk(service("shop.find"))
	a.Tools = []sdk.Tool{{
		Definition: sdk.ToolDefinition{Name: "note", Parameters: json.RawMessage(`{"type": "object", "properties": {
			"n": {"type": "integer"}, "text": {"type": "string"}}, "required": ["n"], "additionalProperties": false}`)},
		Run: func(_ context.Context, c sdk.ToolCall) (json.RawMessage, error) { return c.Args, nil },
	}}
	a.Spec.Corrections = &sdk.Corrections{Arguments: true}
	a.Spec.Permissions = &sdk.PermissionPolicy{Rules: []sdk.PermissionRule{
		{Tools: []string{"note"}, When: `has(args.text) && args.text == "secret"`, Verdict: "deny"}, {Verdict: "allow"},
	}}
	cases := []struct{ written, repair, result string }{
		{`{"n":1,}`, "a comma followed the last value", `{"n":1}`},
		{`{""n":2,"text":""two"}`, "a quotation mark was doubled", `{"n":2,"text":"two"}`},
		{`{"n":3,"text":"three"`, "closing brackets were missing", `{"n":3,"text":"three"}`},
		{"{\"n\":4,\x01\"text\":\"a\nb\"}", "control characters were not escaped", `{"n":4,"text":"a\nb"}`},
		{`{"n":5,"text":"secret",}`, "a comma followed the last value", "permission_denied"},
		{`{"n":"six",}`, "a comma followed the last value", "contract_violation"},
		{`{"n":7`, "", "contract_violation"},               // it may be 70
		{`{"text":"x","n":8,"text":`, "", "contract_viol"}, // what was to come is not known
	}
	var replies []sdk.ModelReply
	for _, c := range cases {
		replies = append(replies, sdktest.Ask(sdk.ToolRequest{Name: "note", Arguments: c.written}))
	}
	cut := sdktest.Ask(sdk.ToolRequest{Name: "note", Arguments: `{"n":9,"text":"nine"`})
	cut.Truncated = true
	replies = append(replies, cut, sdktest.Ask(sdk.ToolRequest{Name: "shop_find", Arguments: `{'n': 10}`}), sdktest.Say("done"))
	model := sdktest.Script(replies...)
	h := start(t, model, a)
	r := h.Run("desk", message("hello"))
	call := h.Call("shop.find")
	equalJSON(t, "what the service is sent", call.Event.Data, `{"n": 10}`)
	call.Answer("shop.find.done", value("found"))
	succeeds(t, h, r, `{"response": "done"}`)
	told := results(t, last(t, model).Messages, len(cases)+2)
	var journaled []string
	for _, c := range corrections(h, r) {
		journaled = append(journaled, c.Written)
	}
	var want []string
	for i, c := range cases {
		ordered(t, told[i].Text, c.result)
		if c.repair == "" {
			equal(t, "note on "+c.written, strings.Contains(told[i].Text, "Note:"), false)
			continue
		}
		want = append(want, c.written)
		ordered(t, told[i].Text, "Note: the arguments were not written correctly", c.repair, c.result)
	}
	equal(t, "what the model wrote, in the journal", journaled, append(want, `{'n': 10}`))
	ordered(t, told[len(cases)].Text, "contract_violation") // the reply was cut off: there may have been more
	ordered(t, told[len(cases)+1].Text, "quotation marks", `{"value":"found"}`)

	b := desk(service("shop.find"))
	unmended := sdktest.Script(sdktest.Ask(sdk.ToolRequest{Name: "shop_find", Arguments: `{"n":1,}`}), sdktest.Say("done"))
	h = start(t, unmended, b)
	succeeds(t, h, h.Run("desk", message("hello")), `{"response": "done"}`)
	equal(t, "code without corrections", problem(t, results(t, last(t, unmended).Messages, 1)[0]).Code, sdk.CodeContractViolation)
}

// argumentsSet is row L60: an agent sets arguments of its tools, from the run and its input. The model is not shown them and cannot
// override them; the policy and approvers see them, no edit changes them, and the whole has to fit.
func argumentsSet(t *testing.T) {
	find := service("shop.find")
	find.Contract = contract("shop.find", `{"type": "object", "properties": {
		"n": {"type": "integer"}, "tenant": {"type": "string", "description": "Whose shop it is.", "maxLength": 5},
		"limit": {"type": "integer"}, "of": {"type": "object"}
	}, "required": ["n", "tenant", "limit"], "additionalProperties": false, "anyOf": [{"required": ["tenant"]}]}`, valueAnswer)
	a := desk(find)
	a.Toolsets = []sdk.Toolset{&toolset{"files", []sdk.Tool{echo("read")}}}
	a.Spec.Arguments = map[string]map[string]json.RawMessage{
		"shop_find": {
			"tenant": json.RawMessage(`"{{.Input.tenant}}"`), "limit": json.RawMessage(`"{{.Input.limit}}"`),
			"of": json.RawMessage(`{"run": ["{{.Run}}"]}`),
		},
		"files_read": {"n": json.RawMessage(`7`)},
	}
	a.Spec.Permissions = &sdk.PermissionPolicy{Rules: []sdk.PermissionRule{
		{Tools: []string{"shop_find"}, When: `args.tenant == "acme" && args.n == 2`, Verdict: "ask"}, {Verdict: "allow"},
	}}
	evil := map[string]any{"n": 1, "tenant": "evil"}
	model := sdktest.Script(
		sdktest.Ask(sdktest.Tool("shop_find", evil), sdktest.Tool("files_read", map[string]any{})),
		sdktest.Ask(sdktest.Tool("shop_find", n(2))), sdktest.Say("done"))
	h := start(t, model, a)
	r := h.Run("desk", map[string]any{"tenant": "acme", "limit": 5})
	whole := func(n float64) map[string]any {
		return map[string]any{"n": n, "tenant": "acme", "limit": 5.0, "of": map[string]any{"run": []any{r.Subject}}}
	}
	first := h.Call("shop.find")
	equal(t, "what the service is sent, whatever the model wrote", first.Data(), whole(1))
	first.Answer("shop.find.done", value("one"))

	asked := request(t, h)
	equal(t, "what approvers are shown", asked.Data()["args"], any(whole(2)))
	edit := func(who string, args map[string]any) {
		data, err := json.Marshal(args)
		if err != nil {
			t.Fatal(err)
		}
		h.PublishAs(who, asked, asked.Response(sdk.TypePermissionDecided, sdk.PermissionDecision{
			Decision: "allow", Args: data, ArgsHash: fmt.Sprint(asked.Data()["args_sha256"]),
		}))
	}
	changed := whole(3)
	changed["tenant"] = "evil"
	edit("ann", changed)
	h.Until(r, "refused", func(core.State) bool {
		for _, e := range h.Parts(r) {
			for _, d := range e.Decisions {
				if strings.Contains(d.Refused, "tenant, which the agent sets") {
					return true
				}
			}
		}
		return false
	})
	edit("bob", whole(4))
	second := h.Call("shop.find")
	equal(t, "the edited call", second.Data(), whole(4))
	second.Answer("shop.find.done", value("two"))
	succeeds(t, h, r, `{"response": "done"}`)

	for _, request := range model.Requests() {
		for _, tool := range request.Tools {
			for _, hidden := range []string{"tenant", "limit", "of"} {
				if strings.Contains(string(tool.Parameters)+tool.Description, `"`+hidden+`"`) {
					t.Errorf("the model is shown %s of %s: %s %s", hidden, tool.Name, tool.Parameters, tool.Description)
				}
			}
		}
		equalJSON(t, "parameters", request.Tools[1].Parameters, `{"type":"object","additionalProperties":false}`)
		for _, m := range request.Messages {
			for _, c := range m.Content {
				if c.Kind == sdk.ContentToolUse && strings.Contains(string(c.Args), "acme") {
					t.Errorf("the model is shown its call with what the agent sets: %s", c.Args)
				}
			}
		}
	}
	told := results(t, last(t, model).Messages, 3)
	equal(t, "results", []string{told[0].Text, told[1].Text, told[2].Text}, []string{
		"Note: what you gave for tenant was left out, because it is not yours to set.\n" + `{"value":"one"}`, `{"n":7}`, `{"value":"two"}`,
	})

	for input, code := range map[string]sdk.Code{`{"tenant":"too long","limit":5}`: sdk.CodeConfig, `{"limit":5}`: sdk.CodeConfig} {
		model := sdktest.Script(sdktest.Ask(sdktest.Tool("shop_find", n(1))), sdktest.Say("done"))
		h := start(t, model, a)
		succeeds(t, h, h.Run("desk", json.RawMessage(input)), `{"response": "done"}`)
		h.NoCall("shop.find")
		p := problem(t, results(t, last(t, model).Messages, 1)[0])
		equal(t, "code", p.Code, code)
		equal(t, "faults that the model is told", len(p.Faults), 0)
	}
}

// modelFollowed is row F54: a run keeps the model that it started with, unless its agent says that it follows the current one: then it
// asks that, with all settings of it, from its next interaction on.
func modelFollowed(t *testing.T) {
	for _, follows := range []bool{true, false} {
		t.Run(fmt.Sprint(follows), func(t *testing.T) {
			spec := func(model string) sdk.Agent {
				a := desk(service("shop.find"))
				a.Spec.Model.Name, a.Spec.Model.MaxTokens = model, map[string]int{"first": 100, "second": 200, "third": 300}[model]
				if follows {
					a.Spec.Model.Follow = sdk.FollowCurrent
				}
				return a
			}
			model := sdktest.Script(find(1), find(2), sdktest.Say("done"))
			h := start(t, model, spec("first"))
			r, l := heardRun(t, h)
			for _, name := range []string{"second", "third"} {
				call := h.Call("shop.find")
				h.Replace(spec(name)) // while the run waits
				call.Answer("shop.find.done", value("it"))
			}
			succeeds(t, h, r, `{"response": "done"}`)
			var asked []string
			for _, request := range model.Requests() {
				asked = append(asked, request.Model)
			}
			want, most := []string{"first", "first", "first"}, []string{"100", "100", "100"}
			if follows {
				want, most = []string{"first", "second", "third"}, []string{"100", "200", "300"}
			}
			equal(t, "models that are asked", asked, want)
			l.await(t, wire.LiveTurnStarted, len(most))
			for i, turn := range l.heard(wire.LiveTurnStarted) {
				ordered(t, turn, `"max_tokens":`+most[i])
			}
			entries := h.Parts(r)
			equal(t, "the run's spec at its end", entries[len(entries)-1].Head.Spec, entries[0].Head.Spec)
		})
	}
}

// conditionalTools is row F50: tools are hidden from the model, and refused, where the agent's conditions on the run say so.
func conditionalTools(t *testing.T) {
	a := desk()
	a.Tools = []sdk.Tool{echo("note"), echo("browser_open"), echo("browser_click")}
	a.Spec.Rules = []sdk.HookRule{
		{Name: "no browser", When: "!input.browser", Hide: []string{"browser_*"}},
		{Name: "nothing is open", When: "input.browser && interactions == 0", Hide: []string{"browser_click"}},
	}
	for _, c := range []struct {
		browser bool
		shown   [][]string
		refused bool
	}{
		{false, [][]string{{"note"}, {"note"}}, true},
		{true, [][]string{{"note", "browser_open"}, {"note", "browser_open", "browser_click"}}, false},
	} {
		model := sdktest.Script(sdktest.Ask(sdktest.Tool("browser_open", n(1))), sdktest.Say("done"))
		h := start(t, model, a)
		r := h.Run("desk", map[string]any{"message": "hello", "browser": c.browser})
		succeeds(t, h, r, `{"response": "done"}`)
		var shown [][]string
		for _, request := range asked(t, model, 2) {
			shown = append(shown, toolNames(request))
		}
		equal(t, "tools that the model is shown", shown, c.shown)
		result := results(t, h.Messages(r), 1)[0]
		equal(t, "the call is refused", result.IsError, c.refused)
	}
}

// allowLists is row L54: an agent has the servers that it names, and of a server the tools that the operator allows; others are not
// shown, and cannot be called.
func allowLists(t *testing.T) {
	with := func(policy mcp.Policy) *mcp.Server {
		server := newRemote(t, "red")
		for _, name := range []string{"add", "drop", "drop_all"} {
			mcpsdk.AddTool(server.Server, &mcpsdk.Tool{Name: name}, func(context.Context, *mcpsdk.CallToolRequest, number) (*mcpsdk.CallToolResult, any, error) {
				return spoken(name), nil, nil
			})
		}
		return toolsetOf(t, mcp.ServerConfig{Name: "red", URL: server.url, Policy: policy})
	}
	for _, c := range []struct {
		policy mcp.Policy
		shown  []string
	}{
		{mcp.Policy{}, []string{"red_add", "red_drop", "red_drop_all", "red_inc"}},
		{mcp.Policy{Allow: []string{"add", "drop*"}}, []string{"red_add", "red_drop", "red_drop_all"}},
		{mcp.Policy{Allow: []string{"add", "drop*"}, Deny: []string{"drop_*"}}, []string{"red_add", "red_drop"}},
		{mcp.Policy{Deny: []string{"*"}}, nil},
	} {
		a := desk()
		a.Toolsets = []sdk.Toolset{with(c.policy)}
		model := sdktest.Script(sdktest.Ask(sdktest.Tool("red_drop_all", n(1)), sdktest.Tool("blue_inc", n(2))), sdktest.Say("done"))
		h := start(t, model, a)
		r := h.Run("desk", message("hello"))
		succeeds(t, h, r, `{"response": "done"}`)
		equal(t, "tools", toolNames(last(t, model)), c.shown)
		told := results(t, h.Messages(r), 2)
		equal(t, "a tool that is not allowed can be called", !told[0].IsError, len(c.shown) > 2)
		equal(t, "code of a server that the agent does not name", problem(t, told[1]).Code, sdk.CodeUnknownTool)
	}
}
