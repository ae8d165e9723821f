package sdk

import "encoding/json"

// Role says who speaks in a message.
type Role string

// The roles. Tool results are user messages. The system prompt is not a message.
const (
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
)

// Message is one entry of a run's history.
type Message struct {
	Role    Role      `json:"role"`
	Content []Content `json:"content"`
	// Seen counts the model calls that this message was part of. What the model wrote starts at 1, all else at 0.
	Seen int `json:"seen"`
}

// ContentKind is the tag of Content.
type ContentKind string

// The kinds of content; the comment names the fields each uses.
const (
	ContentText       ContentKind = "text"        // Text
	ContentMedia      ContentKind = "media"       // Media; CallID where a tool returned it
	ContentToolUse    ContentKind = "tool_use"    // CallID, Tool, Args
	ContentToolResult ContentKind = "tool_result" // CallID, Tool, Text, IsError, Pending, Size, Note
	// ContentThinking is signed thinking, which its model wants back with the calls that it led to: Text, Signature,
	// Model. It is never shown to another model.
	ContentThinking ContentKind = "thinking"
	// ContentRedacted is thinking that the provider gives in a form that only it can read: Signature, Model.
	ContentRedacted ContentKind = "redacted_thinking"
)

// Content is a flat tagged union.
type Content struct {
	Kind ContentKind `json:"kind"`
	Text string      `json:"text,omitempty"`

	Media *Media `json:"media,omitempty"`

	CallID string `json:"call,omitempty"`
	// Tool is the name that the model knows the tool by.
	Tool string `json:"tool,omitempty"`
	// Args is the canonical JSON of the arguments; a call that could not be understood has what the model wrote, as a
	// JSON string.
	Args    json.RawMessage `json:"args,omitempty"`
	IsError bool            `json:"error,omitempty"`
	// Pending says of a result that there is none yet, and of a text that it is the result of a call which was shown as pending before.
	Pending bool `json:"pending,omitempty"`
	// Size is that of a result which is kept beside the conversation, in bytes: Text has the beginning and the end of it, as
	// {"head", "tail", "size"}. 0 is that Text is the result.
	Size int `json:"size,omitempty"`
	// Note says what of the call was not made as the model wrote it; the model is shown it before Text.
	Note string `json:"note,omitempty"`

	// Signature is what the provider knows its model's thinking by. Model names the model, as "provider/model".
	Signature string `json:"signature,omitempty"`
	Model     string `json:"model,omitempty"`
}

// IsResult reports whether c is the result of a call, with its CallID, Tool and Text.
func (c *Content) IsResult() bool {
	return c.Kind == ContentToolResult && !c.Pending || c.Kind == ContentText && c.Pending
}

// Media is an image or a file inside a message.
type Media struct {
	// MIME is the media type, such as "image/png".
	MIME string `json:"mime"`
	Name string `json:"name,omitempty"`
	// Data is standard base64; URI is used when it is empty.
	Data string `json:"data,omitempty"`
	URI  string `json:"uri,omitempty"`
}

// Text returns a message of one text.
func Text(role Role, text string) Message {
	m := Message{Role: role, Content: []Content{{Kind: ContentText, Text: text}}}
	if role == RoleAssistant {
		m.Seen = 1
	}
	return m
}

// PlainText returns the texts of m joined by line breaks, without tool calls, results and media.
func (m Message) PlainText() string {
	var out string
	for _, c := range m.Content {
		if c.Kind != ContentText {
			continue
		}
		if out != "" {
			out += "\n"
		}
		out += c.Text
	}
	return out
}
