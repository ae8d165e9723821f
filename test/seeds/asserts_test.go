package seeds_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"agentd/internal/core"
	"agentd/internal/harness"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
	"agentd/test/poll"
)

// start runs agents with one scripted model for all.
func start(t *testing.T, model sdk.Provider, agents ...sdk.Agent) *harness.Harness {
	t.Helper()
	return harness.Start(t, harness.Options{Agents: agents, Model: model})
}

// byModel asks the script that has the name of the model asked for.
func byModel(scripts map[string]*sdktest.Model) sdk.Provider {
	return sdktest.ModelFunc(func(ctx context.Context, req sdk.ModelRequest) (sdk.ModelReply, error) {
		return scripts[req.Model].Generate(ctx, req, nil)
	})
}

// equal compares with go-cmp.
func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(core.State{})); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// equalJSON compares JSON by value.
func equalJSON(t *testing.T, what string, got []byte, want string) {
	t.Helper()
	var g, w any
	if err := json.Unmarshal(got, &g); err != nil {
		t.Fatalf("%s: %v in %s", what, err, got)
	}
	if err := json.Unmarshal([]byte(want), &w); err != nil {
		t.Fatal(err)
	}
	equal(t, what, g, w)
}

// succeeds waits for the run's end and checks that it answered with data.
func succeeds(t *testing.T, h *harness.Harness, r harness.Run, data string) wire.Event {
	t.Helper()
	event := h.Done(r)
	if state := h.State(r); state.Reason != core.ReasonCompleted && state.Reason != core.ReasonStopped {
		t.Fatalf("run %s ended with %s: %s", r.Subject, state.Reason, event.Data)
	}
	equalJSON(t, "output", event.Data, data)
	return event
}

// fails waits for the run's end and returns the problem that its terminal event tells.
func fails(t *testing.T, h *harness.Harness, r harness.Run, contractType string) wire.Problem {
	t.Helper()
	event := h.Done(r)
	if event.Type != wire.ErrorType(contractType) {
		t.Fatalf("run %s ended with %s, want %s", r.Subject, event.Type, wire.ErrorType(contractType))
	}
	var p wire.Problem
	if err := json.Unmarshal(event.Data, &p); err != nil {
		t.Fatal(err)
	}
	return p
}

// results are the tool results among messages, which must be that many.
func results(t *testing.T, messages []sdk.Message, want int) []sdk.Content {
	t.Helper()
	return contents(t, messages, sdk.ContentToolResult, want)
}

// uses are the tool calls among messages, which must be that many.
func uses(t *testing.T, messages []sdk.Message, want int) []sdk.Content {
	t.Helper()
	return contents(t, messages, sdk.ContentToolUse, want)
}

func contents(t *testing.T, messages []sdk.Message, kind sdk.ContentKind, want int) []sdk.Content {
	t.Helper()
	var found []sdk.Content
	for _, m := range messages {
		for _, c := range m.Content {
			if c.Kind == kind {
				found = append(found, c)
			}
		}
	}
	if len(found) != want {
		t.Fatalf("%d contents are %s, want %d: %+v", len(found), kind, want, found)
	}
	return found
}

func seen(messages []sdk.Message) []int {
	var counts []int
	for _, m := range messages {
		counts = append(counts, m.Seen)
	}
	return counts
}

func lifecycles(requests []sdk.ModelRequest) []sdk.Lifecycle {
	var all []sdk.Lifecycle
	for _, r := range requests {
		all = append(all, r.Lifecycle)
	}
	return all
}

// asked are the requests to the model, which must be that many.
func asked(t *testing.T, m *sdktest.Model, want int) []sdk.ModelRequest {
	t.Helper()
	requests := m.Requests()
	if len(requests) != want {
		t.Fatalf("the model was asked %d times, want %d", len(requests), want)
	}
	return requests
}

// last is the last request, which must be there.
func last(t *testing.T, m *sdktest.Model) sdk.ModelRequest {
	t.Helper()
	requests := m.Requests()
	if len(requests) == 0 {
		t.Fatal("the model was not asked")
	}
	return requests[len(requests)-1]
}

// problem is what the model is told in a failed result.
func problem(t *testing.T, c sdk.Content) wire.Problem {
	t.Helper()
	var told struct {
		Error struct {
			Code    sdk.Code    `json:"code"`
			Message string      `json:"message"`
			Faults  []sdk.Fault `json:"faults"`
		} `json:"error"`
	}
	if err := json.Unmarshal([]byte(c.Text), &told); err != nil {
		t.Fatalf("no structured error in %q: %v", c.Text, err)
	}
	if !c.IsError || told.Error.Code == "" || told.Error.Message == "" {
		t.Errorf("result %+v is not an error with a code and a message", c)
	}
	return wire.Problem{Code: told.Error.Code, ErrorMessage: told.Error.Message, Faults: told.Error.Faults}
}

// paths are where the faults are.
func paths(faults []sdk.Fault) []string {
	var all []string
	for _, f := range faults {
		all = append(all, f.Path)
	}
	return all
}

// taken is what somebody put into the channel before.
func taken[T any](t *testing.T, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	default:
		t.Fatal("nobody put anything there before")
	}
	return v
}

// await waits until holds.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	poll.Until(t, harness.DefaultPatience(), what, holds)
}

// statuses are the run's statuses after each entry.
func statuses(entries []core.Entry) []core.Status {
	var all []core.Status
	for _, e := range entries {
		all = append(all, e.Head.Status)
	}
	return all
}

// other is an init event for another run than h.Init's.
func other(h *harness.Harness, agent, subject string, input any) wire.Event {
	event := h.Init(agent, input)
	event.ID, event.Subject = "init-"+subject, subject
	return event
}
