package texttools

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"agentd/internal/clip"
	"agentd/internal/toolcall"
)

// MaxText is the largest reply that is read, in bytes.
const MaxText = 10 << 20

// maxSnippet is how many bytes of a faulty call are repeated.
const maxSnippet = 200

// Class says what is wrong with a call.
type Class string

// The classes of faults. A reply without any call is not a fault.
const (
	ParseError       Class = "parse_error"       // the body is neither JSON nor XML
	MissingField     Class = "missing_field"     // server_name or tool_name is missing
	InvalidArguments Class = "invalid_arguments" // the arguments are not an object
)

// Fault is a call that cannot be understood.
type Fault struct {
	Class Class
	// Message says what is wrong, for the model.
	Message string
	// Snippet is the beginning of what was written, at most maxSnippet bytes and an ellipsis.
	Snippet string
}

func (f *Fault) Error() string { return fmt.Sprintf("%s: %s", f.Class, f.Message) }

// Call is one call as it was written.
type Call struct {
	Server, Tool string
	// Arguments is the JSON text of an object.
	Arguments string
}

// Reply is a text with its calls taken out.
type Reply struct {
	// Text is what was said beside the calls.
	Text  string
	Calls []Call
	// Faults are the calls that cannot be understood, in order.
	Faults []*Fault
	// Open says that the last call was not closed.
	Open bool
}

// Schemas returns the JSON Schema of a tool's arguments, nil when it is not known. XML has no types: the schema says
// what the text of an element is.
type Schemas func(server, tool string) json.RawMessage

// Parse reads a reply. It never fails: what cannot be understood is a Fault. schemas may be nil.
func Parse(text string, schemas Schemas) Reply {
	var out Reply
	var prose strings.Builder
	from, tags := 0, maxTags
	for {
		b, ok := nextBlock(text, from, &tags)
		if !ok {
			break
		}
		prose.WriteString(text[from:b.start])
		from, out.Open = b.end, !b.closed
		call, fault := parseBody(text[b.bodyStart:b.bodyEnd], b.closed, schemas)
		if fault != nil {
			fault.Snippet = snippet(text[b.start:b.end])
			out.Faults = append(out.Faults, fault)
			continue
		}
		out.Calls = append(out.Calls, call)
	}
	if tags == 0 {
		out.Faults = append(out.Faults, &Fault{
			ParseError, fmt.Sprintf("the reply has %d or more <tool> tags; write fewer calls", maxTags), snippet(text[from:]),
		})
	}
	if len(out.Calls)+len(out.Faults) == 0 {
		out.Text = text
		return out
	}
	prose.WriteString(text[from:])
	out.Text = strings.TrimSpace(withoutEmptyFences(prose.String()))
	return out
}

// emptyFence is what is left of a fence when the call in it is taken out.
var emptyFence = regexp.MustCompile("```[A-Za-z]*[ \t\r\n]*```")

// withoutEmptyFences drops the fences that have nothing in them any more. Most texts have none: finding that out costs little.
func withoutEmptyFences(text string) string {
	if !strings.Contains(text, "```") {
		return text
	}
	return emptyFence.ReplaceAllString(text, "")
}

func snippet(text string) string {
	return clip.Text(strings.ToValidUTF8(text, "\uFFFD"), maxSnippet)
}

// parseBody reads a call. closed says that all of it has arrived.
func parseBody(body string, closed bool, schemas Schemas) (Call, *Fault) {
	body = unfenced(body)
	if strings.HasPrefix(body, "<") {
		return parseXML(body, schemas)
	}
	return parseJSON(body, closed)
}

func parseJSON(body string, closed bool) (Call, *Fault) {
	var w struct {
		Server    *string         `json:"server_name"`
		Tool      *string         `json:"tool_name"`
		Arguments json.RawMessage `json:"arguments"`
	}
	err := json.Unmarshal([]byte(body), &w)
	if err != nil {
		repaired, _, ok := toolcall.Repair(body, closed)
		if !ok || json.Unmarshal([]byte(repaired), &w) != nil {
			return Call{}, &Fault{Class: ParseError, Message: "the body is not a JSON object: " + err.Error()}
		}
	}
	var server, tool string
	if w.Server != nil {
		server = *w.Server
	}
	if w.Tool != nil {
		tool = *w.Tool
	}
	return newCall(server, tool, w.Arguments)
}

func newCall(server, tool string, arguments json.RawMessage) (Call, *Fault) {
	c := Call{Server: strings.TrimSpace(server), Tool: strings.TrimSpace(tool), Arguments: "{}"}
	switch {
	case c.Server == "" && c.Tool == "":
		return Call{}, &Fault{Class: MissingField, Message: "server_name and tool_name are missing"}
	case c.Server == "":
		return Call{}, &Fault{Class: MissingField, Message: "server_name is missing"}
	case c.Tool == "":
		return Call{}, &Fault{Class: MissingField, Message: "tool_name is missing"}
	}
	if len(arguments) == 0 || string(arguments) == jsonNull {
		return c, nil
	}
	var encoded string
	if json.Unmarshal(arguments, &encoded) == nil {
		arguments = json.RawMessage(encoded) // an object in a string, as some models write it
	}
	var object map[string]json.RawMessage
	if json.Unmarshal(arguments, &object) != nil || object == nil {
		return Call{}, &Fault{Class: InvalidArguments, Message: "arguments must be an object"}
	}
	c.Arguments = string(arguments)
	return c, nil
}
