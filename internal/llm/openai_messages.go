package llm

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"agentd/sdk"
)

// messages is the conversation in the vendor's form, in the order of the history.
func messages(req sdk.ModelRequest) []chatMessage {
	var out []chatMessage
	if req.System != "" {
		out = append(out, chatMessage{Content: req.System, Role: chatSystem})
	}
	for _, m := range req.Messages {
		if m.Role == sdk.RoleAssistant {
			out = append(out, assistantMessage(m))
		} else {
			out = append(out, userMessages(m)...)
		}
	}
	return out
}

// assistantMessage is one message with all its calls: the protocol wants their results right after it.
func assistantMessage(m sdk.Message) chatMessage {
	var texts []string
	out := chatMessage{Role: chatAssistant}
	for _, c := range m.Content {
		switch c.Kind {
		case sdk.ContentText:
			texts = append(texts, c.Text)
		case sdk.ContentMedia:
			texts = append(texts, describeMedia(c.Media))
		case sdk.ContentToolUse:
			out.ToolCalls = append(out.ToolCalls, chatCall{
				ID: c.CallID, Function: chatFunctionCall{Arguments: callArguments(c.Args), Name: wireName(c.Tool)}, Type: typeFunction,
			})
		case sdk.ContentToolResult: // a user's content; never here
		case sdk.ContentThinking, sdk.ContentRedacted: // another provider's
		}
	}
	switch {
	case len(texts) == 1 || (len(texts) == 0 && len(out.ToolCalls) == 0):
		out.Content = strings.Join(texts, "")
	case len(texts) > 1:
		var parts []chatPart
		for _, text := range texts {
			parts = append(parts, chatText(text))
		}
		out.Content = parts
	}
	return out
}

// userMessages splits a message into tool results and what lies between them, because each result is a message of the
// role tool there.
func userMessages(m sdk.Message) []chatMessage {
	var out []chatMessage
	var parts []chatPart
	flush := func() {
		switch {
		case len(parts) == 1 && parts[0].Text != nil:
			out = append(out, chatMessage{Content: *parts[0].Text, Role: chatUser})
		case len(parts) > 0:
			out = append(out, chatMessage{Content: parts, Role: chatUser})
		}
		parts = nil
	}
	for _, c := range m.Content {
		switch c.Kind {
		case sdk.ContentText:
			parts = append(parts, chatText(c.Text))
		case sdk.ContentMedia:
			parts = append(parts, mediaPart(c.Media, m.Seen > 0))
		case sdk.ContentToolResult:
			flush()
			out = append(out, resultMessage(c))
		case sdk.ContentToolUse, sdk.ContentThinking, sdk.ContentRedacted: // an assistant's content; never here
		}
	}
	flush()
	return out
}

func resultMessage(c sdk.Content) chatMessage {
	return chatMessage{Content: c.Text, ToolCallID: c.CallID, Role: chatToolRole}
}

// wireName is a name as vendors take it. Those of real tools are; the model may have made one up.
func wireName(tool string) string {
	name := notInFormatName.ReplaceAllString(tool, "_")
	return cmp.Or(name[:min(len(name), 64)], "_")
}

// callArguments are always the text of a JSON object, because servers parse them and refuse a conversation over one that
// is not. What the model wrote otherwise is kept inside an object, so that it can see its fault.
func callArguments(args json.RawMessage) string {
	var written string
	if json.Unmarshal(args, &written) == nil {
		args = json.RawMessage(written)
	}
	var object map[string]json.RawMessage
	if json.Unmarshal(args, &object) == nil && object != nil {
		return string(args)
	}
	if len(args) == 0 {
		return "{}"
	}
	wrapped, err := json.Marshal(map[string]string{"unparsed_arguments": string(args)})
	if err != nil {
		return "{}" // a map of strings always encodes
	}
	return string(wrapped)
}

func mediaPart(m *sdk.Media, seen bool) chatPart {
	switch {
	case m == nil || seen:
		return chatText(describeMedia(m))
	case isImage(m):
		return chatPart{ImageURL: &chatImage{mediaURL(m)}, Type: "image_url"}
	case m.Data == "":
		// The protocol takes other files by content only.
		return chatText(fmt.Sprintf("[file%s (%s): %s]", spaced(m.Name), m.MIME, m.URI))
	}
	return chatPart{File: &chatFile{Data: mediaURL(m), Name: m.Name}, Type: "file"}
}

// describeMedia stands for media that the model has already seen (tokens are spent on them once).
func describeMedia(m *sdk.Media) string {
	if m == nil {
		return "[media]"
	}
	kind := "file"
	if isImage(m) {
		kind = "image"
	}
	return fmt.Sprintf("[%s%s (%s) was shown earlier]", kind, spaced(m.Name), m.MIME)
}

func isImage(m *sdk.Media) bool { return strings.HasPrefix(m.MIME, "image/") }

func mediaURL(m *sdk.Media) string {
	if m.Data == "" {
		return m.URI
	}
	return "data:" + m.MIME + ";base64," + m.Data
}

func spaced(name string) string {
	if name == "" {
		return ""
	}
	return " " + name
}

func toolParam(tool sdk.ToolDefinition) chatTool {
	return chatTool{Function: chatFunction{tool.Name, tool.Description, parametersOf(tool)}, Type: typeFunction}
}

// parametersOf is a tool's schema, or one of a tool that takes nothing.
func parametersOf(tool sdk.ToolDefinition) json.RawMessage {
	if len(tool.Parameters) == 0 {
		return json.RawMessage(`{"type":"object","properties":{}}`)
	}
	return tool.Parameters
}

var notInFormatName = regexp.MustCompile(`[^a-zA-Z0-9_-]+`)

// responseFormat asks for JSON by schema. It is not strict: strict mode takes a subset of JSON Schema only, and the
// run's own validation corrects the model.
func responseFormat(schema json.RawMessage) *chatFormat {
	var titled struct {
		Title string `json:"title"`
	}
	// A schema that is true or false, or has a title of another type, has no name.
	_ = json.Unmarshal(schema, &titled)
	name := strings.Trim(notInFormatName.ReplaceAllString(titled.Title, "_"), "_")
	if name == "" {
		name = "response_schema"
	}
	return &chatFormat{JSONSchema: chatSchema{Name: name[:min(len(name), 64)], Schema: schema}, Type: "json_schema"}
}
