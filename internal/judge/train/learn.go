package main

import (
	"encoding/binary"
	"math"
	"slices"
	"sync"

	"agentd/internal/judge"
)

// Logistic regression by stochastic gradient descent, with a step for each weight that shrinks with what it has moved (AdaGrad).
// The weights are the mean of so many learnings, each of which takes the texts in other orders: what follows only from an order is in few.
const (
	learnings = 8
	rounds    = 4
	step      = 0.3
	decay     = 1e-4
)

// known is how many texts have to have a feature for it to be learned.
const known = 2

// feature is one of a text, by its number among all that are known, and how much of the text's length it has.
type feature struct {
	number int32
	value  float64
}

// number gives the features of texts their numbers, and returns their hashes by number. Those of too few texts are left out.
func number(all []*sample) []uint32 {
	have := map[uint32]int{}
	for _, s := range all {
		for _, f := range s.vector.Text {
			have[f.Hash]++
		}
	}
	var hashes []uint32
	for hash, n := range have {
		if n >= known {
			hashes = append(hashes, hash)
		}
	}
	slices.Sort(hashes)
	for _, s := range all {
		for _, f := range s.vector.Text {
			if at, found := slices.BinarySearch(hashes, f.Hash); found {
				s.features = append(s.features, feature{int32(at), float64(f.Value) / s.vector.Length})
			}
		}
	}
	return hashes
}

// model has a weight for each feature, by its number.
type model []float64

// learnAll returns the weights of each judge from the texts of all writers but one. To those that tell the texts which a judge must object
// to from honest ones, those are added that tell all texts that do not answer from honest ones: what an honest text looks like is the
// same for all judges, and there are more texts to learn it from.
func learnAll(all []*sample, features int, without string) map[judge.Name]model {
	var wait sync.WaitGroup
	models := make([]model, len(judge.Names)+1)
	wait.Go(func() { models[len(judge.Names)] = learn(all, features, without, (*sample).original) })
	for i, name := range judge.Names {
		wait.Go(func() { models[i] = learn(all, features, without, func(s *sample) bool { return s.teaches(name) }) })
	}
	wait.Wait()
	by := map[judge.Name]model{}
	for i, name := range judge.Names {
		for number, value := range models[len(judge.Names)] {
			models[i][number] += value
		}
		by[name] = models[i]
	}
	return by
}

// original reports whether a text is as it was written.
func (s *sample) original() bool { return s.of == nil }

// teaches reports whether a judge learns from a text: from those that it must object to and from honest ones, as far as calls leave it
// anything to object to.
func (s *sample) teaches(name judge.Name) bool {
	if s.of != nil && s.of.open[name] {
		return false
	}
	return s.open[name] && (s.Class == honest || s.Class == string(name))
}

// learn returns weights that tell honest texts from others, from those texts of all writers but one that teach.
func learn(all []*sample, features int, without string, teaches func(s *sample) bool) model {
	var texts []*sample
	for _, s := range all {
		if s.writer != without && teaches(s) {
			texts = append(texts, s)
		}
	}
	mean := make(model, features)
	seed := uint64(1)
	for range learnings {
		m, moved := make(model, features), make([]float64, features)
		for i := range moved {
			moved[i] = 1e-8
		}
		for range rounds {
			for i := len(texts) - 1; i > 0; i-- {
				seed = seed*6364136223846793005 + 1442695040888963407
				j := int(seed>>33) % (i + 1)
				texts[i], texts[j] = texts[j], texts[i]
			}
			for _, s := range texts {
				m.move(moved, s, s.Class != honest)
			}
		}
		for i, value := range m {
			mean[i] += float64(value / learnings)
		}
	}
	return mean
}

// move takes a step towards a text being judged as it should be. The conversions keep compilers from fusing operations, which some machines
// round in another way.
func (m model) move(moved []float64, s *sample, broken bool) {
	wanted := 0.0
	if broken {
		wanted = 1
	}
	miss := 1/(1+math.Exp(-m.sum(s))) - wanted
	for _, f := range s.features {
		slope := float64(miss*f.value) + float64(decay*m[f.number])
		moved[f.number] += float64(slope * slope)
		m[f.number] -= float64(step * slope / math.Sqrt(moved[f.number]))
	}
}

// sum is how much weights have against a text.
func (m model) sum(s *sample) float64 {
	total := 0.0
	for _, f := range s.features {
		total += float64(m[f.number] * f.value)
	}
	return total
}

// table makes the bytes of judge.Weights of models, and returns what the weights of each judge are multiples of. Features that weigh nothing
// for any judge are left out, and no others: many that weigh little are what texts of people who are not known have in common.
func table(models map[judge.Name]model, hashes []uint32) ([]byte, map[judge.Name]float64) {
	units := map[judge.Name]float64{}
	for name, m := range models {
		largest := 0.0
		for _, value := range m {
			largest = max(largest, math.Abs(value))
		}
		units[name] = largest / math.MaxInt8
	}
	var data []byte
	for number, hash := range hashes {
		var row [3]byte
		for i, name := range judge.Names {
			row[i] = byte(int8(math.Round(models[name][number] / units[name])))
		}
		if row != [3]byte{} {
			data = append(binary.LittleEndian.AppendUint32(data, hash), row[:]...)
		}
	}
	return data, units
}
