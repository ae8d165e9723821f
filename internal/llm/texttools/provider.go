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
// results of the history become text, and calls in the reply become calls. mode, which is not ToolCallsNative, says how the model
// writes them. Errors and retries are p's. A reply with a call that cannot be understood has a Fault.
func Wrap(p sdk.Provider, mode sdk.ToolCallMode) sdk.Provider { return textual{p, formatOf(mode)} }

type textual struct {
	provider sdk.Provider
	format
}

func (t textual) Generate(
	ctx context.Context, req sdk.ModelRequest, onDelta func(sdk.Delta),
) (sdk.ModelReply, error) {
	tools := directory(req.Tools)
	plain := req
	plain.Tools, plain.Messages = nil, t.transcribe(req.Messages, tools)
	if len(req.Tools) > 0 {
		plain.Turn = append(t.sections(req), req.Turn...)
		plain.Output = nil // a reply that must be JSON could not be a call; the rules have the schema instead
	}
	live := t.listen(onDelta, tools.schema)
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
	return t.understand(reply, tools), nil
}

// understand takes the calls out of a reply's text. All are made or none: half of what a model meant may be worse than
// nothing, and it can write them again.
func (t textual) understand(reply sdk.ModelReply, tools directory) sdk.ModelReply {
	reply.Text = unthought(reply.Text)
	parsed := Reply{Faults: []*Fault{{
		ParseError, fmt.Sprintf("the reply has %d bytes, more than %d", len(reply.Text), MaxText), snippet(reply.Text),
	}}}
	if len(reply.Text) <= MaxText {
		parsed = t.parse(reply.Text, tools.schema)
	} else {
		reply.Text = snippet(reply.Text) // no conversation takes it
	}
	if reply.Truncated && parsed.Open {
		parsed.Faults = append(parsed.Faults, &Fault{
			Class: ParseError, Message: "the reply was cut off by the limit of its length; write a shorter call",
			Snippet: snippet(reply.Text),
		})
	}
	if len(parsed.Faults) > 0 {
		reply.Fault = &sdk.ReplyFault{Class: string(parsed.Faults[0].Class), Message: t.complaint(parsed)}
		return reply
	}
	reply.Text = parsed.Text
	for _, c := range parsed.Calls {
		reply.Calls = append(reply.Calls, sdk.ToolRequest{Name: tools.resolve(c.Server, c.Tool), Arguments: c.Arguments})
	}
	return reply
}

// complaint tells the model what is wrong with its calls and how they are written.
func (f format) complaint(r Reply) string {
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
	out.WriteString("Write it as " + f.remedy)
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
	if server == "" {
		return tool
	}
	return server + "." + tool
}

func (d directory) find(server, tool string) *sdk.ToolDefinition {
	server = strings.TrimPrefix(server, mcp+":")
	var found *sdk.ToolDefinition
	for i := range d {
		t := &d[i]
		switch {
		case server == "": // the name is all there is
			if t.Name == tool {
				return t
			}
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
		return parameters(t)
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

// sections are the tools of a request and how they are called.
func (f format) sections(req sdk.ModelRequest) []sdk.Section {
	var local, remote []string
	for _, t := range req.Tools {
		if t.Server == "" {
			local = append(local, f.describe(t, Local))
		} else {
			remote = append(remote, f.describe(t, t.Server))
		}
	}
	rules := f.rules
	if len(req.Output) > 0 {
		rules += "\n- When you need no more tools, reply with nothing but JSON that fits this schema: " + string(req.Output)
	}
	return []sdk.Section{
		{Name: prompt.Tools, Text: strings.Join(local, "\n\n")},
		{Name: prompt.MCPTools, Text: strings.Join(remote, "\n\n")},
		{Name: prompt.Rules, Text: rules},
	}
}
