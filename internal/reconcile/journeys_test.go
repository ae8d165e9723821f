package reconcile_test

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"agentd/internal/core"
	"agentd/internal/runner"
	"agentd/sdk"
	"agentd/sdk/wire"
	"agentd/test/poll"
)

// begun is a run that was started.
type begun struct {
	agent, subject, init string
	key                  wire.RunKey
}

// begin starts a run of desk with a plan.
func (r *rig) begin(steps string) begun {
	r.t.Helper()
	return r.beginOf("desk", steps)
}

// beginOf starts a run of an agent with a plan.
func (r *rig) beginOf(agent, steps string) begun {
	r.t.Helper()
	r.runs++
	ev := wire.Event{
		ID: fmt.Sprint("init-", r.runs), Source: "com.test.client", Type: agent, Subject: fmt.Sprint("run ", r.runs),
		Time: time.UnixMilli(1_790_000_000_000), Data: json.RawMessage(fmt.Sprintf(`{"message":%q}`, steps)),
	}
	r.check("start a run", r.conn.Start(r.context(), agent, ev))
	return begun{agent, ev.Subject, wire.InitToken(ev.Source, ev.ID), wire.NewRunKey(ev.Subject)}
}

// child is the run that a run's open call started.
func (r *rig) child(b begun) begun {
	r.t.Helper()
	call := r.head(b).Calls[0].ID
	subject := b.subject + "/" + call
	return begun{"clerk", subject, wire.InitToken("", call), wire.NewRunKey(subject)}
}

// await polls until holds.
func (r *rig) await(what string, holds func() bool) {
	r.t.Helper()
	poll.Until(r.t, patience, what, holds)
}

// head is the run's head; the zero Head if it has no journal.
func (r *rig) head(b begun) core.Head {
	r.t.Helper()
	rec, err := r.store.Head(r.context(), b.key)
	if err != nil {
		return core.Head{}
	}
	e, err := core.DecodeEntry(rec.Data)
	r.check("decode", err)
	return e.Head
}

// waiting waits until a run waits in that step.
func (r *rig) waiting(b begun, step int) {
	r.t.Helper()
	r.await(fmt.Sprintf("%s waits in step %d", b.subject, step), func() bool {
		h := r.head(b)
		return h.Status == core.StatusWaiting && h.Round == step
	})
}

// call is where the run's open call is.
func (r *rig) call(b begun) wire.CallAddress {
	r.t.Helper()
	h := r.head(b)
	if len(h.Calls) != 1 {
		r.t.Fatalf("%s has %d open calls, want 1", b.subject, len(h.Calls))
	}
	return wire.CallAddress{
		Domain: wire.LocalDomain, Type: wire.NameToken(h.Calls[0].Type), Agent: b.agent, Run: b.key, Call: h.Calls[0].ID,
	}
}

// answer answers a call of the calculator.
func (r *rig) answer(at wire.CallAddress) {
	r.t.Helper()
	r.check("answer", r.conn.Publish(r.context(), r.conn.Subjects().Reply(at), wire.Event{
		ID: "answer-" + at.Call, Source: "calc.add", Type: "calc.added", Subject: "any", ParentID: at.Call,
		Time: time.UnixMilli(1_790_000_000_000), Data: json.RawMessage(`{"sum":1}`),
		DataSchema: sdk.SchemaRef("#/calc.add", version),
	}))
}

// done waits for the terminal event of a client's run, and returns the code of its error: "" if it is none.
func (r *rig) done(b begun) sdk.Code {
	r.t.Helper()
	return r.doneWithin(b, patience)
}

func (r *rig) doneWithin(b begun, d time.Duration) sdk.Code {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.t.Context()), d)
	defer cancel()
	ev, err := r.conn.WaitDone(ctx, b.agent, b.key, b.init)
	r.check("wait for the end of "+b.subject, err)
	var problem struct {
		Code sdk.Code `json:"code"`
	}
	r.check("decode terminal event", json.Unmarshal(ev.Data, &problem))
	return problem.Code
}

// length is how many entries the run has.
func (r *rig) length(b begun) int {
	r.t.Helper()
	entries, err := r.store.Entries(r.context(), b.key, runner.Version{})
	r.check("read journal", err)
	return len(entries)
}
