package wire

import (
	"encoding/json"
	"strings"

	"agentd/sdk"
)

// Problem is the data of a system error event: sys.<type>.error.
type Problem struct {
	ErrorName    string   `json:"errorName"`
	ErrorMessage string   `json:"errorMessage"`
	ErrorStack   *string  `json:"errorStack"`
	Code         sdk.Code `json:"code"`
	Retryable    bool     `json:"retryable"`
	// Faults lists every violation, when the code is CodeContractViolation.
	Faults []sdk.Fault `json:"faults,omitempty"`
	// Undone says what became of the calls that were to be undone, when the run ended for that.
	Undone []UndoCall `json:"undone,omitempty"`
}

// NewProblem returns the data of the system error event for e.
func NewProblem(e *sdk.Error) Problem {
	return Problem{
		ErrorName: string(e.Code), ErrorMessage: e.Message, Code: e.Code, Retryable: e.Retryable, Faults: e.Faults,
	}
}

// ProblemIn reads the problem of a system error event; ok is false for every other event. A problem that cannot be read is
// told as it is.
func ProblemIn(eventType string, data json.RawMessage) (p Problem, ok bool) {
	if !strings.HasPrefix(eventType, "sys.") || !strings.HasSuffix(eventType, ".error") {
		return p, false
	}
	if err := json.Unmarshal(data, &p); err != nil {
		p.ErrorMessage = string(data)
	}
	return p, true
}
