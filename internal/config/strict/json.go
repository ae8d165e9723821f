package strict

import (
	"bytes"
	"encoding/json"
	"math/big"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

func (j *JSON) decode(d *decoder, n *yaml.Node) {
	before := len(d.faults)
	var b bytes.Buffer
	d.writeJSON(&b, n)
	if len(d.faults) == before {
		*j = JSON{b.Bytes(), at(d.file, n)}
	}
}

// writeJSON writes a YAML value as JSON; what JSON does not have is a fault.
func (d *decoder) writeJSON(b *bytes.Buffer, n *yaml.Node) {
	if d.nodes++; d.nodes > maxNodes {
		if d.nodes == maxNodes+1 {
			d.Faultf(Position{File: d.file}, "the file has more than %d values", maxNodes)
		}
		return
	}
	if n = resolve(n); n == nil {
		b.WriteString("null")
		return
	}
	switch n.Kind {
	case yaml.MappingNode:
		b.WriteByte('{')
		first := true
		d.members(n, func(key, value *yaml.Node) {
			if !first {
				b.WriteByte(',')
			}
			first = false
			writeString(b, key.Value)
			b.WriteByte(':')
			d.writeJSON(b, value)
		})
		b.WriteByte('}')
	case yaml.SequenceNode:
		b.WriteByte('[')
		for i, item := range n.Content {
			if i > 0 {
				b.WriteByte(',')
			}
			d.writeJSON(b, item)
		}
		b.WriteByte(']')
	default:
		d.writeScalar(b, n)
	}
}

func writeString(b *bytes.Buffer, s string) {
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s)       // a string into memory: neither can fail
	b.Truncate(b.Len() - 1) // the encoder's line break
}

var jsonNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)

func (d *decoder) writeScalar(b *bytes.Buffer, n *yaml.Node) {
	switch n.ShortTag() {
	case "!!str", "!!timestamp":
		writeString(b, n.Value)
	case tagBool:
		b.WriteString(strings.ToLower(n.Value))
	case "!!int", "!!float":
		number, ok := numberText(n.Value)
		if !ok {
			d.Faultf(at(d.file, n), "%s is no number of JSON", n.Value)
			return
		}
		b.WriteString(number)
	default:
		d.Faultf(at(d.file, n), "a value tagged %s has no form in JSON", n.ShortTag())
	}
}

// numberText writes a YAML number as JSON, digit for digit where JSON has the form.
func numberText(text string) (string, bool) {
	if jsonNumber.MatchString(text) {
		return text, true
	}
	if i, ok := new(big.Int).SetString(text, 0); ok { // 0x1f, 0o17, 1_000
		return i.String(), true
	}
	f, err := strconv.ParseFloat(text, 64) // .5, 1., +1
	if err != nil {
		return "", false
	}
	encoded, err := json.Marshal(f) // infinity and not-a-number fail
	return string(encoded), err == nil
}
