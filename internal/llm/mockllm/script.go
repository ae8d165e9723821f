package mockllm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"go.yaml.in/yaml/v4"
)

// Script is what the server answers from; the package documentation has its form.
type Script struct {
	Conversations []Conversation `yaml:"conversations"`
}

// Conversation is one scripted or recorded conversation.
type Conversation struct {
	Name    string   `yaml:"name"`
	Match   Match    `yaml:"match"`
	Tools   []string `yaml:"tools"`
	Replies []Reply  `yaml:"replies"`
	// Expect makes the conversation strict.
	Expect Messages `yaml:"expect"`
}

// Match says which requests belong to a conversation. Empty fields match everything.
type Match struct {
	First    string `yaml:"first"`
	Contains string `yaml:"contains"`
	Model    string `yaml:"model"`
	Run      string `yaml:"run"`
}

// Reply is one answer of the model.
type Reply struct {
	Text string `yaml:"text"`
	// Thinking is said before the text, where the protocol has that.
	Thinking string      `yaml:"thinking"`
	Calls    []ReplyCall `yaml:"calls"`
	Delay    Duration    `yaml:"delay"`
	Usage    *Usage      `yaml:"usage"`
	Finish   string      `yaml:"finish"`
	Faults   []Fault     `yaml:"faults"`
}

// ReplyCall is one tool call of a reply.
type ReplyCall struct {
	Name      string    `yaml:"name"`
	Arguments Arguments `yaml:"arguments"`
}

// Usage is the tokens that a reply claims to have used.
type Usage struct {
	Prompt     int64 `yaml:"prompt"`
	Completion int64 `yaml:"completion"`
}

// Fault is what happens in place of an answer, Times times (0 is 1, -1 for ever).
type Fault struct {
	Status     int      `yaml:"status"`
	RetryAfter Duration `yaml:"retry_after"`
	Message    string   `yaml:"message"`
	Cut        bool     `yaml:"cut"`
	Times      int      `yaml:"times"`
}

// Duration is a text with a unit, such as "200ms".
type Duration time.Duration

// UnmarshalYAML reads the text form only: a bare number would have to guess its unit.
func (d *Duration) UnmarshalYAML(node *yaml.Node) error {
	v, err := time.ParseDuration(node.Value)
	if err != nil || v < 0 {
		return lineFault(node, "%q is not a duration such as 200ms", node.Value)
	}
	*d = Duration(v)
	return nil
}

// Arguments is the text of a call's arguments.
type Arguments string

// UnmarshalYAML turns a mapping into JSON in the order written and takes a text as it is.
func (a *Arguments) UnmarshalYAML(node *yaml.Node) error {
	if node.Kind == yaml.ScalarNode && node.ShortTag() == "!!str" {
		*a = Arguments(node.Value)
		return nil
	}
	text, err := toJSON(node)
	*a = Arguments(text)
	return err
}

// Messages are messages in the protocol's form.
type Messages []Message

// UnmarshalYAML reads the protocol's form.
func (m *Messages) UnmarshalYAML(node *yaml.Node) error {
	text, err := toJSON(node)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, (*[]Message)(m)); err != nil {
		return lineFault(node, "%v", err)
	}
	return nil
}

// lineFault returns the one type of error that the decoder collects instead of stopping at it.
func lineFault(node *yaml.Node, format string, args ...any) error {
	return &yaml.TypeError{Errors: []string{fmt.Sprintf("line %d: ", node.Line) + fmt.Sprintf(format, args...)}} //nolint:staticcheck // what the decoder collects
}

// LoadScript reads a script from a file.
func LoadScript(path string) (*Script, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read script: %w", err)
	}
	script, err := ParseScript(data)
	if err != nil {
		return nil, fmt.Errorf("script %s: %w", path, err)
	}
	return script, nil
}

// ParseScript reads a script and checks it. The error lists every fault; those of form have line numbers.
func ParseScript(data []byte) (*Script, error) {
	var script Script
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	decoder.KnownFields(true)
	if err := decoder.Decode(&script); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if err := script.check(); err != nil {
		return nil, err
	}
	return &script, nil
}

// check completes the conversations and reports what cannot work.
func (s *Script) check() error {
	var faults []error
	if len(s.Conversations) == 0 {
		faults = append(faults, errors.New("no conversations"))
	}
	for i := range s.Conversations {
		c := &s.Conversations[i]
		if c.Name == "" {
			c.Name = fmt.Sprintf("conversation %d", i+1)
		}
		if len(c.Replies) == 0 {
			c.Replies = repliesOf(c.Expect)
		}
		if len(c.Replies) == 0 {
			faults = append(faults, fmt.Errorf("%s: no replies", c.Name))
		}
		for j, r := range c.Replies {
			for _, fault := range r.check() {
				faults = append(faults, fmt.Errorf("%s: reply %d: %w", c.Name, j+1, fault))
			}
		}
	}
	return errors.Join(faults...)
}

func (r Reply) check() []error {
	var faults []error
	for _, c := range r.Calls {
		if c.Name == "" {
			faults = append(faults, errors.New("a call has no name"))
		}
	}
	switch r.Finish {
	case "", finishStop, finishCalls, finishLength, finishFilter:
	default:
		faults = append(faults, fmt.Errorf("unknown finish %q", r.Finish))
	}
	for _, f := range r.Faults {
		if f.Cut == (f.Status != 0) || (f.Status != 0 && (f.Status < 400 || f.Status > 599)) {
			faults = append(faults, errors.New("a fault is either a status from 400 to 599 or a cut"))
		}
	}
	return faults
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

// toJSON encodes a YAML value. The library's own way through Go values would lose the order of keys and turn what looks
// like a date into a time.
func toJSON(node *yaml.Node) ([]byte, error) {
	switch node.Kind {
	case yaml.AliasNode:
		return toJSON(node.Alias)
	case yaml.MappingNode:
		return mappingJSON(node)
	case yaml.SequenceNode:
		out := []byte{'['}
		for i, item := range node.Content {
			text, err := toJSON(item)
			if err != nil {
				return nil, err
			}
			if i > 0 {
				out = append(out, ',')
			}
			out = append(out, text...)
		}
		return append(out, ']'), nil
	default:
		return scalarJSON(node)
	}
}

func mappingJSON(node *yaml.Node) ([]byte, error) {
	out := []byte{'{'}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, err := json.Marshal(node.Content[i].Value)
		if err != nil {
			return nil, lineFault(node.Content[i], "%v", err)
		}
		value, err := toJSON(node.Content[i+1])
		if err != nil {
			return nil, err
		}
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(append(out, key...), ':'), value...)
	}
	return append(out, '}'), nil
}

func scalarJSON(node *yaml.Node) ([]byte, error) {
	var value any = node.Value
	switch node.ShortTag() {
	case "!!int", "!!float", "!!bool", "!!null":
		if json.Valid([]byte(node.Value)) {
			return []byte(node.Value), nil
		}
		if err := node.Decode(&value); err != nil {
			return nil, lineFault(node, "%v", err)
		}
	}
	text, err := json.Marshal(value)
	if err != nil {
		return nil, lineFault(node, "%v", err)
	}
	return text, nil
}
