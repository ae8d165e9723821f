// Package core is the state machine of a run. It is pure: no I/O, clock, randomness, goroutine, map iteration or context.
//
// A run is a journal of entries. Each entry holds what was added (messages, results), the effects that follow from it,
// and the Head, a small summary that is all that Step needs:
//
//	Step(spec, head, input) → change        what an input does; equal arguments give equal bytes
//	Next(spec, head, now)   → action        what whoever drives the run has to do now
//	Outstanding(head)       → effects       what the run waits for, re-derived with the same ids
//	Apply(state, entry)     → state         the fold that rebuilds history from the journal
//
// The shell (internal/runner) turns a change into an entry, commits it by compare-and-set, and only then carries out its
// effects. The journal's layout is documented in docs/journal.md and is durable: fields are added, never changed.
package core
