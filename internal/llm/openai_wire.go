package llm

import (
	"bytes"
	"encoding/json"
	"slices"
)

// chatRequest is the body of a request to /chat/completions.
type chatRequest struct {
	Messages            []chatMessage  `json:"messages"`
	Model               string         `json:"model"`
	MaxCompletionTokens int            `json:"max_completion_tokens,omitempty"`
	MaxTokens           int            `json:"max_tokens,omitempty"`
	Temperature         *float64       `json:"temperature,omitempty"`
	TopP                *float64       `json:"top_p,omitempty"`
	ResponseFormat      *chatFormat    `json:"response_format,omitempty"`
	Tools               []chatTool     `json:"tools,omitempty"`
	Stream              bool           `json:"stream,omitempty"`
	StreamOptions       *streamOptions `json:"stream_options,omitempty"`
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

type chatMessage struct {
	// Content is a text or []chatPart; nil is none.
	Content    any        `json:"content,omitempty"`
	ToolCalls  []chatCall `json:"tool_calls,omitempty"`
	ToolCallID string     `json:"tool_call_id,omitempty"`
	Role       string     `json:"role"`
}

// Roles of messages.
const (
	chatSystem    = "system"
	chatUser      = "user"
	chatAssistant = "assistant"
	chatToolRole  = "tool"
)

// chatPart has what its type says.
type chatPart struct {
	Text     *string    `json:"text,omitempty"`
	ImageURL *chatImage `json:"image_url,omitempty"`
	File     *chatFile  `json:"file,omitempty"`
	Type     string     `json:"type"`
}

type chatImage struct {
	URL string `json:"url"`
}

type chatFile struct {
	Data string `json:"file_data"`
	Name string `json:"filename,omitempty"`
}

// partText is the type of a part of a content that is text.
const partText = "text"

func chatText(text string) chatPart { return chatPart{Text: &text, Type: partText} }

// typeFunction is the only type of tools and calls here.
const typeFunction = "function"

type chatCall struct {
	ID       string           `json:"id"`
	Function chatFunctionCall `json:"function"`
	Type     string           `json:"type"`
}

type chatFunctionCall struct {
	Arguments string `json:"arguments"`
	Name      string `json:"name"`
}

type chatTool struct {
	Function chatFunction `json:"function"`
	Type     string       `json:"type"`
}

type chatFunction struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	// Parameters are as they were written: models read the order of properties as one of importance.
	Parameters json.RawMessage `json:"parameters"`
}

type chatFormat struct {
	JSONSchema chatSchema `json:"json_schema"`
	Type       string     `json:"type"`
}

type chatSchema struct {
	Name   string          `json:"name"`
	Strict bool            `json:"strict"`
	Schema json.RawMessage `json:"schema"`
}

// chatAnswer is a reply that is not streamed.
type chatAnswer struct {
	Choices []struct {
		FinishReason string `json:"finish_reason"`
		Message      struct {
			Content   chatContent   `json:"content"`
			Refusal   string        `json:"refusal"`
			ToolCalls chatFragments `json:"tool_calls"`
		} `json:"message"`
	} `json:"choices"`
	Usage chatUsage `json:"usage"`
}

type chatUsage struct {
	Prompt     int64 `json:"prompt_tokens"`
	Completion int64 `json:"completion_tokens"`
}

// chatChunk is an event of a stream.
type chatChunk struct {
	Choices []struct {
		Index        int64  `json:"index"`
		FinishReason string `json:"finish_reason"`
		Delta        struct {
			Content   chatContent   `json:"content"`
			Refusal   string        `json:"refusal"`
			ToolCalls chatFragments `json:"tool_calls"`
		} `json:"delta"`
	} `json:"choices"`
	Usage chatUsage `json:"usage"`
	Error any       `json:"error"`
}

// chatContent is a text, which some servers send as a list of parts.
type chatContent string

// UnmarshalJSON implements json.Unmarshaler.
func (c *chatContent) UnmarshalJSON(data []byte) error {
	if data[0] != '[' {
		return decode(data, (*string)(c))
	}
	var parts []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if err := decode(data, &parts); err != nil {
		return err
	}
	for _, part := range parts {
		if part.Type == partText {
			*c += chatContent(part.Text)
		}
	}
	return nil
}

// chatFragment is a call, or a piece of one.
type chatFragment struct {
	Index    int64  `json:"index"`
	ID       callID `json:"id"`
	Function struct {
		Name      string   `json:"name"`
		Arguments jsonText `json:"arguments"`
	} `json:"function"`
}

// whole reports whether the fragment is all of a call.
func (f *chatFragment) whole() bool {
	return f.Function.Name != "" && json.Valid([]byte(f.Function.Arguments))
}

// noCalls are other ways to write an empty list: an object without members is how some programs write one.
var noCalls = []string{"{}", `""`}

// chatFragments are a list, or one alone. They are read to the letter, unlike all else: a call is made as the model wrote it, or not at all.
type chatFragments []chatFragment

// UnmarshalJSON implements json.Unmarshaler.
func (f *chatFragments) UnmarshalJSON(data []byte) error {
	if slices.Contains(noCalls, string(data)) {
		return nil
	}
	if data[0] == '{' {
		data = slices.Concat([]byte("["), data, []byte("]"))
	}
	if err := json.Unmarshal(data, (*[]chatFragment)(f)); err != nil {
		return &unreadCallError{err}
	}
	return nil
}

// callID is a text, or a number of servers that count. It is compared, and not used.
type callID string

// UnmarshalJSON implements json.Unmarshaler.
func (id *callID) UnmarshalJSON(data []byte) error {
	if string(data) != "null" {
		*id = callID(bytes.Trim(data, `"`))
	}
	return nil
}

// embeddingRequest is the body of a request to /embeddings, embeddingAnswer its answer.
type embeddingRequest struct {
	Input          []string `json:"input"`
	Model          string   `json:"model"`
	EncodingFormat string   `json:"encoding_format"`
}

type embeddingAnswer struct {
	Data []struct {
		Index     int       `json:"index"`
		Embedding []float64 `json:"embedding"`
	} `json:"data"`
}
