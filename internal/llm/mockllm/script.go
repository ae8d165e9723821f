package mockllm

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	"agentd/internal/schema"
	"agentd/internal/strict"
)

// Script is what the server answers from; the package documentation has its form.
type Script struct {
	Conversations []Conversation `json:"conversations"`
}

// Conversation is one scripted or recorded conversation.
type Conversation struct {
	Name    string   `json:"name"`
	Match   Match    `json:"match"`
	Tools   []string `json:"tools"`
	Replies []Reply  `json:"replies"`
	// Expect makes the conversation strict.
	Expect []Message `json:"expect"`
}

// Match says which requests belong to a conversation. Empty fields match everything.
type Match struct {
	First    string `json:"first"`
	Contains string `json:"contains"`
	// System and Last are part of the system prompt and of the last user message.
	System string `json:"system"`
	Last   string `json:"last"`
	Model  string `json:"model"`
	Run    string `json:"run"`
}

// Reply is one answer of the model.
type Reply struct {
	Text string `json:"text"`
	// Thinking is said before the text, where the protocol has that.
	Thinking string        `json:"thinking"`
	Calls    []ReplyCall   `json:"calls"`
	Delay    time.Duration `json:"delay"`
	Usage    *Usage        `json:"usage"`
	Finish   string        `json:"finish"`
	Faults   []Fault       `json:"faults"`
}

// ReplyCall is one tool call of a reply.
type ReplyCall struct {
	Name      string    `json:"name"`
	Arguments Arguments `json:"arguments"`
}

// Usage is the tokens that a reply claims to have used.
type Usage struct {
	Prompt     int64 `json:"prompt"`
	Completion int64 `json:"completion"`
}

// Fault is what happens in place of an answer, Times times (0 is 1, -1 for ever).
type Fault struct {
	Status     int           `json:"status"`
	RetryAfter time.Duration `json:"retry_after"`
	Message    string        `json:"message"`
	Cut        bool          `json:"cut"`
	Times      int           `json:"times"`
}

// Arguments is the text of a call's arguments.
type Arguments string

// UnmarshalJSON takes a text as it is, and the JSON of anything else.
func (a *Arguments) UnmarshalJSON(data []byte) error {
	if data[0] == '"' {
		return json.Unmarshal(data, (*string)(a))
	}
	*a = Arguments(data)
	return nil
}

//go:embed script.schema.json
var scriptSchema []byte

var scriptForm = sync.OnceValue(func() *strict.Form {
	s, err := schema.Compile(scriptSchema)
	if err != nil {
		panic("mockllm: script.schema.json: " + err.Error()) // it is part of the program
	}
	return strict.NewForm(s)
})

// LoadScript reads a script from a file. The error lists every fault with its line and column.
func LoadScript(path string) (*Script, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read script: %w", err)
	}
	return ParseScript(path, data)
}

// ParseScript is LoadScript for a file that has been read; name tells its format and stands in the faults.
func ParseScript(name string, data []byte) (*Script, error) {
	var r strict.Reader
	n := r.Parse(name, data)
	r.Check(n, scriptForm())
	var script Script
	r.Decode(n, &script)
	for i := range script.Conversations {
		if !script.Conversations[i].complete(i) {
			r.Faultf(n.Get("conversations").Items()[i].Position, "the model says nothing: write replies, or expect")
		}
		if c := &script.Conversations[i]; c.Match.Last != "" && (len(c.Replies) > 1 || len(c.Expect) > 0) {
			r.Faultf(n.Get("conversations").Items()[i].Position, "what is matched by its last message has one reply, and nothing to expect")
		}
	}
	if err := r.Err(); err != nil {
		return nil, err
	}
	return &script, nil
}

// complete gives the i-th conversation, from 0, its name and its replies, and reports whether it has any.
func (c *Conversation) complete(i int) bool {
	if c.Name == "" {
		c.Name = fmt.Sprintf("conversation %d", i+1)
	}
	if len(c.Replies) == 0 {
		c.Replies = repliesOf(c.Expect)
	}
	return len(c.Replies) > 0
}

// repliesOf returns the assistant messages as replies.
func repliesOf(messages []Message) []Reply {
	var out []Reply
	for _, m := range messages {
		if m.Role != roleAssistant {
			continue
		}
		r := Reply{Text: m.Text}
		for _, c := range m.Calls {
			r.Calls = append(r.Calls, ReplyCall{Name: c.Name, Arguments: Arguments(c.Arguments)})
		}
		out = append(out, r)
	}
	return out
}
