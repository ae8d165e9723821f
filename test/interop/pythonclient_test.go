package interop

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/harness"
	"agentd/sdk"
	"agentd/sdk/sdktest"
)

// sdk/python agrees with the vectors of the wire.
func TestPythonSDK_Vectors(t *testing.T) {
	t.Parallel()
	lookPath(t, "python3")
	cmd := exec.CommandContext(t.Context(), "python3", "-m", "unittest", "discover", "-s", "tests")
	cmd.Dir = "../../sdk/python"
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "PYTHONPATH=.")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// A client of sdk/python starts runs, follows them, answers and decides what they ask, and ends them.
func TestPythonSDK_Client(t *testing.T) {
	t.Parallel()
	lookPath(t, "python3")
	w := &world{t: t, contract: docContract(t), log: &serverLog{}}
	w.host = w.startServer()
	spec := desk(w.contract, time.Minute)
	spec.Builtin = []string{"ask_question"}
	w.Harness = harness.Start(t, harness.Options{
		URL: "nats://worker:hot@" + w.host, Agents: []sdk.Agent{{Spec: spec}},
		Model: sdktest.Script(
			sdktest.Ask(sdktest.Tool("ask_question", map[string]string{"question": "When?"})),
			sdktest.Ask(sdktest.Tool("weather_forecast", city("Bern"))), sdktest.Say("done"),
		),
	})
	service := run(t, pythonSDKCommand(t), w.host)
	cmd := exec.CommandContext(t.Context(), "python3", absolute(t, "python/client_sdk.py"))
	cmd.Env = append(os.Environ(), "NATS_URL=nats://"+w.host, "NATS_USER=worker", "NATS_PASSWORD=hot", "NATS_CA=",
		"PYTHONDONTWRITEBYTECODE=1", "PYTHONPATH="+absolute(t, "../../sdk/python"))
	var log bytes.Buffer
	cmd.Stderr = &log
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s%s", err, out, &log)
	}
	var got [][]any
	for lines := json.NewDecoder(bytes.NewReader(out)); ; {
		var line []any
		if err := lines.Decode(&line); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		got = append(got, line)
	}
	want := [][]any{
		{"same run", true},
		{"asked", "When?"},
		{"result", []any{"desk.done", map[string]any{"response": "done"}, "completed:answer"}},
		{"milestones", []any{
			"run.started", "call.opened", "run.usage", "run.suspended", "call.result", "call.opened", "run.usage", "run.suspended",
			"call.result", "model.reply", "run.usage", "run.finished",
		}},
		{"again", true},
		{"permission for", "weather_forecast"},
		{"other arguments", "decision_refused"},
		{"denied", "completed:answer"},
		{"cancelled", []any{"cancelled", "cancelled:asked"}},
		{"done", "the third"},
		{"no such agent", "unavailable"},
		{"refused", []any{"contract_violation", []any{map[string]any{"path": "$.message", "expected": "string", "got": "number 7"}}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s\n%s", diff, &log)
	}
	if err := service.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := service.cmd.Wait(); err != nil {
		t.Errorf("after SIGTERM the service ended with %v", err)
	}
}
