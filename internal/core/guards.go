package core

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	"agentd/internal/clip"
	"agentd/sdk"
)

// Guarded is what guards of calls count. It is empty in a run whose agent has none.
type Guarded struct {
	// Errors is how many rounds in a row failed altogether, since the model was told so.
	Errors int `json:"errors,omitempty"`
	// Failing are the tools that have failed since they last succeeded, the one that failed last at the end; at most maxFailing.
	Failing []Failing `json:"failing,omitempty"`
	// Known are the calls that changed nothing, since something changed, the latest last; at most maxKnown.
	Known []KnownCall `json:"known,omitempty"`
	// Repeated is how many rounds in a row had no call but repeated ones, and Concludes says that there were too many: the next model
	// call is for a final answer.
	Repeated  int  `json:"repeated,omitempty"`
	Concludes bool `json:"concludes,omitempty"`
}

// Failing is a tool that fails.
type Failing struct {
	Tool string `json:"tool"`
	// Rounds is in how many rounds in a row it failed.
	Rounds int `json:"rounds"`
	// Reason is why it was withdrawn; empty is that it was not.
	Reason string `json:"reason,omitempty"`
}

// KnownCall is a call whose result is that of any other which is the Same, for as long as nothing changes.
type KnownCall struct {
	Same string `json:"same"`
	Call string `json:"call"`
	// At is when its round was complete, in Unix milliseconds.
	At int64 `json:"at"`
}

// GuardHit says what a guard did.
type GuardHit struct {
	Guard  Guard  `json:"guard"`
	Tool   string `json:"tool,omitempty"`
	Call   string `json:"call,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// Guard names what a guard does.
type Guard string

// What guards do.
const (
	GuardHint     Guard = "errors"     // the model was told what to do about calls that fail
	GuardWithdraw Guard = "failures"   // a tool was withdrawn for the rest of the run
	GuardRepeat   Guard = "duplicates" // a call was answered from the result of an earlier one
	GuardConclude Guard = "conclude"   // the model was asked for its final answer, because it repeated itself
)

// What a head keeps for guards. A run that goes through more tools, or calls, than that is guarded less: those that are longest ago are
// forgotten.
const (
	maxFailing = 16
	maxKnown   = 16
	// knownFor is for how long a result counts as known, in milliseconds: the world goes on without the run.
	knownFor = 10 * 60 * 1000
	// maxFault bounds what is kept of a failure, in bytes.
	maxFault = 200
)

// guarded reports whether the agent has guards of calls.
func (s *Spec) guarded() bool {
	return s.Guards.Errors > 0 || s.Guards.Failures > 0 || s.Guards.Duplicates > 0
}

func (g *Guarded) empty() bool {
	return g.Errors == 0 && len(g.Failing) == 0 && len(g.Known) == 0 && g.Repeated == 0 && !g.Concludes
}

// Withdrawn are the tools that the model may not call any more in this run.
func (h *Head) Withdrawn() []string {
	var tools []string
	for _, f := range h.Guarded.Failing {
		if f.Reason != "" {
			tools = append(tools, f.Tool)
		}
	}
	return tools
}

// guard refuses the calls of tools that were withdrawn, and finds those whose result is known.
func (p *Admission) guard(spec *Spec, h *Head, now int64) {
	for i := range p.Calls {
		c := &p.Calls[i]
		if c.Refusal != nil {
			continue
		}
		if at := h.Guarded.failing(c.Tool); at >= 0 && h.Guarded.Failing[at].Reason != "" {
			c.Refusal = sdk.Errorf(sdk.CodeUnavailable, "%s cannot be called any more in this run: %s", c.Tool, h.Guarded.Failing[at].Reason)
			continue
		}
		if spec.Guards.Duplicates == 0 || !c.tool.ReadOnly || c.tool.Changing || h.openAny() {
			continue
		}
		c.same = sameCall(c)
		for _, known := range h.Guarded.Known {
			if known.Same == c.same && now-known.At <= knownFor {
				c.repeats = known.Call
			}
		}
	}
}

// sameCall is equal for calls of one tool with equal arguments.
func sameCall(c *AdmittedCall) string { return sameAs(c.Tool, c.Args) }

func sameAs(tool string, args []byte) string {
	sum := sha256.Sum256([]byte(tool + "\x00" + string(args)))
	return hex.EncodeToString(sum[:12])
}

func (g *Guarded) failing(tool string) int {
	return slices.IndexFunc(g.Failing, func(f Failing) bool { return f.Tool == tool })
}

// reuse answers a call from the result of an earlier one that was the same.
func (t *transition) reuse(c *Call, earlier string) {
	note, err := EncodeJSON("The same call was made before, and nothing has changed since: this is its result.")
	if err != nil {
		note = nil
	}
	t.close(c, Result{Call: c.ID, Kind: ResultRepeated, Data: note, Of: earlier})
	t.Guards = append(t.Guards, GuardHit{Guard: GuardRepeat, Tool: c.Tool, Call: c.ID})
}

// made reports whether a call with such a result was made, as far as anybody knows.
func (k ResultKind) made() bool {
	switch k {
	case ResultAnswer, ResultInline, ResultTimeout, ResultCancelled:
		return true
	default:
		return false
	}
}

// guardResult notes of a call what guards want to know when its round is complete.
func (t *transition) guardResult(c *Call, r *Result) {
	if !t.spec.guarded() || !c.ofModel() {
		return
	}
	c.Ended = r.Kind
	if !r.Kind.made() || r.Error || c.Edited > 0 || c.Media > 0 {
		c.Same = ""
	}
	failed := r.Error && (r.Kind == ResultAnswer || r.Kind == ResultInline || r.Kind == ResultTimeout || r.Kind == ResultRefused)
	if failed {
		c.Fault = clip.Text(faultText(r), maxFault)
	}
}

// faultText says how a call failed.
func faultText(r *Result) string {
	var shown struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal(r.Data, &shown) != nil || shown.Error.Message == "" {
		return string(r.Code())
	}
	return string(r.Code()) + ": " + shown.Error.Message
}

// guardRound looks at a round that is complete.
func (t *transition) guardRound(calls []Call) {
	g := &t.Head.Guarded
	if !t.spec.guarded() {
		return
	}
	failed, repeated, acted := true, true, false
	for i := range calls {
		c := &calls[i]
		if !c.ofModel() {
			continue
		}
		failed = failed && c.Fault != ""
		acted = acted || !c.Closed()
		repeated = repeated && c.Ended == ResultRepeated
		tool := t.spec.tool(c.Tool)
		acted = acted || c.Ended.made() && (tool == nil || !tool.ReadOnly)
	}
	t.guardErrors(failed)
	t.guardFailures(calls)
	if acted {
		g.Known = nil
	}
	for i := range calls {
		if c := &calls[i]; c.Same != "" && !acted {
			g.Known = append(slices.Clip(g.Known), KnownCall{Same: c.Same, Call: c.ID, At: t.in.At})
		}
	}
	g.Known = g.Known[max(0, len(g.Known)-maxKnown):]
	t.guardRepeats(calls, repeated)
}

// guardErrors has the model told what to do about rounds that failed.
func (t *transition) guardErrors(failed bool) {
	g := &t.Head.Guarded
	switch {
	case t.spec.Guards.Errors == 0:
		return
	case !failed:
		g.Errors = 0
		return
	}
	if g.Errors++; g.Errors < t.spec.Guards.Errors {
		return
	}
	t.nudge(fmt.Sprintf("Every call of the last %s failed. Do not make the same calls again. Read what the errors say, and compare the names and "+
		"arguments with the definitions of the tools. If there is no other way, say what could not be done, and why.", rounds(g.Errors)))
	t.Guards = append(t.Guards, GuardHit{Guard: GuardHint, Reason: rounds(g.Errors)})
	g.Errors = 0
}

// guardFailures counts the tools that failed in the round, and withdraws those that failed too often. One that the run ends with stays.
func (t *transition) guardFailures(calls []Call) {
	g, limit := &t.Head.Guarded, t.spec.Guards.Failures
	if limit == 0 {
		return
	}
	for i := range calls {
		c := &calls[i]
		tool := t.spec.tool(c.Tool)
		if !c.ofModel() || tool == nil || tool.Recalls || t.spec.stopsOn(c.Tool) || first(calls, i) < i {
			continue
		}
		fault, succeeded := outcomeOf(calls, c.Tool)
		at := g.failing(c.Tool)
		switch {
		case at >= 0 && g.Failing[at].Reason != "":
		case succeeded && at >= 0:
			g.Failing = slices.Delete(slices.Clone(g.Failing), at, at+1)
		case fault != "" && !succeeded:
			g.fail(c.Tool)
			if f := &g.Failing[len(g.Failing)-1]; f.Rounds >= limit {
				f.Reason = fmt.Sprintf("it failed %d times in a row, at last with %s", f.Rounds, fault)
				t.nudge(fmt.Sprintf("%s is withdrawn for the rest of this run: %s. Go on without it, or say what could not be done.", f.Tool, f.Reason))
				t.Guards = append(t.Guards, GuardHit{Guard: GuardWithdraw, Tool: f.Tool, Reason: f.Reason})
			}
		}
	}
}

// first is the first call of the tool that call i is of.
func first(calls []Call, i int) int {
	return slices.IndexFunc(calls, func(c Call) bool { return c.ofModel() && c.Tool == calls[i].Tool })
}

// outcomeOf is how the calls of a tool ended in a round: how one failed, and whether one succeeded.
func outcomeOf(calls []Call, tool string) (fault string, succeeded bool) {
	for i := range calls {
		if c := &calls[i]; c.ofModel() && c.Tool == tool {
			if c.Fault != "" {
				fault = c.Fault
			}
			succeeded = succeeded || c.Status == CallSucceeded
		}
	}
	return fault, succeeded
}

// fail counts a failure of the tool, which comes last then. Of too many, the one is forgotten that failed first and was not withdrawn.
func (g *Guarded) fail(tool string) {
	f := Failing{Tool: tool}
	failing := slices.Clone(g.Failing)
	if at := g.failing(tool); at >= 0 {
		f = failing[at]
		failing = slices.Delete(failing, at, at+1)
	}
	f.Rounds++
	if len(failing) == maxFailing {
		oldest := max(slices.IndexFunc(failing, func(f Failing) bool { return f.Reason == "" }), 0)
		failing = slices.Delete(failing, oldest, oldest+1)
	}
	g.Failing = append(failing, f)
}

// guardRepeats tells a model that repeats itself so, and asks it for its final answer when that does not help.
func (t *transition) guardRepeats(calls []Call, all bool) {
	g, limit := &t.Head.Guarded, t.spec.Guards.Duplicates
	at := slices.IndexFunc(calls, func(c Call) bool { return c.Ended == ResultRepeated })
	if g.Repeated++; !all {
		g.Repeated = 0
	}
	switch {
	case limit == 0 || at < 0:
	case g.Repeated < limit:
		t.nudge(fmt.Sprintf("You have called %s with the same arguments before, and nothing has changed since, so it was not called again: the "+
			"result above is the one from before. Go on from it. Make another call, or give your answer.", calls[at].Tool))
	default:
		g.Concludes = true
		t.nudge("You make the same calls again and again. " + FinalAnswer)
		t.Guards = append(t.Guards, GuardHit{Guard: GuardConclude, Reason: rounds(g.Repeated)})
	}
}

// heard says that a person has spoken: what they want may be something else, and what was known may not be what they mean.
func (g *Guarded) heard() { g.Known, g.Repeated, g.Concludes, g.Errors = nil, 0, false, 0 }
