package pipeline

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"agentd/internal/broker"
	"agentd/internal/broker/streams"
	"agentd/internal/core"
	"agentd/internal/runner"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

// deadly is a publisher that stands still at the first permission request, before it is published or after, and lets
// nothing more out.
type deadly struct {
	*broker.Conn
	after   bool
	reached chan struct{}
}

func (d *deadly) Publish(ctx context.Context, subject string, event wire.Event) error {
	if event.Type != sdk.TypePermissionRequest {
		return d.Conn.Publish(ctx, subject, event)
	}
	var err error
	if d.after {
		err = d.Conn.Publish(ctx, subject, event)
	}
	close(d.reached)
	<-ctx.Done()
	return err
}

// A worker dies after its entry is written and before the permission request is out, or after it is out and before the
// message is acked. Another one publishes the same request, or finds it, and asks no model again.
func TestDeath_PermissionIsAskedForOnce(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]bool{"before the publish": false, "before the ack": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := desk()
			spec.Permissions = asking(sdk.PermissionPolicyTerms{}, "calc_*")
			model := sdktest.Script(sdktest.Ask(add(1, 2)), sdktest.Say("three"))
			r := startRig(t, rig{specs: []sdk.AgentSpec{spec}, model: model}, 2*time.Second)
			reached := make(chan struct{})
			r.publisher = func(conn *broker.Conn) runner.Publisher { return &deadly{conn, after, reached} }
			first := r.work(time.Millisecond)
			run := r.begin("run")
			<-reached
			head := r.head(run)
			if out := len(r.requests()); len(head.Calls) != 2 || (out == 1) != after {
				t.Fatalf("%d calls are in the entry, %d requests are out", len(head.Calls), out)
			}
			want := head.Calls[1].ID
			r.kill(first)

			r.publisher = nil
			r.work(0)
			r.until("the run waits", func() bool { return r.head(run).Status == core.StatusWaiting })
			r.until("the request is out and the message acked", func() bool { return len(r.requests()) > 0 && r.floors()[0] == 1 })
			requests := r.requests()
			if len(requests) != 1 || requests[0].Call != want {
				t.Fatalf("the requests are %v, want one with the id %s", requests, want)
			}
			if n := len(model.Requests()); n != 1 {
				t.Errorf("the model was asked %d times before the decision", n)
			}
			r.allow(requests[0])
			r.answerSums("", nil)
			wantResponse(t, r.end(run), "three")
			if n := len(model.Requests()); n != 2 {
				t.Errorf("the model was asked %d times", n)
			}
			sound(t, r.client, r.store)
		})
	}
}

// requests are where permission requests are.
func (r *rig) requests() []wire.CallAddress {
	r.t.Helper()
	filter := fmt.Sprintf("%s.out.*.%s.>", r.client.Subjects().Root(), wire.NameToken(sdk.TypePermissionRequest))
	subjects, err := r.client.SubjectsUnder(r.t.Context(), streams.Out, filter)
	r.check("list permission requests", err)
	var all []wire.CallAddress
	for _, s := range subjects {
		address, err := r.client.Subjects().Parse(s)
		r.check("parse the subject of a request", err)
		all = append(all, address.Call)
	}
	return all
}

// allow answers a permission request.
func (r *rig) allow(at wire.CallAddress) {
	r.t.Helper()
	m, err := r.client.Last(r.t.Context(), r.client.Subjects().Call(at))
	r.check("read the request", err)
	event, err := wire.DecodeEvent(m.Headers, m.Data)
	r.check("decode the request", err)
	var asked struct {
		Hash string `json:"args_sha256"`
	}
	r.check("decode the request", json.Unmarshal(event.Data, &asked))
	data, err := json.Marshal(sdk.PermissionDecision{Decision: sdk.DecisionAllow, ArgsHash: asked.Hash})
	r.check("encode the decision", err)
	r.check("decide", r.client.Publish(r.t.Context(), r.client.Subjects().Reply(at), wire.Event{
		ID: "decision", Source: "com.test.person", Type: sdk.TypePermissionDecided, Subject: event.Subject,
		Time: time.UnixMilli(1_790_000_000_000), DataSchema: event.DataSchema, ParentID: event.ID, Data: data,
	}))
}
