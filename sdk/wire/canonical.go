package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"agentd/internal/clip"
	"agentd/internal/jsonread"
	"agentd/sdk"
)

const (
	// MaxDepth is how deep the data of an event, and all canonical JSON, may nest objects and arrays.
	MaxDepth = 64
	// MaxKeys is how many object members canonical JSON may have in total.
	MaxKeys = 10000
	// MaxData is the most bytes of data that agentd publishes in one event: with attributes they fit into a message of a NATS
	// server with the default settings, 1 MiB.
	MaxData = 896 << 10
)

// Canonicalize returns the canonical form of a JSON value by RFC 8785: the form that call ids cover and that tools run
// from. What would change its meaning, or mean different things to different parsers, is refused with CodeInvalidEvent
// and one fault per place: names that occur twice in an object, invalid UTF-8, numbers that a float64 cannot hold,
// nesting beyond MaxDepth and more than MaxKeys members. raw is not modified.
func Canonicalize(raw []byte) (json.RawMessage, error) {
	s := scan{root: "$", maxDepth: MaxDepth, maxKeys: MaxKeys, numbers: true}
	s.run(raw)
	if err := s.err("JSON has no canonical form"); err != nil {
		return nil, err
	}
	value := jsontext.Value(bytes.Clone(raw))
	if err := value.Canonicalize(); err != nil {
		return nil, sdk.Errorf(sdk.CodeInvalidEvent, "JSON has no canonical form").WithCause(err)
	}
	return json.RawMessage(value), nil
}

// scan reads a JSON text once and collects what is wrong with it. Duplicate names and invalid UTF-8 are always wrong.
type scan struct {
	faults
	// root is the path of the text's value.
	root string
	// maxDepth and maxKeys bound the value; 0 is unbounded.
	maxDepth, maxKeys int
	// numbers refuses numbers that a float64 cannot hold.
	numbers bool

	decoder *jsonread.Decoder
	keys    int
}

// run scans text, which must be exactly one value. It goes on after a bad number and stops at what makes the rest
// unreadable or too large to read.
func (s *scan) run(text []byte) {
	s.decoder = jsonread.Of(text)
	defer s.decoder.Done()
	for values := 0; ; {
		token, err := s.decoder.ReadToken()
		switch {
		case errors.Is(err, io.EOF) && values == 1:
			return
		case errors.Is(err, io.EOF):
			s.add(s.root, "a JSON value", "nothing")
			return
		case err != nil:
			s.syntax(err)
			return
		case values == 1:
			s.add(s.root, "one JSON value", "more after it")
			return
		}
		if !s.token(token) {
			return
		}
		if s.decoder.StackDepth() == 0 {
			values++
		}
	}
}

// withinBounds reports, from what is quickly counted, that JSON is as shallow and has as few members as data must. It
// may not notice that it is so.
func withinBounds(text []byte) bool {
	return bytes.Count(text, []byte{'{'})+bytes.Count(text, []byte{'['}) <= MaxDepth &&
		bytes.Count(text, []byte{':'}) <= maxDataKeys
}

// token reports whether to go on.
func (s *scan) token(token jsontext.Token) bool {
	depth := s.decoder.StackDepth()
	switch token.Kind() {
	case '{', '[':
		if s.maxDepth > 0 && depth > s.maxDepth {
			s.add(s.path(s.decoder.StackPointer()), fmt.Sprintf("at most %d levels of nesting", s.maxDepth), "more")
			return false
		}
	case '"':
		if kind, length := s.decoder.StackIndex(depth); kind != '{' || length%2 == 0 {
			return true // a value, not a name
		}
		if s.keys++; s.maxKeys > 0 && s.keys > s.maxKeys {
			s.add(s.root, fmt.Sprintf("at most %d object members in total", s.maxKeys), "more")
			return false
		}
	case '0':
		if text := token.String(); s.numbers && !exactFloat(text) {
			s.add(s.path(s.decoder.StackPointer()), "a number that a 64-bit float holds exactly", clip.Text(text, maxShown))
		}
	default:
	}
	return true
}

func (s *scan) syntax(err error) {
	syntactic, ok := errors.AsType[*jsontext.SyntacticError](err)
	if !ok {
		s.add(s.root, "valid JSON in UTF-8", err.Error())
		return
	}
	if errors.Is(err, jsontext.ErrDuplicateName) {
		s.add(s.path(syntactic.JSONPointer), "each name once in an object", "twice")
		return
	}
	got := fmt.Sprintf("%v at byte %d", syntactic.Err, syntactic.ByteOffset)
	s.add(s.path(syntactic.JSONPointer), "valid JSON in UTF-8", got)
}

var plainName = regexp.MustCompile(`^[A-Za-z_$][A-Za-z0-9_$-]*$`)

// path turns a JSON pointer into the form of Fault.Path. The pointer must be the decoder's own: only its stack tells an
// array's index from a name of digits.
func (s *scan) path(pointer jsontext.Pointer) string {
	var b strings.Builder
	b.WriteString(s.root)
	depth := 0
	for token := range pointer.Tokens() {
		depth++
		isIndex := false
		if depth <= s.decoder.StackDepth() {
			kind, _ := s.decoder.StackIndex(depth)
			isIndex = kind == '['
		}
		switch {
		case isIndex:
			b.WriteString("[" + token + "]")
		case plainName.MatchString(token):
			b.WriteString("." + token)
		default:
			b.WriteString("[" + strconv.Quote(token) + "]")
		}
		if b.Len() > maxShown {
			break
		}
	}
	return b.String()
}

// exactFloat reports whether the shortest text of the nearest float64 has the same decimal value as the JSON number.
func exactFloat(text string) bool {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return false
	}
	want, ok := parseDecimal(text)
	have, _ := parseDecimal(strconv.FormatFloat(f, 'e', -1, 64)) // finite, so always of the grammar
	return ok && want == have
}
