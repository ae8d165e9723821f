package wire

import "agentd/sdk"

// Problem is the data of a system error event: sys.<type>.error.
type Problem struct {
	ErrorName    string   `json:"errorName"`
	ErrorMessage string   `json:"errorMessage"`
	ErrorStack   *string  `json:"errorStack"`
	Code         sdk.Code `json:"code"`
	Retryable    bool     `json:"retryable"`
	// Faults lists every violation, when the code is CodeContractViolation.
	Faults []sdk.Fault `json:"faults,omitempty"`
}

// NewProblem returns the data of the system error event for e.
func NewProblem(e *sdk.Error) Problem {
	return Problem{
		ErrorName: string(e.Code), ErrorMessage: e.Message, Code: e.Code, Retryable: e.Retryable, Faults: e.Faults,
	}
}
