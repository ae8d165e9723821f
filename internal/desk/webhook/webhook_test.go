package webhook_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"agentd/internal/broker/provision"
	"agentd/internal/desk"
	"agentd/internal/desk/webhook"
	"agentd/internal/harness"
	"agentd/internal/requests"
	"agentd/sdk"
	"agentd/sdk/client"
	"agentd/sdk/sdktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// told is a request that the webhook got.
type told struct {
	header http.Header
	body   []byte
}

func asker() sdk.AgentSpec {
	return sdk.AgentSpec{
		Name: "asker", Version: "1.0.0", Model: sdk.ModelSpec{Provider: "test", Name: "scripted"},
		Contract: sdk.Contract{URI: "#/test/asker", Type: "asker", Versions: map[string]sdk.ContractVersion{"1.0.0": {
			Accepts: json.RawMessage(`{"type":"object"}`),
			Emits: map[string]json.RawMessage{
				"asker.done": json.RawMessage(`{"type":"object","properties":{"response":{"type":"string"}},"required":["response"]}`),
			},
		}}},
		Builtin: []string{"ask_question"},
	}
}

// A webhook that fails at first, and whose teller dies, is told of what is still open: signed, with one id for each request.
func TestRun_TellsAtLeastOnceWhateverFails(t *testing.T) {
	var failures atomic.Int32
	failures.Store(2)
	got := make(chan told, 16)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		if failures.Add(-1) >= 0 {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		got <- told{r.Header, body}
	}))
	defer server.Close()
	ask := func(text string) sdk.ToolRequest {
		return sdktest.Tool("ask_question", map[string]string{"question": text})
	}
	h := harness.Start(t, harness.Options{
		Agents: []sdk.Agent{{Spec: asker()}}, Model: sdktest.Script(sdktest.Ask(ask("one?"), ask("two?")), sdktest.Say("done")),
	})
	target := webhook.Target{URL: server.URL + "/hook?key=private", Key: []byte("s3cret")}
	_, err := provision.Apply(t.Context(), h.Conn(), provision.Plan{Webhooks: []provision.Webhook{{Name: target.Name(), Domains: []string{sdk.HumanDomain}}}})
	if err != nil {
		t.Fatal(err)
	}
	r := h.Run("asker", map[string]string{})
	first, second := h.Call(sdk.TypeQuestion), h.Call(sdk.TypeQuestion)
	first.Answer("agentd.question.answered", map[string]string{"answer": "yes"})
	h.Suspended(r, 1)
	d, err := desk.Open(t.Context(), desk.Options{Conn: h.Conn()})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	var log strings.Builder
	run := func() (stop func()) {
		ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
		done := make(chan struct{})
		go func() {
			defer close(done)
			webhook.Run(ctx, webhook.Options{
				Conn: h.Conn(), Desk: d, Targets: []webhook.Target{target}, Logger: slog.New(slog.NewTextHandler(&log, nil)), Backoff: time.Millisecond,
			})
		}()
		return func() {
			cancel()
			<-done
		}
	}
	stop := run()
	one := next(t, got)
	stop()
	id, stamp := one.header.Get("Webhook-Id"), one.header.Get("Webhook-Timestamp")
	if id != second.Event.ID || one.header.Get("Idempotency-Key") != id || !strings.Contains(string(one.body), `"two?"`) {
		t.Errorf("told of %s: %s; want the open question %s", id, one.body, second.Event.ID)
	}
	if want := webhook.Sign([]byte("s3cret"), id, stamp, one.body); one.header.Get("Webhook-Signature") != want {
		t.Errorf("the signature is %s; want %s", one.header.Get("Webhook-Signature"), want)
	}
	if strings.Contains(log.String(), "private") || !strings.Contains(log.String(), "502") {
		t.Errorf("the log says %s; want the status and not the URL's secret", log.String())
	}
	second.Answer("agentd.question.answered", map[string]string{"answer": "yes"})
	h.Done(r)
	// Told once, it is not told again; what is asked while nobody tells is told later.
	event := h.Init("asker", map[string]string{})
	event.ID, event.Subject = "init-2", "another"
	h.Send("asker", event)
	h.Call(sdk.TypeQuestion)
	h.Call(sdk.TypeQuestion)
	defer run()()
	for range 2 {
		if later := next(t, got); strings.Contains(string(later.body), t.Name()) {
			t.Errorf("told again of %s", later.body)
		}
	}
}

// Whoever does not decide is reminded, with an id of its own for each reminder, until somebody does.
func TestRun_RemindsUntilSomebodyDecides(t *testing.T) {
	got := make(chan told, 16)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		got <- told{r.Header, body}
	}))
	defer server.Close()
	spec := asker()
	spec.Permissions = &sdk.PermissionPolicy{
		Rules: []sdk.PermissionRule{{Verdict: sdk.PermissionAsk}}, Terms: sdk.PermissionPolicyTerms{RemindMillis: 1000},
	}
	h := harness.Start(t, harness.Options{
		Agents: []sdk.Agent{{Spec: spec}},
		Model:  sdktest.Script(sdktest.Ask(sdktest.Tool("ask_question", map[string]string{"question": "one?"})), sdktest.Say("done")),
	})
	target := webhook.Target{URL: server.URL, Key: []byte("s3cret")}
	_, err := provision.Apply(t.Context(), h.Conn(), provision.Plan{Webhooks: []provision.Webhook{{Name: target.Name(), Domains: []string{sdk.HumanDomain}}}})
	if err != nil {
		t.Fatal(err)
	}
	d, err := desk.Open(t.Context(), desk.Options{Conn: h.Conn()})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		webhook.Run(ctx, webhook.Options{Conn: h.Conn(), Desk: d, Targets: []webhook.Target{target}, Logger: slog.New(slog.DiscardHandler)})
	}()
	defer func() {
		stop()
		<-done
	}()
	h.Run("asker", map[string]string{})
	request := h.Call(sdk.TypePermissionRequest)
	ids := map[string]bool{}
	for len(ids) < 3 {
		one := next(t, got)
		id := one.header.Get("Webhook-Id")
		kind := "agentd.approvals.added"
		if number, ok := strings.CutPrefix(id, request.Event.ID+"-reminder-"); ok {
			kind = "agentd.approvals.reminded"
			if !strings.Contains(string(one.body), `"reminded":`+number) {
				t.Errorf("the reminder %s has %s", id, one.body)
			}
		}
		if !strings.Contains(string(one.body), kind) {
			t.Errorf("told of %s: %s; want %s", id, one.body, kind)
		}
		ids[id] = true
	}
	reminded := false
	for number := uint64(0); !reminded; {
		changes, _, err := d.Changes(t.Context(), number)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range changes {
			number, reminded = c.Number, reminded || c.Kind == requests.ChangeReminded && c.Item.Reminded > 0
		}
	}
	if o, err := d.Decide(t.Context(), request.Event.ID, "", sdk.PermissionDecision{Decision: sdk.DecisionDeny}); err != nil || o.State != client.OutcomeCounted {
		t.Errorf("the decision became %+v, %v", o, err)
	}
}

func next(t *testing.T, got <-chan told) told {
	t.Helper()
	select {
	case one := <-got:
		return one
	case <-time.After(harness.Patience):
		t.Fatal("the webhook was not told")
	}
	return told{}
}

// The vector was made with openssl dgst -sha256 -hmac.
func TestSign_IsHMACOverIDTimeAndBody(t *testing.T) {
	const want = "v1,tljsTWNMfy3jZ8mPGH4Ouz6TH7w8bAS8KKXHsgafKLU="
	if got := webhook.Sign([]byte("s3cret"), "c1-0-x", "1790000000", []byte(`{"a":1}`)); got != want {
		t.Errorf("the signature is %s; want %s", got, want)
	}
}

// The example of the specification of Standard Webhooks, which its libraries verify.
func TestSign_IsThatOfStandardWebhooks(t *testing.T) {
	t.Parallel()
	key, err := webhook.Key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		t.Fatal(err)
	}
	const want = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
	if got := webhook.Sign(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", []byte(`{"test": 2432232314}`)); got != want {
		t.Errorf("the signature is %s, want %s", got, want)
	}
	if _, err := webhook.Key("whsec_not base64"); err == nil {
		t.Error("a secret that is not base64 is taken")
	}
}
