package main

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"

	"agentd/internal/judge"
)

// Logistic regression by stochastic gradient descent, with a step for each weight that shrinks with what it has moved (AdaGrad).
const (
	rounds = 8
	step   = 0.3
	decay  = 1e-4
)

// known is how many texts have to have a feature for it to be learned.
const known = 2

// least is the byte from which on a weight is kept.
const least = 2

// model has weights by the hash of a feature.
type model map[uint32]*weight

type weight struct{ value, moved float64 }

// learn returns the weights of a judge from the texts of all writers but one: those that it must object to against the honest ones, as far
// as their calls leave it anything to object to.
func learn(name judge.Name, all []*sample, without string) model {
	var texts []*sample
	have := map[uint32]int{}
	for _, s := range all {
		if s.writer == without {
			continue
		}
		for _, f := range s.vector.Text {
			have[f.Hash]++
		}
		if s.open[name] && (s.Class == honest || s.Class == string(name)) {
			texts = append(texts, s)
		}
	}
	m := model{}
	for hash, n := range have {
		if n >= known {
			m[hash] = &weight{moved: 1e-8}
		}
	}
	seed := uint64(1)
	for range rounds {
		for i := len(texts) - 1; i > 0; i-- {
			seed = seed*6364136223846793005 + 1442695040888963407
			j := int(seed>>33) % (i + 1)
			texts[i], texts[j] = texts[j], texts[i]
		}
		for _, s := range texts {
			m.move(s, s.Class != honest)
		}
	}
	return m
}

// move takes a step towards a text being judged as it should be. The conversions keep compilers from fusing operations, which some machines
// round in another way.
func (m model) move(s *sample, broken bool) {
	wanted := 0.0
	if broken {
		wanted = 1
	}
	miss := 1/(1+math.Exp(-m.sum(s.vector))) - wanted
	for _, f := range s.vector.Text {
		if w := m[f.Hash]; w != nil {
			slope := float64(miss*(float64(f.Value)/s.vector.Length)) + float64(decay*w.value)
			w.moved += float64(slope * slope)
			w.value -= float64(step * slope / math.Sqrt(w.moved))
		}
	}
}

// sum is how much weights have against a text.
func (m model) sum(v *judge.Vector) float64 {
	total := 0.0
	for _, f := range v.Text {
		if w := m[f.Hash]; w != nil {
			total += float64(w.value * (float64(f.Value) / v.Length))
		}
	}
	return total
}

// table makes the bytes of judge.Weights of models, without the features that weigh nothing, and returns what the weights of each judge are
// multiples of.
func table(models map[judge.Name]model) ([]byte, map[judge.Name]float64) {
	units := map[judge.Name]float64{}
	hashes := map[uint32]bool{}
	for name, m := range models {
		largest := 0.0
		for _, w := range m {
			largest = max(largest, math.Abs(w.value))
		}
		units[name] = largest / math.MaxInt8
		for hash, w := range m {
			if math.Abs(math.Round(w.value/units[name])) >= least {
				hashes[hash] = true
			}
		}
	}
	order := make([]uint32, 0, len(hashes))
	for hash := range hashes {
		order = append(order, hash)
	}
	slices.SortFunc(order, cmp.Compare)
	var data []byte
	for _, hash := range order {
		data = binary.LittleEndian.AppendUint32(data, hash)
		for _, name := range judge.Names {
			value := int8(0)
			if w := models[name][hash]; w != nil {
				value = int8(math.Round(w.value / units[name]))
			}
			data = append(data, byte(value))
		}
	}
	return data, units
}
