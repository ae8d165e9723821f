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
		for n := 1; n <= 2; n++ {
			sh.try(func(p *plan) { p.clients = n })
		}
	}
	for f := range faults {
		if sh.plan.without[f] || !slices.Contains(sh.best.kinds, f) {
			continue
		}
		sh.try(func(p *plan) { p.without[f] = true })
	}
	sh.fewer()
	return sh.plan, sh.best.found, sh.best.trace
}

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
