package runner_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"testing"

	"agentd/internal/core"
	"agentd/internal/runner"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// waking is a broker whose workers hear at once which runs are woken.
type waking struct {
	nowhere
	wake func(wire.RunKey)
}

func (w waking) Wake(_ string, run wire.RunKey) { w.wake(run) }

// A worker that was taken for dead stops what it is at when another one has ended its run: nobody would take the result.
func TestWake_StopsWhatIsAtWorkForARunThatAnotherWorkerEnded(t *testing.T) {
	t.Parallel()
	a := newTalk(t, calls("inline"))
	var at *runner.Runner
	worker := func() *runner.Runner {
		return runner.New(runner.Options{
			Store: a.store, Env: impatient{still{&issued}, &a.slow}, Catalog: only{a.agent}, Subjects: wire.DefaultSubjects(),
			Logger: slog.New(slog.DiscardHandler), Publisher: waking{wake: func(run wire.RunKey) {
				if err := at.Wake(t.Context(), run); err != nil {
					t.Error(err)
				}
			}},
		})
	}
	// Those before it have died over the tool: two beside others, and then as many as may have died alone with the run.
	const dead = 2 + core.MaxDeaths
	driver := 0
	var die context.CancelFunc
	a.agent.Inline["inline"] = sdk.Tool{Run: func(ctx context.Context, _ sdk.ToolCall) (json.RawMessage, error) {
		if driver <= dead {
			die()
			return nil, ctx.Err()
		}
		v := worker().Process(t.Context(), begun(driver+1))
		if v.Problem == nil || v.Problem.Code != sdk.CodePoison {
			t.Errorf("the message is settled with %+v, want a dead letter that says poison_run", v)
		}
		if ctx.Err() == nil {
			t.Error("the tool is at work, although its run has ended")
		}
		return json.RawMessage(`{}`), nil
	}}
	for driver = 1; driver <= dead+1; driver++ {
		var dies context.Context
		dies, die = context.WithCancel(t.Context())
		at = worker()
		if v := at.Process(dies, begun(driver)); v.Settlement != runner.Leave {
			t.Errorf("the message of worker %d is settled with %+v, want it left", driver, v)
		}
		die()
	}
	entries := journal(t, at, "order 7")
	if last := entries[len(entries)-1].Head; last.Termination() != "error:poison_run" {
		t.Errorf("the run ends with %s", last.Termination())
	}
}
