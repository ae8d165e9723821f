package seeds_test

import (
	"context"
	"encoding/json"
	"errors"
	"os/exec"
	"strings"
	"testing"

	"agentd/internal/broker"
	"agentd/internal/harness"
	"agentd/internal/runner"
	"agentd/internal/state/memory"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

// oneEngine is row B1: what drives runs needs no broker, itself or through what it imports, and imports no contracts.
func oneEngine(t *testing.T) {
	know, need := engineImports(t, "-f", `{{join .Imports "\n"}}`), engineImports(t, "-deps")
	ordered(t, know, "agentd/sdk\n")
	ordered(t, need, "agentd/internal/core\n", "agentd/internal/runner\n")
	for _, foreign := range []string{"agentd/internal/broker", "agentd/internal/handler", "github.com/nats-io/"} {
		equal(t, "the engine needs "+foreign, strings.Contains(need, foreign), false)
	}
	equal(t, "the engine knows contracts", strings.Contains(know, "agentd/internal/contracts"), false)
	// The same engine, whatever keeps its journals, drives a run that begins and one that goes on.
	journal := func(openStore func(*broker.Conn) runner.Store) []string {
		model := sdktest.Script(sdktest.Ask(sdktest.Tool("shop_find", n(1))), sdktest.Say("done"))
		h := harness.Start(t, harness.Options{
			Agents: []sdk.Agent{desk(service("shop.find"))}, Model: model, OpenStore: openStore,
		})
		r := h.Run("desk", message("hello"))
		h.Suspended(r, 1)
		h.Call("shop.find").Answer("shop.find.done", value("it"))
		succeeds(t, h, r, `{"response": "done"}`)
		var entries []string
		for _, e := range h.Parts(r) {
			messages, err := json.Marshal(e.Messages)
			if err != nil {
				t.Fatal(err)
			}
			entries = append(entries, e.Kind+" "+string(messages))
		}
		return entries
	}
	inMemory := journal(func(*broker.Conn) runner.Store { return memory.New() })
	equal(t, "journal", journal(nil), inMemory)
	equal(t, "entries", len(inMemory), 4)
}

// engineImports is what go list says of the two packages of the engine.
func engineImports(t *testing.T, of ...string) string {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", append(append([]string{"list"}, of...), "agentd/internal/core", "agentd/internal/runner")...)
	list.Stderr = t.Output()
	packages, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(packages)
}

// streamListener is row B12.
func streamListener(t *testing.T) {
	model := sdktest.Script(sdktest.Ask(sdktest.Tool("shop_find", n(1))), sdktest.Say("done"))
	h := start(t, model, desk(service("shop.find")))
	r, events := watchedRun(t, h, func() { h.Call("shop.find").Answer("shop.find.done", value("it")) })
	succeeds(t, h, r, `{"response": "done"}`)

	var types []string
	var revision uint64
	index := -1
	for _, event := range events {
		types = append(types, event.Type)
		if event.Run != r.Subject || event.Agent != "desk" {
			t.Errorf("%s names run %q of agent %q", event.Type, event.Run, event.Agent)
		}
		if event.Ephemeral {
			continue
		}
		if event.Revision < revision || event.Revision == revision && event.Index != index+1 {
			t.Errorf("%s is (%d, %d) after (%d, %d)", event.Type, event.Revision, event.Index, revision, index)
		}
		revision, index = event.Revision, event.Index
	}
	equal(t, "events", types, []string{
		wire.MilestoneStarted, wire.MilestoneCheckpoint,
		wire.LiveContextBudget, wire.LiveTurnStarted, wire.LiveCallStarted, wire.LiveDelta, wire.LiveCallEnded, wire.LiveUsage,
		wire.MilestoneCall, wire.MilestoneUsage, wire.MilestoneCheckpoint, wire.MilestoneSuspended,
		wire.MilestoneResult, wire.MilestoneCheckpoint,
		wire.LiveContextBudget, wire.LiveTurnStarted, wire.LiveMessageStarted, wire.LiveDelta, wire.LiveMessageEnded, wire.LiveUsage, wire.MilestoneReply, wire.MilestoneUsage, wire.MilestoneCheckpoint,
		wire.MilestoneFinished,
	})
}

// systemErrorEvent is row B19.
func systemErrorEvent(t *testing.T) {
	const secret = "password-hunter2"
	broken := errors.New("dial tcp 10.0.0.7: " + secret)
	speak := sdktest.Script(sdktest.Say("text"))
	crash := sdktest.ModelFunc(func(context.Context, sdk.ModelRequest) (sdk.ModelReply, error) { panic(secret) })
	fail := sdktest.ModelFunc(func(context.Context, sdk.ModelRequest) (sdk.ModelReply, error) {
		return sdk.ModelReply{}, broken
	})
	refuse := sdktest.ModelFunc(func(context.Context, sdk.ModelRequest) (sdk.ModelReply, error) {
		return sdk.ModelReply{}, sdk.Errorf(sdk.CodeModel, "refused").WithCause(broken)
	})
	for name, hurt := range map[string]struct {
		hooks sdk.Hooks
		model sdk.Provider
		input any
		code  sdk.Code
	}{
		"context builder fails": {model: speak, code: sdk.CodeConfig, hooks: sdk.Hooks{
			Context: func(context.Context, sdk.ContextInput) (sdk.Context, error) { return sdk.Context{}, broken },
		}},
		"context builder crashes": {model: speak, code: sdk.CodeConfig, hooks: sdk.Hooks{
			Context: func(context.Context, sdk.ContextInput) (sdk.Context, error) { panic(secret) },
		}},
		"output builder crashes": {model: speak, code: sdk.CodeInternal, hooks: sdk.Hooks{
			Output: func(context.Context, sdk.OutputInput) (json.RawMessage, error) { panic(secret) },
		}},
		"model refuses": {model: refuse, code: sdk.CodeModel},
		// Who has a model that fails otherwise waits for it, until the deadline.
		"model fails":    {model: fail, code: sdk.CodeDeadline},
		"model crashes":  {model: crash, code: sdk.CodeDeadline},
		"input is wrong": {model: speak, code: sdk.CodeContractViolation, input: map[string]any{"message": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			a := agent("desk", contract(deskType, `{"type": "object", "properties": {"message": {"type": "string"}}}`, textAnswer))
			a.Hooks = hurt.hooks
			if hurt.code == sdk.CodeDeadline {
				a.Spec.Limits.DeadlineMillis = 500
			}
			h := start(t, hurt.model, a)
			if hurt.input == nil {
				hurt.input = message("hello")
			}
			r := h.Run("desk", hurt.input)
			event := h.Done(r)
			equal(t, "attributes", []string{event.Type, event.Subject, event.ParentID, event.DataSchema},
				[]string{"sys.test.desk.error", r.Subject, "init-1", "#/test/test.desk/0.0.0"})
			var p wire.Problem
			if err := json.Unmarshal(event.Data, &p); err != nil {
				t.Fatal(err)
			}
			if p.Code != hurt.code || p.ErrorName == "" || p.ErrorMessage == "" || p.ErrorStack != nil {
				t.Errorf("problem %s, want code %s, a name, a message and no stack", event.Data, hurt.code)
			}
			encoded, err := event.Encode()
			if err != nil {
				t.Fatal(err)
			}
			for _, internal := range []string{secret, "10.0.0.7", "goroutine", ".go:"} {
				if strings.Contains(string(encoded), internal) {
					t.Errorf("the event tells %q: %s", internal, encoded)
				}
			}
		})
	}
	t.Run("tool crashes", func(t *testing.T) {
		a := desk()
		a.Tools = []sdk.Tool{internal("note", func(context.Context, sdk.ToolCall) ([]byte, error) { panic(secret) })}
		model := sdktest.Script(sdktest.Ask(sdktest.Tool("note", n(1))), sdktest.Say("done"))
		h := start(t, model, a)
		succeeds(t, h, h.Run("desk", message("hello")), `{"response": "done"}`)
		told := results(t, last(t, model).Messages, 1)[0]
		if problem(t, told).Code != sdk.CodeTool || strings.Contains(told.Text, secret) {
			t.Errorf("the model is told %s", told.Text)
		}
	})
}
