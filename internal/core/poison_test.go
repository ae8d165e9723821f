package core_test

import (
	"encoding/json"
	"testing"

	"agentd/internal/core"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// A run is ended as poison only by the deaths of drivers that had nothing but this run: others may have had a driver's death from
// any of their runs. What the last one was at is said.
func TestTakenOver_OnlyDeathsOfWhoWasAloneCount(t *testing.T) {
	t.Parallel()
	r := newRig(newSpec(inline("add", false), inline("burn", false)))
	mustStep(t, r, r.deliver("init-1", started("order 7", "hello")))
	mustStep(t, r, r.drive(r.replied("", sdk.ToolRequest{Name: "add", Arguments: `{}`})))
	if r.state.Driver.Suspect() {
		t.Error("the first driver of a run is to be alone")
	}
	for n := 1; n <= 20; n++ {
		mustStep(t, r, r.redelivery())
		if d := r.state.Driver; d.Takeovers != n || d.Deaths != 0 || d.Suspect() != (n >= 2) {
			t.Fatalf("after %d deaths beside others the driver is %+v", n, d)
		}
	}
	r.alone = true
	mustStep(t, r, r.redelivery()) // its former driver was not alone yet
	for n := 1; n <= 5; n++ {
		mustStep(t, r, r.redelivery())
		if d := r.state.Driver; d.Deaths != n || !d.Alone {
			t.Fatalf("after %d deaths alone the driver is %+v", n, d)
		}
	}
	mustStep(t, r, r.drive(core.Released{}))
	mustStep(t, r, r.input("handed on", r.causes["w1"], core.TakenOver{}))
	if d := r.state.Driver; d.Deaths != 5 || !d.Suspect() {
		t.Fatalf("after it was handed on the driver is %+v", d)
	}
	done := mustStep(t, r, r.redelivery())
	var p wire.Problem
	if err := json.Unmarshal(done.Terminal.Data, &p); err != nil || r.state.Status != core.StatusDone {
		t.Fatalf("the run is %s: %v", r.state.Status, err)
	}
	want := "6 workers in a row stopped while they worked on nothing but this run, the last one while running add"
	if p.Code != "poison_run" || p.ErrorMessage != want {
		t.Errorf("it ended with %s %q, want %q", p.Code, p.ErrorMessage, want)
	}
}

// Whoever gets on with a run need not be alone any more.
func TestTakenOver_ProgressClearsTheRun(t *testing.T) {
	t.Parallel()
	r := newRig(newSpec(inline("add", false)))
	r.alone = true
	mustStep(t, r, r.deliver("init-1", started("order 7", "hello")))
	for range 4 {
		mustStep(t, r, r.redelivery())
	}
	mustStep(t, r, r.drive(r.replied("", sdk.ToolRequest{Name: "add", Arguments: `{}`})))
	if d := r.state.Driver; d.Takeovers != 0 || d.Deaths != 0 || d.Alone || d.Suspect() {
		t.Errorf("after it got on the driver is %+v", d)
	}
}

// Who takes the run from itself, because it did not know that it had it, has not died.
func TestTakenOver_FromItselfCountsNothing(t *testing.T) {
	t.Parallel()
	r := newRig(newSpec(inline("add", false)))
	mustStep(t, r, r.deliver("init-1", started("order 7", "hello")))
	mustStep(t, r, r.redelivery())
	r.alone = true
	for range 10 {
		mustStep(t, r, r.drive(core.TakenOver{}))
	}
	if d := r.state.Driver; d.Takeovers != 1 || d.Deaths != 0 {
		t.Errorf("the driver is %+v, want one takeover", d)
	}
}
