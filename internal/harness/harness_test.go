package harness_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"go.uber.org/goleak"

	"agentd/internal/broker"
	"agentd/internal/broker/streams"
	"agentd/internal/harness"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hearing is a test that goes on when it has failed, and keeps why.
type hearing struct {
	testing.TB
	said []string
}

func (h *hearing) Fatalf(format string, args ...any) {
	h.said = append(h.said, fmt.Sprintf(format, args...))
}

func contract(contractType string) sdk.Contract {
	return sdk.Contract{URI: "#/" + contractType, Type: contractType, Versions: map[string]sdk.ContractVersion{"1.0.0": {
		Accepts: json.RawMessage(`{"type":"object"}`), Emits: map[string]json.RawMessage{contractType + ".done": json.RawMessage(`{"type":"object"}`)},
	}}}
}

// What nobody has waited for is seen, though nobody has asked for anything of its kind before, and what was waited for is not.
func TestHarness_SeesWhatNobodyHasWaitedFor(t *testing.T) {
	t.Parallel()
	heard := &hearing{TB: t}
	h := harness.Start(heard, harness.Options{
		Agents: []sdk.Agent{{Spec: sdk.AgentSpec{
			Name: "desk", Version: "1.0.0", Model: sdk.ModelSpec{Provider: "test", Name: "test"}, Contract: contract("desk"),
			Services: []sdk.ServiceTool{{Contract: contract("shop.find"), Version: "1.0.0"}},
		}}},
		Model: sdktest.Script(sdktest.Ask(sdktest.Tool("shop_find", map[string]string{})), sdktest.Say("done")),
	})
	stored := func(z streams.Zone, filter string) {
		t.Helper()
		if err := h.Conn().Watch(t.Context(), z, []string{filter}, func(broker.Delivery) bool { return false }); err != nil {
			t.Fatal(err)
		}
	}
	h.NoCall("shop.find")
	h.NoDeadLetter()
	h.Run("desk", map[string]string{})
	h.PublishRaw(h.Conn().Subjects().Start("desk"), []byte("no event"))
	stored(streams.Out, h.Conn().Subjects().All(wire.KindOut))
	stored(streams.DLQ, h.Conn().Subjects().All(wire.KindDLQ))
	h.NoCall("shop.lose")
	if len(heard.said) > 0 {
		t.Fatalf("it failed: %q", heard.said)
	}
	h.NoCall("shop.find")
	h.NoDeadLetter()
	if len(heard.said) != 2 {
		t.Errorf("it says %q of a call and a dead letter", heard.said)
	}
	heard.said = nil
	h.Call("shop.find")
	h.DeadLetter()
	h.NoCall("shop.find")
	h.NoDeadLetter()
	if len(heard.said) > 0 {
		t.Errorf("it failed though both were waited for: %q", heard.said)
	}
}
