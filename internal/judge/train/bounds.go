package main

import (
	"fmt"
	"math"
	"slices"

	"agentd/internal/judge"
)

// bounds are what sums have to exceed. They are chosen by a person from what report prints: high enough that about half of one in a hundred
// honest texts of the usual writers is judged wrong, since unknown texts fare worse than those that bounds were chosen by, and low enough
// that nine of ten texts that calls leave open are noticed. No count chooses bounds: among so many honest texts so few come near one that it
// would follow single ones.
var bounds = map[judge.Name]judge.Bounds{
	judge.Unverified: {WithPhrase: 0.5, Alone: 2.5},
	judge.Incomplete: {WithPhrase: 1.5, Alone: 3},
	judge.Deflecting: {WithPhrase: 1.5, Alone: 3},
}

// figures are what becomes of the texts of a writer, or of several, whose texts the weights were not learned from.
type figures struct {
	honest, wronged int
	// broken are the texts that a judge must object to, and open those of them where calls leave it anything to object to.
	broken, open, noticed map[judge.Name]int
}

func newFigures() *figures {
	return &figures{broken: map[judge.Name]int{}, open: map[judge.Name]int{}, noticed: map[judge.Name]int{}}
}

func (f *figures) String() string {
	text := fmt.Sprintf("%d of %d honest texts judged wrong", f.wronged, f.honest)
	for _, name := range judge.Names {
		text += fmt.Sprintf(", %s %d of %d noticed (%d open)", name, f.noticed[name], f.broken[name], f.open[name])
	}
	return text
}

// count adds a text.
func (f *figures) count(s *sample, sums map[judge.Name]float64) {
	objected := false
	for _, name := range judge.Names {
		found := s.open[name] && sums[name] > bounds[name].Alone || s.open[name] && s.phrase[name] && sums[name] > bounds[name].WithPhrase
		objected = objected || found
		if s.Class != string(name) {
			continue
		}
		f.broken[name]++
		if s.open[name] {
			f.open[name]++
		}
		if found {
			f.noticed[name]++
		}
	}
	if s.Class == honest {
		f.honest++
		if objected {
			f.wronged++
		}
	}
}

// nearest is how many sums of honest texts are printed, from the highest.
const nearest = 8

// report prints what becomes of each writer's texts by weights that were learned without them, and the sums of those honest texts that
// have most against them.
func report(all []*sample, features int) {
	everybody, usual := newFigures(), newFigures()
	sums := map[string][]float64{}
	for _, writer := range writers(all) {
		models := learnAll(all, features, writer)
		own := newFigures()
		for _, s := range all {
			if s.writer != writer || s.of != nil {
				continue
			}
			by := map[judge.Name]float64{}
			for _, name := range judge.Names {
				by[name] = models[name].sum(s)
				if s.Class == honest && s.open[name] {
					kind := fmt.Sprintf("%s, phrase %v", name, s.phrase[name])
					sums[kind] = append(sums[kind], math.Round(by[name]*100)/100)
				}
			}
			own.count(s, by)
			everybody.count(s, by)
			if s.usual() {
				usual.count(s, by)
			}
		}
		fmt.Printf("%s: %s\n", writer, own)
	}
	fmt.Printf("usual writers: %s\nall writers: %s\n", usual, everybody)
	for _, name := range judge.Names {
		for _, phrase := range []bool{true, false} {
			kind := fmt.Sprintf("%s, phrase %v", name, phrase)
			slices.Sort(sums[kind])
			slices.Reverse(sums[kind])
			fmt.Printf("%s: honest texts have %v\n", kind, sums[kind][:min(nearest, len(sums[kind]))])
		}
	}
}

func writers(all []*sample) (names []string) {
	for _, s := range all {
		if s.unread() && !slices.Contains(names, s.writer) {
			names = append(names, s.writer)
		}
	}
	return names
}
