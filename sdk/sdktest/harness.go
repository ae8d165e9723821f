package sdktest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"agentd/internal/harness"
	"agentd/sdk"
	"agentd/sdk/client"
	"agentd/sdk/wire"
	"agentd/sdk/worker"
)

// Patience is how long anything may take, unless Options say otherwise.
const Patience = harness.Patience

// Options are what a Harness runs.
type Options struct {
	// File is the path of an agentd.yaml: its agents are served as `agentd serve` does. Its models, servers and stores are not
	// used. Extend adds code in Go to its agents, by name.
	File   string
	Extend map[string]func(*sdk.Agent)
	// Agents are served beside those of the file.
	Agents []sdk.Agent
	// Contracts are published in the registry before the workers start, with all their versions.
	Contracts []sdk.Contract
	// Model answers for every agent; its name in specs does not matter. Nil is a script without a reply.
	Model sdk.Provider
	// Workers is how many workers serve; 0 is 1. Slots is how many messages each handles at once; 0 is sdk.DefaultSlots.
	Workers, Slots int
	// Identity refuses runs and decisions without a principal. Keys are those whose signatures on decisions count, by domain.
	// Both are the file's where it has them.
	Identity bool
	Keys     map[string][]sdk.DecisionKey
	// URL is a NATS server with JetStream that is used instead of the embedded one, so that programs in other languages can take
	// part.
	URL string
	// Patience is how long anything may take; 0 is two minutes.
	Patience time.Duration
}

// Harness is a running agentd. Its methods fail the test instead of returning errors.
type Harness struct {
	t testing.TB
	o Options
	// agents are those of the first worker.
	agents []sdk.Agent
	inner  *harness.Harness
	client *client.Client
}

// Start starts everything and stops it at the end of the test.
func Start(t testing.TB, o Options) *Harness {
	t.Helper()
	o.Patience = cmp.Or(o.Patience, Patience)
	if o.Model == nil {
		o.Model = Script()
	}
	h := &Harness{t: t, o: o}
	h.agents = h.load()
	h.inner = harness.Start(t, harness.Options{
		Agents: h.agents, Load: h.load, Contracts: o.Contracts, Model: o.Model, Workers: o.Workers, Slots: o.Slots,
		Identity: h.o.Identity, Keys: h.o.Keys, URL: o.URL, Patience: o.Patience,
	})
	h.client = h.Client("")
	return h
}

// load makes the agents of a worker: those of the options, and those of the file, whose further settings it adds to the options.
func (h *Harness) load() []sdk.Agent {
	h.t.Helper()
	if h.o.File == "" {
		if len(h.o.Extend) > 0 {
			h.t.Fatal("Extend is for the agents of a File")
		}
		return h.o.Agents
	}
	o, err := worker.File{Path: h.o.File, Logger: slog.New(slog.DiscardHandler)}.Options()
	h.check("read "+h.o.File, err)
	for name, code := range h.o.Extend {
		h.check("extend", o.Extend(name, code))
	}
	h.o.Identity = h.o.Identity || o.Identity
	if h.o.Keys == nil {
		h.o.Keys = o.Keys
	}
	return append(o.Agents, h.o.Agents...)
}

func (h *Harness) check(doing string, err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatalf("%s: %v", doing, err)
	}
}

// Client returns a client that acts as a principal, as if the broker had enforced it; "" is anonymous.
func (h *Harness) Client(principal string) *client.Client {
	h.t.Helper()
	o := client.Options{URL: h.o.URL, As: principal, Source: "sdktest", Patience: h.o.Patience}
	if h.o.URL == "" {
		o.InProcess = h
	}
	c, err := client.Connect(h.t.Context(), o)
	h.check("connect", err)
	h.t.Cleanup(func() { h.check("close the client", c.Close()) })
	return c
}

// InProcessConn connects to the embedded server, for client.Options and service.Server.
func (h *Harness) InProcessConn() (net.Conn, error) { return h.inner.InProcessConn() }

// Restart replaces all workers by one new one, which knows nothing but what is stored.
func (h *Harness) Restart() { h.inner.Restart() }

func (h *Harness) context() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(h.t.Context()), h.o.Patience)
}

// Run starts a run of agent with input, anonymously.
func (h *Harness) Run(agent string, input any) client.Run {
	h.t.Helper()
	return h.Start(client.Request{Agent: agent, Input: input})
}

// Start starts a run, anonymously.
func (h *Harness) Start(r client.Request) client.Run {
	h.t.Helper()
	for _, a := range h.agents {
		if r.Type == "" && a.Spec.Name == r.Agent {
			r.Type = a.Spec.Contract.Type
		}
	}
	ctx, cancel := h.context()
	defer cancel()
	run, err := h.client.Start(ctx, r)
	h.check("start a run", err)
	return run
}

// Wait returns the result of a run that ends well.
func (h *Harness) Wait(run client.Run) client.Result {
	h.t.Helper()
	result, err := h.wait(run)
	if err != nil {
		h.t.Fatalf("run %s ended with an error: %v\n%s", run.Name, err, h.describe(run))
	}
	return result
}

// WaitFailed returns the error that a run ends with.
func (h *Harness) WaitFailed(run client.Run) *client.RunError {
	h.t.Helper()
	result, err := h.wait(run)
	if err == nil {
		h.t.Fatalf("run %s ended well, with %s %s\n%s", run.Name, result.Type, result.Data, h.describe(run))
	}
	var failed *client.RunError
	errors.As(err, &failed)
	return failed
}

// wait fails the test when the run does not end.
func (h *Harness) wait(run client.Run) (client.Result, error) {
	h.t.Helper()
	ctx, cancel := h.context()
	defer cancel()
	result, err := h.client.Wait(ctx, run)
	if failed := (*client.RunError)(nil); err != nil && !errors.As(err, &failed) {
		h.t.Fatalf("run %s did not end: %v\n%s", run.Name, err, h.describe(run))
	}
	return result, err
}

// Status says how far a run is.
func (h *Harness) Status(run client.Run) wire.RunStatus {
	h.t.Helper()
	ctx, cancel := h.context()
	defer cancel()
	status, err := h.client.Status(ctx, run)
	h.check("ask for the run", err)
	return status
}

// Until waits until the run's status satisfies holds, and returns it. what says what that means, for the failure.
func (h *Harness) Until(run client.Run, what string, holds func(wire.RunStatus) bool) wire.RunStatus {
	h.t.Helper()
	ctx, cancel := h.context()
	defer cancel()
	for _, err := range h.client.Follow(ctx, run, wire.Mark{}) {
		if err != nil {
			break
		}
		if status, err := h.client.Status(ctx, run); err == nil && holds(status) {
			return status
		}
	}
	h.t.Fatalf("run %s never was %s\n%s", run.Name, what, h.describe(run))
	return wire.RunStatus{}
}

// Messages are the run's conversation, as the model is shown it.
func (h *Harness) Messages(run client.Run) []sdk.Message {
	h.t.Helper()
	return h.inner.Messages(harness.Run{Subject: run.Name, Key: wire.NewRunKey(run.Name), Agent: run.Agent, Init: run.Init})
}

// Approve allows, as a principal, the call of a tool that needs permission, when it is asked for.
func (h *Harness) Approve(run client.Run, tool, principal string) {
	h.t.Helper()
	h.Decide(run, tool, principal, sdk.PermissionDecision{Decision: sdk.DecisionAllow})
}

// Deny denies it.
func (h *Harness) Deny(run client.Run, tool, principal, reason string) {
	h.t.Helper()
	h.Decide(run, tool, principal, sdk.PermissionDecision{Decision: sdk.DecisionDeny, Reason: reason})
}

// Decide decides, as a principal, on the open permission request for a tool, when there is one; it fails the test when the
// decision does not count. Where the request is for several calls, the decision is on that tool's, unless it names calls, or all.
func (h *Harness) Decide(run client.Run, tool, principal string, d sdk.PermissionDecision) client.Outcome {
	h.t.Helper()
	var asked sdk.PermissionRequest
	var call string
	asks := func(w wire.WaitingCall) bool {
		asked = sdk.PermissionRequest{}
		if w.Type != sdk.TypePermissionRequest || json.Unmarshal(w.Asked, &asked) != nil {
			return false
		}
		each := asked.Each()
		i := slices.IndexFunc(each, func(c sdk.PermissionCall) bool { return c.Tool == tool })
		if i >= 0 {
			call = each[i].Call
		}
		return i >= 0
	}
	status := h.Until(run, "asking for permission for "+tool, func(s wire.RunStatus) bool { return slices.ContainsFunc(s.Waiting, asks) })
	request := status.Waiting[slices.IndexFunc(status.Waiting, asks)]
	if len(asked.Calls) > 0 && !d.All && len(d.Calls) == 0 {
		d.Calls = []sdk.CallDecision{{Call: call, Args: d.Args, Result: d.Result}}
		d.Args, d.Result = nil, nil
	}
	ctx, cancel := h.context()
	defer cancel()
	outcome, err := h.client.As(principal).Decide(ctx, run, request.Call, d)
	if err != nil || outcome.State != client.OutcomeCounted {
		h.t.Fatalf("the decision of %q on %s did not count: %s %v\n%s", principal, tool, outcome.Refused, err, h.describe(run))
	}
	return outcome
}

// Answer answers the run's one open question or turn, when there is one, anonymously.
func (h *Harness) Answer(run client.Run, r client.Reply) {
	h.t.Helper()
	asks := func(w wire.WaitingCall) bool { return w.Type == sdk.TypeQuestion || w.Type == sdk.TypeConversationTurn }
	status := h.Until(run, "asking a person", func(s wire.RunStatus) bool { return slices.ContainsFunc(s.Waiting, asks) })
	open := slices.DeleteFunc(status.Waiting, func(w wire.WaitingCall) bool { return !asks(w) })
	if len(open) > 1 {
		h.t.Fatalf("the run asks %d questions at once; answer each with a client\n%s", len(open), h.describe(run))
	}
	ctx, cancel := h.context()
	defer cancel()
	outcome, err := h.client.Answer(ctx, run, open[0].Call, r)
	if err != nil || outcome.State != client.OutcomeCounted {
		h.t.Fatalf("the answer did not count: %s %v\n%s", outcome.Refused, err, h.describe(run))
	}
}

// describe is what somebody needs to know of a run on which a test failed.
func (h *Harness) describe(run client.Run) string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(h.t.Context()), 5*time.Second)
	defer cancel()
	status, err := h.client.Status(ctx, run)
	if err != nil {
		return fmt.Sprintf("its state is not known: %v", err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "run %s of %s is %s %s %s, at revision %d, after %d turns\n", run.Name, run.Agent, status.Status, status.Reason, status.Code,
		status.Revision, status.Turns)
	for _, w := range status.Waiting {
		fmt.Fprintf(&b, "  waits for %s %s (%s) %s\n", w.Type, w.Call, w.Tool, w.Asked)
	}
	for l, err := range h.client.History(ctx, run, wire.Mark{}) {
		if decided, ok := client.DecidedIn(l); err == nil && ok && decided.Decision.Refused != "" {
			fmt.Fprintf(&b, "  refused the decision of %q on %s: %s\n", decided.Decision.Who, decided.Decision.Request, decided.Decision.Refused)
		}
	}
	if status.Terminal != nil {
		fmt.Fprintf(&b, "  ended with %s %s\n", status.Terminal.Type, status.Terminal.Data)
	}
	return b.String()
}

// Call is a call that a test answers by hand, in the place of a service.
type Call struct {
	inner *harness.Call
	// Event is the call.
	Event wire.Event
}

// Call waits for the next call of a contract type, in the order of publication. Every call is seen once.
func (h *Harness) Call(contractType string) *Call {
	h.t.Helper()
	c := h.inner.Call(contractType)
	return &Call{inner: c, Event: c.Event}
}

// NoCall fails if a call of the contract type has been published that Call has not returned. It is meant for the end of a
// test, when the run is done.
func (h *Harness) NoCall(contractType string) {
	h.t.Helper()
	h.inner.NoCall(contractType)
}

// Data is the call's data.
func (c *Call) Data() map[string]any { return c.inner.Data() }

// Answer answers with an event of that type.
func (c *Call) Answer(eventType string, data any) { c.inner.Answer(eventType, data) }

// Fail answers with the system error of the call's contract.
func (c *Call) Fail(p wire.Problem) { c.inner.Fail(p) }

// DeadLetter is a message that could not be handled.
type DeadLetter struct {
	Reason, Detail, Subject string
	Data                    []byte
}

// DeadLetter waits for the next dead letter.
func (h *Harness) DeadLetter() DeadLetter {
	h.t.Helper()
	return DeadLetter(h.inner.DeadLetter())
}

// NoDeadLetter fails if there is a dead letter that DeadLetter has not returned.
func (h *Harness) NoDeadLetter() {
	h.t.Helper()
	h.inner.NoDeadLetter()
}
