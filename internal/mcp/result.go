package mcp

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"agentd/internal/clip"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// inputRequired is a result that asks for something first (protocol 2026-07-28).
type inputRequired struct {
	InputRequests map[string]inputRequest `json:"inputRequests"`
	RequestState  *string                 `json:"requestState"`
}

type inputRequest struct {
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
}

// read makes of a result what the model is shown, or an error, or what the server asks for first:
//
//	{"text": …}                            one text, also where the structured content is an object of nothing but it
//	the structured content                 where the texts only repeat it or parts of it, or there are none
//	{"content": […], "structured": …}      all others, the items as the server sent them
func read(raw json.RawMessage) (json.RawMessage, *inputRequired, error) {
	var result struct {
		ResultType string            `json:"resultType"`
		Content    []json.RawMessage `json:"content"`
		Structured json.RawMessage   `json:"structuredContent"`
		IsError    bool              `json:"isError"`
	}
	if err := json.Unmarshal(raw, &result); err != nil {
		return nil, nil, sdk.Errorf(sdk.CodeTool, "the MCP server answered with something that is not a result").WithCause(err)
	}
	if result.ResultType == "input_required" {
		var required inputRequired
		if err := json.Unmarshal(raw, &required); err != nil {
			return nil, nil, sdk.Errorf(sdk.CodeTool, "the MCP server asked for what cannot be read").WithCause(err)
		}
		return nil, &required, nil
	}
	texts, others := textsOf(result.Content)
	if result.IsError {
		text := strings.Join(texts, "\n")
		if text == "" {
			text = string(raw)
		}
		return nil, nil, sdk.Errorf(sdk.CodeTool, "%s", clip.Text(text, maxFault))
	}
	structured := len(result.Structured) > 0 && !bytes.Equal(result.Structured, []byte("null"))
	var shown any
	switch {
	case others == 0 && len(texts) == 1 && (!structured || wraps(result.Structured, texts[0])):
		shown = map[string]string{"text": texts[0]}
	case structured && others == 0 && repeats(texts, result.Structured):
		return result.Structured, nil, nil
	case structured:
		shown = map[string]any{"content": notNil(result.Content), "structured": result.Structured}
	default:
		shown = map[string]any{"content": notNil(result.Content)}
	}
	data, err := json.Marshal(shown)
	if err != nil {
		return nil, nil, sdk.Errorf(sdk.CodeTool, "the MCP server answered with something that is not a result").WithCause(err)
	}
	return data, nil, nil
}

func notNil(items []json.RawMessage) []json.RawMessage {
	if items == nil {
		return []json.RawMessage{}
	}
	return items
}

// textsOf returns the texts, and how many items are more than a text.
func textsOf(content []json.RawMessage) (texts []string, others int) {
	for _, raw := range content {
		var fields map[string]json.RawMessage
		var kind, text string
		if json.Unmarshal(raw, &fields) != nil || json.Unmarshal(fields["type"], &kind) != nil || kind != "text" ||
			json.Unmarshal(fields["text"], &text) != nil {
			others++
			continue
		}
		texts = append(texts, text)
		if len(fields) > 2 {
			others++ // annotations and the like are kept
		}
	}
	return texts, others
}

// wraps reports whether the structured content is an object whose one member is the text.
func wraps(structured json.RawMessage, text string) bool {
	var object map[string]json.RawMessage
	if json.Unmarshal(structured, &object) != nil || len(object) != 1 {
		return false
	}
	for _, member := range object {
		var same string
		return json.Unmarshal(member, &same) == nil && same == text
	}
	return false
}

// repeats reports whether the texts say nothing that the structured content does not: each is it, as JSON, or one of its strings.
func repeats(texts []string, structured json.RawMessage) bool {
	if len(texts) == 0 {
		return true
	}
	want, err := wire.Canonicalize(structured)
	have, errText := wire.Canonicalize([]byte(texts[0]))
	if len(texts) == 1 && err == nil && errText == nil && bytes.Equal(want, have) {
		return true
	}
	var value any
	if json.Unmarshal(structured, &value) != nil {
		return false
	}
	said := map[string]bool{}
	collect(value, said)
	return !slices.ContainsFunc(texts, func(text string) bool { return !said[text] })
}

// collect notes the strings of a value.
func collect(value any, said map[string]bool) {
	switch v := value.(type) {
	case string:
		said[v] = true
	case []any:
		for _, item := range v {
			collect(item, said)
		}
	case map[string]any:
		for _, member := range v {
			collect(member, said)
		}
	}
}
