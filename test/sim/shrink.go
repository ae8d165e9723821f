package sim

import (
	"slices"
	"strings"
)

// shrink returns a plan that fails for the same reason as p with as few faults as it can find, and its trace.
func shrink(p plan, in *pool) (least plan, found, trace []string) {
	sh := shrinker{pool: in}
	first := sh.play(p)
	sh.invariant = invariantOf(first.found)
	if sh.invariant == "" {
		return p, nil, nil
	}
	sh.best, sh.plan = first, p
	if p.clients == 0 {
		sh.search(few, func(p *plan) { p.clients = 1 })
	}
	for f := range faults {
		if !sh.plan.without[f] && slices.Contains(sh.best.kinds, f) {
			sh.search(few, func(p *plan) { p.without[f] = true })
		}
	}
	for range 3 {
		sh.search(many, func(*plan) {})
	}
	sh.fewer()
	return sh.plan, sh.best.found, sh.best.trace
}

// How many variants of a smaller world are tried.
const few, many = 40, 300

// invariantOf is the name of the first invariant that was violated.
func invariantOf(found []string) string {
	if len(found) == 0 {
		return ""
	}
	name, _, _ := strings.Cut(found[0], ":")
	return name
}

// shrinker makes a failing history smaller step by step: what still fails in the same way is kept.
type shrinker struct {
	pool      *pool
	invariant string
	plan      plan
	best      outcome
}

// outcome is what a history came to.
type outcome struct {
	found, trace []string
	// happened are the numbers of the faults that happened, kinds are their kinds.
	happened []int
	kinds    []fault
}

func (sh *shrinker) play(p plan) outcome {
	var o outcome
	st := &stats{}
	s := newSimulation(p, sh.pool, st, func(line string) { o.trace = append(o.trace, line) })
	o.found = s.run()
	o.happened = s.happened
	for f, n := range st.faults {
		if n > 0 {
			o.kinds = append(o.kinds, fault(f))
		}
	}
	return o
}

// try keeps a change of the plan if the history fails as before.
func (sh *shrinker) try(change func(*plan)) bool {
	p := sh.plan
	change(&p)
	o := sh.play(p)
	if invariantOf(o.found) != sh.invariant {
		return false
	}
	sh.plan, sh.best = p, o
	return true
}

// search keeps a change of the plan if one of n variants of the history fails as before: the one with the fewest faults.
func (sh *shrinker) search(n uint64, change func(*plan)) {
	p := sh.plan
	change(&p)
	least, best := -1, outcome{}
	for v := range n {
		p.variant = sh.plan.variant + v
		o := sh.play(p)
		if invariantOf(o.found) == sh.invariant && (least < 0 || len(o.happened) < len(best.happened)) {
			least, best = int(v), o
		}
	}
	unchanged := p.clients == sh.plan.clients && p.without == sh.plan.without
	if least < 0 || unchanged && len(best.happened) >= len(sh.best.happened) {
		return
	}
	p.variant = sh.plan.variant + uint64(least)
	sh.plan, sh.best = p, best
}

// fewer leaves out faults: first large parts of them, then smaller ones, at last each alone.
func (sh *shrinker) fewer() {
	for size := len(sh.best.happened); size > 0; size /= 2 {
		for from := 0; from < len(sh.best.happened); {
			kept := slices.Clone(sh.best.happened)
			kept = slices.Delete(kept, from, min(from+size, len(kept)))
			if kept == nil {
				kept = []int{}
			}
			if !sh.try(func(p *plan) { p.only = kept }) {
				from += size
			}
		}
	}
}
