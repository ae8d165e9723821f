package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"mime"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"agentd/sdk"
)

const (
	// ContentTypeStructured is the Content-Type header of every message that Encode made.
	ContentTypeStructured = "application/cloudevents+json"
	// MaxAttribute is the most bytes of UTF-8 that one attribute's value may have.
	MaxAttribute = 8 << 10
	// MaxExtensions is how many attributes beside those of this wire an event may have.
	MaxExtensions = 64
	// maxDataKeys is how many object members data may have in total: canonical JSON, and what agentd adds to it.
	maxDataKeys = MaxKeys + 64
)

// Members of the envelope that are not text, and the one that is always the same.
const (
	memberSpecVersion = "specversion"
	memberData        = "data"
	memberDataBase64  = "data_base64"
	memberTime        = "time"
	memberUnits       = "executionunits"
)

// timeLayout is how times are written: RFC 3339 in UTC with milliseconds.
const timeLayout = "2006-01-02T15:04:05.000Z"

// stringAttribute is an attribute of the envelope whose value is text.
type stringAttribute struct {
	name     string
	required bool
	of       func(*Event) *string
}

// stringAttributes are in the order that they are written in. dataschema is followed by data, time and the extensions,
// redirectto by executionunits.
var stringAttributes = []stringAttribute{
	{"id", true, func(e *Event) *string { return &e.ID }},
	{"source", true, func(e *Event) *string { return &e.Source }},
	{"type", true, func(e *Event) *string { return &e.Type }},
	{"subject", false, func(e *Event) *string { return &e.Subject }},
	{"datacontenttype", false, func(e *Event) *string { return &e.DataContentType }},
	{"dataschema", false, func(e *Event) *string { return &e.DataSchema }},
	{"to", false, func(e *Event) *string { return &e.To }},
	{"accesscontrol", false, func(e *Event) *string { return &e.AccessControl }},
	{"redirectto", false, func(e *Event) *string { return &e.RedirectTo }},
	{"traceparent", false, func(e *Event) *string { return &e.TraceParent }},
	{"tracestate", false, func(e *Event) *string { return &e.TraceState }},
	{"parentid", false, func(e *Event) *string { return &e.ParentID }},
	{"domain", false, func(e *Event) *string { return &e.Domain }},
	{"agent", false, func(e *Event) *string { return &e.Agent }},
}

// byName are the stringAttributes by their names.
var byName = func() map[string]*stringAttribute {
	m := make(map[string]*stringAttribute, len(stringAttributes))
	for i := range stringAttributes {
		m[stringAttributes[i].name] = &stringAttributes[i]
	}
	return m
}()

// ownMembers are the names of all members of the envelope that are not extensions, by themselves.
var ownMembers = func() map[string]string {
	m := map[string]string{}
	for _, name := range []string{memberSpecVersion, memberData, memberDataBase64, memberTime, memberUnits} {
		m[name] = name
	}
	for _, a := range stringAttributes {
		m[a.name] = a.name
	}
	return m
}()

// isOwnMember reports whether name is a member of the envelope and not an extension.
func isOwnMember(name string) bool { return ownMembers[name] != "" }

// Encode returns the event in structured mode (docs/wire.md, "Envelope"): one JSON object with every attribute, those
// without a value as null. Equal events have equal bytes: the order of members is fixed, extensions are sorted by name,
// and of Data only the white space is dropped. An empty DataContentType is written as ContentTypeJSON and empty Data as
// {}. An event that DecodeEvent would refuse is refused with CodeInvalidEvent and every fault.
func (e Event) Encode() ([]byte, error) {
	if e.DataContentType == "" {
		e.DataContentType = ContentTypeJSON
	}
	if len(e.Data) == 0 {
		e.Data = json.RawMessage("{}")
	}
	var f faults
	extensions := sortedNames(e.Extensions)
	e.check(&f, extensions)
	data := compactData(e.Data, &f)
	if err := f.err("event cannot be encoded"); err != nil {
		return nil, err
	}
	w := memberWriter{buffer: make([]byte, 0, e.size()+len(data))}
	w.text("id", e.ID)
	w.text("source", e.Source)
	w.text(memberSpecVersion, SpecVersion)
	w.text("type", e.Type)
	w.text("subject", e.Subject)
	w.text("datacontenttype", e.DataContentType)
	w.text("dataschema", e.DataSchema)
	w.name(memberData)
	w.buffer = append(w.buffer, data...)
	if e.Time.IsZero() {
		w.raw(memberTime, "null")
	} else {
		w.name(memberTime)
		w.buffer = e.Time.UTC().AppendFormat(w.buffer, `"`+timeLayout+`"`)
	}
	for _, name := range extensions {
		w.extension(name, e.Extensions[name])
	}
	w.text("to", e.To)
	w.text("accesscontrol", e.AccessControl)
	w.text("redirectto", e.RedirectTo)
	w.raw(memberUnits, e.ExecutionUnits.String())
	w.text("traceparent", e.TraceParent)
	w.text("tracestate", e.TraceState)
	w.text("parentid", e.ParentID)
	w.text("domain", e.Domain)
	w.text("agent", e.Agent)
	return w.close()
}

// size is about how many bytes the event has without its data, rather too many than too few.
func (e *Event) size() int {
	n := 512 // names, and what is short
	for i := range stringAttributes {
		n += len(*stringAttributes[i].of(e))
	}
	return n + 64*len(e.Extensions)
}

// MarshalJSON is Encode. The encoding/json package may escape more of the text than Encode does.
func (e Event) MarshalJSON() ([]byte, error) { return e.Encode() }

// UnmarshalJSON reads an event in structured mode, by the rules of DecodeEvent.
func (e *Event) UnmarshalJSON(text []byte) error {
	decoded, err := decodeStructured(text)
	if err != nil {
		return err
	}
	*e = decoded
	return nil
}

// memberWriter writes one JSON object.
type memberWriter struct {
	buffer []byte
	err    error
}

func (w *memberWriter) quoted(s string) {
	var err error
	if w.buffer, err = jsontext.AppendQuote(w.buffer, s); err != nil && w.err == nil {
		w.err = fmt.Errorf("quote %s: %w", quote(s), err)
	}
}

func (w *memberWriter) name(name string) {
	separator := byte(',')
	if len(w.buffer) == 0 {
		separator = '{'
	}
	w.buffer = append(w.buffer, separator, '"')
	w.buffer = append(w.buffer, name...) // nothing in it needs escaping: see isExtensionName
	w.buffer = append(w.buffer, '"', ':')
}

// text writes the empty text as null.
func (w *memberWriter) text(name, value string) {
	if value == "" {
		w.raw(name, "null")
		return
	}
	w.name(name)
	w.quoted(value)
}

func (w *memberWriter) raw(name, value string) {
	w.name(name)
	w.buffer = append(w.buffer, value...)
}

// extension writes a value that check has let through.
func (w *memberWriter) extension(name string, value any) {
	switch v := value.(type) {
	case string:
		w.name(name)
		w.quoted(v)
	case bool:
		w.raw(name, strconv.FormatBool(v))
	case json.Number:
		w.raw(name, v.String())
	default:
		w.raw(name, "null")
	}
}

func (w *memberWriter) close() ([]byte, error) {
	if w.err != nil {
		return nil, &sdk.Error{Code: sdk.CodeInternal, Message: "event cannot be encoded", Cause: w.err}
	}
	return append(w.buffer, '}'), nil
}

// check finds what is wrong with the values of attributes, among them the extensions, whose names are sorted; data is compactData's.
func (e *Event) check(f *faults, extensions []string) {
	for i := range stringAttributes {
		a := &stringAttributes[i]
		value := *a.of(e)
		if isPlain(value) && (value != "" || !a.required) {
			continue
		}
		path := "$." + a.name
		if value == "" && a.required && !f.has(path) {
			f.add(path, "a non-empty string", "nothing")
		}
		checkText(f, path, value)
	}
	if !isJSON(e.DataContentType) && !f.has("$.datacontenttype") {
		f.add("$.datacontenttype", "application/json or another JSON media type", quote(e.DataContentType))
	}
	if year := e.Time.UTC().Year(); year < 0 || year > 9999 {
		f.add("$.time", "a year from 0000 to 9999 in UTC", strconv.Itoa(year))
	}
	if n := len(extensions); n > MaxExtensions {
		f.add("$", fmt.Sprintf("at most %d extension attributes", MaxExtensions), strconv.Itoa(n))
		return
	}
	for _, name := range extensions {
		checkExtension(f, name, e.Extensions[name])
	}
}

func sortedNames(extensions map[string]any) []string {
	if len(extensions) == 0 {
		return nil
	}
	names := slices.AppendSeq(make([]string, 0, len(extensions)), maps.Keys(extensions))
	slices.Sort(names)
	return names
}

// isJSON reports whether a media type is that of JSON; an empty one is.
func isJSON(contentType string) bool {
	if contentType == "" || contentType == ContentTypeJSON {
		return true
	}
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && (media == ContentTypeJSON || strings.HasSuffix(media, "+json"))
}

func isExtensionName(name string) bool {
	for i := range len(name) {
		if c := name[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return 1 <= len(name) && len(name) <= 64
}

func checkExtension(f *faults, name string, value any) {
	if !isExtensionName(name) {
		f.add("$["+quote(name)+"]", "an attribute name of 1 to 64 of a-z and 0-9", quote(name))
		return
	}
	if text, ok := value.(string); ok && isPlain(text) && !isOwnMember(name) {
		return
	}
	path := "$." + name
	if isOwnMember(name) {
		f.add(path, "a field of the event", "an extension of that name")
		return
	}
	switch v := value.(type) {
	case string:
		checkText(f, path, v)
	case json.Number:
		checkText(f, path, v.String())
		if _, ok := parseDecimal(v.String()); !ok {
			f.add(path, "a JSON number", quote(v.String()))
		}
	case bool, nil:
	default:
		f.add(path, "a string, boolean, number or null", fmt.Sprintf("%T", value))
	}
}

// checkText holds every attribute to what CloudEvents allows in text: no control characters, which are also what could
// forge a line of a header or a log.
func checkText(f *faults, path, value string) {
	switch {
	case len(value) > MaxAttribute:
		f.add(path, fmt.Sprintf("at most %d bytes", MaxAttribute), fmt.Sprintf("%d", len(value)))
	case !utf8.ValidString(value):
		f.add(path, "valid UTF-8", quote(value))
	default:
		if i := strings.IndexFunc(value, unicode.IsControl); i >= 0 {
			f.add(path, "text without control characters", fmt.Sprintf("one at byte %d", i))
		}
	}
}

// CheckAttribute reports what keeps a text, which is found at path, from being an attribute's value: CodeInvalidEvent.
func CheckAttribute(path, text string) error {
	var f faults
	checkText(&f, path, text)
	return f.err("the text cannot be that of an attribute")
}

// isPlain reports whether a text is what most attributes are: short, and of printable ASCII.
func isPlain(text string) bool {
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return false
		}
	}
	return len(text) <= MaxAttribute
}

// CheckData reports what keeps data from being that of an event that agentd publishes: CodeTooLarge, or CodeInvalidEvent
// with every fault.
func CheckData(data []byte) error {
	if len(data) > MaxData {
		return sdk.Errorf(sdk.CodeTooLarge, "the data has %d bytes, more than %d", len(data), MaxData)
	}
	var f faults
	compactData(data, &f)
	return f.err("the data is not that of an event")
}

// compactData checks that data is one JSON object and drops its white space. Numbers and strings keep their text. What it
// returns may be data itself.
func compactData(data []byte, f *faults) json.RawMessage {
	if len(data) == 2 && data[0] == '{' && data[1] == '}' {
		return json.RawMessage("{}")
	}
	value := jsontext.Value(data)
	if value.Kind() == '{' && withinBounds(data) && value.IsValid() {
		return compacted(value, f)
	}
	s := scan{root: "$.data", maxDepth: MaxDepth, maxKeys: maxDataKeys}
	s.run(data)
	if kind := value.Kind(); len(s.list) == 0 && kind != '{' {
		s.add("$.data", "an object", kindName(kind))
	}
	if len(s.list) > 0 {
		for _, fault := range s.list {
			f.add(fault.Path, fault.Expected, fault.Got)
		}
		return nil
	}
	return compacted(value, f)
}

// compacted is a valid object without its white space. It may be value itself.
func compacted(value jsontext.Value, f *faults) json.RawMessage {
	if bytes.ContainsAny(value, " \t\r\n") {
		value = value.Clone()
		if err := value.Compact(); err != nil {
			f.add("$.data", "valid JSON", err.Error())
		}
	}
	return json.RawMessage(value)
}

// kindName says what a JSON value is, in an error.
func kindName(kind jsontext.Kind) string {
	switch kind {
	case 'n':
		return "null"
	case 't', 'f':
		return "a boolean"
	case '"':
		return "a string"
	case '0':
		return "a number"
	case '{':
		return "an object"
	case '[':
		return "an array"
	default:
		return "nothing"
	}
}

var timePattern = regexp.MustCompile(
	`^(\d{4}-\d{2}-\d{2})[Tt ](\d{2}:\d{2})(:\d{2}(?:\.\d+)?)?(?:([Zz])|([+-]\d{2}):?(\d{2}))?$`)

// parseTime reads RFC 3339 and what is often taken for it: without seconds, with an offset without its colon (Arvo), with
// a space for the T (date), and without an offset, which is read as UTC (Python). Nothing is decided by a peer's time, so
// an event is not lost for it. The result is in UTC; what is finer than a nanosecond is dropped.
func parseTime(text string) (time.Time, bool) {
	if len(text) == len(timeLayout) && text[len("2006-01-02T15:04:05")] == '.' { // as Encode writes it
		if t, err := time.Parse(timeLayout, text); err == nil {
			return t, true
		}
	}
	m := timePattern.FindStringSubmatch(text)
	if m == nil {
		return time.Time{}, false
	}
	seconds, offset := m[3], "Z"
	if seconds == "" {
		seconds = ":00"
	}
	if m[5] != "" {
		offset = m[5] + ":" + m[6]
	}
	t, err := time.Parse(time.RFC3339Nano, m[1]+"T"+m[2]+seconds+offset)
	return t.UTC(), err == nil
}
