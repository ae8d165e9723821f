package runner_test

import (
	"context"
	"encoding/json"
	"testing"

	"agentd/internal/core"
	"agentd/internal/runner"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// init is an init event of the run; sequence tells those apart that a client published.
func (a *talk) init(sequence uint64) *runner.Message {
	to := starts
	to.Agent, to.Run = wire.NameToken("desk"), wire.NewRunKey("order 7")
	return &runner.Message{
		Address: to, Run: "order 7", Delivered: 1, Received: now, Cause: core.Cause{Stream: string(to.Kind), Sequence: sequence, EventID: "order 7"},
		Event: wire.Event{ID: "order 7", Source: "web", Type: "shop.desk", Subject: "order 7", Data: json.RawMessage(`{}`)},
	}
}

// hooked gives the agent a hook that notes when a run begins.
func (a *talk) hooked() {
	a.agent.Phases = []sdk.Hook{{Name: "notes", RunStart: func(context.Context, sdk.Snapshot) (sdk.StateEffects, error) {
		a.step("hook")
		return sdk.StateEffects{}, nil
	}}}
}

// read checks how often the head was read.
func (a *talk) read(want int) {
	a.Helper()
	if a.heads != want {
		a.Errorf("the head was read %d times, want %d", a.heads, want)
	}
}

// A run that begins is written without a look at the store; what may be there is looked at first.
func TestHead_IsNotReadForWhatIsNew(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]struct {
		set   func(*talk, *runner.Message)
		reads int
		steps string
	}{
		"new":                       {func(*talk, *runner.Message) {}, 0, "written model written published"},
		"delivered again":           {func(_ *talk, m *runner.Message) { m.Delivered = 2 }, 1, "written model written published"},
		"published before it began": {func(_ *talk, m *runner.Message) { m.Backlog = true }, 1, "written model written published"},
		"of an agent with hooks":    {func(a *talk, _ *runner.Message) { a.hooked() }, 1, "hook written model written published"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newTalk(t, calls("lookup"))
			r, m := a.worker(), a.init(1)
			of.set(a, m)
			a.handle(r, m, runner.Ack)
			a.read(of.reads)
			a.is(r, "", of.steps)
		})
	}
}

// A second init event of a run is found out by the store, which is read then; hooks do not see it.
func TestHead_IsReadForASecondInit(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]struct {
		set   func(*talk)
		steps string
	}{
		"without hooks": {func(*talk) {}, "refused"},
		"with hooks":    {(*talk).hooked, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newTalk(t, calls("lookup"))
			of.set(a)
			r, other := a.worker(), a.worker()
			a.handle(r, a.init(1), runner.Ack)
			a.heads, a.steps = 0, nil
			a.handle(other, a.init(2), runner.Ack)
			a.read(1)
			a.is(other, "", of.steps)
		})
	}
}
