package mockllm

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// The roles that decide something here.
const (
	roleSystem    = "system"
	roleAssistant = "assistant"
	roleTool      = "tool"
	roleUser      = "user"
)

// Why a reply ends, as scripts and chat completions say it.
const (
	finishStop   = "stop"
	finishCalls  = "tool_calls"
	finishLength = "length"
	finishFilter = "content_filter"
)

// partText is the kind of a content part that is text, in both protocols.
const partText = "text"

// Message is a message of the chat completions protocol, in requests and in recorded conversations.
type Message struct {
	Role string
	// Text is the content, or its text parts joined by line breaks; absent content is "".
	Text string
	// Media are the content parts that are not text, as JSON.
	Media []string
	Calls []Call
	// CallID is the call that a message of the role tool answers.
	CallID string
}

// Call is a tool call of an assistant message.
type Call struct {
	ID   string
	Name string
	// Arguments is the text that the model wrote, normally a JSON object.
	Arguments string
}

type wireMessage struct {
	Role       string          `json:"role"`
	Content    json.RawMessage `json:"content,omitempty"`
	ToolCalls  []wireCall      `json:"tool_calls,omitempty"`
	ToolCallID string          `json:"tool_call_id,omitempty"`
}

type wireCall struct {
	// Index is set in streams only.
	Index    *int         `json:"index,omitempty"`
	ID       string       `json:"id,omitempty"`
	Type     string       `json:"type,omitempty"`
	Function wireFunction `json:"function"`
}

type wireFunction struct {
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments"`
}

// UnmarshalJSON reads the protocol's form.
func (m *Message) UnmarshalJSON(data []byte) error {
	var w wireMessage
	if err := json.Unmarshal(data, &w); err != nil {
		return err
	}
	*m = Message{Role: w.Role, CallID: w.ToolCallID}
	for _, c := range w.ToolCalls {
		m.Calls = append(m.Calls, Call{ID: c.ID, Name: c.Function.Name, Arguments: c.Function.Arguments})
	}
	if len(w.Content) == 0 || string(w.Content) == "null" {
		return nil
	}
	if w.Content[0] == '"' {
		return json.Unmarshal(w.Content, &m.Text)
	}
	var parts []json.RawMessage
	if err := json.Unmarshal(w.Content, &parts); err != nil {
		return fmt.Errorf("content: %w", err)
	}
	return m.readParts(parts)
}

func (m *Message) readParts(parts []json.RawMessage) error {
	var texts []string
	for i, raw := range parts {
		var part struct {
			Type string  `json:"type"`
			Text *string `json:"text"`
		}
		if err := json.Unmarshal(raw, &part); err != nil {
			return fmt.Errorf("content part %d: %w", i, err)
		}
		if part.Type == partText && part.Text != nil {
			texts = append(texts, *part.Text)
		} else {
			m.Media = append(m.Media, string(raw))
		}
	}
	m.Text = strings.Join(texts, "\n")
	return nil
}

type chatRequest struct {
	Model         string        `json:"model"`
	Messages      []Message     `json:"messages"`
	Tools         []offeredTool `json:"tools"`
	Stream        bool          `json:"stream"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
}

type offeredTool struct {
	Function struct {
		Name string `json:"name"`
	} `json:"function"`
}

// turn is how many replies the conversation already has.
func (r chatRequest) turn() int {
	n := 0
	for _, m := range r.Messages {
		if m.Role == roleAssistant {
			n++
		}
	}
	return n
}

func (r chatRequest) firstUser() string { return firstOf(r.Messages, roleUser) }

func (r chatRequest) system() string { return firstOf(r.Messages, roleSystem) }

func (r chatRequest) lastUser() string {
	backwards := slices.Clone(r.Messages)
	slices.Reverse(backwards)
	return firstOf(backwards, roleUser)
}

// firstOf is the text of the first message of a role.
func firstOf(messages []Message, role string) string {
	for _, m := range messages {
		if m.Role == role {
			return m.Text
		}
	}
	return ""
}

type chatResponse struct {
	ID      string     `json:"id"`
	Object  string     `json:"object"`
	Created int64      `json:"created"`
	Model   string     `json:"model"`
	Choices []choice   `json:"choices"`
	Usage   *wireUsage `json:"usage,omitempty"`
}

type choice struct {
	Index        int       `json:"index"`
	Message      *outgoing `json:"message,omitempty"`
	Delta        *outgoing `json:"delta,omitempty"`
	FinishReason *string   `json:"finish_reason"`
}

type outgoing struct {
	Role string `json:"role,omitempty"`
	// Content is null in a whole message without text, and absent in a fragment without.
	Content   any        `json:"content,omitempty"`
	ToolCalls []wireCall `json:"tool_calls,omitempty"`
}

type wireUsage struct {
	Prompt     int64 `json:"prompt_tokens"`
	Completion int64 `json:"completion_tokens"`
	Total      int64 `json:"total_tokens"`
}

type errorBody struct {
	Error errorFields `json:"error"`
}

type errorFields struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
}
