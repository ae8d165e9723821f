package core

import (
	"encoding/json"

	"agentd/sdk"
)

// Spec is a compiled agent spec. Its functions are pure.
type Spec struct {
	Name   string
	Digest string
	// Type is the agent's contract type; OutputType the event type of its answer; Schema the dataschema of both.
	Type, OutputType, Schema, ErrorSchema string

	Converse bool
	// StopOn names the tools whose success completes the run.
	StopOn          []string
	MaxInteractions int
	// RunDeadline and TurnTimeout are in milliseconds.
	RunDeadline, TurnTimeout int64
	// TurnSchema is the dataschema of conversation turns, QuestionSchema that of questions that tools ask. Both are answered
	// within TurnTimeout.
	TurnSchema, QuestionSchema string
	// StaleAfter is how long, in milliseconds, a driver may be silent before a timer or a control message takes over: the
	// longest step deadline and two AckWaits.
	StaleAfter int64
	// Gated says that every call needs a ruling of the permission policy: one without is denied. So does a run that requires
	// permissions of its own.
	Gated bool
	// PermissionSchema is the dataschema of permission requests.
	PermissionSchema string
	// Matches reports whether arguments match the pattern of a grant; a pattern that cannot be read matches nothing.
	Matches func(pattern string, args json.RawMessage) bool
	// Tools are looked up by the name the model uses.
	Tools []Tool
}

// Tool is a tool as the core sees it.
type Tool struct {
	Name string
	// Kind is CallService or CallInline.
	Kind       CallKind
	Priority   int
	AtMostOnce bool
	// Timeout of one attempt at a service call in milliseconds.
	Timeout int64
	Retry   Retry
	// Type, Schema and Domains address a service call; no domain is the local lane.
	Type, Schema  string
	Domains       []string
	ParentSubject bool
	// Validate returns the canonical arguments with defaults filled in, or every fault.
	Validate func(arguments string) (json.RawMessage, []sdk.Fault)
}

// Retry is how often a service call is tried, and how long after an attempt the next one follows: Pause after the first,
// twice as long after each further one, at most Longest; both in milliseconds. No Attempts is one.
type Retry struct {
	Attempts       int
	Pause, Longest int64
}

func (s *Spec) tool(name string) *Tool {
	for i := range s.Tools {
		if s.Tools[i].Name == name {
			return &s.Tools[i]
		}
	}
	return nil
}

func (s *Spec) stopsOn(tool string) bool {
	for _, name := range s.StopOn {
		if name == tool {
			return true
		}
	}
	return false
}
