package pipeline

import (
	"testing"

	"github.com/nats-io/nats.go"

	"agentd/internal/harness"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

// Who sends an init event that cannot be decoded is told, as far as it says who it is; the message is a dead letter all the same.
func TestUnread_InitIsAnsweredToWhoeverSentIt(t *testing.T) {
	t.Parallel()
	h := start(t, desk(), sdktest.Script(sdktest.Ask(add(1, 2)), sdktest.Say("three")))
	said := h.Run("desk", hello()) // it goes on beside what follows
	call := h.Call("calc.add")
	send := func(agent string, headers nats.Header, body string) harness.DeadLetter {
		t.Helper()
		_, err := h.Conn().JetStream().PublishMsg(t.Context(), &nats.Msg{
			Subject: wire.DefaultSubjects().Start(agent), Header: headers, Data: []byte(body),
		})
		if err != nil {
			t.Fatal(err)
		}
		d := h.DeadLetter()
		if d.Reason != string(sdk.CodeInvalidEvent) {
			t.Errorf("dead letter %+v", d)
		}
		return d
	}
	const structured, binary = `{"specversion":"1.0","type":"desk","source":"/shop","id":`, "application/json"
	for id, tt := range map[string]struct {
		agent, subject, body string
		headers              nats.Header
		code                 sdk.Code
		path                 string
	}{
		"string":  {"desk", "", structured + `"string","data":"hello"}`, nil, sdk.CodeInvalidEvent, "$.data"},
		"named":   {"desk", "trip 1", structured + `"named","subject":"trip 1","time":"yesterday"}`, nil, sdk.CodeInvalidEvent, "$.time"},
		"cut":     {"desk", "trip 2", structured + `"cut","subject":"trip 2","data":{"message":`, nil, sdk.CodeInvalidEvent, ""},
		"unknown": {"ghost", "", structured + `"unknown","data":[]}`, nil, sdk.CodeUnknownAgent, ""},
		"binary": {
			"desk", "", "hello",
			nats.Header{"ce-specversion": {"1.0"}, "ce-type": {"desk"}, "ce-source": {"/shop"}, "ce-id": {"binary"}, "Content-Type": {binary}},
			sdk.CodeInvalidEvent, "$.data",
		},
		"100%": {
			"desk", "", `{"message":"hello"}`,
			nats.Header{"ce-specversion": {"1.0"}, "ce-type": {"desk"}, "ce-source": {"/shop"}, "ce-id": {"100%"}},
			sdk.CodeInvalidEvent, "$.id",
		},
	} {
		send(tt.agent, tt.headers, tt.body)
		r := harness.Run{Agent: tt.agent, Subject: tt.subject, Init: wire.InitToken("/shop", id)}
		if r.Subject == "" {
			r.Subject = wire.DefaultSubject(r.Init)
		}
		r.Key = wire.NewRunKey(r.Subject)
		end := h.Done(r)
		p := wantProblem(t, end, tt.agent, tt.code)
		if end.ParentID != id || end.To != "/shop" || end.Subject != r.Subject {
			t.Errorf("%s: the answer is %+v", id, end)
		}
		if tt.path != "" && (len(p.Faults) != 1 || p.Faults[0].Path != tt.path) {
			t.Errorf("%s: faults %v, want one at %s", id, p.Faults, tt.path)
		}
	}

	// It takes no run's end from whoever waits for that, and nobody can be told who does not say who it is.
	ev := h.Init("desk", hello())
	send("desk", nil, `{"specversion":"1.0","id":"`+ev.ID+`","source":"`+ev.Source+`","subject":"`+ev.Subject+`","type":"desk","data":"x"}`)
	send("desk", nil, `{"specversion":"1.0","id":"a","id":"b","source":"/shop","type":"desk"}`)
	call.Answer("calc.added", sum(3))
	wantResponse(t, h.Done(said), "three")
	done, err := h.Conn().JetStream().Stream(t.Context(), "AGENTD_DONE")
	if err != nil {
		t.Fatal(err)
	}
	if n := done.CachedInfo().State.Msgs; n != 7 {
		t.Errorf("there are %d terminal events, want 6 refusals and that of the run", n)
	}
	sound(t, h.Conn(), natsStore(h.Conn()))
}
