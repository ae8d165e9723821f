package judge

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"sort"
)

// Weights are what was learned from the texts in testdata, by go run ./internal/judge/train: a line of JSON, and for each feature
// its hash, in four bytes of which the first is the lowest, and for each judge of Names a byte with a sign. They are sorted by hash.
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

// weights are read where they stand in the file, which is sorted by hash: no process has a copy of them.
type weights struct {
	Header
	rows []byte
}

// size is that of a feature, in bytes: its hash, and what it weighs for each judge of Names.
const size = 4 + 3

func readWeights(data []byte) (*weights, error) {
	line, rows, _ := bytes.Cut(data, []byte("\n"))
	w := &weights{rows: rows}
	if err := json.Unmarshal(line, &w.Header); err != nil {
		return nil, fmt.Errorf("weights: %w", err)
	}
	if len(rows) == 0 || len(rows)%size != 0 {
		return nil, fmt.Errorf("weights of %d bytes; want a multiple of %d: learn them anew", len(rows), size)
	}
	for at := size; at < len(rows); at += size {
		if w.hash(at/size-1) >= w.hash(at/size) {
			return nil, fmt.Errorf("weights are not sorted at byte %d: learn them anew", at)
		}
	}
	return w, nil
}

func (w *weights) hash(i int) uint32 { return binary.LittleEndian.Uint32(w.rows[i*size:]) }

// of is what a feature weighs for the judge of a column; what is not known weighs nothing.
func (w *weights) of(hash uint32, column int) int8 {
	i, found := sort.Find(len(w.rows)/size, func(i int) int { return cmp.Compare(hash, w.hash(i)) })
	if !found {
		return 0
	}
	return int8(w.rows[i*size+4+column])
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
		sum += float64(w.of(f.Hash, column)) * float64(f.Value)
	}
	return sum
}
