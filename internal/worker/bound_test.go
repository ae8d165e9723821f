package worker_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"agentd/internal/broker"
	"agentd/internal/broker/embedded"
	"agentd/internal/broker/provision"
	"agentd/internal/state/memory"
	"agentd/internal/worker"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

func TestReady_NeedsTheConsumers(t *testing.T) {
	t.Parallel()
	server, err := embedded.Start(embedded.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	conn, err := broker.Connect(t.Context(), broker.ConnectOptions{InProcess: server, Subjects: wire.DefaultSubjects()})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	agent := sdk.Agent{Spec: sdk.AgentSpec{
		Name: "desk", Version: "1.0.0", Model: sdk.ModelSpec{Provider: "script", Name: "script"},
		Contract: sdk.Contract{URI: "#/desk", Type: "desk", Versions: map[string]sdk.ContractVersion{"1.0.0": {
			Accepts: json.RawMessage(`{"type":"object"}`), Emits: map[string]json.RawMessage{"desk.done": json.RawMessage(`{"type":"object"}`)},
		}}},
	}}
	w, err := worker.New(worker.Options{
		Conn: conn, Store: memory.New(), Agents: []sdk.Agent{agent},
		Models: func(sdk.ModelSpec) (sdk.Provider, error) { return sdktest.Script(sdktest.Say("Hello!")), nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "AGENTD_START/agent_desk") {
		t.Errorf("without its consumers the worker's readiness is %v", err)
	}
	if _, err := provision.Apply(t.Context(), conn, worker.Plan([]sdk.AgentSpec{agent.Spec})); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	for deadline := time.Now().Add(time.Minute); w.Ready(t.Context()) != nil; <-time.After(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Errorf("with its consumers the worker is not ready: %v", w.Ready(t.Context()))
			break
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
