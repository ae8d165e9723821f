package interop

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/worker"
)

// Under another root than agentd, a service and a client of sdk/python do the same as under it; and what the client makes of data, and
// of a decision on several calls, counts.
func TestPythonSDK_OtherRoot(t *testing.T) {
	t.Parallel()
	w := newServer(t, docContract(t))
	w.work(worker.Options{Root: "acme", Agents: []sdk.Agent{{Spec: answersSpec(w.contract)}}, Models: func(sdk.ModelSpec) (sdk.Provider, error) {
		return sdktest.ModelFunc(func(_ context.Context, req sdk.ModelRequest) (sdk.ModelReply, error) {
			switch told := toolResults(req); len(told) {
			case 0:
				return sdktest.Ask(sdktest.Tool("ask_question", map[string]string{"question": "When?"})), nil
			case 1:
				return sdktest.Ask(sdktest.Tool("weather_forecast", city("Bern")), sdktest.Tool("weather_forecast", city("Rome"))), nil
			default:
				return sdktest.Say(strings.Join(told, "\n")), nil
			}
		}), nil
	}})
	operator := []string{"AGENTD_ROOT=acme", "NATS_USER=worker", "NATS_PASSWORD=hot"}
	service := pythonSDKCommand(t)
	service.env = append(service.env, operator...)
	run(t, service, w.host)
	client := pythonSDKClient(t, "answers_sdk.py")
	client.env = append(client.env, operator...)
	want := [][]any{
		{"result", `{"answer":"{\"month\":\"May\"}","content":{"month":"May"}}`},
		{"result", `{"text":"sunny in Bern"}`},
		{"result", `{"error":{"code":"permission_denied","message":"weather_forecast is not allowed: too far"}}`},
		{"again", true},
	}
	if diff := cmp.Diff(want, w.says(client)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// answersSpec is an agent whose calls people decide on, all of a round at once, and which asks them.
func answersSpec(service sdk.Contract) sdk.AgentSpec {
	spec := desk(service, time.Minute)
	spec.Builtin = []string{"ask_question"}
	spec.Permissions = &sdk.PermissionPolicy{
		Terms: sdk.PermissionPolicyTerms{Batch: true},
		Rules: []sdk.PermissionRule{{Tools: []string{"weather_forecast"}, Verdict: sdk.PermissionAsk}},
	}
	return spec
}

// toolResults are the texts that the model is told of its calls.
func toolResults(req sdk.ModelRequest) (texts []string) {
	for _, m := range req.Messages {
		for _, c := range m.Content {
			if c.Kind == sdk.ContentToolResult {
				texts = append(texts, c.Text)
			}
		}
	}
	return texts
}

// work runs a worker until the test ends.
func (w *world) work(o worker.Options) {
	w.t.Helper()
	serving, ended := make(chan struct{}), make(chan error, 1)
	o.URL, o.Provision, o.Serving = "nats://worker:hot@"+w.host, true, func() { close(serving) }
	o.Logger = slog.New(slog.NewTextHandler(w.t.Output(), nil))
	ctx, stop := context.WithCancel(context.WithoutCancel(w.t.Context()))
	go func() { ended <- worker.Run(ctx, o) }()
	w.t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			w.t.Errorf("the worker ended with %v", err)
		}
	})
	select {
	case <-serving:
	case err := <-ended:
		ended <- nil
		w.t.Fatalf("the worker does not start: %v", err)
	}
}
