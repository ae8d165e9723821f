package approvals

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/broker"
	"agentd/internal/desk"
	"agentd/internal/harness"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

// A desk that can read no more is not watched for ever; who interrupts it has seen what there was.
func TestWatch_EndsWithItsDesk(t *testing.T) {
	agent := sdk.AgentSpec{
		Name: "clerk", Version: "1.0.0", Model: sdk.ModelSpec{Provider: "test", Name: "scripted", ContextWindow: 200_000},
		Contract: sdk.Contract{URI: "#/test/clerk", Type: "clerk", Versions: map[string]sdk.ContractVersion{"1.0.0": {
			Accepts: []byte(`{"type":"object"}`), Emits: map[string]json.RawMessage{"clerk.done": []byte(`{"type":"object"}`)},
		}}},
	}
	h := harness.Start(t, harness.Options{Agents: []sdk.Agent{{Spec: agent}}, Model: sdktest.Script()})
	conn, err := broker.Connect(t.Context(), broker.ConnectOptions{InProcess: h, Subjects: wire.DefaultSubjects()})
	if err != nil {
		t.Fatal(err)
	}
	d, err := desk.Open(t.Context(), desk.Options{Conn: conn})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	a := &cli.App{Streams: cli.Streams{Out: &bytes.Buffer{}, Err: &bytes.Buffer{}}}
	interrupted, interrupt := context.WithCancel(t.Context())
	interrupt()
	if err := watch(interrupted, a, &deskClient{Desk: d}); err != nil {
		t.Errorf("interrupted, it ends with %v", err)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	if err := watch(t.Context(), a, &deskClient{Desk: d}); err == nil || !strings.HasPrefix(err.Error(), "what waits for people can be read no more: ") {
		t.Errorf("it ends with %v", err)
	}
}
