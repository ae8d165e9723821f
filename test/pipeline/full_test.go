package pipeline

import (
	"context"
	"encoding/json"
	"testing"

	"agentd/internal/broker/streams"
	"agentd/internal/core"
	"agentd/internal/harness"
	"agentd/sdk"
	"agentd/sdk/sdktest"
)

// A run whose calls find no room waits for it without a slot, so that others go on, and is not taken for one that workers die over.
func TestFullStream_KeepsNoSlot(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		asks []sdk.ToolRequest
		// handedBack reports whether the run's worker has given it back.
		handedBack func(core.State) bool
	}{
		"a call": {[]sdk.ToolRequest{add(1, 2)}, func(s core.State) bool { return s.Status == core.StatusWaiting }},
		"a call beside a tool": {
			[]sdk.ToolRequest{add(1, 2), sdktest.Tool("note", struct{}{})},
			func(s core.State) bool { return s.Driver != nil && s.Driver.Owner == "" },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			note := tool("note", func(context.Context, sdk.ToolCall) (json.RawMessage, error) { return json.RawMessage(`{}`), nil })
			h := harness.Start(t, harness.Options{
				Agents: []sdk.Agent{{Spec: desk(), Tools: []sdk.Tool{note}}}, Slots: 1,
				Model: sdktest.ModelFunc(func(_ context.Context, req sdk.ModelRequest) (sdk.ModelReply, error) {
					switch {
					case len(req.Messages) > 1:
						return sdk.ModelReply{Text: "three"}, nil
					case req.Messages[0].PlainText() == "quick":
						return sdk.ModelReply{Text: "done"}, nil
					}
					return sdk.ModelReply{Calls: test.asks}, nil
				}),
			})
			limitCalls(t, h, 1)
			r := h.Run("desk", hello())
			h.Until(r, "given back", test.handedBack)
			other := h.Init("desk", map[string]string{"message": "quick"})
			other.ID, other.Subject = "quick", "quick"
			wantResponse(t, h.Done(h.Send("desk", other)), "done")
			limitCalls(t, h, -1)
			h.Call("calc.add").Answer("calc.added", sum(3))
			wantResponse(t, h.Done(r), "three")
			for _, e := range h.Journal(r) {
				if d := e.Head.Driver; d != nil && d.Takeovers > 0 {
					t.Errorf("entry %d (%s) counts a death", e.Rev, e.Kind)
				}
			}
		})
	}
}

// limitCalls sets how many bytes the streams of calls may have.
func limitCalls(t *testing.T, h *harness.Harness, most int64) {
	t.Helper()
	zones, err := h.Conn().Zones(t.Context(), streams.Out)
	if err != nil {
		t.Fatal(err)
	}
	for _, z := range zones {
		stream, err := h.Conn().JetStream().Stream(t.Context(), streams.Name(h.Conn().Subjects(), z))
		if err != nil {
			t.Fatal(err)
		}
		cfg := stream.CachedInfo().Config
		cfg.MaxBytes = most
		if _, err := h.Conn().JetStream().UpdateStream(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
	}
}
