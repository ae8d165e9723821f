// Package prompt puts a model's prompt together in this order:
//
//	system   instructions → those of the project → loop → capabilities → thinking
//	history  what was said, in order
//	turn     tools → tools of MCP servers → rules of calling → date → working context → planning → retrieval → input
//
// It is pure: equal arguments give equal bytes, so that providers can cache what does not change.
package prompt

import (
	"slices"
	"strings"

	"agentd/sdk"
)

// The sections, by name. Each part keeps the order of this list.
const (
	Instructions = "project_instructions"
	Loop         = "agent_loop"
	Capabilities = "capabilities"
	Thinking     = "thinking"

	Tools          = "tools"
	MCPTools       = "mcp_tools"
	Rules          = "tool_rules"
	Date           = "date"
	WorkingContext = "working_context"
	Planning       = "planning"
	Retrieval      = "retrieval"
)

// System is the system prompt: the instructions as they are, and the sections that have a text.
func System(instructions string, sections ...sdk.Section) string {
	parts := make([]string, 0, len(sections)+1)
	if strings.TrimSpace(instructions) != "" {
		parts = append(parts, instructions)
	}
	return strings.Join(append(parts, rendered(sections)...), "\n\n")
}

// Turn returns messages with the sections before the newest input. Results of calls must follow their calls at once, so
// after those the sections are a message of their own. It does not modify messages.
func Turn(messages []sdk.Message, sections []sdk.Section) []sdk.Message {
	texts := rendered(sections)
	if len(texts) == 0 {
		return messages
	}
	text := sdk.Content{Kind: sdk.ContentText, Text: strings.Join(texts, "\n\n")}
	out := slices.Clone(messages)
	if last := len(out) - 1; last >= 0 && isInput(out[last]) {
		out[last].Content = append([]sdk.Content{text}, out[last].Content...)
		return out
	}
	return append(out, sdk.Message{Role: sdk.RoleUser, Content: []sdk.Content{text}})
}

func isInput(m sdk.Message) bool {
	return m.Role == sdk.RoleUser && !slices.ContainsFunc(m.Content, func(c sdk.Content) bool {
		return c.Kind == sdk.ContentToolResult
	})
}

func rendered(sections []sdk.Section) []string {
	var out []string
	for _, s := range sections {
		if text := strings.TrimSpace(s.Text); text != "" {
			out = append(out, "<"+s.Name+">\n"+text+"\n</"+s.Name+">")
		}
	}
	return out
}
