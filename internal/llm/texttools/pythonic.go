package texttools

import (
	"encoding/json"
	"regexp"
	"strings"

	"agentd/internal/toolcall"
)

// pythonic are calls of two lines, "Tool: name" and "Arguments: {…}". The second may be missing where there is a tool of that name.
var pythonic = lines{
	rules: `To use a tool, end your reply with two lines, outside of any code block:
Tool: the tool's name
Arguments: {"name": "value"}
- The arguments are a JSON object that fits the tool's schema.
- Call one tool in a reply, and wait for its result before the next.
- Say shortly why before you call. Do not mention tools by name to the person you talk to.
- Begin a line with "Tool:" only to call a tool.`,
	remedy: "two lines, \"Tool: …\" and \"Arguments: {…}\", with valid JSON.",
	written: func(_, tool string, arguments json.RawMessage) string {
		return "Tool: " + tool + "\nArguments: " + string(arguments)
	},
	begins:  toolLine,
	partial: regexp.MustCompile(`^[ \t]*(?:T|To|Too|Tool|Tool:[ \t]*|Tool:[ \t]*` + name + `[ \t]*\r?)$`),
	read:    readPythonic,
}

// name is one of a tool, behind its server's where there is one.
const name = `[A-Za-z_][A-Za-z0-9_.-]{0,127}`

// argumentsLabel begins the line of the arguments.
const argumentsLabel = "Arguments:"

var (
	toolLine      = regexp.MustCompile(`^[ \t]*Tool:[ \t]*(` + name + `)[ \t]*(?:\r?\n|$)`)
	argumentsLine = regexp.MustCompile(`^\s*` + argumentsLabel + `\s*`)
)

func readPythonic(text string, schemas Schemas) found {
	first := toolLine.FindStringSubmatchIndex(text)
	if first == nil {
		return found{}
	}
	tool := text[first[2]:first[3]]
	label := argumentsLine.FindString(text[first[1]:])
	if label == "" {
		if schemas == nil || schemas("", tool) == nil {
			return found{}
		}
		begun := strings.HasPrefix(argumentsLabel, strings.TrimSpace(text[first[1]:])) // where the reply was cut off, its arguments would have come
		return found{calls: []Call{{Tool: tool, Arguments: "{}"}}, length: first[1], open: begun}
	}
	start := first[1] + len(label)
	body := text[start:]
	if !strings.HasPrefix(body, "{") {
		return found{fault: notAnObject(), length: start + len(strings.TrimRight(firstLine(body), "\r\n"))}
	}
	length := balanced(body)
	open := length == 0
	if open {
		length = len(body)
	}
	f := found{length: start + length, open: open}
	if arguments, ok := repaired(body[:length], true); ok {
		f.calls = []Call{{Tool: tool, Arguments: arguments}}
	} else {
		f.fault = &Fault{Class: ParseError, Message: "the arguments are not a JSON object"}
	}
	return f
}

func notAnObject() *Fault {
	return &Fault{Class: InvalidArguments, Message: "arguments must be an object"}
}

// repaired is the JSON that a text is, or almost is; whole says that all of it arrived.
func repaired(text string, whole bool) (string, bool) {
	if !json.Valid([]byte(text)) {
		almost, _, ok := toolcall.Repair(text, whole)
		if !ok {
			return "", false
		}
		text = almost
	}
	return text, true
}

// balanced is the length of what stands in brackets of any kind at the beginning of a text, with them; 0 is what does not end. Brackets
// within quotation marks do not count.
func balanced(text string) int {
	depth := 0
	var quote byte
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quote != 0 && c == '\\':
			i++
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"', c == '\'':
			quote = c
		case c == '{', c == '[', c == '(':
			depth++
		case c == '}', c == ']', c == ')':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return 0
}
