package texttools_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/llm/texttools"
	"agentd/sdk"
)

const (
	pythonic = sdk.ToolCallsPythonic
	bracket  = sdk.ToolCallsBracket
	opened   = "<|tool_call_start|>"
	closed   = "<|tool_call_end|>"
)

func find(arguments string) []sdk.ToolRequest {
	return []sdk.ToolRequest{{Name: "find", Arguments: arguments}}
}

// replies are texts of models, by the format that their configuration names.
var replies = []struct {
	name   string
	mode   sdk.ToolCallMode
	text   string
	calls  []sdk.ToolRequest
	prose  string
	fault  string
	cutOff bool
}{
	{name: "two lines", mode: pythonic, text: "I look.\nTool: find\nArguments: {\"to\": \"LIS\"}", calls: find(`{"to": "LIS"}`), prose: "I look."},
	{name: "no arguments", mode: pythonic, text: "Tool: find", calls: find("{}")},
	{name: "no arguments, and more", mode: pythonic, text: "A\n\n  Tool: find  \r\n\nB", calls: find("{}"), prose: "A\n\n\nB"},
	{name: "unknown", mode: pythonic, text: "Tool: hammer\nArguments: {}", calls: []sdk.ToolRequest{{Name: "hammer", Arguments: "{}"}}},
	{name: "a list of things", mode: pythonic, text: "You need:\nTool: hammer\nPrice: 3", prose: "You need:\nTool: hammer\nPrice: 3"},
	{name: "within a sentence", mode: pythonic, text: "The Tool: find\nArguments: {}", prose: "The Tool: find\nArguments: {}"},
	{name: "quoted", mode: pythonic, text: "Write:\n```\nTool: find\nArguments: {}\n```\nSo.", prose: "Write:\n```\nTool: find\nArguments: {}\n```\nSo."},
	{
		name: "two calls", mode: pythonic, text: "Tool: find\nArguments: {\"a\":1}\nTool: files_edit\nArguments: {\"b\":\"}\"}\nDone.", prose: "Done.",
		calls: []sdk.ToolRequest{{Name: "find", Arguments: `{"a":1}`}, {Name: "files_edit", Arguments: `{"b":"}"}`}},
	},
	{name: "arguments repaired", mode: pythonic, text: "Tool: find\nArguments: {'a': 'x}', 'b': True,}", calls: find(`{"a": "x}", "b": true}`)},
	{name: "not closed", mode: pythonic, text: "Tool: find\nArguments: {\"a\": \"x\"", calls: find(`{"a": "x"}`)},
	{name: "cut off", mode: pythonic, text: "Tool: find\nArguments: {\"a\": \"x\"", fault: "cut off", cutOff: true},
	{name: "cut off before the arguments", mode: pythonic, text: "Tool: find\n", fault: "cut off", cutOff: true},
	{name: "cut off as they begin", mode: pythonic, text: "Tool: find\n Argu", fault: "cut off", cutOff: true},
	{name: "cut off after the call", mode: pythonic, text: "Tool: find\nI look", calls: find("{}"), prose: "I look", cutOff: true},
	{name: "not an object", mode: pythonic, text: "Tool: find\nArguments: none\n", fault: "invalid_arguments"},
	{name: "not JSON", mode: pythonic, text: "Tool: find\nArguments: {a: b}\n", fault: "parse_error"},
	{name: "another format", mode: pythonic, text: "[find(a=1)]", prose: "[find(a=1)]"},
	{name: "an element", mode: pythonic, text: `<tool>{"server_name":"local","tool_name":"find"}</tool>`, prose: `<tool>{"server_name":"local","tool_name":"find"}</tool>`},

	{name: "a list", mode: bracket, text: "I look.\n[find(to=\"LIS\", n=2)]", calls: find(`{"to":"LIS","n":2}`), prose: "I look."},
	{name: "marked", mode: bracket, text: "I look. " + opened + "[find(to='LI\\'S')]" + closed + " Soon.", calls: find(`{"to":"LI'S"}`), prose: "I look.  Soon."},
	{name: "marked in a fence", mode: bracket, text: "```\n" + opened + "[find()]" + closed + "\n```", calls: find("{}")},
	{name: "marked and not closed", mode: bracket, text: opened + "[find()]", calls: find("{}")},
	{
		name: "several", mode: bracket, text: "[find(a=[1, {'b': None}], c=\"x, y)]\"), files.edit(d=True)]",
		calls: []sdk.ToolRequest{{Name: "find", Arguments: `{"a":[1, {"b": null}],"c":"x, y)]"}`}, {Name: "files.edit", Arguments: `{"d":true}`}},
	},
	{name: "an unknown tool", mode: bracket, text: "[seek(a=1)]", calls: []sdk.ToolRequest{{Name: "seek", Arguments: `{"a":1}`}}},
	{name: "a link", mode: bracket, text: "[find(a=1)](https://example.com)", prose: "[find(a=1)](https://example.com)"},
	{name: "in a sentence", mode: bracket, text: "See [find(a=1)], and\n[find(a=1)] too.", prose: "See [find(a=1)], and\n[find(a=1)] too."},
	{name: "quoted list", mode: bracket, text: "```python\n[find(a=1)]\n```", prose: "```python\n[find(a=1)]\n```"},
	{name: "a marker in code", mode: bracket, text: "It writes `" + opened + "` first.", prose: "It writes `" + opened + "` first."},
	{name: "files", mode: bracket, text: "[readme.md]\n[1, 2]\n[x]", prose: "[readme.md]\n[1, 2]\n[x]"},
	{name: "an expression", mode: bracket, text: "[len(x)]", prose: "[len(x)]"},
	{name: "no names of arguments", mode: bracket, text: "[find(\"LIS\")]", fault: "invalid_arguments"},
	{name: "a bare value", mode: bracket, text: opened + "[find(to=Lisbon)]" + closed, fault: "parse_error"},
	{name: "no list", mode: bracket, text: opened + "find a flight" + closed + " Soon.", fault: "parse_error"},
	{name: "cut off", mode: bracket, text: opened + "[find(to=\"LI", fault: "cut off", cutOff: true},
	{name: "lines", mode: bracket, text: "Tool: find\nArguments: {}", prose: "Tool: find\nArguments: {}"},
	{name: "lines in <tool>'s format", mode: sdk.ToolCallsText, text: "Tool: find\nArguments: {}\n[find(a=1)]", prose: "Tool: find\nArguments: {}\n[find(a=1)]"},
}

// TestWrap_Formats streams each reply in pieces of every size: what is sent live is the text that is left.
func TestWrap_Formats(t *testing.T) {
	t.Parallel()
	for _, c := range replies {
		t.Run(string(c.mode)+" "+c.name, func(t *testing.T) {
			t.Parallel()
			for piece := 1; piece <= len(c.text); piece++ {
				reply, live, _ := generateIn(t, c.mode, &said{text: c.text, piece: piece, truncated: c.cutOff}, sdk.ModelRequest{Tools: tools()})
				if c.fault != "" {
					if reply.Fault == nil || !strings.Contains(reply.Fault.Message, c.fault) || len(reply.Calls) > 0 || reply.Text != c.text {
						t.Fatalf("fault %v, calls %v, text %q", reply.Fault, reply.Calls, reply.Text)
					}
					continue
				}
				if diff := cmp.Diff(c.calls, reply.Calls); diff != "" || reply.Fault != nil {
					t.Fatalf("fault %v, calls (-want +got):\n%s", reply.Fault, diff)
				}
				if reply.Text != c.prose || live != c.prose {
					t.Fatalf("in pieces of %d:\ntext %q\nlive %q\nwant %q", piece, reply.Text, live, c.prose)
				}
			}
		})
	}
}

// TestWrap_TellsTheTool: who watches learns which tool is called before its arguments have arrived.
func TestWrap_TellsTheTool(t *testing.T) {
	t.Parallel()
	for mode, text := range map[sdk.ToolCallMode]string{
		pythonic: "I look.\nTool: find\nArguments: {", bracket: "I look.\n[find(a=1", sdk.ToolCallsText: `<tool>{"tool_name":"find"`,
	} {
		var told []string
		p := &said{text: text, piece: 1}
		_, err := texttools.Wrap(p, mode).Generate(context.Background(), sdk.ModelRequest{Tools: tools()}, func(d sdk.Delta) {
			if d.Tool != "" {
				told = append(told, d.Tool)
			}
		})
		if diff := cmp.Diff([]string{"find"}, told); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", mode, err, diff)
		}
	}
}

// TestWrap_FormatsOfTheHistory: calls of the history are written as the model has to write them, and are understood again.
func TestWrap_FormatsOfTheHistory(t *testing.T) {
	t.Parallel()
	for mode, want := range map[sdk.ToolCallMode]string{
		pythonic: "Tool: find\nArguments: {\"to\":\"a)]\",\"all of\":[true,null]}",
		bracket:  opened + `[find(to="a)]", "all of"=[true,null])]` + closed,
	} {
		p := &said{text: "Done."}
		_, _, _ = generateIn(t, mode, p, sdk.ModelRequest{Tools: tools(), Messages: []sdk.Message{
			{Role: sdk.RoleAssistant, Content: []sdk.Content{{
				Kind: sdk.ContentToolUse, CallID: "c1", Tool: "find", Args: json.RawMessage(`{"to":"a)]","all of":[true,null]}`),
			}}},
		}})
		written := p.asked.Messages[0].Content[0].Text
		if written != want {
			t.Errorf("%s: written %q, want %q", mode, written, want)
		}
		reply, _, _ := generateIn(t, mode, &said{text: written}, sdk.ModelRequest{Tools: tools()})
		if diff := cmp.Diff(find(`{"to":"a)]","all of":[true,null]}`), reply.Calls); diff != "" {
			t.Errorf("%s, read again (-want +got):\n%s", mode, diff)
		}
	}
}

// FuzzFormats: no text makes the parsers panic, and what is streamed is what is parsed.
func FuzzFormats(f *testing.F) {
	for _, c := range replies {
		f.Add(c.text, 3)
	}
	f.Fuzz(func(t *testing.T, text string, piece int) {
		for _, mode := range []sdk.ToolCallMode{pythonic, bracket} {
			reply, live, _ := generateIn(t, mode, &said{text: text, piece: piece % 64}, sdk.ModelRequest{Tools: tools()})
			for _, c := range reply.Calls {
				var object map[string]json.RawMessage
				if c.Name == "" || json.Unmarshal([]byte(c.Arguments), &object) != nil {
					t.Errorf("%s: call %+v of %q", mode, c, text)
				}
			}
			if reply.Fault == nil && len(reply.Calls) == 0 && strings.TrimSpace(live) != strings.TrimSpace(reply.Text) {
				t.Errorf("%s: live %q, text %q, of %q", mode, live, reply.Text, text)
			}
		}
	})
}
