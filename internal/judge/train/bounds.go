package main

import (
	"fmt"
	"math"
	"slices"

	"agentd/internal/judge"
)

// wrong is which part of the honest texts may be judged wrong by all judges together: people allow 0.01.
const wrong = 0.008

// scored is a text with how much weights have against it that were learned without its writer.
type scored struct {
	*sample
	sum float64
}

// choice are bounds, and what becomes of the unread texts by them.
type choice struct {
	judge.Bounds
	wronged, noticed int
}

// bounds are those with which the judges notice most of the texts whose writers were left out when their weights were learned, while at
// most so many of those writers' honest texts are judged wrong.
func bounds(all []*sample) map[judge.Name]judge.Bounds {
	by := map[judge.Name][]scored{}
	mine := map[judge.Name]int{}
	honests := 0
	writers := []string{}
	for _, s := range all {
		if s.unread() && !slices.Contains(writers, s.writer) {
			writers = append(writers, s.writer)
		}
		if s.unread() && s.Class == honest {
			honests++
		}
	}
	choices := map[judge.Name][]choice{}
	for _, name := range judge.Names {
		for _, writer := range writers {
			w := learn(name, all, writer)
			for _, s := range all {
				if s.writer != writer || s.Class != honest && s.Class != string(name) {
					continue
				}
				q := scored{s, math.Inf(-1)}
				if s.open[name] {
					q.sum = w.sum(s.vector)
				}
				by[name] = append(by[name], q)
				if s.Class != honest {
					mine[name]++
				}
			}
		}
		choices[name] = best(name, by[name], int(wrong*float64(honests)))
	}
	chosen := share(choices, mine, int(wrong*float64(honests)))
	for _, name := range judge.Names {
		report(name, by[name], chosen[name], writers)
	}
	return chosen
}

// best are for 0, 1, 2 … wronged honest texts the bounds that notice most.
func best(name judge.Name, texts []scored, wronged int) []choice {
	levels := []float64{-100}
	for _, s := range texts {
		if s.Class == honest && s.open[name] {
			levels = append(levels, s.sum)
		}
	}
	slices.Sort(levels)
	levels = append(levels[:1:1], levels[max(1, len(levels)-60):]...)
	all := make([]choice, wronged+1)
	for _, alone := range levels {
		for _, with := range levels {
			if with > alone {
				break
			}
			c := count(name, texts, judge.Bounds{WithPhrase: with, Alone: alone})
			for n := c.wronged; n <= wronged; n++ {
				// Of bounds that notice as many, the highest count: they leave most room to texts that nobody has seen.
				if c.noticed >= all[n].noticed {
					all[n] = c
				}
			}
		}
	}
	return all
}

func objects(name judge.Name, s scored, b judge.Bounds) bool {
	if s.phrase[name] {
		return s.sum > b.WithPhrase
	}
	return s.sum > b.Alone
}

func count(name judge.Name, texts []scored, b judge.Bounds) choice {
	c := choice{Bounds: b}
	for _, s := range texts {
		switch {
		case !objects(name, s, b):
		case s.Class == honest:
			c.wronged++
		default:
			c.noticed++
		}
	}
	return c
}

// share gives each judge so many honest texts to judge wrong that the one which notices least notices most, and then all together.
func share(by map[judge.Name][]choice, mine map[judge.Name]int, wronged int) map[judge.Name]judge.Bounds {
	chosen := map[judge.Name]judge.Bounds{}
	part := func(i, n int) float64 {
		return float64(by[judge.Names[i]][n].noticed) / float64(max(1, mine[judge.Names[i]]))
	}
	most := -1.0
	for a := range wronged + 1 {
		for b := range wronged + 1 - a {
			parts := []float64{part(0, a), part(1, b), part(2, wronged-a-b)}
			if all := slices.Min(parts) + (parts[0]+parts[1]+parts[2])/100; all > most {
				most = all
				for i, n := range []int{a, b, wronged - a - b} {
					chosen[judge.Names[i]] = by[judge.Names[i]][n].Bounds
				}
			}
		}
	}
	return chosen
}

func report(name judge.Name, texts []scored, b judge.Bounds, writers []string) {
	for _, writer := range append([]string{""}, writers...) {
		var own []scored
		honests := 0
		for _, s := range texts {
			if writer == "" || s.writer == writer {
				own = append(own, s)
				if s.Class == honest {
					honests++
				}
			}
		}
		c := count(name, own, b)
		fmt.Printf("%s of %s: %d of %d noticed, %d of %d honest texts judged wrong (bounds %.2f with a phrase, %.2f alone)\n", name,
			map[bool]string{true: "all unread writers", false: writer}[writer == ""], c.noticed, len(own)-honests, c.wronged, honests,
			b.WithPhrase, b.Alone)
	}
}
