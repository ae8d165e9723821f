package wire

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"
)

// Sender reads of a message that DecodeEvent refuses what an answer to it needs: who sent it (ID and Source), what it is about, and
// what is carried on. All else is absent. ok says that id and source are there, each once: the answer reaches somebody.
func Sender(headers map[string][]string, body []byte) (e Event, ok bool) {
	var f faults
	attributes, contentType := readHeaders(headers, &f)
	structured, err := isStructured(attributes, contentType)
	if err != nil {
		return Event{}, false
	}
	if structured {
		attributes = readableMembers(body)
	}
	for name, to := range map[string]*string{
		"id": &e.ID, "source": &e.Source, "type": &e.Type, "subject": &e.Subject, "redirectto": &e.RedirectTo,
		"accesscontrol": &e.AccessControl, "traceparent": &e.TraceParent, "tracestate": &e.TraceState,
	} {
		var bad faults
		if checkText(&bad, name, attributes[name]); len(bad.list) == 0 {
			*to = attributes[name]
		}
	}
	return e, e.ID != "" && e.Source != ""
}

// readableMembers are the members of an object that are texts and occur once, as far as the object can be read.
func readableMembers(object []byte) map[string]string {
	texts, seen := map[string]string{}, map[string]bool{}
	decoder := jsontext.NewDecoder(bytes.NewReader(object), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if token, err := decoder.ReadToken(); err != nil || token.Kind() != '{' {
		return nil
	}
	for decoder.PeekKind() == '"' {
		token, err := decoder.ReadToken()
		if err != nil {
			break
		}
		name := token.String()
		value, err := decoder.ReadValue()
		if err != nil {
			break
		}
		text, err := jsontext.AppendUnquote(nil, value) // fails for what is not a text
		if err == nil && !seen[name] {
			texts[name] = string(text)
		} else {
			delete(texts, name)
		}
		seen[name] = true
	}
	return texts
}
