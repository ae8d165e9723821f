package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"agentd/internal/audit"
	"agentd/internal/broker/streams"
	"agentd/internal/core"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// report is what a chaos came to.
type report struct {
	*evidence
	violations []string
	// Per init event.
	inits, lost, doubles int
	// ends counts terminal events by code; "" is an output.
	ends map[sdk.Code]int
	// tooOften counts at-most-once calls that ran more than once.
	tooOften int
	// poisoned counts healthy runs that were taken for poison.
	poisoned int
	// decisions counts what became of permission requests; deniedRan are calls that were denied and made.
	decisions map[string]int
	deniedRan int
	recovery  []interruption
}

// interruption is the death of a worker in the middle of a run, and how long the run then made no progress.
type interruption struct {
	run    wire.RunKey
	cause  core.Cause
	worker string
	at     int64
	took   time.Duration
}

// judge evaluates the evidence.
func (e *evidence) judge(found []audit.Violation) *report {
	r := &report{evidence: e, ends: map[sdk.Code]int{}, decisions: map[string]int{}}
	for _, v := range found {
		r.violations = append(r.violations, v.String())
	}
	r.countEnds()
	r.countExecutions()
	r.countDecisions()
	r.recovery = e.recoveries()
	for _, v := range e.record.violations {
		r.violations = append(r.violations, "driver: "+v)
	}
	return r
}

// countEnds counts the terminal events of every init event.
func (r *report) countEnds() {
	r.clients.mu.Lock()
	defer r.clients.mu.Unlock()
	for subject, in := range r.clients.inits {
		r.inits++
		switch n := len(in.terminals); {
		case n == 0:
			r.lost++
			r.violate("init event %s has no terminal event", in.event.ID)
			continue
		case n > 1:
			r.doubles++
			r.violate("init event %s has %d terminal events on %s", in.event.ID, n, subject)
		}
		r.ends[in.code]++
		switch expected := slices.Contains(in.fails, in.code); {
		case expected || in.code == "" && in.scenario.name != poisonScenario:
		case in.code == sdk.CodePoison:
			r.poisoned++
		default:
			r.violate("run %s ended with %q", in.event.Subject, in.code)
		}
	}
	// Workers that live for seconds may die over the same run six times in a row. It must be rare.
	if r.poisoned > 1+r.inits/1000 {
		r.violate("%d of %d runs were taken for poison", r.poisoned, r.inits)
	}
}

func (r *report) violate(format string, args ...any) {
	r.violations = append(r.violations, "driver: "+fmt.Sprintf(format, args...))
}

// countExecutions finds at-most-once calls that ran more than once. The checker does, too; this is told without it.
func (r *report) countExecutions() {
	times := map[string]int{}
	for _, n := range r.record.notes {
		if n.Kind == noteExecuted && n.Once {
			if times[n.Call]++; times[n.Call] == 2 {
				r.tooOften++
				r.violate("at-most-once call %s of run %s ran more than once", n.Call, n.Run)
			}
		}
	}
}

// recoveries are the deaths of workers that struck a run which they drove, ordered by the time to the run's next progress. Runs that are
// made to kill their workers get on with nothing.
func (e *evidence) recoveries() []interruption {
	drivenBy := map[core.Cause]wire.RunKey{} // the run that a message drove
	for run, journal := range e.journals {
		for i := range journal {
			if d := journal[i].Head.Driver; d != nil {
				drivenBy[core.Cause{Stream: d.Stream, Sequence: d.Sequence}] = run
			}
		}
	}
	var all []interruption
	for _, d := range e.record.deaths {
		for _, cause := range e.inHand(d) {
			run := drivenBy[cause]
			journal := e.journals[run]
			if took, ok := recovery(journal, cause, d.at); ok && !strings.HasPrefix(journal[0].Head.Run, poisonScenario) {
				all = append(all, interruption{run: run, cause: cause, worker: d.worker, at: d.at, took: took})
			}
		}
	}
	slices.SortFunc(all, func(a, b interruption) int { return cmp.Compare(a.took, b.took) })
	return all
}

// inHand are the messages that a worker had not finished with when it died.
func (e *evidence) inHand(d death) []core.Cause {
	open := map[core.Cause]bool{}
	for _, n := range e.record.notes {
		if n.Worker != d.worker || n.At > d.at {
			continue
		}
		switch cause := (core.Cause{Stream: n.Stream, Sequence: n.Sequence}); n.Kind {
		case noteDelivered:
			open[cause] = true
		case noteHandled:
			delete(open, cause)
		default:
		}
	}
	return slices.Collect(maps.Keys(open))
}

// progress are the entries by which a driver gets on with a run, or says that its model is away: how long that lasts is not what the death
// of a worker costs.
var progress = []string{
	core.KindReplied, core.KindCompacted, core.KindInquired, core.KindChosen, core.KindPlanned, core.KindRouted, core.KindParked,
	core.KindBegan, core.KindReturned, core.KindBuilt, core.KindReviewed, core.KindEnded,
}

// recovery is how long a run that a message drove made no progress since it lost its driver.
func recovery(journal []core.Entry, cause core.Cause, since int64) (time.Duration, bool) {
	driven := false
	for i := range journal {
		entry := &journal[i]
		if entry.At <= since {
			driven = entry.Head.Status == core.StatusRunning && entry.Head.Driver.Covers(cause)
			continue
		}
		if !driven {
			return 0, false
		}
		if entry.Head.Status == core.StatusDone || slices.Contains(progress, entry.Kind) {
			return time.Duration(entry.At-since) * time.Millisecond, true
		}
	}
	return 0, false
}

// uncovered are the crash points that nothing happened at, webhooks if there is nothing to judge of them, and subscribers that read nothing and
// that no server gave up.
func (r *report) uncovered() []string {
	var missing []string
	for _, c := range crashPoints {
		if r.record.covered[c.name] == 0 {
			missing = append(missing, c.name)
		}
	}
	for _, f := range failpoints {
		if r.record.struck[f.name] == 0 {
			missing = append(missing, f.crash+" "+f.name)
		}
	}
	if !r.setsBack && r.record.counts[hadToBeTold] == 0 {
		missing = append(missing, "webhooks")
	}
	if r.record.faults[readsNothing] > 0 && r.record.counts[wasGivenUp] == 0 {
		missing = append(missing, readsNothing)
	}
	return missing
}

// print writes the report.
func (r *report) print() {
	r.printf("\nfaults\n")
	for _, what := range slices.Sorted(maps.Keys(r.record.faults)) {
		r.printf("  %6d  %s\n", r.record.faults[what], what)
	}
	r.printCoverage()
	calls, all, repeated := r.model.calls()
	r.printf("\nwork\n")
	r.printf("  %6d  init events: %d with an output%s\n", r.inits, r.ends[""], r.otherEnds())
	r.printf("  %6d  runs with %d entries\n", len(r.journals), r.entries())
	for _, what := range slices.Sorted(maps.Keys(r.record.counts)) {
		r.printf("  %6d  %s\n", r.record.counts[what], what)
	}
	deaths := max(len(r.record.deaths), 1)
	again, published := r.publishedAgain()
	takeovers := r.kinds(core.KindTakenOver)
	r.printf("  %6d  takeovers of runs\n", takeovers)
	r.printf("  %6d  times a run had to wait for its model\n", r.kinds(core.KindParked))
	r.printf("  %6d  model calls for %d runs, of which %d were repeated (%.2f for each death of a worker)\n",
		all, len(calls), repeated, float64(repeated)/float64(deaths))
	r.printf("  %6d  events published by workers, %d of them more than once; stored twice: %d\n", published, again, r.storedTwice())
	r.printf("  %6d  messages delivered again\n", r.deliveredAgain())
	ran, repeatedRuns := r.toolRuns()
	r.printf("  %6d  tool executions, %d of them repeated\n", ran, repeatedRuns)
	for _, what := range slices.Sorted(maps.Keys(r.decisions)) {
		r.printf("  %6d  %s\n", r.decisions[what], what)
	}
	r.printf("\npromises\n")
	r.printf("  %6d  runs lost\n", r.lost)
	r.printf("  %6d  init events with more than one terminal event\n", r.doubles)
	r.printf("  %6d  at-most-once calls that ran more than once\n", r.tooOften)
	r.printf("  %6d  calls that were made though they were denied, or not decided\n", r.deniedRan)
	r.printf("  %6d  healthy runs ended because six workers in a row died over them\n", r.poisoned)
	r.printf("  %6d  violations\n", len(r.violations))
	if n := len(r.recovery); n > 0 {
		r.printf("  recovery of %d interrupted runs: p50 %s, p99 %s, longest %s (a delivery lasts %s)\n", n,
			r.recovery[n/2].took, r.recovery[n*99/100].took, r.recovery[n-1].took, ackWait)
	}
	if r.cluster != nil {
		r.hurts.print(r.world)
	}
	const most = 40
	for i, v := range r.violations {
		if i == most {
			r.printf("  … and %d more\n", len(r.violations)-most)
			break
		}
		r.printf("  violation: %s\n", v)
	}
}

func (r *report) printCoverage() {
	r.printf("\ncrash points\n")
	w := tabwriter.NewWriter(r.out, 0, 0, 2, ' ', 0)
	for _, c := range crashPoints {
		var points []string
		for _, f := range failpoints {
			if f.crash == c.name {
				points = append(points, fmt.Sprintf("%s %d", f.name, r.record.struck[f.name]))
			}
		}
		fmt.Fprintf(w, "  %s\t%d\t%s\t%s\n", c.name, r.record.covered[c.name], c.meaning, strings.Join(points, " · "))
	}
	_ = w.Flush() // of the same writer as all of the report
}

// otherEnds lists the ends other than an output.
func (r *report) otherEnds() string {
	var text strings.Builder
	codes := slices.SortedFunc(maps.Keys(r.ends), cmp.Compare[sdk.Code])
	for _, code := range codes {
		if code != "" {
			fmt.Fprintf(&text, ", %d %s", r.ends[code], code)
		}
	}
	return text.String()
}

func (r *report) entries() int {
	n := 0
	for _, journal := range r.journals {
		n += len(journal)
	}
	return n
}

func (r *report) kinds(kind string) int {
	n := 0
	for _, journal := range r.journals {
		for i := range journal {
			if journal[i].Kind == kind {
				n++
			}
		}
	}
	return n
}

// publishedAgain counts events that were published again, and all events.
func (r *report) publishedAgain() (again, all int) {
	times := map[string]int{}
	for _, n := range r.record.notes {
		if n.Kind == notePublished {
			times[n.Subject]++
		}
	}
	for _, n := range times {
		if n > 1 {
			again++
		}
	}
	return again, len(times)
}

// storedTwice counts events of workers that are on their stream more than once.
func (r *report) storedTwice() int {
	twice, seen := 0, map[string]bool{}
	for _, z := range []streams.Zone{streams.Out, streams.Done} {
		for _, m := range r.messages[z] {
			if seen[m.Subject] {
				twice++
			}
			seen[m.Subject] = true
		}
	}
	return twice
}

func (r *report) deliveredAgain() int {
	return r.repeated(noteDelivered, func(n note) string { return fmt.Sprint(n.Stream, n.Sequence) })
}

// toolRuns counts executions of tools, and those of a call that had run before.
func (r *report) toolRuns() (all, again int) {
	for _, n := range r.record.notes {
		if n.Kind == noteExecuted {
			all++
		}
	}
	return all, r.repeated(noteExecuted, func(n note) string { return n.Run + n.Call })
}

// repeated counts notes of a kind after the first with the same key.
func (r *report) repeated(kind noteKind, key func(note) string) int {
	again, seen := 0, map[string]bool{}
	for _, n := range r.record.notes {
		if n.Kind != kind {
			continue
		}
		if k := key(n); seen[k] {
			again++
		} else {
			seen[k] = true
		}
	}
	return again
}
