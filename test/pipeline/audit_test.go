package pipeline

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/audit/live"
	"agentd/internal/broker"
	"agentd/internal/broker/streams"
	"agentd/internal/harness"
	"agentd/internal/runner"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

// auditAll audits a system until it has come to rest, and returns what was violated then.
func auditAll(t *testing.T, conn *broker.Conn, store runner.Store) ([]live.Violation, live.Counts) {
	t.Helper()
	for deadline := time.Now().Add(harness.Patience); ; <-time.After(10 * time.Millisecond) {
		auditor, err := live.New(t.Context(), conn, store)
		if err != nil {
			t.Fatal(err)
		}
		var found []live.Violation
		err = auditor.All(t.Context(), time.Time{}, func(v live.Violation) error {
			found = append(found, v)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if auditor.Unsettled == 0 || time.Now().After(deadline) {
			return found, auditor.Counts
		}
	}
}

// sound fails for everything that an audit finds.
func sound(t *testing.T, conn *broker.Conn, store runner.Store) live.Counts {
	t.Helper()
	found, counts := auditAll(t, conn, store)
	for _, v := range found {
		t.Errorf("audit: %s %s", v.Name, v)
	}
	if counts.Unsettled > 0 {
		t.Errorf("%d messages are not settled", counts.Unsettled)
	}
	return counts
}

// parent is an agent that calls desk as a service.
func parent() sdk.AgentSpec {
	spec := desk()
	spec.Name, spec.Contract.Type, spec.Contract.URI = "parent", "parent", "#/parent"
	spec.Services = []sdk.ServiceTool{{Contract: desk().Contract, Version: version, TimeoutMillis: 60_000}}
	return spec
}

// oneWaits begins a run beside those of lives, which waits for two calls, and returns the first.
func oneWaits(h *harness.Harness) *harness.Call {
	ev := h.Init("desk", hello())
	ev.Subject, ev.ID = "waiting", "waiting"
	h.Send("desk", ev)
	call := h.Call("calc.add")
	h.Call("calc.add")
	return call
}

// lives is a system in which runs ended in all the ways that there are.
func lives(t *testing.T, start func(harness.Options) (*harness.Harness, vandal)) (*harness.Harness, vandal) {
	talk := desk()
	talk.Name, talk.Contract.Type, talk.Contract.URI, talk.Text = "talk", "talk", "#/talk", sdk.TextConverse
	hasty := desk()
	hasty.Name, hasty.Contract.Type, hasty.Contract.URI = "hasty", "hasty", "#/hasty"
	hasty.Services = []sdk.ServiceTool{hasty.Services[0]}
	hasty.Services[0].TimeoutMillis = 50
	hasty.Services[0].Retry = &sdk.Retry{Attempts: 2, BackoffMillis: 1}
	h, v := start(harness.Options{
		Agents: []sdk.Agent{{Spec: desk()}, {Spec: parent()}, {Spec: talk}, {Spec: hasty}},
		Model: sdktest.ModelFunc(func(_ context.Context, req sdk.ModelRequest) (sdk.ModelReply, error) {
			tool := add(1, 2)
			if strings.HasPrefix(req.Run, "parent") {
				tool = sdktest.Tool("desk", map[string]string{"message": "hello"})
				if strings.Contains(req.Run, "/") {
					tool = add(1, 2)
				}
			}
			if req.Interactions.Current == 0 && !strings.HasPrefix(req.Run, "talk") {
				return sdktest.Ask(tool, tool), nil
			}
			return sdktest.Say("three"), nil
		}),
	})
	send := func(agent string) harness.Run {
		ev := h.Init(agent, hello())
		if agent == "desk" { // one run with blobs
			ev = h.Init(agent, map[string]string{"message": strings.Repeat("large ", 60_000)})
		}
		ev.Subject, ev.ID, ev.Type = agent+" run", "init of "+agent, agent
		return h.Send(agent, ev)
	}
	h.Send("desk", h.Init("desk", hello())) // is cancelled below
	for range 2 {
		h.Call("calc.add")
	}
	answered := send("desk")
	for range 2 {
		call := h.Call("calc.add")
		call.Answer("calc.added", sum(3))
		call.Answer("calc.added", sum(3))
		late := call.Response("calc.added", sum(99))
		late.ID = "another"
		h.PublishAgain(call, late)
	}
	wantResponse(t, h.Done(answered), "three")

	mother := send("parent")
	for range 4 {
		h.Call("calc.add").Answer("calc.added", sum(3))
	}
	h.Done(mother)

	conversation := send("talk")
	turn := h.Call(sdk.TypeConversationTurn)
	wrong := turn.Response("agentd.conversation.answered", map[string]string{"text": "wrong"})
	wrong.ID = "wrong"
	h.PublishAgain(turn, wrong)
	h.DeadLetter()
	right := turn.Response("agentd.conversation.answered", map[string]any{"message": "bye", "end": true})
	h.PublishAgain(turn, right)
	h.Done(conversation)

	h.Done(send("hasty"))

	cancelled := harness.Run{Subject: t.Name(), Key: wire.NewRunKey(t.Name()), Agent: "desk", Init: wire.InitToken("com.test.client", "init-1")}
	h.Cancel(cancelled, "enough")
	wantProblem(t, h.Done(cancelled), "desk", sdk.CodeCancelled)

	h.Done(h.Run("ghost", hello()))
	refused := h.Init("desk", hello())
	refused.ID = "another init"
	h.Done(h.Send("desk", refused))
	h.PublishRaw(wire.DefaultSubjects().Start("desk"), []byte("{not json"))
	h.DeadLetter()
	return h, v
}

// A sound system has no violations, and each that is made is found where it is.
func TestAudit_FindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, start func(harness.Options) (*harness.Harness, vandal)) {
		h, v := lives(t, start)
		counts := sound(t, h.Conn(), h.Worker().Store)
		if counts.Runs != 7 || counts.Inits < 7 || counts.Entries < 20 || counts.Events < 20 || counts.Messages < 20 {
			t.Errorf("looked at %+v", counts)
		}
		store := h.Worker().Store
		run, conn, subjects := wire.NewRunKey("desk run"), h.Conn(), h.Conn().Subjects()
		done := subjects.Done("desk", run, wire.InitToken("com.test.client", "init of desk"))
		for _, test := range []struct {
			name, invariant string
			damage          func(context.Context) error
		}{
			// From mild to wild: each leaves the system as it is for the next.
			{"a terminal event is published twice", "I5", func(ctx context.Context) error {
				return publishLike(ctx, conn, done, func(m *nats.Msg) { m.Data = []byte(strings.Replace(string(m.Data), "three", "four", 1)) })
			}},
			{"the terminal event is gone", "R3", func(ctx context.Context) error { return erase(ctx, conn, streams.Done, done) }},
			{"an entry was altered", "I6", func(ctx context.Context) error { return v.alter(ctx, run) }},
			{"a blob is gone", "I6", func(ctx context.Context) error { return v.lose(ctx, run) }},
			{"an entry is not JSON", "I6", func(ctx context.Context) error { return v.scribble(ctx, run) }},
			{"the last entry is none", "I6", func(ctx context.Context) error { return v.behead(ctx, run) }},
		} {
			if err := test.damage(t.Context()); err != nil {
				t.Fatalf("%s: %v", test.name, err)
			}
			found, _ := auditAll(t, conn, store)
			ok := slices.ContainsFunc(found, func(v live.Violation) bool {
				return v.Invariant == test.invariant && v.Run == run.String()
			})
			if !ok {
				t.Errorf("%s: found %v, want %s", test.name, found, test.invariant)
			}
			for _, v := range found {
				if v.Run != run.String() {
					t.Errorf("%s: %s is about another run", test.name, v)
				}
			}
		}
	})
}

// erase deletes all messages on a filter.
func erase(ctx context.Context, conn *broker.Conn, z streams.Zone, filter string) error {
	stream, err := conn.JetStream().Stream(ctx, streams.Name(conn.Subjects(), z))
	if err != nil {
		return err
	}
	return stream.Purge(ctx, jetstream.WithPurgeSubject(filter))
}

// publishLike publishes a changed copy of the last message on a subject.
func publishLike(ctx context.Context, conn *broker.Conn, subject string, change func(*nats.Msg)) error {
	last, err := conn.Last(ctx, subject)
	if err != nil {
		return err
	}
	m := &nats.Msg{Subject: subject, Data: last.Data, Header: nats.Header{"Content-Type": {wire.ContentTypeStructured}}}
	change(m)
	_, err = conn.JetStream().PublishMsg(ctx, m)
	return err
}

// A message that a worker lost is found by what it did not lead to.
func TestAudit_FindsAnInitEventThatCameToNothing(t *testing.T) {
	t.Parallel()
	h := start(t, desk(), sdktest.Script(sdktest.Say("hi")))
	wantResponse(t, h.Done(h.Run("desk", hello())), "hi")
	h.StopWorkers()
	lost := h.Init("desk", hello())
	lost.Subject, lost.ID = "lost", "lost"
	h.Send("desk", lost)
	consumer, err := h.Conn().JetStream().Consumer(t.Context(), "AGENTD_START", "agent_desk")
	if err != nil {
		t.Fatal(err)
	}
	m, err := consumer.Next()
	if err != nil {
		t.Fatal(err)
	}
	if err := m.DoubleAck(t.Context()); err != nil {
		t.Fatal(err)
	}
	store := natsStore(h.Conn())
	found, _ := auditAll(t, h.Conn(), store)
	if len(found) != 1 || found[0].Invariant != "I10" || !strings.Contains(found[0].Detail, "AGENTD_START 2") {
		t.Errorf("found %v, want the init event in AGENTD_START 2", found)
	}
}
