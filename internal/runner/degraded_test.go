package runner_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"agentd/internal/runner"
	"agentd/internal/state/memory"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// silent is a model that never answers.
type silent struct{}

func (silent) Generate(ctx context.Context, _ sdk.ModelRequest, _ func(sdk.Delta)) (sdk.ModelReply, error) {
	<-ctx.Done()
	return sdk.ModelReply{}, ctx.Err()
}

// late is an Env in which all that has a time has had it.
type late struct{ still }

func (late) WithTimeout(ctx context.Context, _ time.Duration) (context.Context, context.CancelFunc) {
	return context.WithDeadline(ctx, time.Unix(0, 0))
}

// The text that a run completes with when its model does not answer in time is made an output in the run's own time, by code that may fail.
func TestDegraded_IsBuiltAfterTheModelsTime(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		build func(ctx context.Context, text string) (json.RawMessage, error)
		ends  string
		why   sdk.Code
	}{
		"in time": {func(ctx context.Context, text string) (json.RawMessage, error) {
			return json.RawMessage(`{"response":"` + text + `"}`), ctx.Err()
		}, "completed:degraded", ""},
		"by code that panics": {func(context.Context, string) (json.RawMessage, error) { panic("no") }, "", sdk.CodeUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			a := newTalk(t)
			a.agent.Model, a.agent.ModelKey, a.agent.Degraded, a.agent.Parks = silent{}, "m", "Sorry.", []sdk.Code{sdk.CodeUnavailable}
			a.agent.BuildOutput = func(ctx context.Context, in sdk.OutputInput) (json.RawMessage, string, error) {
				data, err := c.build(ctx, in.Text)
				return data, "", err
			}
			r := runner.New(runner.Options{
				Store: memory.New(), Publisher: nowhere{}, Env: late{still{&issued}}, Catalog: only{a.agent},
				Subjects: wire.DefaultSubjects(), Logger: slog.New(slog.DiscardHandler),
			})
			process(t, r, "order 7", starts, `{}`)
			entries := journal(t, r, "order 7")
			h := entries[len(entries)-1].Head
			if h.Termination() != c.ends || (h.Parked != nil) != (c.why != "") || h.Parked != nil && h.Parked.Code != c.why {
				t.Fatalf("the run is %s (%s) and parked for %+v, want it to end with %q, or parked for %q", h.Status, h.Termination(), h.Parked, c.ends, c.why)
			}
			if c.ends != "" && string(entries[len(entries)-1].Terminal.Data) != `{"response":"Sorry."}` {
				t.Errorf("it ends with %s", entries[len(entries)-1].Terminal.Data)
			}
		})
	}
}
