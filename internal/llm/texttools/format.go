package texttools

import (
	"encoding/json"
	"fmt"
	"strings"

	"agentd/sdk"
)

// format is one way in which models write calls into their text. A model has the one that its configuration names: none is guessed, so
// that what is prose in the one is never a call of another.
type format struct {
	// rules is how the model is told to write a call, and remedy how to write one that could not be understood: it follows "Write it as".
	rules, remedy string
	// address says which tool is described, before its description; server is how its server is called.
	address func(t sdk.ToolDefinition, server string) string
	// written is a call of the history as the model should have written it. Arguments are an object.
	written func(server, tool string, arguments json.RawMessage) string
	parse   func(text string, schemas Schemas) Reply
	listen  func(send func(sdk.Delta), schemas Schemas) listener
}

// listener passes on the prose of a streamed reply, and says which tool is about to be called; no part of a call is sent.
type listener interface {
	add(d sdk.Delta)
	// flush ends the reply.
	flush()
}

// formatOf is the format of a mode other than native.
func formatOf(mode sdk.ToolCallMode) format {
	switch mode {
	case sdk.ToolCallsPythonic:
		return pythonic.format()
	case sdk.ToolCallsBracket:
		return bracket.format()
	case sdk.ToolCallsNative, sdk.ToolCallsText:
	}
	return tagged
}

// tagged are calls in <tool> elements.
var tagged = format{
	rules: `To use a tool, write one element into your reply:
<tool>{"server_name": "the tool's server", "tool_name": "the tool's name", "arguments": {"name": "value"}}</tool>
- server_name and tool_name are always required; arguments is a JSON object that fits the tool's schema.
- Call one tool in a reply, and wait for its result before the next.
- Say shortly why before you call. Do not mention tools by name to the person you talk to.
- Write <tool> only to call a tool.`,
	remedy: `<tool>{"server_name": "…", "tool_name": "…", "arguments": {…}}</tool> with valid JSON, and close the tag.`,
	address: func(t sdk.ToolDefinition, server string) string {
		return fmt.Sprintf("server_name: %s\ntool_name: %s\n", server, t.Name)
	},
	written: tagWritten,
	parse:   Parse,
	listen:  func(send func(sdk.Delta), _ Schemas) listener { return newFilter(send) },
}

// tagWritten is a call as an element. The encoder escapes "<", so no text in it can end the element.
func tagWritten(server, tool string, arguments json.RawMessage) string {
	data, err := json.Marshal(struct {
		Server    string          `json:"server_name"`
		Tool      string          `json:"tool_name"`
		Arguments json.RawMessage `json:"arguments"`
	}{server, tool, arguments})
	if err != nil {
		data = []byte("{}") // arguments of the history are JSON
	}
	return "<tool>" + string(data) + "</tool>"
}

func (f format) describe(t sdk.ToolDefinition, server string) string {
	text := f.address(t, server)
	if t.Description != "" {
		text += "description: " + strings.Join(strings.Fields(t.Description), " ") + "\n"
	}
	return text + "arguments: " + string(parameters(&t))
}

// parameters is the schema of a tool's arguments.
func parameters(t *sdk.ToolDefinition) json.RawMessage {
	if len(t.Parameters) == 0 {
		return json.RawMessage("{}")
	}
	return t.Parameters
}
