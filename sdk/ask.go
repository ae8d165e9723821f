package sdk

import (
	"context"
	"encoding/json"
)

// ToolAnswer is what became of a tool's question.
type ToolAnswer struct {
	// State is what the tool gave with the question.
	State json.RawMessage
	// Data is the answer, {"answer": …} with what else its schema asked for; of a failure {"error": …}.
	Data json.RawMessage
	// Failed says that nobody answered in time, or that whoever was asked cannot.
	Failed bool
}

// Question is what a tool asks a person.
type Question struct {
	Question string `json:"question"`
	// Suggestions are likely answers to choose from, four at most.
	Suggestions []string `json:"suggestions,omitempty"`
	// Schema is a JSON Schema for the answer's "content", where text is not enough; nil is none.
	Schema json.RawMessage `json:"schema,omitempty"`
}

// ToolSuspended is an error that is none: a tool returns it to ask a person something. The run suspends, and the tool is
// called again for the same call when there is an answer or nobody gave one. It must not have taken effect yet, or be
// able to go on from State.
type ToolSuspended struct {
	Question Question
	// State is JSON for the tool itself, at most 256 KiB with the question; nil is none.
	State json.RawMessage
}

func (s *ToolSuspended) Error() string { return "waits for an answer: " + s.Question.Question }

// AskPerson is what a tool returns as its error to ask a question.
func AskPerson(question Question, state json.RawMessage) error {
	return &ToolSuspended{Question: question, State: state}
}

// Progress is how far a call of an inline tool is, for people.
type Progress struct {
	// Done and Total are in the tool's own unit; Total 0 is unknown.
	Done    float64 `json:"done"`
	Total   float64 `json:"total,omitempty"`
	Message string  `json:"message,omitempty"`
}

type progressKey struct{}

// WithProgress returns a context whose tool reports to report. Workers call it; so do tests of tools.
func WithProgress(ctx context.Context, report func(Progress)) context.Context {
	return context.WithValue(ctx, progressKey{}, report)
}

// ReportProgress tells whoever watches the run how far the tool of ctx is, as a live event that is never repaired. Outside
// of a run it does nothing. It may be called from any goroutine until the tool returns.
func ReportProgress(ctx context.Context, p Progress) {
	if report, ok := ctx.Value(progressKey{}).(func(Progress)); ok {
		report(p)
	}
}
