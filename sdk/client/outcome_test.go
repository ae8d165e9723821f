package client_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"agentd/sdk"
	"agentd/sdk/client"
	"agentd/sdk/wire"
)

// answered is a connection on which a run tells one thing when it is answered: live, or in its history alone.
type answered struct {
	client.Conn
	kind, data string
	live       bool
	handle     func(wire.Live)
	history    []wire.Live
}

func (a *answered) WatchLive(_ string, _ wire.RunKey, handle func(wire.Live), _ func(error)) (func() error, error) {
	a.handle = handle
	return func() error { return nil }, nil
}

func (a *answered) Reply(_ context.Context, _ string, event wire.Event) error {
	a.history = []wire.Live{{Type: a.kind, Revision: 1, Count: 1, Data: []byte(strings.ReplaceAll(a.data, "OURS", event.ID))}}
	if a.live {
		a.handle(a.history[0])
	}
	return nil
}

func (a *answered) Ask(_ context.Context, _ string, _ wire.Query, answer any) error {
	data, err := json.Marshal(wire.RunStatus{Milestones: a.history})
	if err != nil {
		return err
	}
	return json.Unmarshal(data, answer)
}

func (*answered) Subjects() wire.Subjects { return wire.DefaultSubjects() }

// An answer counts where the run took it: not where it took another, or none, for the same call.
func TestPublish_CountsOnesOwnAnswer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		asks, kind, data string
		want             client.OutcomeState
	}{
		{sdk.TypeQuestion, wire.MilestoneResult, `{"call":"c1","kind":"answer","event":"OURS"}`, client.OutcomeCounted},
		{sdk.TypeQuestion, wire.MilestoneResult, `{"call":"c1","kind":"answer","event":"another"}`, client.OutcomeSent},
		{sdk.TypeQuestion, wire.MilestoneResult, `{"call":"c1","kind":"timeout","error":true}`, client.OutcomeSent},
		{sdk.TypeQuestion, wire.MilestoneResult, `{"call":"c2","kind":"answer","event":"OURS"}`, client.OutcomeSent},
		{sdk.TypeQuestion, wire.MilestoneAnswered, `{"question":"c1","call":"c0","event":"OURS"}`, client.OutcomeCounted},
		{sdk.TypeQuestion, wire.MilestoneAnswered, `{"question":"c1","call":"c0","event":"another"}`, client.OutcomeSent},
		{sdk.TypeQuestion, wire.MilestoneAnswered, `{"question":"c1","call":"c0","error":true}`, client.OutcomeSent},
		{sdk.TypeQuestion, wire.MilestoneAnswered, `{"question":"c2","call":"c1","event":"OURS"}`, client.OutcomeSent},
		{sdk.TypeConversationTurn, wire.MilestoneAnswer, `{"call":"c1","message":"May","event":"OURS"}`, client.OutcomeCounted},
		{sdk.TypeConversationTurn, wire.MilestoneAnswer, `{"call":"c1","message":"May","event":"another"}`, client.OutcomeSent},
		{sdk.TypeConversationTurn, wire.MilestoneAnswer, `{"message":"May"}`, client.OutcomeSent},
		{"bank.review", wire.MilestoneResult, `{"call":"c1","kind":"answer","event":"OURS"}`, client.OutcomeCounted},
		{"bank.review", wire.MilestoneResult, `{"call":"c1","kind":"cancelled","error":true}`, client.OutcomeSent},
		{sdk.TypePermissionRequest, wire.MilestoneResult, `{"call":"c1","event":"OURS"}`, client.OutcomeSent},
	} {
		for _, live := range []bool{true, false} {
			conn := &answered{kind: c.kind, data: c.data, live: live}
			call := client.Call{Run: client.Run{Agent: "desk", Name: "trip"}, WaitingCall: wire.WaitingCall{Call: "c1", Event: "c1", Type: c.asks}}
			o, err := client.New(conn, client.Options{Patience: time.Millisecond}).Publish(t.Context(), call, "answered", []byte(`{}`), nil)
			if err != nil || o.State != c.want {
				t.Errorf("%s of %s, live %t: %+v, %v; want %s", c.kind+" "+c.data, c.asks, live, o, err, c.want)
			}
		}
	}
}
