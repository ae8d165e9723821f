// Package bulk does one thing with many runs, once with each: the runs are those that a filter selects when the job is proposed, each is
// looked at again before anything is done to it, and what became of it is kept. A job is kept on the broker, so that another program goes
// on where one was killed.
package bulk

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"agentd/internal/index"
	"agentd/internal/index/find"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Verb is what is done with the runs.
type Verb string

// The verbs. All but VerbPurge and VerbRedrive are messages to the runs; VerbRedrive is about dead letters, which are named by their
// sequences where others name runs.
const (
	VerbCancel  Verb = "cancel"
	VerbPause   Verb = "pause"
	VerbResume  Verb = "resume"
	VerbRetry   Verb = "retry"
	VerbMessage Verb = "message"
	VerbTag     Verb = "tag"
	VerbPurge   Verb = "purge"
	VerbRedrive Verb = "redrive"
)

// act is how a verb is carried out.
type act struct {
	control wire.ControlVerb
	event   string
	// data is that of the message, of what was said.
	data func(said string) any
	// implied are conditions that are added to the filter.
	implied string
	// refuses says why nothing is done to a run that the filter selects; empty is that it is done.
	refuses func(*find.Run) string
}

// tagged is the data of a message that gives a run tags; Request.check has read them.
func tagged(said string) any {
	tags, _ := wire.ParseTags(said)
	return map[string]any{wire.TagsAttribute: tags}
}

func reason(said string) any { return map[string]string{"reason": said} }

const (
	unfinished = "-status:done"
	finished   = "-status:running -status:waiting"
)

var acts = map[Verb]act{
	VerbCancel: {wire.ControlCancel, wire.TypeCancel, reason, unfinished, never},
	VerbPause: {wire.ControlPause, wire.TypePause, reason, unfinished, func(r *find.Run) string {
		if r.Row.Paused != nil {
			return "it is paused already"
		}
		return ""
	}},
	VerbResume: {wire.ControlResume, wire.TypeResume, reason, unfinished, func(r *find.Run) string {
		if r.Row.Paused == nil {
			return "it is not paused"
		}
		return ""
	}},
	VerbRetry: {wire.ControlRetry, wire.TypeRetry, func(string) any { return struct{}{} }, finished, func(r *find.Run) string {
		if !r.Reason.Retryable() || r.Purged > 0 {
			return "it cannot be retried: it ended with " + string(r.Reason)
		}
		return ""
	}},
	VerbMessage: {wire.ControlMessage, wire.TypeMessage, func(said string) any { return map[string]string{"message": said} }, unfinished, never},
	VerbTag:     {wire.ControlTag, wire.TypeTag, tagged, unfinished, never},
	VerbPurge:   {implied: finished, refuses: never},
	VerbRedrive: {refuses: never},
}

func never(*find.Run) string { return "" }

// Limits of jobs.
const (
	// MaxRuns is how many runs a job has at most.
	MaxRuns = 100_000
	// chunk is how many of them are kept together: what is done with them is kept at once.
	chunk = 100
	// DefaultRate and MaxRate are how many runs a second something is done to.
	DefaultRate = 20
	MaxRate     = 1000
	// samples is how many runs a proposal shows.
	samples = 10
)

// Request is what somebody wants to be done.
type Request struct {
	Verb   Verb         `json:"verb"`
	Filter index.Filter `json:"filter"`
	// Said is the message of VerbMessage, the tags of VerbTag, or why, for the runs' journals.
	Said string `json:"said,omitempty"`
	// Rate is how many runs a second something is done to; 0 is DefaultRate.
	Rate int `json:"rate"`
	// Who wants it, as far as that is known.
	Who string `json:"who,omitempty"`
}

// check lists every fault of a request.
func (r *Request) check() error {
	var faults []string
	if _, known := acts[r.Verb]; !known {
		faults = append(faults, fmt.Sprintf("runs cannot be asked to %q", r.Verb))
	}
	if r.Verb == VerbRedrive {
		faults = append(faults, checkLetters(r.Filter)...)
	}
	if len(r.Filter.Terms) == 0 && r.Verb == VerbRedrive {
		faults = append(faults, "say which dead letters: the filter is empty; code:* is all of them")
	} else if len(r.Filter.Terms) == 0 {
		faults = append(faults, "say which runs: the filter is empty; run:* is all of them")
	}
	if r.Verb == VerbMessage && (r.Said == "" || len(r.Said) > wire.MaxMessage) {
		faults = append(faults, fmt.Sprintf("a message has 1 to %d bytes, not %d", wire.MaxMessage, len(r.Said)))
	}
	if r.Verb == VerbTag {
		if tags, err := wire.ParseTags(r.Said); err != nil || len(tags) == 0 {
			faults = append(faults, "say which tags the runs get: key=value, separated by commas")
		}
	}
	if r.Rate < 0 || r.Rate > MaxRate {
		faults = append(faults, fmt.Sprintf("the rate is 1 to %d runs a second, not %d", MaxRate, r.Rate))
	}
	if len(faults) > 0 {
		return sdk.Errorf(sdk.CodeContractViolation, "%s", strings.Join(faults, "\n"))
	}
	return nil
}

// State is how far a job is.
type State string

// The states. A job that is running goes on whenever a program carries it out.
const (
	Finding  State = "finding"  // its runs are being found
	Unfound  State = "unfound"  // they could not be found, and Problem says why
	Proposed State = "proposed" // nobody has confirmed it
	Running  State = "running"
	Stopped  State = "stopped" // somebody wanted it to do nothing more
	Finished State = "finished"
)

// Job is something that is done with many runs.
type Job struct {
	ID string `json:"id"`
	Request
	State State `json:"state"`
	// Problem is why its runs could not be found.
	Problem string `json:"problem,omitempty"`
	// Created, Began and Ended are Unix milliseconds.
	Created int64 `json:"created"`
	Began   int64 `json:"began,omitempty"`
	Ended   int64 `json:"ended,omitempty"`
	// Runs is how many runs it has, Samples some of them, and Chunks in how many pieces they are kept; Next is the first piece that is not done.
	Runs    int      `json:"runs"`
	Samples []string `json:"samples"`
	Chunks  int      `json:"chunks"`
	Next    int      `json:"next"`
	// Counts are how many runs came to what.
	Counts map[Outcome]int `json:"counts,omitempty"`
	// Holder is the program that finds the job's runs, or carries it out, and Until when it is taken to be gone, in Unix milliseconds.
	Holder string `json:"holder,omitempty"`
	Until  int64  `json:"until,omitempty"`

	revision uint64
}

// Held reports whether a program finds the job's runs, or carries it out, at a time in Unix milliseconds.
func (j *Job) Held(now int64) bool { return j.Holder != "" && j.Until > now }

// conflict says that the job is not so far that it can be asked for something, at a time in Unix milliseconds.
func (j *Job) conflict(now int64, then string) error {
	const again = "; propose it again"
	is := "is " + string(j.State)
	switch j.State {
	case Finding:
		is, then = "is still looking for its runs", ""
		if !j.Held(now) {
			is, then = "has not found its runs (no program looks for them any more)", again
		}
	case Unfound:
		is, then = "has not found its runs ("+j.Problem+")", again
	case Proposed, Running, Stopped, Finished:
	}
	return sdk.Errorf(sdk.CodeConflict, "bulk job %s %s%s", j.ID, is, then)
}

// title is what the runs' journals say of the job.
func (j *Job) title() string {
	if j.Who == "" {
		return "bulk job " + j.ID
	}
	return "bulk job " + j.ID + " of " + j.Who
}

// Outcome is what became of a run.
type Outcome string

// The outcomes. A run that is asked does it when a worker has handled that; a purge is done.
const (
	Asked   Outcome = "asked"
	Done    Outcome = "done"
	Skipped Outcome = "skipped" // it is not one of those any more
	Failed  Outcome = "failed"
)

// Result is what became of one run.
type Result struct {
	Run     string  `json:"run"`
	Outcome Outcome `json:"outcome"`
	Problem string  `json:"problem,omitempty"`
}

// target is a run of a job.
type target struct {
	Run   string `json:"run"`
	Agent string `json:"agent"`
	// Started is when it began, which its last entry does not say.
	Started int64 `json:"started,omitempty"`
	// Stream and Origin are where the message of a dead letter came from.
	Stream string `json:"stream,omitempty"`
	Origin uint64 `json:"origin,omitempty"`
}

func chunkKey(job string, n int) string   { return fmt.Sprintf("%s.runs.%04d", job, n) }
func resultsKey(job string, n int) string { return fmt.Sprintf("%s.results.%04d", job, n) }

// decode reads a job; a job that is not there is sdk.CodeUnknownRun.
func decode(id string, data []byte, revision uint64) (*Job, error) {
	if data == nil {
		return nil, sdk.Errorf(sdk.CodeUnknownRun, "there is no bulk job %q; see: agentd bulk list", id)
	}
	var job Job
	if err := json.Unmarshal(data, &job); err != nil {
		return nil, fmt.Errorf("read bulk job %s: %w", id, err)
	}
	job.revision = revision
	return &job, nil
}

// newestFirst sorts jobs.
func newestFirst(jobs []*Job) {
	slices.SortFunc(jobs, func(a, b *Job) int { return cmp.Or(cmp.Compare(b.Created, a.Created), cmp.Compare(a.ID, b.ID)) })
}
