package runs

import (
	"context"
	"errors"
	"testing"

	"agentd/sdk"
	"agentd/sdk/client"
	"agentd/sdk/wire"
)

// A run that ended otherwise while somebody cancelled it is not said to be cancelled.
func TestCancel_OfARunThatEndedOtherwise(t *testing.T) {
	t.Parallel()
	ended := func(reason wire.Reason, code sdk.Code, text string) error {
		return &client.RunError{Run: client.Run{Name: "one"}, Reason: reason, Err: sdk.Errorf(code, "%s", text)}
	}
	for want, err := range map[string]error{
		"": ended(wire.ReasonCancelled, sdk.CodeCancelled, "not any more"),
		"run one ended before it was cancelled (completed)":               nil,
		"run one ended before it was cancelled (error): the key is wrong": ended(wire.ReasonError, sdk.CodeModel, "the key is wrong"),
		context.Canceled.Error():                                          context.Canceled,
	} {
		got := ""
		if problem := notCancelled("one", err); problem != nil {
			got = problem.Error()
			if e, is := errors.AsType[*sdk.Error](problem); is {
				got = e.Message
			}
		}
		if got != want {
			t.Errorf("of a run that ended with %v it is said: %q, want %q", err, got, want)
		}
	}
}
