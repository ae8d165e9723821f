package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"agentd/internal/clip"
	"agentd/internal/jsonread"
	"agentd/sdk"
	"agentd/sdk/wire"
)

const (
	// maxExponent and maxNumber bound the numbers that validators see: they calculate exactly, and an exponent of a few
	// digits would make them calculate with millions.
	maxExponent = 400
	maxNumber   = 1024 // characters
)

// decode reads one JSON value of at most sdk.MaxDepth levels, with numbers as they are written (json.Number). Unlike
// encoding/json it refuses repeated names and invalid UTF-8.
func decode(raw []byte) (any, []sdk.Fault) {
	r := reader{decoder: jsonread.Of(raw)}
	defer r.decoder.Done()
	doc, err := r.value()
	if err == nil {
		if _, err = r.decoder.ReadToken(); err == nil {
			err = &jsontext.SyntacticError{Err: errors.New("more than one value")}
		}
	}
	if !errors.Is(err, io.EOF) {
		return nil, []sdk.Fault{r.syntaxFault(err)}
	}
	if len(raw) == 0 || doc == nil && len(bytes.TrimSpace(raw)) == 0 {
		return nil, []sdk.Fault{{Path: "$", Expected: "a JSON value", Got: gotNothing}}
	}
	faults := make([]sdk.Fault, 0, len(r.numbers))
	for _, at := range r.numbers {
		value, _ := lookup(doc, at)
		faults = append(faults, sdk.Fault{
			Path: pathOf(doc, at), Expected: "a number that a 64-bit float can hold", Got: show(value),
		})
	}
	return doc, faults
}

type reader struct {
	decoder *jsonread.Decoder
	at      []string
	// numbers are the places of numbers that cannot be calculated with.
	numbers [][]string
}

var errTooDeep = errors.New("nested too deeply")

func (r *reader) syntaxFault(err error) sdk.Fault {
	if errors.Is(err, errTooDeep) {
		return sdk.Fault{Path: "$", Expected: fmt.Sprintf("at most %d levels of nesting", wire.MaxDepth), Got: "more"}
	}
	got := err.Error()
	if syntactic, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		got = syntactic.Err.Error()
		if syntactic.ByteOffset > 0 {
			got += " at byte " + strconv.FormatInt(syntactic.ByteOffset, 10)
		}
		if errors.Is(err, jsontext.ErrDuplicateName) {
			place := path(slices.Collect(syntactic.JSONPointer.Tokens()), func(i int) bool {
				kind, _ := r.decoder.StackIndex(i + 1)
				return kind == '['
			})
			return sdk.Fault{Path: place, Expected: "each name once in an object", Got: "the name twice"}
		}
	}
	return sdk.Fault{Path: "$", Expected: "valid JSON", Got: clip.Text(got, maxShown)}
}

func (r *reader) value() (any, error) {
	token, err := r.decoder.ReadToken()
	if err != nil {
		return nil, err
	}
	if r.decoder.StackDepth() > wire.MaxDepth {
		return nil, errTooDeep
	}
	switch token.Kind() {
	case '{':
		return r.object()
	case '[':
		return r.array()
	case '"':
		return token.String(), nil
	case '0':
		number := json.Number(token.String())
		if !calculable(string(number)) {
			r.numbers = append(r.numbers, slices.Clone(r.at))
		}
		return number, nil
	case 't', 'f':
		return token.Bool(), nil
	default:
		return nil, nil
	}
}

func (r *reader) object() (any, error) {
	object := map[string]any{}
	for r.decoder.PeekKind() != '}' {
		token, err := r.decoder.ReadToken()
		if err != nil {
			return nil, inside(err)
		}
		name := token.String()
		r.at = append(r.at, name)
		if object[name], err = r.value(); err != nil {
			return nil, inside(err)
		}
		r.at = r.at[:len(r.at)-1]
	}
	_, err := r.decoder.ReadToken()
	return object, err
}

func (r *reader) array() (any, error) {
	array := []any{}
	for r.decoder.PeekKind() != ']' {
		r.at = append(r.at, strconv.Itoa(len(array)))
		item, err := r.value()
		if err != nil {
			return nil, inside(err)
		}
		r.at = r.at[:len(r.at)-1]
		array = append(array, item)
	}
	_, err := r.decoder.ReadToken()
	return array, err
}

// inside tells an end of the text within a value from the end after it.
func inside(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// calculable also refuses what a float64 cannot hold: gojsonschema compares enums and constants as such.
func calculable(number string) bool {
	if len(number) > maxNumber {
		return false
	}
	if i := strings.IndexAny(number, "eE"); i >= 0 {
		exponent, err := strconv.Atoi(number[i+1:])
		if err != nil || exponent < -maxExponent || exponent > maxExponent {
			return false
		}
	}
	_, err := strconv.ParseFloat(number, 64)
	return err == nil
}
