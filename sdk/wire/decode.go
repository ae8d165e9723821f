package wire

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"agentd/internal/jsonread"
	"agentd/sdk"
)

const messageRefused = "message is not an event of this wire"

// DecodeEvent reads an event from a message's headers (any spelling of their names; a nats.Header will do) and body, by
// the CloudEvents binding for NATS. A Content-Type of application/cloudevents, or the absence of any "ce-" header, means
// structured mode; otherwise the "ce-" headers carry the attributes and the body is the data. No other header is
// looked at. Absent data becomes {}, an absent datacontenttype ContentTypeJSON, and Data is compact.
// Errors have CodeInvalidEvent and list every fault.
func DecodeEvent(headers map[string][]string, body []byte) (Event, error) {
	var f faults
	attributes, contentType := readHeaders(headers, &f)
	if f.has("$.content-type") {
		return Event{}, f.err(messageRefused)
	}
	structured, err := isStructured(attributes, contentType)
	switch {
	case err != nil:
		return Event{}, err
	case structured:
		return decodeStructured(body)
	}
	return decodeBinary(attributes, body, &f)
}

// isStructured reports which mode a message is in. The error is that of a mode which is not read.
func isStructured(attributes map[string]string, contentType string) (bool, error) {
	if contentType == ContentTypeStructured {
		return true, nil
	}
	media, _, err := mime.ParseMediaType(contentType)
	if err != nil { // what precedes broken parameters decides all the same
		media, _, _ = strings.Cut(contentType, ";")
		media = strings.ToLower(strings.TrimSpace(media))
	}
	switch {
	case strings.HasPrefix(media, "application/cloudevents-batch"):
		return false, sdk.Errorf(sdk.CodeInvalidEvent, "batch mode does not exist on NATS: send one event a message")
	case media == "application/cloudevents", media == ContentTypeStructured:
		return true, nil
	case strings.HasPrefix(media, "application/cloudevents"):
		return false, sdk.Errorf(sdk.CodeInvalidEvent, "event format %s: only %s is read", quote(media), ContentTypeStructured)
	}
	return len(attributes) == 0, nil
}

// decodeStructured reads the JSON event format. Most events are read once: only those that may break a rule of JSON are
// scanned before.
func decodeStructured(body []byte) (Event, error) {
	if withinBounds(body) {
		d := eventDecoder{small: true}
		if d.members(body) == nil {
			return d.finish()
		}
	}
	return decodeScanned(body)
}

// decodeScanned is decodeStructured that finds every place where a rule of JSON is broken.
func decodeScanned(body []byte) (Event, error) {
	// The envelope's own object is one level above data, and its members are not data's.
	s := scan{root: "$", maxDepth: MaxDepth + 1, maxKeys: maxDataKeys + 2*MaxExtensions}
	s.run(body)
	if kind := jsontext.Value(body).Kind(); len(s.list) == 0 && kind != '{' {
		s.add("$", "an object with the attributes of an event", kindName(kind))
	}
	if err := s.err(messageRefused); err != nil {
		return Event{}, err
	}
	d := eventDecoder{small: s.keys <= maxDataKeys}
	if err := d.members(body); err != nil {
		return Event{}, &sdk.Error{Code: sdk.CodeInvalidEvent, Message: messageRefused, Cause: err}
	}
	return d.finish()
}

// eventDecoder fills an event member by member.
type eventDecoder struct {
	event Event
	faults
	versioned, hasData bool
	// small says that the envelope keeps to the bounds of data: members and depth.
	small bool
}

// members reads the object in text. Its error says that text is not an object, or breaks a rule of JSON that scan knows, but for
// the bounds.
func (d *eventDecoder) members(text []byte) error {
	decoder := jsonread.Of(text)
	defer decoder.Done()
	if token, err := decoder.ReadToken(); err != nil || token.Kind() != '{' {
		return fmt.Errorf("read envelope: %w", cmp.Or(err, errNoObject))
	}
	for decoder.PeekKind() == '"' {
		quoted, err := decoder.ReadValue()
		if err != nil {
			return fmt.Errorf("read name: %w", err)
		}
		name := memberName(quoted) // before the next read, which invalidates quoted
		value, err := decoder.ReadValue()
		if err != nil {
			return fmt.Errorf("read value: %w", err)
		}
		d.member(name, value)
	}
	if _, err := decoder.ReadToken(); err != nil {
		return fmt.Errorf("read end of envelope: %w", err)
	}
	if _, err := decoder.ReadToken(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("read what follows the envelope: %w", cmp.Or(err, errNoObject))
	}
	return nil
}

var errNoObject = errors.New("it is not one object")

// memberName is the name in a valid JSON string. Those of our own members need no memory.
func memberName(quoted jsontext.Value) string {
	if name, own := ownMembers[string(quoted[1:len(quoted)-1])]; own {
		return name
	}
	return unquoteJSON(quoted)
}

// member reads one member of the structured form. value is only valid during the call.
func (d *eventDecoder) member(name string, value jsontext.Value) {
	kind := value.Kind()
	switch name {
	case memberData:
		switch {
		case kind == '{' && d.small && !d.hasData: // scan has seen all that could be wrong with it
			d.hasData = true
			d.event.Data = bytes.Clone(compacted(value, &d.faults))
		case kind != 'n':
			d.data(value)
		}
		return
	case memberDataBase64:
		if kind != 'n' {
			d.base64("$."+name, value)
		}
		return
	case memberUnits:
		if kind != '0' && kind != 'n' {
			d.add("$."+name, "a number or null", kindName(kind))
		} else if kind == '0' {
			d.units("$."+name, string(value))
		}
		return
	}
	switch {
	case kind == '"':
		d.text(name, unquoteJSON(value))
	case kind == 'n' && isOwnMember(name): // absent
	case isOwnMember(name):
		d.add("$."+name, ownExpected(name), kindName(kind))
	case kind == 'n':
		d.extension(name, nil)
	case kind == '0':
		d.extension(name, json.Number(value))
	case kind == 't' || kind == 'f':
		d.extension(name, kind == 't')
	default:
		d.add("$."+name, "a string, boolean, number or null", kindName(kind))
	}
}

// ownExpected says what a member of the envelope should have been.
func ownExpected(name string) string {
	if name == memberSpecVersion {
		return `"1.0"`
	}
	if a := byName[name]; a != nil && a.required {
		return "a non-empty string"
	}
	return "a string or null"
}

// unquoteJSON returns the text of a valid JSON string. What nearly every event has needs no memory.
func unquoteJSON(value jsontext.Value) string {
	switch string(value[1 : len(value)-1]) {
	case SpecVersion:
		return SpecVersion
	case ContentTypeJSON:
		return ContentTypeJSON
	}
	if bytes.IndexByte(value, '\\') < 0 && utf8.Valid(value) {
		return string(value[1 : len(value)-1])
	}
	text, err := jsontext.AppendUnquote(nil, value)
	if err != nil {
		panic(fmt.Sprintf("sdk: a valid string is invalid: %v", err))
	}
	return string(text)
}

// text sets an attribute that is given as text, as all are in binary mode.
func (d *eventDecoder) text(name, value string) {
	switch name {
	case memberSpecVersion:
		if d.versioned = true; value != SpecVersion {
			d.add("$."+name, `"1.0"`, quote(value))
		}
	case memberTime:
		if value == "" {
			return
		}
		t, ok := parseTime(value)
		if !ok {
			d.add("$."+name, "a time such as 2026-11-21T02:58:44.408Z", quote(value))
		}
		d.event.Time = t
	case memberUnits:
		if value != "" {
			d.units("$."+name, value)
		}
	case memberData, memberDataBase64:
		d.add("$."+name, "the message's body", "an attribute of that name")
	default:
		if a := byName[name]; a != nil {
			*a.of(&d.event) = value
			return
		}
		d.extension(name, value)
	}
}

func (d *eventDecoder) extension(name string, value any) {
	if d.event.Extensions == nil {
		d.event.Extensions = map[string]any{}
	}
	d.event.Extensions[name] = value
}

func (d *eventDecoder) units(path, text string) {
	units, err := ParseUnits(text)
	if err != nil {
		d.add(path, "a number from -9223372036854 to 9223372036854", quote(text))
	}
	d.event.ExecutionUnits = units
}

func (d *eventDecoder) data(text []byte) {
	if d.hasData {
		d.add("$.data", "data or data_base64", "both")
		return
	}
	d.hasData = true
	d.event.Data = bytes.Clone(compactData(text, &d.faults))
}

// base64 reads data that a peer sent as bytes, as CloudEvents SDKs do when they are given bytes.
func (d *eventDecoder) base64(path string, value jsontext.Value) {
	if kind := value.Kind(); kind != '"' {
		d.add(path, "a string", kindName(kind))
		return
	}
	data, err := base64.StdEncoding.DecodeString(unquoteJSON(value))
	if err != nil {
		d.add(path, "base64", err.Error())
		return
	}
	d.data(data)
}

// finish fills in what may be absent and returns the event, or every fault.
func (d *eventDecoder) finish() (Event, error) {
	if !d.versioned && !d.has("$.specversion") {
		d.add("$.specversion", `"1.0"`, "nothing")
	}
	if len(d.event.Data) == 0 {
		d.event.Data = json.RawMessage("{}")
	}
	if d.event.DataContentType == "" {
		d.event.DataContentType = ContentTypeJSON
	}
	d.event.check(&d.faults, sortedNames(d.event.Extensions))
	if err := d.err(messageRefused); err != nil {
		return Event{}, err
	}
	return d.event, nil
}

// readHeaders returns the values of the "ce-" headers by lower-case attribute name, and the Content-Type. An attribute in several
// headers has no value. What is not percent-encoded is read as it stands, but in an attribute that every event has: two spellings are
// not to name one event.
func readHeaders(headers map[string][]string, f *faults) (attributes map[string]string, contentType string) {
	var read []string
	for header := range headers {
		if strings.EqualFold(header, "content-type") || len(header) >= len("ce-") && strings.EqualFold(header[:len("ce-")], "ce-") {
			read = append(read, header)
		}
	}
	slices.Sort(read)
	attributes, seen := map[string]string{}, map[string]bool{}
	for _, header := range read {
		name := strings.ToLower(header)
		attribute, isAttribute := strings.CutPrefix(name, "ce-")
		path, values := "$."+attribute, headers[header]
		if len(values) != 1 || seen[name] {
			f.add(path, "one header", "several, or one without a value")
		}
		if seen[name] || len(values) != 1 {
			delete(attributes, attribute)
			seen[name] = true
			continue
		}
		seen[name] = true
		if !isAttribute {
			contentType = values[0]
			continue
		}
		value, encoded := decodeHeader(values[0])
		if own := byName[attribute]; !encoded && own != nil && own.required {
			f.add(path, "percent-encoded UTF-8", quote(values[0]))
		}
		attributes[attribute] = value
	}
	return attributes, contentType
}

// decodeBinary reads an event whose attributes came as headers.
func decodeBinary(attributes map[string]string, body []byte, f *faults) (Event, error) {
	d := eventDecoder{faults: *f}
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		d.text(name, attributes[name])
	}
	if body = bytes.TrimSpace(body); len(body) > 0 && string(body) != "null" {
		d.data(body)
	}
	return d.finish()
}

// decodeHeader undoes the encoding of a header value: double quotes, which older senders use, then percent signs, once. encoded says
// that there was nothing wrong with it. Otherwise the text is what a sender that encodes nothing means: a "%" without two digits is
// itself, what does not decode to UTF-8 stays as it came, and bytes that are not UTF-8 are Latin-1, as in HTTP.
func decodeHeader(value string) (text string, encoded bool) {
	value, encoded = strings.Trim(value, " \t"), true
	if len(value) >= 2 && value[0] == '"' && value[len(value)-1] == '"' {
		if unquoted, ok := unquoteHeader(value[1 : len(value)-1]); ok {
			value = unquoted
		} else {
			encoded = false
		}
	}
	var b strings.Builder
	for i := 0; i < len(value); i++ {
		if value[i] == '%' && i+2 < len(value) {
			if high, low := hexDigit(value[i+1]), hexDigit(value[i+2]); high >= 0 && low >= 0 {
				b.WriteByte(byte(high<<4 | low))
				i += 2
				continue
			}
		}
		encoded = encoded && value[i] != '%'
		b.WriteByte(value[i])
	}
	switch {
	case utf8.ValidString(b.String()):
		return b.String(), encoded
	case utf8.ValidString(value):
		return value, false
	}
	return latin1(value), false
}

func latin1(bytes string) string {
	var b strings.Builder
	for i := range len(bytes) {
		b.WriteRune(rune(bytes[i]))
	}
	return b.String()
}

// unquoteHeader undoes the backslashes of a quoted string (RFC 7230 §3.2.6).
func unquoteHeader(s string) (string, bool) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '"':
			return "", false
		case s[i] == '\\' && i+1 == len(s):
			return "", false
		case s[i] == '\\':
			i++
		}
		b.WriteByte(s[i])
	}
	return b.String(), true
}

func hexDigit(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}
