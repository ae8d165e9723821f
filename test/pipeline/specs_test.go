// Package pipeline tests what users and operators rely on, through the whole pipeline on an embedded server.
package pipeline

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"agentd/internal/harness"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(mortalWorker); url != "" {
		os.Exit(serveMortal(url))
	}
	goleak.VerifyTestMain(m)
}

const version = "1.0.0"

// desk is an agent with one service, calc.add.
func desk() sdk.AgentSpec {
	return sdk.AgentSpec{
		Name: "desk", Version: version, Model: sdk.ModelSpec{Provider: "test", Name: "test", ContextWindow: 500_000},
		Contract: contract("desk", "", `{"type":"object","properties":{"message":{"type":"string"},"count":{"type":"integer"}},"required":["message"]}`,
			"desk.done", `{"type":"object","properties":{"response":{"type":"string"}},"required":["response"]}`),
		Services: []sdk.ServiceTool{{
			Version: version, TimeoutMillis: 60_000,
			Contract: contract("calc.add", "", `{"type":"object","properties":{"a":{"type":"number"},"b":{"type":"number"}},"required":["a","b"]}`,
				"calc.added", `{"type":"object","properties":{"sum":{"type":"number"}},"required":["sum"]}`),
		}},
	}
}

func contract(contractType, domain, accepts, emits, schema string) sdk.Contract {
	return sdk.Contract{
		URI: "#/" + contractType, Type: contractType, Domain: domain,
		Versions: map[string]sdk.ContractVersion{version: {
			Accepts: json.RawMessage(accepts), Emits: map[string]json.RawMessage{emits: json.RawMessage(schema)},
		}},
	}
}

func add(a, b int) sdk.ToolRequest {
	return sdktest.Tool("calc_add", map[string]int{"a": a, "b": b})
}

func sum(n int) map[string]int { return map[string]int{"sum": n} }

func hello() map[string]string { return map[string]string{"message": "hello"} }

func start(t *testing.T, spec sdk.AgentSpec, model sdk.Provider) *harness.Harness {
	t.Helper()
	return harness.Start(t, harness.Options{Agents: []sdk.Agent{{Spec: spec}}, Model: model})
}

// problem decodes a system error event.
func problem(t *testing.T, ev wire.Event) wire.Problem {
	t.Helper()
	var p wire.Problem
	if err := json.Unmarshal(ev.Data, &p); err != nil {
		t.Fatalf("%s is not a problem: %v", ev.Data, err)
	}
	return p
}

func wantProblem(t *testing.T, ev wire.Event, agent string, code sdk.Code) wire.Problem {
	t.Helper()
	p := problem(t, ev)
	if ev.Type != wire.ErrorType(agent) || p.Code != code {
		t.Fatalf("ended with %s %s, want %s with code %s", ev.Type, ev.Data, wire.ErrorType(agent), code)
	}
	return p
}

func wantResponse(t *testing.T, ev wire.Event, text string) {
	t.Helper()
	if want := fmt.Sprintf(`{"response":%q}`, text); ev.Type != "desk.done" || string(ev.Data) != want {
		t.Fatalf("ended with %s %s, want desk.done %s", ev.Type, ev.Data, want)
	}
}
