package llm

import "encoding/json"

// messagesRequest is the body of a request to /v1/messages.
type messagesRequest struct {
	MaxTokens   int64          `json:"max_tokens"`
	Messages    []messageParam `json:"messages"`
	Model       string         `json:"model"`
	Temperature *float64       `json:"temperature,omitempty"`
	TopP        *float64       `json:"top_p,omitempty"`
	System      []textParam    `json:"system,omitempty"`
	Tools       []toolDeclared `json:"tools,omitempty"`
	Thinking    map[string]any `json:"thinking,omitempty"`
	Stream      bool           `json:"stream"`
}

type messageParam struct {
	Content []blockParam `json:"content"`
	Role    string       `json:"role"`
}

// blockParam is a piece of a message. rank puts thinking and results before, and calls after, all else of a message.
type blockParam interface{ rank() int }

type textParam struct {
	Text         string        `json:"text"`
	CacheControl *cacheControl `json:"cache_control,omitempty"`
	Type         string        `json:"type"`
}

type cacheControl struct {
	Type string `json:"type"`
}

type toolUseParam struct {
	ID    string          `json:"id"`
	Input json.RawMessage `json:"input"`
	Name  string          `json:"name"`
	Type  string          `json:"type"`
}

type toolResultParam struct {
	ToolUseID string      `json:"tool_use_id"`
	IsError   bool        `json:"is_error"`
	Content   []textParam `json:"content"`
	Type      string      `json:"type"`
}

type thoughtParam struct {
	Signature string `json:"signature"`
	Thinking  string `json:"thinking"`
	Type      string `json:"type"`
}

type redactedParam struct {
	Data string `json:"data"`
	Type string `json:"type"`
}

// fileParam is an image or a document.
type fileParam struct {
	Source sourceParam `json:"source"`
	Type   string      `json:"type"`
}

type sourceParam struct {
	Data      string `json:"data,omitempty"`
	MediaType string `json:"media_type,omitempty"`
	URL       string `json:"url,omitempty"`
	Type      string `json:"type"`
}

func (textParam) rank() int       { return 1 }
func (fileParam) rank() int       { return 1 }
func (toolUseParam) rank() int    { return 2 }
func (toolResultParam) rank() int { return 0 }
func (thoughtParam) rank() int    { return 0 }
func (redactedParam) rank() int   { return 0 }

// Types of blocks, of messages and of events.
const (
	blockTypeText     = "text"
	blockTypeToolUse  = "tool_use"
	blockTypeThinking = "thinking"
	blockTypeRedacted = "redacted_thinking"
)

// deltaTypeInput is the type of a piece of a call's arguments.
const deltaTypeInput = "input_json_delta"

// eventMessageStop is the last event of a stream. Some servers keep the connection after it.
const eventMessageStop = "message_stop"

func textBlock(text string) textParam { return textParam{Text: text, Type: blockTypeText} }

type toolDeclared struct {
	// InputSchema is as it was written: models read the order of properties as one of importance.
	InputSchema json.RawMessage `json:"input_schema"`
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
}

// messageEvent is an event of a stream; it has what its type says.
type messageEvent struct {
	Type    string `json:"type"`
	Index   int64  `json:"index"`
	Message struct {
		Usage messageUsage `json:"usage"`
	} `json:"message"`
	ContentBlock struct {
		Type string `json:"type"`
		Text string `json:"text"`
		Name string `json:"name"`
		// Input is all of it from servers that send no deltas, and empty from others.
		Input     jsonText `json:"input"`
		Thinking  string   `json:"thinking"`
		Signature string   `json:"signature"`
		Data      string   `json:"data"`
	} `json:"content_block"`
	Delta struct {
		Type        string   `json:"type"`
		Text        string   `json:"text"`
		PartialJSON jsonText `json:"partial_json"`
		Thinking    string   `json:"thinking"`
		Signature   string   `json:"signature"`
		StopReason  string   `json:"stop_reason"`
	} `json:"delta"`
	Usage messageUsage `json:"usage"`
}

// read reads an event as far as it fits, but one of a tool call to the letter: a call is made as the model wrote it, or not at all.
func (e *messageEvent) read(data []byte) error {
	if err := decode(data, e); err != nil {
		return err
	}
	if e.ContentBlock.Type != blockTypeToolUse && e.Delta.Type != deltaTypeInput {
		return nil
	}
	if err := json.Unmarshal(data, e); err != nil {
		return &unreadCallError{err}
	}
	return nil
}

// messageUsage are tokens; nil is what the event does not say.
type messageUsage struct {
	Input      *int64 `json:"input_tokens"`
	Output     *int64 `json:"output_tokens"`
	CacheRead  int64  `json:"cache_read_input_tokens"`
	CacheWrite int64  `json:"cache_creation_input_tokens"`
}
