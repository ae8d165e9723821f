package milestone

import (
	"encoding/json"

	"agentd/internal/core"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// The data of milestones.
type (
	runStarted struct {
		Input json.RawMessage `json:"input"`
	}
	runRetried struct {
		Event string `json:"event"`
		Who   string `json:"who"`
	}
	runUndoing struct {
		Calls []wire.UndoCall `json:"calls"`
		Event string          `json:"event"`
		Who   string          `json:"who"`
	}
	runMessage struct {
		Message string `json:"message"`
		Who     string `json:"who"`
	}
	modelReply struct {
		Text string `json:"text"`
	}
	conversed struct {
		Message string `json:"message"`
	}
	turnAnswered struct {
		Call string `json:"call,omitempty"`
		// Event is the id of the event that answered, here and in other answers.
		Event   string `json:"event,omitempty"`
		Message string `json:"message"`
	}
	callOpened struct {
		Args json.RawMessage `json:"args"`
		Call string          `json:"call"`
		Tool string          `json:"tool"`
	}
	callCorrected struct {
		core.Correction
		Tool string `json:"tool"`
	}
	callResult struct {
		Call  string          `json:"call"`
		Data  json.RawMessage `json:"data"`
		Error bool            `json:"error"`
		Event string          `json:"event,omitempty"`
		Kind  core.ResultKind `json:"kind"`
		Tool  string          `json:"tool"`
	}
	runUsage struct {
		Turns int       `json:"interactions"`
		Total sdk.Usage `json:"total"`
	}
	checkpointed struct {
		Checkpoints []core.Checkpoint `json:"checkpoints"`
	}
	runSuspended struct {
		Calls int `json:"calls"`
	}
	runParked struct {
		Code    sdk.Code        `json:"code,omitempty"`
		Message string          `json:"message,omitempty"`
		Model   string          `json:"model,omitempty"`
		Since   int64           `json:"since"`
		Tries   int             `json:"tries"`
		Until   int64           `json:"until"`
		Why     core.ParkReason `json:"why"`
	}
	runPaused struct {
		Reason string `json:"reason"`
	}
	runFinished struct {
		Code   string          `json:"code,omitempty"`
		Data   json.RawMessage `json:"data"`
		Reason core.Reason     `json:"reason"`
		Type   string          `json:"type"`
	}
)

// questioned is what an inline tool asked a person, or what became of it.
type questioned struct {
	Question string          `json:"question"`
	Call     string          `json:"call"`
	Asked    json.RawMessage `json:"asked,omitempty"`
	Answer   json.RawMessage `json:"answer,omitempty"`
	Error    bool            `json:"error,omitempty"`
	Event    string          `json:"event,omitempty"`
}

// inquired is what a context provider is asked, or what became of it.
type inquired struct {
	Section string          `json:"section"`
	Call    string          `json:"call"`
	Answer  json.RawMessage `json:"answer,omitempty"`
	Error   bool            `json:"error,omitempty"`
}

// compacted says up to which message a summary stands for the history in front of the model, up to which results are in one line,
// and how many tokens fewer the prompt has.
type compacted struct {
	Messages int      `json:"messages"`
	Lined    int      `json:"lined"`
	Evicted  int      `json:"evicted"`
	Files    []string `json:"files,omitempty"`
}

// chosen is which tools the model is offered from now on.
type chosen struct {
	By       sdk.SelectedBy `json:"by"`
	Tools    []string       `json:"tools"`
	Degraded string         `json:"degraded,omitempty"`
}

// guarded is what a guard of calls did.
type guarded struct {
	Guard  core.Guard `json:"guard"`
	Tool   string     `json:"tool,omitempty"`
	Call   string     `json:"call,omitempty"`
	Reason string     `json:"reason,omitempty"`
}

// cleared withdraws the text that was told last: the model is asked again.
type cleared struct {
	Judge string `json:"judge"`
}

// planUpdated is the plan that the agent has written down.
type planUpdated struct {
	Call string          `json:"call"`
	Plan json.RawMessage `json:"plan"`
}
