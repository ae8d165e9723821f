package texttools

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"agentd/internal/prompt"
	"agentd/sdk"
)

// Wrap makes a provider of a model without tool calls look like one with: tools become sections of the turn, calls and
// results of the history become text, and calls in the reply become calls. Errors and retries are p's. A reply with a call
// that cannot be understood has a Fault.
func Wrap(p sdk.Provider) sdk.Provider { return textual{p} }

type textual struct{ provider sdk.Provider }

func (t textual) Generate(
	ctx context.Context, req sdk.ModelRequest, onDelta func(sdk.Delta),
) (sdk.ModelReply, error) {
	tools := directory(req.Tools)
	plain := req
	plain.Tools, plain.Messages = nil, transcribe(req.Messages, tools)
	if len(req.Tools) > 0 {
		plain.Turn = append(sections(req), req.Turn...)
		plain.Output = nil // a reply that must be JSON could not be a call; the rules have the schema instead
	}
	live := newFilter(onDelta)
	thinking := &thoughts{send: onDelta, next: live.add}
	var listen func(sdk.Delta)
	if onDelta != nil {
		listen = thinking.add
	}
	reply, err := t.provider.Generate(ctx, plain, listen)
	if err != nil {
		return sdk.ModelReply{}, err
	}
	if onDelta != nil {
		thinking.flush()
		live.flush()
	}
	return tools.understand(reply), nil
}

// understand takes the calls out of a reply's text. All are made or none: half of what a model meant may be worse than
// nothing, and it can write them again.
func (d directory) understand(reply sdk.ModelReply) sdk.ModelReply {
	reply.Text = unthought(reply.Text)
	parsed := Parse(reply.Text, d.schema)
	if reply.Truncated && parsed.Open {
		parsed.Faults = append(parsed.Faults, &Fault{
			Class: ParseError, Message: "the reply was cut off by the limit of its length; write a shorter call",
			Snippet: snippet(reply.Text),
		})
	}
	if len(parsed.Faults) > 0 {
		if len(reply.Text) > MaxText {
			reply.Text = snippet(reply.Text) // no conversation takes it
		}
		reply.Fault = &sdk.ReplyFault{Class: string(parsed.Faults[0].Class), Message: complaint(parsed)}
		return reply
	}
	reply.Text = parsed.Text
	for _, c := range parsed.Calls {
		reply.Calls = append(reply.Calls, sdk.ToolRequest{Name: d.resolve(c.Server, c.Tool), Arguments: c.Arguments})
	}
	return reply
}

const skeleton = `<tool>{"server_name": "…", "tool_name": "…", "arguments": {…}}</tool>`

// complaint tells the model what is wrong with its calls and how they are written.
func complaint(r Reply) string {
	var out strings.Builder
	out.WriteString("Your tool call could not be understood")
	if len(r.Calls) > 0 {
		out.WriteString(", so none of this reply's calls were made")
	}
	out.WriteString(":\n")
	const most = 5
	for i, f := range r.Faults {
		if i == most {
			fmt.Fprintf(&out, "- and %d more\n", len(r.Faults)-most)
			break
		}
		fmt.Fprintf(&out, "- %s: %s, in: %s\n", f.Class, f.Message, f.Snippet)
	}
	out.WriteString("Write it as " + skeleton + " with valid JSON, and close the tag.")
	return out.String()
}

// Local is the server_name of tools that come from no MCP server, and mcp that of tools which come from any.
const (
	Local = "local"
	mcp   = "mcp"
)

// directory finds tools by what a model calls them.
type directory []sdk.ToolDefinition

// resolve returns the name of the tool that is meant. One that does not exist gets a name that no tool has, so that the
// run refuses it as it does any unknown tool: a tool of another server is not the one that was meant.
func (d directory) resolve(server, tool string) string {
	if found := d.find(server, tool); found != nil {
		return found.Name
	}
	return server + "." + tool
}

func (d directory) find(server, tool string) *sdk.ToolDefinition {
	server = strings.TrimPrefix(server, mcp+":")
	var found *sdk.ToolDefinition
	for i := range d {
		t := &d[i]
		switch {
		case t.Server == "" && server == Local && t.Name == tool:
			return t
		case t.Server == "" || (server != t.Server && server != mcp):
		case t.Name == tool:
			return t
		case t.Name == t.Server+"_"+tool:
			if found != nil {
				return nil // two servers have it
			}
			found = t
		}
	}
	return found
}

func (d directory) schema(server, tool string) json.RawMessage {
	if t := d.find(server, tool); t != nil {
		return t.Parameters
	}
	return nil
}

// server is how the tool of that name is addressed.
func (d directory) server(name string) string {
	for _, t := range d {
		if t.Name == name && t.Server != "" {
			return t.Server
		}
	}
	return Local
}

// sections are the tools of a request and how they are called, in the order of seed 002.
func sections(req sdk.ModelRequest) []sdk.Section {
	var local, remote []string
	for _, t := range req.Tools {
		if t.Server == "" {
			local = append(local, describe(t, Local))
		} else {
			remote = append(remote, describe(t, t.Server))
		}
	}
	rules := rulesText
	if len(req.Output) > 0 {
		rules += "\n- When you need no more tools, reply with nothing but JSON that fits this schema: " + string(req.Output)
	}
	return []sdk.Section{
		{Name: prompt.Tools, Text: strings.Join(local, "\n\n")},
		{Name: prompt.MCPTools, Text: strings.Join(remote, "\n\n")},
		{Name: prompt.Rules, Text: rules},
	}
}

const rulesText = `To use a tool, write one element into your reply:
<tool>{"server_name": "the tool's server", "tool_name": "the tool's name", "arguments": {"name": "value"}}</tool>
- server_name and tool_name are always required; arguments is a JSON object that fits the tool's schema.
- Call one tool in a reply, and wait for its result before the next.
- Say shortly why before you call. Do not mention tools by name to the person you talk to.
- Write <tool> only to call a tool.`

func describe(t sdk.ToolDefinition, server string) string {
	parameters := string(t.Parameters)
	if parameters == "" {
		parameters = "{}"
	}
	text := fmt.Sprintf("server_name: %s\ntool_name: %s\n", server, t.Name)
	if t.Description != "" {
		text += "description: " + strings.Join(strings.Fields(t.Description), " ") + "\n"
	}
	return text + "arguments: " + parameters
}
