package interop

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/broker/streams"
	"agentd/internal/harness"
	"agentd/internal/reconcile"
	"agentd/internal/state/natsstore"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
	"agentd/test/missing"
)

// sdk/python agrees with the vectors of the wire, and its other tests pass, but for those of contracts where what it checks them with is missing.
func TestPythonSDK_Vectors(t *testing.T) {
	t.Parallel()
	lookPath(t, "python3")
	t.Run("with the optional packages", func(t *testing.T) {
		if err := output(".", "python3", "-c", "import jsonschema, yaml"); err != nil {
			missing.Optional(t, "jsonschema and pyyaml are not installed for python3: apt-get install python3-jsonschema python3-yaml")
		}
	})
	cmd := exec.CommandContext(t.Context(), "python3", "-m", "unittest", "discover", "-s", "tests")
	cmd.Dir = "../../sdk/python"
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "PYTHONPATH=.")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// sdk/node agrees with them as well, and its other tests pass.
func TestNodeSDK_Vectors(t *testing.T) {
	t.Parallel()
	dir := nodeSDKFolder(t)
	cmd := exec.CommandContext(t.Context(), "node", "--test", "agentd/test/")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "VECTORS="+absolute(t, "../../sdk/wire/testdata/wire.json"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// Clients of our packages in other languages start runs, follow them, answer and decide what they ask, and end them.
func TestSDKs_Client(t *testing.T) {
	t.Parallel()
	for name, sdk := range map[string]struct{ service, client func(*testing.T) command }{
		"python": {pythonSDKCommand, func(t *testing.T) command { return pythonSDKClient(t, "client_sdk.py") }},
		"node":   {nodeSDKCommand, func(t *testing.T) command { return nodeSDKClient(t, "client_sdk.mjs") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clientOf(t, sdk.service(t), sdk.client(t))
		})
	}
}

// pythonSDKClient is a program with sdk/python.
func pythonSDKClient(t *testing.T, file string) command {
	c := pythonSDKCommand(t)
	return command{args: []string{"python3", absolute(t, "python/"+file)}, env: c.env}
}

// nodeSDKClient is one with sdk/node.
func nodeSDKClient(t *testing.T, file string) command {
	return command{args: []string{"node", filepath.Join(nodeSDKFolder(t), file)}}
}

func clientOf(t *testing.T, service, client command) {
	w := newServer(t, docContract(t))
	spec := desk(w.contract, time.Minute)
	spec.Builtin = []string{"ask_question"}
	planner := desk(w.contract, time.Minute)
	planner.Name, planner.Model.Name, planner.Contract.URI, planner.Contract.Type = "planner", "planner", "#/planner", "planner"
	planner.Mode, planner.Plan = sdk.ModePlan, &sdk.PlanSpec{Review: &sdk.PermissionPolicyTerms{}}
	forecast := sdktest.Ask(sdktest.Tool("weather_forecast", city("Bern")))
	asks := sdktest.Script(sdktest.Ask(sdktest.Tool("ask_question", map[string]string{"question": "When?"})), forecast, sdktest.Say("done"))
	plans := sdktest.Script(sdktest.Say(`plan.add_step(step=1, text="Get the weather in Bern")`), forecast, sdktest.Say("done"))
	w.Harness = harness.Start(t, harness.Options{
		URL: "nats://worker:hot@" + w.host, Agents: []sdk.Agent{{Spec: spec}, {Spec: planner}},
		Model: sdktest.ModelFunc(func(ctx context.Context, req sdk.ModelRequest) (sdk.ModelReply, error) {
			if req.Model == "planner" {
				return plans.Generate(ctx, req, nil)
			}
			return asks.Generate(ctx, req, nil)
		}),
	})
	serving := run(t, service, w.host)
	got := w.says(client)
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
		{"plan", []any{"agentd.plan.review", "Get the weather in Bern"}},
		{"edited", "Get the weather in Rome"},
		{"carried out", "completed:answer"},
		{"cancelled", []any{"cancelled", "cancelled:asked"}},
		{"done", "the third"},
		{"no such agent", "unavailable"},
		{"refused", []any{"contract_violation", []any{map[string]any{"path": "$.message", "expected": "string", "got": "number 7"}}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if err := serving.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := serving.cmd.Wait(); err != nil {
		t.Errorf("after SIGTERM the service ended with %v", err)
	}
}

// A handler that never returns costs its call and no more: when the call is due, its service gives it up.
func TestSDKs_GiveUpWhatIsDue(t *testing.T) {
	t.Parallel()
	for name, service := range map[string]func(*testing.T) command{"python": pythonSDKCommand, "node": nodeSDKCommand} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, docContract(t), 5*time.Second, city("Limbo"), city("Bern"))
			run(t, service(t), w.host)
			w.served()
			got := w.results(w.start("trip"))
			if len(got) != 2 || !strings.Contains(got[0].Text, string(sdk.CodeDeadline)) || !strings.Contains(got[1].Text, "sunny in Bern") {
				t.Errorf("the model was told %+v", got)
			}
			w.settled()
			w.NoDeadLetter()
		})
	}
}

// An answer that cannot be sent is an error, at once: its handler is called once, and the calls beside it are answered.
func TestSDKs_AnswersThatCannotBeSent(t *testing.T) {
	t.Parallel()
	for name, service := range map[string]struct {
		command  func(*testing.T) command
		internal []string
	}{
		"python": {
			func(t *testing.T) command { return pythonSDKService(t, "unsendable_sdk.py") },
			[]string{"Strange", "Cycle", "Surrogate", "Wide", "Deep", "NaN", "Nothing", "List", "Text", "Cancelled"},
		},
		"node": {
			func(t *testing.T) command { return nodeSDKService(t, "unsendable_sdk.mjs") },
			[]string{"Strange", "Cycle", "Surrogate", "Wide", "Deep", "NaN", "Text", "List", "Nothing", "Map", "Unavailable"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := map[string]string{"Bern": "sunny in Bern", "Large": string(sdk.CodeTooLarge), "LargeError": string(sdk.CodeTooLarge)}
			for _, c := range service.internal {
				want[c] = string(sdk.CodeInternal)
			}
			cities := slices.Sorted(maps.Keys(want))
			var calls []map[string]any
			for _, c := range cities {
				calls = append(calls, city(c))
			}
			w := newWorld(t, docContract(t), time.Minute, calls...)
			p := run(t, service.command(t), w.host)
			told := w.results(w.start("trip"))
			for i, c := range cities {
				if !strings.Contains(told[i].Text, want[c]) || told[i].IsError != (c != "Bern") {
					t.Errorf("%s: the model was told %+v, want %s", c, told[i], want[c])
				}
				if n := strings.Count(p.log.String(), "CALLED "+c+"\n"); n != 1 {
					t.Errorf("%s: the handler was called %d times, want 1", c, n)
				}
			}
			w.settled()
			if n := w.consumerInfo().Delivered.Consumer; n != uint64(len(cities)) {
				t.Errorf("%d calls were delivered %d times", len(cities), n)
			}
			w.NoDeadLetter()
		})
	}
}

// An answer for which there is no room stays in hand until there is: its handler is not called again meanwhile.
func TestSDKs_KeepAnAnswerUntilThereIsRoom(t *testing.T) {
	t.Parallel()
	for name, service := range map[string]func(*testing.T) command{
		"python": func(t *testing.T) command { return pythonSDKService(t, "unsendable_sdk.py") },
		"node":   func(t *testing.T) command { return nodeSDKService(t, "unsendable_sdk.mjs") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, docContract(t), time.Minute, city("Bern"))
			s := said{w, run(t, service(t), w.host)}
			w.PublishRaw("agentd.in.local.other.desk."+wire.NewRunKey("other").String()+".x", nil)
			w.limitAnswers(1)
			r := w.start("trip")
			s.eventually("not stored yet: maximum messages exceeded")
			w.limitAnswers(-1)
			if got := w.results(r); len(got) != 1 || !strings.Contains(got[0].Text, "sunny in Bern") {
				t.Errorf("the model was told %+v", got)
			}
			w.settled()
			s.times(1, "CALLED Bern")
		})
	}
}

// Nor does it stay there when its call has come to its time: nobody waits for it any more.
func TestSDKs_GiveUpAnAnswerThatNobodyWaitsFor(t *testing.T) {
	t.Parallel()
	for name, service := range map[string]func(*testing.T) command{
		"python": func(t *testing.T) command { return pythonSDKService(t, "unsendable_sdk.py") },
		"node":   func(t *testing.T) command { return nodeSDKService(t, "unsendable_sdk.mjs") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, docContract(t), 10*time.Second, city("Bern"))
			s := said{w, run(t, service(t), w.host)}
			s.eventually("serving weather.forecast")
			w.PublishRaw("agentd.in.local.other.desk."+wire.NewRunKey("other").String()+".x", nil)
			w.limitAnswers(1)
			r := w.start("trip")
			s.eventually("not stored yet: maximum messages exceeded")
			if got := w.results(r); len(got) != 1 || !got[0].IsError {
				t.Errorf("the model was told %+v", got)
			}
			w.settled()
			if n := len(w.answers()); n != 0 {
				t.Errorf("there are %d answers", n)
			}
			s.times(1, "CALLED Bern")
		})
	}
}

// limitAnswers sets how many messages the stream of answers may have.
func (w *world) limitAnswers(most int64) {
	w.t.Helper()
	stream, err := w.Conn().JetStream().Stream(w.t.Context(), "AGENTD_IN")
	if err != nil {
		w.t.Fatal(err)
	}
	config := stream.CachedInfo().Config
	config.MaxMsgs = most
	if _, err := w.Conn().JetStream().UpdateStream(w.t.Context(), config); err != nil {
		w.t.Fatal(err)
	}
}

// A program that cancels its service, as it ends, has left what it had in hand to others.
func TestPythonSDK_CancelledService(t *testing.T) {
	t.Parallel()
	w := newWorld(t, docContract(t), time.Minute, city("Bern"))
	w.shorten()
	first := run(t, pythonSDKService(t, "cancelled_sdk.py"), w.host)
	r := w.start("trip")
	if err := first.cmd.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	if info := w.consumerInfo(); info.NumAckPending != 1 {
		t.Errorf("%d calls are to be delivered again, want 1", info.NumAckPending)
	}
	run(t, pythonSDKCommand(t), w.host)
	if got := w.results(r); len(got) != 1 || got[0].IsError || !strings.Contains(got[0].Text, "sunny in Bern") {
		t.Errorf("the model was told %+v", got)
	}
	w.settled()
	w.NoDeadLetter()
}

// What a run did can be removed while somebody follows it, or before they wait for it without knowing which request began it: both are told
// so, and do not ask for ever.
func TestSDKs_PurgedRun(t *testing.T) {
	t.Parallel()
	for name, client := range map[string]func(*testing.T) command{
		"python": func(t *testing.T) command { return pythonSDKClient(t, "client_conformance.py") },
		"node":   func(t *testing.T) command { return nodeSDKClient(t, "client_conformance.mjs") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := client(t)
			w := newWorld(t, docContract(t), time.Minute)
			init := w.Init("desk", map[string]string{"message": "hello"})
			init.Subject = "trip"
			w.Done(w.SendAs("worker", "desk", init))
			asked := map[string]any{"agent": "desk", "name": "trip"}
			if got := w.clientSays(c, map[string]any{"do": "wait", "run": asked}); got["result"] == nil {
				t.Errorf("before: %v", got)
			}
			store := natsstore.New(w.Conn().JetStream(), streams.Name(w.Conn().Subjects(), streams.Run), w.Conn().Subjects())
			if err := reconcile.Purge(t.Context(), w.Conn(), store, wire.NewRunKey("trip")); err != nil {
				t.Fatal(err)
			}
			for _, what := range []string{"follow", "wait"} {
				got, _ := w.clientSays(c, map[string]any{"do": what, "run": asked})["error"].(map[string]any)
				if got["code"] != "unknown_run" || !strings.Contains(fmt.Sprint(got["message"]), "its history was removed") {
					t.Errorf("%s: %v", what, got)
				}
			}
		})
	}
}

// says are the lines of JSON that a program prints, as the user who may do everything unless its environment says otherwise.
func (w *world) says(c command) (said [][]any) {
	w.t.Helper()
	ctx, stop := context.WithTimeout(w.t.Context(), harness.Patience)
	defer stop()
	cmd := exec.CommandContext(ctx, c.args[0], c.args[1:]...)
	cmd.Env = append(os.Environ(), "NATS_URL=nats://"+w.host, "NATS_USER=worker", "NATS_PASSWORD=hot", "NATS_CA=", "NATS_CERT=")
	cmd.Env = append(cmd.Env, c.env...)
	cmd.Stderr = w.t.Output()
	out, err := cmd.Output()
	if err != nil {
		w.t.Fatalf("%v\n%s", err, out)
	}
	for lines := json.NewDecoder(bytes.NewReader(out)); ; {
		var line []any
		if err := lines.Decode(&line); err == io.EOF {
			return said
		} else if err != nil {
			w.t.Fatal(err)
		}
		said = append(said, line)
	}
}

// clientSays is the first thing that a program of the conformance kit prints for a request.
func (w *world) clientSays(c command, request map[string]any) (said map[string]any) {
	w.t.Helper()
	line, err := json.Marshal(request)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(w.t.Context(), harness.Patience)
	defer stop()
	cmd := exec.CommandContext(ctx, c.args[0], c.args[1:]...)
	cmd.Env = append(os.Environ(), "NATS_URL=nats://"+w.host, "NATS_USER=worker", "NATS_PASSWORD=hot", "NATS_CA=", "NATS_CERT=")
	cmd.Env = append(cmd.Env, c.env...)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(append(line, '\n')), w.t.Output()
	out, err := cmd.Output()
	if err != nil {
		w.t.Fatalf("%s: %v\n%s", line, err, out)
	}
	if err := json.NewDecoder(bytes.NewReader(out)).Decode(&said); err != nil {
		w.t.Fatalf("%s: %v\n%s", line, err, out)
	}
	return said
}
