package runner_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"agentd/internal/core"
	"agentd/internal/runner"
	"agentd/internal/state/memory"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// asks is a policy that asks people for every call, on its terms.
type asks struct {
	*desk
	terms sdk.PermissionTerms
}

func (p asks) Check(context.Context, sdk.PermissionCheck) (sdk.PermissionRuling, error) {
	return sdk.PermissionRuling{Verdict: sdk.PermissionAsk, Terms: p.terms}, nil
}

// agent is one whose model calls inline and book at once, for which people are asked on those terms; they have an hour. away says that inline
// is of a toolset that does not answer.
func (p asks) agent(away bool) *runner.Agent {
	a := p.desk.agent()
	p.terms.Mode, p.terms.Stages = sdk.PermissionHold, []sdk.PermissionStage{{Domain: sdk.HumanDomain, TimeoutMillis: time.Hour.Milliseconds()}}
	a.Permissions, a.Core.Reviews, a.Core.Hooked, a.Core.RunDeadline = p, false, false, 24*time.Hour.Milliseconds()
	a.CheckAnswer = func(_ core.Call, ev wire.Event, _ string) (runner.Answer, *sdk.Error) {
		answer := runner.Answer{Data: ev.Data, Decision: &sdk.PermissionDecision{}}
		if json.Unmarshal(ev.Data, answer.Decision) != nil {
			return runner.Answer{}, sdk.Errorf(sdk.CodeContractViolation, "no decision")
		}
		return answer, nil
	}
	if away {
		a.Core.Tools = slices.DeleteFunc(a.Core.Tools, func(t core.Tool) bool { return t.Name == "inline" })
		a.Core.Missing = func(string) *sdk.Error { return sdk.Errorf(sdk.CodeUnavailable, "the toolset is away") }
	}
	return a
}

// named is a decision on single calls of a request for several.
func named(d sdk.Decision, requests ...sdk.PermissionRequest) sdk.PermissionDecision {
	decision := sdk.PermissionDecision{Decision: d}
	for _, r := range requests {
		decision.Calls = append(decision.Calls, sdk.CallDecision{Call: r.Call, ArgsHash: r.ArgsHash})
	}
	return decision
}

// A decision that lets a call be made whose toolset is away waits for the toolset, and no longer than its request: every other is taken at
// once, so that nothing which was decided in time comes too late.
func TestAwaited_HoldsBackWhatMakesTheCallOnly(t *testing.T) {
	t.Parallel()
	const inline, book = 0, 1
	all := func(d sdk.Decision) func([]sdk.PermissionRequest) sdk.PermissionDecision {
		return func(r []sdk.PermissionRequest) sdk.PermissionDecision {
			return sdk.PermissionDecision{Decision: d, All: true, ArgsHash: sdk.CallsHash([]string{r[inline].ArgsHash, r[book].ArgsHash})}
		}
	}
	one := func(d sdk.Decision, calls ...int) func([]sdk.PermissionRequest) sdk.PermissionDecision {
		return func(r []sdk.PermissionRequest) sdk.PermissionDecision {
			var about []sdk.PermissionRequest
			for _, call := range calls {
				about = append(about, r[call])
			}
			return named(d, about...)
		}
	}
	alone := func(d sdk.Decision) func([]sdk.PermissionRequest) sdk.PermissionDecision {
		return func(r []sdk.PermissionRequest) sdk.PermissionDecision {
			return sdk.PermissionDecision{Decision: d, ArgsHash: r[inline].ArgsHash}
		}
	}
	batch := sdk.PermissionTerms{Batch: true}
	for name, c := range map[string]struct {
		terms  sdk.PermissionTerms
		decide func([]sdk.PermissionRequest) sdk.PermissionDecision
		after  time.Duration
		held   bool
		// inline and book are what has become of the calls, once the decision is taken.
		inline, book core.CallStatus
	}{
		"the other one is allowed": {batch, one(sdk.DecisionAllow, book), 30 * time.Minute, false, core.CallSuspended, core.CallSuspended},
		"the other one is denied":  {batch, one(sdk.DecisionDeny, book), 30 * time.Minute, false, core.CallSuspended, core.CallFailed},
		"both are denied":          {batch, all(sdk.DecisionDeny), 30 * time.Minute, false, core.CallFailed, core.CallFailed},
		"both are allowed":         {batch, all(sdk.DecisionAllow), 30 * time.Minute, true, "", ""},
		"it is allowed":            {batch, one(sdk.DecisionAllow, inline), 30 * time.Minute, true, "", ""},
		"they are shown":           {batch, all(sdk.DecisionViewed), 30 * time.Minute, false, core.CallSuspended, core.CallSuspended},
		"both, at the last moment": {batch, all(sdk.DecisionAllow), time.Hour - 20*time.Second, false, core.CallFailed, core.CallSuspended},
		"alone, allowed":           {sdk.PermissionTerms{}, alone(sdk.DecisionAllow), 30 * time.Minute, true, "", ""},
		"alone, denied":            {sdk.PermissionTerms{}, alone(sdk.DecisionDeny), 30 * time.Minute, false, core.CallFailed, core.CallSuspended},
		"alone, by the first of two": {
			sdk.PermissionTerms{Quorum: 2}, alone(sdk.DecisionAllow), 30 * time.Minute, false, core.CallSuspended, core.CallSuspended,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			policy := asks{newDesk(10, "inline", "book"), c.terms}
			store, issued, clock := memory.New(), &atomic.Int64{}, time.Duration(0)
			worker := func(away bool) *runner.Runner {
				return runner.New(runner.Options{
					Store: store, Publisher: nowhere{}, Env: passing{still{issued}, &clock}, Catalog: only{policy.agent(away)},
					Subjects: wire.DefaultSubjects(), Logger: slog.New(slog.DiscardHandler),
				})
			}
			process(t, worker(false), "order 7", starts, `{}`)
			r := worker(true)
			opened := journal(t, r, "order 7")[1]
			var requests []sdk.PermissionRequest
			for _, asked := range opened.Requests {
				var request sdk.PermissionRequest
				if err := json.Unmarshal(asked.Data, &request); err != nil {
					t.Fatal(err)
				}
				requests = append(requests, request)
			}
			decision, err := json.Marshal(c.decide(requests))
			if err != nil {
				t.Fatal(err)
			}
			clock = c.after
			v := r.Process(t.Context(), &runner.Message{
				Address: wire.Address{
					Kind: wire.KindIn, Who: "bob", Agent: wire.NameToken("desk"), Run: wire.NewRunKey("order 7"), Call: wire.CallAddress{
						Domain: wire.DomainToken(sdk.HumanDomain), Type: wire.NameToken(sdk.TypePermissionRequest), Agent: wire.NameToken("desk"),
						Run: wire.NewRunKey("order 7"), Call: opened.Head.Call(opened.Requests[inline].ID).Event(),
					},
				},
				Event: wire.Event{ID: "decision", Source: "bob", Data: decision}, Delivered: 1, Received: now + clock.Milliseconds(),
				Cause: core.Cause{Stream: "AGENTD_IN", Sequence: 2, EventID: "decision"},
			})
			if held := v.Settlement == runner.Retry; held != c.held || !held && v != (runner.Verdict{}) {
				t.Fatalf("the decision is settled with %+v, want that it is held back: %t", v, c.held)
			}
			if c.held {
				return
			}
			status := map[string]core.CallStatus{}
			for _, e := range journal(t, r, "order 7")[1:] {
				for _, call := range e.Head.Calls {
					status[call.ID] = call.Status
				}
				for _, result := range e.Results {
					if status[result.Call] = core.CallSucceeded; result.Error {
						status[result.Call] = core.CallFailed
					}
				}
			}
			if got := status[requests[inline].Call]; got != c.inline {
				t.Errorf("the call of the toolset is %q, want %q", got, c.inline)
			}
			if got := status[requests[book].Call]; got != c.book {
				t.Errorf("the other call is %q, want %q", got, c.book)
			}
		})
	}
}

// A run whose time is over ends, whatever is away: nobody waits for the toolset any more.
func TestAwaited_EndsAtTheDeadline(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		after time.Duration
		held  bool
	}{
		"a moment before": {time.Hour - time.Millisecond, true},
		"at the deadline": {time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock := time.Duration(0)
			a := newTalk(t, calls("inline"))
			worker := func() *runner.Runner {
				return runner.New(runner.Options{
					Store: a.store, Publisher: nowhere{}, Env: passing{still{&issued}, &clock}, Catalog: only{a.agent},
					Subjects: wire.DefaultSubjects(), Logger: slog.New(slog.DiscardHandler),
				})
			}
			dies, die := context.WithCancel(t.Context())
			a.agent.Inline["inline"] = sdk.Tool{Run: func(context.Context, sdk.ToolCall) (json.RawMessage, error) {
				die()
				return nil, dies.Err()
			}}
			if v := worker().Process(dies, begun(1)); v.Settlement != runner.Leave {
				t.Fatalf("the message of a worker that dies is settled with %+v", v)
			}
			a.agent.Core.Tools = slices.DeleteFunc(a.agent.Core.Tools, func(t core.Tool) bool { return t.Name == "inline" })
			a.agent.Core.Missing = func(string) *sdk.Error { return sdk.Errorf(sdk.CodeUnavailable, "the toolset is away") }
			clock = c.after
			r := worker()
			if v := r.Process(t.Context(), begun(2)); (v.Settlement == runner.Retry) != c.held {
				t.Fatalf("the message is settled with %+v, want that it is held back: %t", v, c.held)
			}
			want := map[bool]string{true: "", false: "deadline:run"}[c.held]
			entries := journal(t, r, "order 7")
			if got := entries[len(entries)-1].Head.Termination(); got != want {
				t.Errorf("the run ends with %q, want %q", got, want)
			}
		})
	}
}
