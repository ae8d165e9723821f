package interop

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/accounts"
	"agentd/internal/core"
	"agentd/internal/harness"
	"agentd/internal/worker"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

// What a run makes of an answer or a decision, clients of our packages in other languages are told by its id, at once and later.
func TestSDKs_Outcome(t *testing.T) {
	t.Parallel()
	for name, client := range map[string]func(*testing.T) command{
		"python": func(t *testing.T) command { return pythonSDKClient(t, "outcome_sdk.py") },
		"node":   func(t *testing.T) command { return nodeSDKClient(t, "outcome_sdk.mjs") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newServer(t, docContract(t))
			spec := desk(w.contract, time.Minute)
			spec.Builtin = []string{"ask_question"}
			w.Harness = harness.Start(t, harness.Options{
				URL: "nats://worker:hot@" + w.host, Agents: []sdk.Agent{{Spec: spec}},
				Model: sdktest.Script(
					sdktest.Ask(sdktest.Tool("ask_question", map[string]string{"question": "When?"})),
					sdktest.Ask(sdktest.Tool("weather_forecast", city("Bern"))), sdktest.Say("done"),
				),
			})
			want := [][]any{
				{"answered", map[string]any{"state": "counted"}},
				{"somebody else's", map[string]any{"state": "sent"}},
				{"for the run", map[string]any{"state": "refused", "refused": `the scope "run+tool" was not offered`, "open": true}},
				{"denied", map[string]any{"state": "counted"}},
				{"later", map[string]any{"state": "counted"}},
				{"of no answer", map[string]any{"state": "sent"}},
			}
			if diff := cmp.Diff(want, w.says(client(t))); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			w.NoDeadLetter()
		})
	}
}

// Whoever `agentd nats-config` makes an approver sees a run that somebody else started, decides on what it asks, and follows it to its end.
func TestSDKs_ApproverOfOthersRuns(t *testing.T) {
	t.Parallel()
	for name, client := range map[string]func(*testing.T) command{
		"python": func(t *testing.T) command { return pythonSDKClient(t, "client_conformance.py") },
		"node":   func(t *testing.T) command { return nodeSDKClient(t, "client_conformance.mjs") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			approves(t, client(t))
		})
	}
}

func approves(t *testing.T, c command) {
	spec := desk(docContract(t), time.Minute)
	spec.Permissions = &sdk.PermissionPolicy{Rules: []sdk.PermissionRule{{Tools: []string{"weather_forecast"}, Verdict: sdk.PermissionAsk}}}
	w := &world{t: t, contract: docContract(t), log: &serverLog{}}
	users, err := accounts.Users(accounts.Plan{
		Subjects: wire.DefaultSubjects(), Broker: worker.Plan([]sdk.AgentSpec{spec}), Journals: true, Identity: true,
		Approvers: []accounts.Member{{Name: "jane"}}, WorkerName: "worker", OperatorName: "operator",
	})
	if err != nil {
		t.Fatal(err)
	}
	var config strings.Builder
	server := accounts.Server{Account: "AGENTD", Listen: "127.0.0.1:-1", StoreDir: filepath.Join(t.TempDir(), "data")}
	if err := accounts.Write(&config, server, users); err != nil {
		t.Fatal(err)
	}
	// The harness is a worker, an operator and a client, who may do everything.
	text := strings.Replace(config.String(), "users = [", "users = [\n{user: all, password: hot}", 1)
	for _, u := range users {
		text = strings.ReplaceAll(text, "$"+accounts.PasswordVariable(u.Name), "cold")
	}
	w.host = w.serve(text)
	w.Harness = harness.Start(t, harness.Options{
		URL: "nats://all:hot@" + w.host, Agents: []sdk.Agent{{Spec: spec}}, Identity: true,
		Model: sdktest.Script(sdktest.Ask(sdktest.Tool("weather_forecast", city("Bern"))), sdktest.Say("done")),
	})
	init := w.Init("desk", map[string]string{"message": "hello"})
	init.Subject = "trip"
	r := w.SendAs("bob", "desk", init)
	w.Suspended(r, 2)
	c.env = append(c.env, "NATS_USER=jane", "NATS_PASSWORD=cold")
	run := map[string]any{"agent": "desk", "name": "trip"}
	decided := w.clientSays(c, map[string]any{"do": "decide", "run": run, "decision": "deny"})
	if diff := cmp.Diff(map[string]any{"done": true}, decided); diff != "" {
		t.Fatal(diff)
	}
	if ev := w.Done(r); ev.Type != "desk.done" {
		t.Errorf("the run ended with %s %s", ev.Type, ev.Data)
	}
	if got := w.results(r); len(got) != 1 || !strings.Contains(got[0].Text, string(sdk.CodePermissionDenied)) {
		t.Errorf("the model was told %+v", got)
	}
	status, _ := w.clientSays(c, map[string]any{"do": "status", "run": run})["status"].(map[string]any)
	if status["status"] != string(core.StatusDone) || status["initiator"] != "bob" {
		t.Errorf("the run is %v", status)
	}
	w.NoDeadLetter()
}
