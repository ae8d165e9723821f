package llm

import (
	"encoding/json"
	"fmt"
	"slices"

	"agentd/sdk"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/packages/param"
)

// messages is the conversation in the vendor's form. Roles alternate there, and the results of calls are the beginning of
// the message that follows them.
func (p *Anthropic) messages(req sdk.ModelRequest) []anthropic.MessageParam {
	var out []anthropic.MessageParam
	for _, m := range req.Messages {
		role := anthropic.MessageParamRoleUser
		if m.Role == sdk.RoleAssistant {
			role = anthropic.MessageParamRoleAssistant
		}
		content := p.content(m, req.Model)
		if len(content) == 0 {
			continue // the protocol knows no empty messages
		}
		if last := len(out) - 1; last >= 0 && out[last].Role == role {
			out[last].Content = append(out[last].Content, content...)
			continue
		}
		out = append(out, anthropic.MessageParam{Role: role, Content: content})
	}
	for i := range out {
		slices.SortStableFunc(out[i].Content, func(a, b anthropic.ContentBlockParamUnion) int { return rank(a) - rank(b) })
	}
	return out
}

// rank puts thinking and results before, and calls after, all else of a message.
func rank(c anthropic.ContentBlockParamUnion) int {
	switch {
	case c.OfThinking != nil, c.OfRedactedThinking != nil, c.OfToolResult != nil:
		return 0
	case c.OfToolUse != nil:
		return 2
	}
	return 1
}

func (p *Anthropic) content(m sdk.Message, model string) []anthropic.ContentBlockParamUnion {
	var out []anthropic.ContentBlockParamUnion
	// A message that thought for another model is sent without.
	own := func(c sdk.Content) bool { return c.Model == p.modelName(model) }
	for _, c := range m.Content {
		switch c.Kind {
		case sdk.ContentText:
			if c.Text != "" {
				out = append(out, anthropic.NewTextBlock(c.Text))
			}
		case sdk.ContentMedia:
			out = append(out, mediaBlock(c.Media, m.Seen > 0 || m.Role == sdk.RoleAssistant))
		case sdk.ContentToolUse:
			out = append(out, anthropic.NewToolUseBlock(c.CallID, json.RawMessage(callArguments(c.Args)), wireName(c.Tool)))
		case sdk.ContentToolResult:
			out = append(out, anthropic.NewToolResultBlock(c.CallID, c.Text, c.IsError))
		case sdk.ContentThinking:
			if own(c) {
				out = append(out, anthropic.NewThinkingBlock(c.Signature, c.Text))
			}
		case sdk.ContentRedacted:
			if own(c) {
				out = append(out, anthropic.NewRedactedThinkingBlock(c.Signature))
			}
		}
	}
	return out
}

func mediaBlock(m *sdk.Media, seen bool) anthropic.ContentBlockParamUnion {
	switch {
	case m == nil || seen:
		return anthropic.NewTextBlock(describeMedia(m))
	case isImage(m) && m.Data == "":
		return anthropic.NewImageBlock(anthropic.URLImageSourceParam{URL: m.URI})
	case isImage(m):
		return anthropic.NewImageBlockBase64(m.MIME, m.Data)
	case m.MIME == "application/pdf" && m.Data == "":
		return anthropic.NewDocumentBlock(anthropic.URLPDFSourceParam{URL: m.URI})
	case m.MIME == "application/pdf":
		return anthropic.NewDocumentBlock(anthropic.Base64PDFSourceParam{Data: m.Data})
	}
	// The protocol takes no other files.
	return anthropic.NewTextBlock(fmt.Sprintf("[file%s (%s): %s]", spaced(m.Name), m.MIME, m.URI))
}

func anthropicTool(tool sdk.ToolDefinition) anthropic.ToolUnionParam {
	parameters := tool.Parameters
	if len(parameters) == 0 {
		parameters = json.RawMessage(`{"type":"object","properties":{}}`)
	}
	t := anthropic.ToolParam{Name: tool.Name}
	if tool.Description != "" {
		t.Description = param.NewOpt(tool.Description)
	}
	// As raw bytes: a map would reorder the properties, which models read as an order of importance.
	t.InputSchema = param.Override[anthropic.ToolInputSchemaParam](parameters)
	return anthropic.ToolUnionParam{OfTool: &t}
}
