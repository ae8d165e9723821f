package judge

import (
	"bytes"
	_ "embed"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
)

// Weights are what was learned from the texts in testdata, by go run ./internal/judge/train: a line of JSON, and for each feature
// its hash, in four bytes of which the first is the lowest, and for each judge of Names a byte with a sign.
//
//go:embed weights.bin
var Weights []byte

// Bounds are what a sum has to exceed for an objection: where a phrase was found, and where none was.
type Bounds struct {
	WithPhrase float64 `json:"with_phrase"`
	Alone      float64 `json:"alone"`
}

// Header is the first line of Weights.
type Header struct {
	// Phrases and Texts are the SHA-256 of the phrases and of the texts that the weights were learned with.
	Phrases string `json:"phrases"`
	Texts   string `json:"texts"`
	// Unit is what the bytes of a judge are multiples of, Bounds what sums of them are held against.
	Unit   map[Name]float64 `json:"unit"`
	Bounds map[Name]Bounds  `json:"bounds"`
}

type weights struct {
	Header
	by map[uint32]row
}

// row has what a feature weighs for each judge of Names.
type row [3]int8

// size is that of a feature, in bytes.
const size = 4 + len(row{})

func readWeights(data []byte) (*weights, error) {
	line, rest, _ := bytes.Cut(data, []byte("\n"))
	w := &weights{by: make(map[uint32]row, len(rest)/size)}
	if err := json.Unmarshal(line, &w.Header); err != nil {
		return nil, fmt.Errorf("weights: %w", err)
	}
	if len(rest) == 0 || len(rest)%size != 0 {
		return nil, fmt.Errorf("weights of %d bytes; want a multiple of %d: learn them anew", len(rest), size)
	}
	for ; len(rest) > 0; rest = rest[size:] {
		var r row
		for i := range r {
			r[i] = int8(rest[4+i])
		}
		w.by[binary.LittleEndian.Uint32(rest)] = r
	}
	return w, nil
}

// weigh is how much is against a text, and which of its sentences weighs most; -1 is that it has none.
func (w *weights) weigh(judge Name, v *Vector) (sum float64, heaviest int) {
	heaviest, most := -1, 0.0
	for i, s := range v.Sentences {
		if own := w.sum(judge, s); heaviest < 0 || own > most {
			heaviest, most = i, own
		}
	}
	return w.sum(judge, v.Text) * w.Unit[judge] / v.Length, heaviest
}

func (w *weights) sum(judge Name, features []Feature) float64 {
	column, sum := slices.Index(Names, judge), 0.0
	for _, f := range features {
		sum += float64(w.by[f.Hash][column]) * float64(f.Value)
	}
	return sum
}
