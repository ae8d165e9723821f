package texttools

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

const (
	listOpen  = "<|tool_call_start|>"
	listClose = "<|tool_call_end|>"
)

// bracket are lists of calls, [name(key="value", count=1)], on lines of their own or between the markers of such models. Without the
// markers, a list that cannot be read is a call only where it names a tool.
var bracket = lines{
	rules: `To use a tool, end your reply with a list of calls:
` + listOpen + `[tool_name(name="value", count=1)]` + listClose + `
- Every argument has a name and a value: a string in quotes, a number, True, False, None, a list or an object, as the tool's schema says.
- Call one tool in a reply, and wait for its result before the next.
- Say shortly why before you call. Do not mention tools by name to the person you talk to.
- Write ` + listOpen + ` only to call a tool.`,
	remedy:  listOpen + `[tool_name(name="value")]` + listClose + ".",
	written: listed,
	begins:  regexp.MustCompile(`^[ \t]*\[[ \t]*(` + name + `)\(`),
	partial: regexp.MustCompile(`^[ \t]*(?:\[[ \t]*(?:` + name + `)?)$`),
	marker:  listOpen,
	read:    readBracket,
}

func readBracket(text string, schemas Schemas) found {
	rest, marked := strings.CutPrefix(text, listOpen)
	start := len(text) - len(rest) + len(rest) - len(strings.TrimLeft(rest, space))
	calls, length, fault := list(text[start:])
	if marked {
		return markedList(text, start, calls, length, fault)
	}
	line := text[start+length:]
	line = strings.TrimRight(firstLine(line), "\r\n")
	known := len(calls) > 0 && schemas != nil && schemas("", calls[0].Tool) != nil
	if length == 0 || strings.TrimSpace(line) != "" || fault != nil && !known {
		return found{}
	}
	if fault != nil {
		calls = nil
	}
	return found{calls: calls, fault: fault, length: start + length}
}

// markedList is a list after its marker, which ends at the other one.
func markedList(text string, start int, calls []Call, length int, fault *Fault) found {
	end := start + length
	after := strings.TrimLeft(text[end:], space)
	switch {
	case length == 0:
		f := found{fault: fault, length: len(text), open: true}
		if closed := strings.Index(text, listClose); closed >= 0 {
			f.length, f.open = closed+len(listClose), false
		}
		return f
	case strings.HasPrefix(after, listClose):
		end = len(text) - len(after) + len(listClose)
	}
	if fault != nil {
		calls = nil
	}
	return found{calls: calls, fault: fault, length: end}
}

var (
	callOpen = regexp.MustCompile(`^(` + name + `)\(`)
	argument = regexp.MustCompile(`^\s*("(?:[^"\\]|\\.)*"|[^\s=(),"']+)\s*=`)
)

// list reads a list of calls. Its length is 0 where there is none; with a fault, the calls before the faulty one, and that one's name, are
// returned too.
func list(text string) (calls []Call, length int, fault *Fault) {
	unreadable := &Fault{Class: ParseError, Message: "the text is not a list of calls"}
	rest, begins := strings.CutPrefix(text, "[")
	for begins {
		rest = strings.TrimLeft(rest, space)
		open := callOpen.FindStringSubmatch(rest)
		if open == nil {
			return nil, 0, unreadable
		}
		rest = rest[len(open[1]):]
		end := balanced(rest)
		if end == 0 {
			return nil, 0, unreadable
		}
		arguments, wrong := keywords(rest[1 : end-1])
		if fault == nil {
			calls, fault = append(calls, Call{Tool: open[1], Arguments: arguments}), wrong
		}
		rest = strings.TrimLeft(rest[end:], space)
		if after, closes := strings.CutPrefix(rest, "]"); closes {
			return calls, len(text) - len(after), fault
		}
		rest, begins = strings.CutPrefix(rest, ",")
	}
	return nil, 0, unreadable
}

// keywords is the JSON object of what stands in the brackets of a call.
func keywords(text string) (string, *Fault) {
	var out strings.Builder
	out.WriteByte('{')
	for rest := strings.TrimSpace(text); rest != ""; {
		key := argument.FindStringSubmatch(rest)
		if key == nil {
			return "", &Fault{Class: InvalidArguments, Message: "every argument must have a name: name=value"}
		}
		rest = rest[len(key[0]):]
		value := rest[:untilComma(rest)]
		rest = strings.TrimSpace(strings.TrimPrefix(rest[len(value):], ","))
		if out.Len() > 1 {
			out.WriteByte(',')
		}
		named := key[1]
		if named[0] != '"' {
			quoted, err := json.Marshal(named)
			if err != nil {
				return "", notAnObject() // a string is JSON
			}
			named = string(quoted)
		}
		out.WriteString(named + ":" + strings.TrimSpace(value))
	}
	out.WriteByte('}')
	arguments, ok := repaired(out.String(), false)
	if !ok {
		return "", &Fault{Class: ParseError, Message: "a value is neither a string in quotes nor a number, True, False, None, a list or an object"}
	}
	return arguments, nil
}

// untilComma is where the next comma stands, outside of brackets and quotation marks, or the end.
func untilComma(text string) int {
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case ',':
			return i
		case '"', '\'':
			end := quotedEnd(text[i:])
			if end == 0 {
				return len(text)
			}
			i += end - 1
		case '{', '[', '(':
			end := balanced(text[i:])
			if end == 0 {
				return len(text)
			}
			i += end - 1
		}
	}
	return len(text)
}

// quotedEnd is the length of the string that a text begins with, with its quotation marks; 0 is one that does not end.
func quotedEnd(text string) int {
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case text[0]:
			return i + 1
		}
	}
	return 0
}

// listed is a call as the model should have written it.
func listed(_, tool string, arguments json.RawMessage) string {
	var written []string
	decoder := json.NewDecoder(strings.NewReader(string(arguments)))
	_, err := decoder.Token() // the bracket
	for err == nil && decoder.More() {
		var key json.Token
		var value json.RawMessage
		if key, err = decoder.Token(); err == nil {
			err = decoder.Decode(&value)
		}
		if !argument.MatchString(fmt.Sprint(key) + "=") {
			key = fmt.Sprintf("%q", key)
		}
		written = append(written, fmt.Sprintf("%v=%s", key, value))
	}
	return fmt.Sprintf("%s[%s(%s)]%s", listOpen, tool, strings.Join(written, ", "), listClose)
}
