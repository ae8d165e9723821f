package pipeline

import (
	"context"
	"strings"
	"testing"

	"agentd/internal/harness"
	"agentd/internal/runner"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

// A quick reply is one entry with the answer that it replies to. To a model that takes longer, the answer is durable while it works.
func TestJoint_QuickRepliesAndSlowOnes(t *testing.T) {
	t.Parallel()
	for _, slow := range []bool{false, true} {
		onStores(t, func(t *testing.T, start func(harness.Options) (*harness.Harness, vandal)) {
			var h *harness.Harness
			key := wire.NewRunKey("trip")
			h, _ = start(harness.Options{
				Agents: []sdk.Agent{{Spec: desk()}},
				Model: sdktest.ModelFunc(func(ctx context.Context, req sdk.ModelRequest) (sdk.ModelReply, error) {
					if req.Interactions.Current == 0 {
						return sdktest.Ask(add(1, 2)), nil
					}
					for slow {
						records, err := h.Worker().Store.Entries(ctx, key, runner.Version{})
						if err != nil || len(records) == 3 {
							return sdktest.Say("three"), err
						}
					}
					return sdktest.Say("three"), nil
				}),
			})
			init := h.Init("desk", hello())
			init.Subject = "trip"
			r := h.Send("desk", init)
			h.Call("calc.add").Answer("calc.added", sum(3))
			wantResponse(t, h.Done(r), "three")
			var have []string
			for _, e := range h.Journal(r) {
				kind := e.Kind
				if e.Absorbed != nil {
					kind = e.Absorbed.Kind + "+" + kind
				}
				have = append(have, kind)
			}
			want := "started replied answered+replied"
			if slow {
				want = "started replied answered replied"
			}
			if got := strings.Join(have, " "); got != want {
				t.Errorf("the journal has %q, want %q", got, want)
			}
		})
	}
}
