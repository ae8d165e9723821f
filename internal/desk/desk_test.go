package desk_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"agentd/internal/broker"
	"agentd/internal/broker/streams"
	"agentd/internal/desk"
	"agentd/internal/harness"
	"agentd/internal/requests"
	"agentd/sdk"
	"agentd/sdk/client"
	"agentd/sdk/sdktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// payer is an agent that pays, and asks before.
func payer(terms sdk.PermissionPolicyTerms) sdk.AgentSpec {
	return sdk.AgentSpec{
		Name: "payer", Version: "1.0.0", Model: sdk.ModelSpec{Provider: "test", Name: "scripted", ContextWindow: 200_000},
		Contract: contract("#/test/payer", "payer", "payer.done", `{"type":"object"}`,
			`{"type":"object","properties":{"response":{"type":"string"}},"required":["response"]}`),
		Services: []sdk.ServiceTool{{
			Version: "1.0.0", Contract: contract("#/test/pay", "bank.pay", "bank.paid",
				`{"type":"object","properties":{"amount":{"type":"number"},"to":{"type":"string"}},"required":["amount"],"additionalProperties":false}`,
				`{"type":"object"}`),
		}},
		Builtin: []string{"ask_question"},
		Permissions: &sdk.PermissionPolicy{
			Rules: []sdk.PermissionRule{{
				Name: "money", Tools: []string{"bank_pay"}, Verdict: sdk.PermissionAsk, Reason: "it costs money", Risk: "high",
			}},
			Terms: terms,
		},
	}
}

func contract(uri, contractType, emits, accepts, answer string) sdk.Contract {
	return sdk.Contract{URI: uri, Type: contractType, Versions: map[string]sdk.ContractVersion{"1.0.0": {
		Accepts: json.RawMessage(accepts), Emits: map[string]json.RawMessage{emits: json.RawMessage(answer)},
	}}}
}

func pay(amount int) sdk.ToolRequest {
	return sdktest.Tool("bank_pay", map[string]any{"amount": amount, "to": "ACME"})
}

func start(t *testing.T, spec sdk.AgentSpec, replies ...sdk.ModelReply) *harness.Harness {
	t.Helper()
	return harness.Start(t, harness.Options{Agents: []sdk.Agent{{Spec: spec}}, Model: sdktest.Script(replies...)})
}

// startNamed is start where everybody must be named, with a run that joe has started.
func startNamed(t *testing.T, terms sdk.PermissionPolicyTerms, replies ...sdk.ModelReply) *harness.Harness {
	t.Helper()
	h := harness.Start(t, harness.Options{
		Agents: []sdk.Agent{{Spec: payer(terms)}}, Model: sdktest.Script(replies...), Identity: true,
	})
	h.Publish(h.Conn().Subjects().Start("payer")+".joe", h.Init("payer", map[string]string{}))
	return h
}

func open(t *testing.T, h *harness.Harness) *desk.Desk {
	t.Helper()
	d, err := desk.Open(t.Context(), desk.Options{Conn: h.Conn(), Patience: harness.Patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

// until waits until the desk shows what holds wants, and returns it.
func until(t *testing.T, d *desk.Desk, what string, holds func([]requests.Item) bool) []requests.Item {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	for {
		after := d.Number()
		items := d.List()
		if holds(items) {
			return items
		}
		if _, _, err := d.Changes(ctx, after); err != nil {
			t.Fatalf("the desk never showed %s; it shows %+v", what, items)
		}
	}
}

func untilOpen(t *testing.T, d *desk.Desk, n int) []requests.Item {
	t.Helper()
	return until(t, d, "as many items", func(items []requests.Item) bool { return len(items) == n })
}

func decide(t *testing.T, d *desk.Desk, id, who string, p sdk.PermissionDecision) client.Outcome {
	t.Helper()
	o, err := d.Decide(t.Context(), id, who, p)
	if err != nil {
		t.Fatalf("decide %s: %v", id, err)
	}
	return o
}

func wantCounted(t *testing.T, o client.Outcome) {
	t.Helper()
	if o.State != client.OutcomeCounted {
		t.Fatalf("the outcome is %+v; want it counted", o)
	}
}

var allow = sdk.PermissionDecision{Decision: sdk.DecisionAllow}

func TestDesk_ShowsAndDecidesAPermissionRequest(t *testing.T) {
	t.Parallel()
	h := start(t, payer(sdk.PermissionPolicyTerms{}), sdktest.Ask(pay(5)), sdktest.Say("paid"))
	d := open(t, h)
	r := h.Run("payer", map[string]string{})
	item := untilOpen(t, d, 1)[0]
	detail, err := d.Detail(t.Context(), item.Short)
	if err != nil {
		t.Fatal(err)
	}
	got := []any{item.Kind, item.Agent, item.Run, item.Tool, item.Risk, item.Summary, detail.Request.Reason, detail.Request.Rule}
	want := []any{requests.KindPermission, "payer", r.Subject, "bank_pay", "high", `{"amount":5,"to":"ACME"}`, "it costs money", "money"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the item (-want +got):\n%s", diff)
	}
	if left := time.UnixMilli(item.Expires).Sub(time.UnixMilli(item.Asked)); left <= 0 || left > sdk.DefaultPermissionTimeout+time.Minute {
		t.Errorf("the request expires after %s", left)
	}
	wantCounted(t, decide(t, d, item.Short, "jane", allow))
	h.Call("bank.pay").Answer("bank.paid", map[string]any{})
	h.Done(r)
	untilOpen(t, d, 0)
	if _, err := d.Find(item.Short); err == nil || !strings.Contains(err.Error(), "is not open: it was decided") {
		t.Errorf("the decided request is found with %v", err)
	}
	history, err := d.History(t.Context(), item)
	if err != nil || len(history) != 1 || history[0].Who != "jane" {
		t.Errorf("the history is %+v, %v; want jane's decision", history, err)
	}
}

// What is open survives the desk, and two desks agree on it.
func TestDesk_NothingIsLostWithTheDesk(t *testing.T) {
	t.Parallel()
	h := start(t, payer(sdk.PermissionPolicyTerms{}), sdktest.Ask(pay(1), pay(2), pay(3)), sdktest.Say("paid"))
	first := open(t, h)
	r := h.Run("payer", map[string]string{})
	items := untilOpen(t, first, 3)
	wantCounted(t, decide(t, first, items[1].ID, "", allow))
	first.Close()
	second, third := open(t, h), open(t, h)
	for _, d := range []*desk.Desk{second, third} {
		if left := untilOpen(t, d, 2); left[0].ID != items[0].ID || left[1].ID != items[2].ID {
			t.Errorf("a new desk shows %+v; want the first and the last request", left)
		}
	}
	wantCounted(t, decide(t, second, items[0].ID, "", allow))
	untilOpen(t, third, 1)
	wantCounted(t, decide(t, third, items[2].ID, "", sdk.PermissionDecision{Decision: sdk.DecisionDeny, Reason: "too much"}))
	for range 2 {
		h.Call("bank.pay").Answer("bank.paid", map[string]any{})
	}
	h.Done(r)
	h.NoCall("bank.pay")
}

// Two people decide at once. One of them counts, and the other is told so.
func TestDesk_TellsThatSomebodyElseWasQuicker(t *testing.T) {
	t.Parallel()
	h := start(t, payer(sdk.PermissionPolicyTerms{}), sdktest.Ask(pay(1), pay(2)), sdktest.Say("paid"))
	d := open(t, h)
	h.Run("payer", map[string]string{})
	item := untilOpen(t, d, 2)[0]
	h.StopWorkers()
	outcomes := make(chan client.Outcome, 2)
	for range 2 {
		go func() {
			o, err := d.Decide(context.WithoutCancel(t.Context()), item.ID, "", allow)
			if err != nil {
				t.Error(err)
			}
			outcomes <- o
		}()
	}
	seen := 0
	if err := h.Conn().Watch(t.Context(), streams.In, []string{"agentd.in.>"}, func(broker.Delivery) bool {
		seen++
		return seen < 2
	}); err != nil {
		t.Fatal(err)
	}
	h.Restart()
	first, second := <-outcomes, <-outcomes
	if first.State == client.OutcomeRefused {
		first, second = second, first
	}
	wantCounted(t, first)
	if second.State != client.OutcomeRefused || !strings.Contains(second.Refused, "the request is decided") {
		t.Errorf("the other outcome is %+v; want it refused", second)
	}
}

func TestDesk_WithoutAWorkerADecisionIsSentAndHandledLater(t *testing.T) {
	t.Parallel()
	h := start(t, payer(sdk.PermissionPolicyTerms{}), sdktest.Ask(pay(1)), sdktest.Say("paid"))
	d, err := desk.Open(t.Context(), desk.Options{Conn: h.Conn(), Patience: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	h.Run("payer", map[string]string{})
	item := untilOpen(t, d, 1)[0]
	h.StopWorkers()
	if o := decide(t, d, item.ID, "", allow); o.State != client.OutcomeSent {
		t.Errorf("the outcome is %+v; want it sent", o)
	}
	h.Restart()
	h.Call("bank.pay")
	untilOpen(t, d, 0)
}

func TestDesk_ACancelledRunWithdrawsWhatItAsked(t *testing.T) {
	t.Parallel()
	ask := sdktest.Tool("ask_question", map[string]any{"question": "Which account?"})
	h := start(t, payer(sdk.PermissionPolicyTerms{}), sdktest.Ask(pay(1), ask))
	d := open(t, h)
	r := h.Run("payer", map[string]string{})
	untilOpen(t, d, 2)
	h.Cancel(r, "no longer needed")
	untilOpen(t, d, 0)
}

func TestDesk_AnswersQuestionsAndTurns(t *testing.T) {
	t.Parallel()
	spec := payer(sdk.PermissionPolicyTerms{})
	spec.Text = sdk.TextConverse
	ask := sdktest.Tool("ask_question", map[string]any{"question": "Which account?", "suggestions": []string{"A", "B"}})
	h := start(t, spec, sdktest.Ask(ask), sdktest.Say("Anything else?"))
	d := open(t, h)
	r := h.Run("payer", map[string]string{})
	question := untilOpen(t, d, 1)[0]
	detail, err := d.Detail(t.Context(), question.Short)
	if err != nil {
		t.Fatal(err)
	}
	if detail.Text != "Which account?" || !slices.Equal(detail.Suggestions, []string{"A", "B"}) {
		t.Errorf("the question reads %q, %q", detail.Text, detail.Suggestions)
	}
	if _, err := d.Decide(t.Context(), question.ID, "", allow); err == nil {
		t.Error("a question was approved")
	}
	if _, err := d.Answer(t.Context(), question.ID, "", client.Reply{Text: " "}); err == nil {
		t.Error("an empty answer was sent")
	}
	o, err := d.Answer(t.Context(), question.ID, "jane", client.Reply{Text: "B"})
	if err != nil {
		t.Fatal(err)
	}
	wantCounted(t, o)
	turn := until(t, d, "the turn", func(items []requests.Item) bool { return len(items) == 1 && items[0].Kind == requests.KindTurn })[0]
	if turn.Summary != "Anything else?" {
		t.Errorf("the turn says %q", turn.Summary)
	}
	if o, err = d.Answer(t.Context(), turn.ID, "", client.Reply{Text: "No.", End: true}); err != nil {
		t.Fatal(err)
	}
	wantCounted(t, o)
	h.Done(r)
	untilOpen(t, d, 0)
	if left := open(t, h).List(); len(left) != 0 {
		t.Errorf("a new desk shows what was answered: %+v", left)
	}
}

// What fits the form of a tool that asks is its answer, as data or as a text; what does not is not sent.
func TestDesk_FillsInTheFormOfATool(t *testing.T) {
	t.Parallel()
	const form = `{"type":"object","required":["seat"],"properties":{"seat":{"type":"string","enum":["aisle","window"]},"row":{"type":"integer"}}}`
	book := sdk.Tool{
		Definition: sdk.ToolDefinition{Name: "book", Parameters: []byte(`{"type":"object"}`)},
		Run: func(_ context.Context, c sdk.ToolCall) (json.RawMessage, error) {
			if c.Answer == nil {
				return nil, sdk.AskPerson(sdk.Question{Question: "Which seat?", Schema: []byte(form)}, nil)
			}
			return c.Answer.Data, nil
		},
	}
	const full = `{"seat":"aisle","row":3}`
	for name, test := range map[string]struct {
		reply client.Reply
		// fault is that of a reply that is not sent, told what the tool is told else.
		fault, told string
	}{
		"the form":           {client.Reply{Data: []byte(full)}, "", `{"answer":"{\"row\":3,\"seat\":\"aisle\"}","content":{"row":3,"seat":"aisle"}}`},
		"the form as a text": {client.Reply{Text: full}, "", `{"answer":"{\"seat\":\"aisle\",\"row\":3}"}`},
		"as on the wire":     {client.Reply{Data: []byte(`{"answer":"","content":{"seat":"window"}}`)}, "", `{"answer":"","content":{"seat":"window"}}`},
		"declined":           {client.Reply{Data: []byte(`{"answer":"no","action":"decline"}`)}, "", `{"action":"decline","answer":"no"}`},
		"other words":        {client.Reply{Text: "the aisle, please"}, "", `{"answer":"the aisle, please"}`},
		"a wrong choice":     {client.Reply{Data: []byte(`{"seat":"floor"}`)}, "$.seat", ""},
		"a wrong text":       {client.Reply{Text: `{"seat":"aisle","row":"3"}`}, "$.row", ""},
		"without the seat":   {client.Reply{Data: []byte(`{}`)}, "$.seat", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := harness.Start(t, harness.Options{
				Agents: []sdk.Agent{{Spec: payer(sdk.PermissionPolicyTerms{}), Tools: []sdk.Tool{book}}},
				Model:  sdktest.Script(sdktest.Ask(sdktest.Tool("book", map[string]any{})), sdktest.Say("booked")),
			})
			d := open(t, h)
			r := h.Run("payer", map[string]string{})
			question := untilOpen(t, d, 1)[0]
			o, err := d.Answer(t.Context(), question.ID, "jane", test.reply)
			if test.fault != "" {
				if e := sdk.AsError(err); e.Code != sdk.CodeContractViolation || len(e.Faults) != 1 || e.Faults[0].Path != test.fault || len(d.List()) != 1 {
					t.Errorf("%v, and %d are open", err, len(d.List()))
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			wantCounted(t, o)
			h.Done(r)
			var results []string
			for _, m := range h.Messages(r) {
				for _, c := range m.Content {
					if c.IsResult() {
						results = append(results, c.Text)
					}
				}
			}
			if diff := cmp.Diff([]string{test.told}, results); diff != "" {
				t.Errorf("the tool is told (-want +got)\n%s", diff)
			}
		})
	}
}

// An answer that breaks the contract, from elsewhere, leaves the question open; also for a desk that is opened later.
func TestDesk_AQuestionWithAnUnusableAnswerIsOpenAgain(t *testing.T) {
	t.Parallel()
	ask := sdktest.Tool("ask_question", map[string]any{"question": "Which account?"})
	h := start(t, payer(sdk.PermissionPolicyTerms{}), sdktest.Ask(ask), sdktest.Say("paid"))
	d := open(t, h)
	r := h.Run("payer", map[string]string{})
	call := h.Call(sdk.TypeQuestion)
	call.Answer("agentd.question.answered", map[string]any{"answer": 5})
	h.DeadLetter()
	refusedOne := func(items []requests.Item) bool {
		return len(items) == 1 && len(items[0].Sent) == 1 && items[0].Sent[0].Refused != ""
	}
	until(t, d, "the question with its refused answer", refusedOne)
	late := open(t, h)
	item := until(t, late, "the question with its refused answer", refusedOne)[0]
	o, err := late.Answer(t.Context(), item.ID, "", client.Reply{Text: "A"})
	if err != nil {
		t.Fatal(err)
	}
	wantCounted(t, o)
	h.Done(r)
}

func TestDesk_ExpiredRequestsAreGone(t *testing.T) {
	t.Parallel()
	h := start(t, payer(sdk.PermissionPolicyTerms{TimeoutMillis: 100}), sdktest.Ask(pay(1)), sdktest.Say("gave up"))
	d := open(t, h)
	h.Done(h.Run("payer", map[string]string{}))
	untilOpen(t, d, 0)
}

func TestDesk_ThePrincipalMustBeAToken(t *testing.T) {
	t.Parallel()
	h := start(t, payer(sdk.PermissionPolicyTerms{}), sdktest.Ask(pay(1)), sdktest.Say("paid"))
	d := open(t, h)
	h.Run("payer", map[string]string{})
	item := untilOpen(t, d, 1)[0]
	for _, who := range []string{"jane.doe", "*", ">", "jane doe", strings.Repeat("j", 129)} {
		if _, err := d.Decide(t.Context(), item.ID, who, allow); !errors.Is(err, &sdk.Error{Code: sdk.CodeConfig}) {
			t.Errorf("principal %q: %v", who, err)
		}
	}
	wantCounted(t, decide(t, d, item.ID, "jane_doe-1", allow))
}

func TestDesk_ShortIDsAreUniqueBeginnings(t *testing.T) {
	t.Parallel()
	h := start(t, payer(sdk.PermissionPolicyTerms{}), sdktest.Ask(pay(1), pay(2), pay(3), pay(4)))
	d := open(t, h)
	h.Run("payer", map[string]string{})
	for _, i := range untilOpen(t, d, 4) {
		found, err := d.Find(i.Short)
		if err != nil || found.ID != i.ID || len(i.Short) > 8 {
			t.Errorf("%s finds %s, %v; want %s", i.Short, found.ID, err, i.ID)
		}
	}
	if _, err := d.Find("c1-"); err == nil || !strings.Contains(err.Error(), "4 open requests begin with") {
		t.Errorf("an ambiguous beginning is answered with %v", err)
	}
	if _, err := d.Find(""); err == nil {
		t.Error("the empty beginning finds something")
	}
}
