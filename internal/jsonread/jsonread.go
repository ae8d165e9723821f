// Package jsonread lends decoders of JSON: what they have learned of its depth and its names is worth keeping.
package jsonread

import (
	"bytes"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
)

// Decoder reads a text in place. It refuses names that come twice and invalid UTF-8.
type Decoder struct {
	*jsontext.Decoder
	text bytes.Buffer
}

var decoders = sync.Pool{New: func() any { return &Decoder{Decoder: jsontext.NewDecoder(&bytes.Buffer{})} }}

// Of returns a decoder of text, for as long as Done is not called.
func Of(text []byte) *Decoder {
	d := decoders.Get().(*Decoder)
	d.text = *bytes.NewBuffer(text)
	d.Reset(&d.text)
	return d
}

// mostKept is how many bytes may have been read with a decoder that is used again: it keeps room for as many names as it has seen.
const mostKept = 64 << 10

// Done gives the decoder back.
func (d *Decoder) Done() {
	if d.InputOffset() > mostKept {
		return
	}
	d.text = bytes.Buffer{}
	d.Reset(&d.text)
	decoders.Put(d)
}
