package broker

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"agentd/internal/broker/embedded"
	"agentd/internal/broker/streams"
	"agentd/sdk"
	"agentd/sdk/wire"
	"agentd/test/ports"
)

func TestPublish_IsDoneOnceAndRefusesOthers(t *testing.T) {
	t.Parallel()
	c := provisioned(t)
	for _, subject := range []string{
		c.subjects.Call(testCall), c.subjects.Void(testCall), c.subjects.Reply(testCall),
		c.subjects.Done("travel.desk", testRun, wire.InitToken("test", "e")),
	} {
		for range 2 {
			mustPublish(t, c.Publish(testContext(t), subject, event("e")))
		}
		if err := c.Publish(testContext(t), subject, event("other")); !isCode(err, sdk.CodeConflict) {
			t.Errorf("other bytes on %s: %v", subject, err)
		}
	}
	for z, want := range map[streams.Zone]uint64{streams.Out: 2, streams.In: 1, streams.Done: 1} {
		if n := stored(t, c, z); n != want {
			t.Errorf("%s has %d messages; want %d", z, n, want)
		}
	}
}

// What the server answers on a reply subject that is an event's own does not use it up.
func TestPublish_TakesTheSubjectFromAnAnswerOfTheServer(t *testing.T) {
	t.Parallel()
	s := startServer(t, embedded.Options{})
	c := connect(t, ConnectOptions{InProcess: s})
	apply(t, c, testPlan)
	nc := stranger(t, s)
	subject := c.subjects.Reply(testCall)
	for _, answers := range []uint64{1, 3} {
		if err := nc.PublishRequest(c.subjects.Start("travel.desk"), subject, []byte("{}")); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the acknowledgement is stored", func() bool { return stored(t, c, streams.In) == answers })
		if there, err := c.Published(testContext(t), subject); err != nil || there {
			t.Fatalf("an event is there: %t, %v", there, err)
		}
		mustPublish(t, c.Publish(testContext(t), subject, event("e")))
		if n := stored(t, c, streams.In); n != answers+1 {
			t.Errorf("%d messages are stored; want %d", n, answers+1)
		}
		mustPublish(t, c.Publish(testContext(t), subject, event("e")))
		if n := stored(t, c, streams.In); n != answers+1 {
			t.Errorf("the same event is stored again after %d acknowledgements", n)
		}
	}
	if err := c.Publish(testContext(t), subject, event("other")); !isCode(err, sdk.CodeConflict) {
		t.Errorf("another event: %v", err)
	}
}

func TestPublish_TellsWhereToReply(t *testing.T) {
	t.Parallel()
	c := provisioned(t)
	mustPublish(t, c.Publish(testContext(t), c.subjects.Call(testCall), event("e")))
	d := first(t, c, streams.Out, c.subjects.Call(testCall))
	want := map[string][]string{
		"Content-Type": {"application/cloudevents+json"}, "agentd-reply": {c.subjects.Reply(testCall)},
	}
	got := map[string][]string{"Content-Type": d.Headers()["Content-Type"], "agentd-reply": d.Headers()["agentd-reply"]}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
	if d.Header("AGENTD-REPLY") != c.subjects.Reply(testCall) {
		t.Error("the header is not found by another spelling")
	}
	if reply, ok := c.ReplySubject(d.Subject()); !ok || reply != c.subjects.Reply(testCall) {
		t.Errorf("computed: %q, %v", reply, ok)
	}
	got2, err := wire.DecodeEvent(d.Headers(), d.Data())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(event("e"), got2); diff != "" {
		t.Errorf("event (-want +got):\n%s", diff)
	}
}

// A service that calls msg.Respond answers on the inbox of the publisher's acknowledgement.
func TestPublish_IsNotConfusedByACarelessResponder(t *testing.T) {
	t.Parallel()
	s := startServer(t, embedded.Options{})
	c := connect(t, ConnectOptions{InProcess: s})
	apply(t, c, testPlan)
	responses := make(chan error, 1000)
	nc := stranger(t, s)
	answers := []string{"thanks", `{"reservation": "LX1-7"}`, "", `{"error": {"code": 400}}`, `{"stream": ""}`}
	for i, answer := range answers {
		at := testCall
		at.Call += string(rune('a' + i))
		subject := c.subjects.Call(at)
		careless, err := nc.Subscribe(subject, func(m *nats.Msg) { responses <- m.Respond([]byte(answer)) })
		if err != nil {
			t.Fatal(err)
		}
		if err := nc.Flush(); err != nil {
			t.Fatal(err)
		}
		mustPublish(t, c.Publish(testContext(t), subject, event("e")))
		if err := c.Publish(testContext(t), subject, event("other")); !isCode(err, sdk.CodeConflict) {
			t.Errorf("other bytes, answered with %q: %v", answer, err)
		}
		if err := receive(t, "the response", responses); err != nil {
			t.Error(err)
		}
		if err := careless.Unsubscribe(); err != nil {
			t.Fatal(err)
		}
	}
	if n := stored(t, c, streams.Out); n != uint64(len(answers)) {
		t.Errorf("%d messages; want %d", n, len(answers))
	}
}

func TestPublish_WaitsForTheServer(t *testing.T) {
	t.Parallel()
	o := embedded.Options{Dir: shortDir(t), Listen: true, Port: ports.Free(t), PortOnly: true}
	s := startServer(t, o)
	c := connect(t, ConnectOptions{URL: s.URL()})
	apply(t, c, testPlan)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the loss is noticed", func() bool { return !c.Connected() })
	published := make(chan error, 1)
	go func() { published <- c.Publish(testContext(t), c.subjects.Call(testCall), event("e")) }()
	short, cancel := context.WithCancel(testContext(t))
	given := make(chan error, 1)
	go func() { given <- c.Publish(short, c.subjects.Void(testCall), event("v")) }()
	cancel()
	if err := receive(t, "the end of a publish that was given up", given); !errors.Is(err, context.Canceled) {
		t.Errorf("given up: %v", err)
	}
	startServer(t, o)
	if err := receive(t, "a publish to the new server", published); err != nil {
		t.Error(err)
	}
	first(t, c, streams.Out, c.subjects.Call(testCall))
}

func TestPublish_RefusesWhatIsTooLarge(t *testing.T) {
	t.Parallel()
	c := provisioned(t)
	large := event("e")
	large.Data = json.RawMessage(`{"text":"` + strings.Repeat("x", 2<<20) + `"}`)
	for name, err := range map[string]error{
		"publish": c.Publish(testContext(t), c.subjects.Call(testCall), large),
		"start":   c.Start(testContext(t), "travel.desk", large),
		"control": c.Control(testContext(t), wire.ControlCancel, "travel.desk", testRun, "", large),
	} {
		if !isCode(err, sdk.CodeTooLarge) {
			t.Errorf("%s: %v", name, err)
		}
	}
	mustPublish(t, c.Publish(testContext(t), c.subjects.Call(testCall), event("e"))) // the connection stands
}

// A stream without room may have none for long: who publishes there is told, and publishes again when there is some.
func TestPublish_SaysThatAStreamIsFull(t *testing.T) {
	t.Parallel()
	c := provisioned(t)
	done := c.subjects.Done("travel.desk", testRun, wire.InitToken("test", "e"))
	limit := func(stream string, messages int64) {
		t.Helper()
		s, err := c.js.Stream(testContext(t), stream)
		if err != nil {
			t.Fatal(err)
		}
		cfg := s.CachedInfo().Config
		cfg.MaxMsgs = messages
		if _, err := c.js.UpdateStream(testContext(t), cfg); err != nil {
			t.Fatal(err)
		}
	}
	for name, test := range map[string]struct {
		stream  string
		publish func(id string) error
	}{
		"a call":           {"AGENTD_OUT", func(id string) error { return c.Publish(testContext(t), c.subjects.Call(testCall)+id, event(id)) }},
		"a lost call":      {"AGENTD_OUT", func(id string) error { return c.Restore(testContext(t), c.subjects.Call(testCall)+"r"+id, event(id)) }},
		"a terminal event": {"AGENTD_DONE", func(id string) error { return c.Publish(testContext(t), done+id, event(id)) }},
		"an answer":        {"AGENTD_IN", func(id string) error { return c.Answer(testContext(t), c.subjects.Call(testCall), event(id)) }},
		"a control message": {"AGENTD_IN", func(id string) error {
			return c.Control(testContext(t), wire.ControlCancel, "travel.desk", testRun, "", event(id))
		}},
		"an init event": {"AGENTD_START", func(id string) error { return c.Start(testContext(t), "travel.desk", event(id)) }},
	} {
		mustPublish(t, test.publish("1"))
		limit(test.stream, 1)
		err := test.publish("2")
		want := "stream " + test.stream + " takes no writes, because it is at a limit of its own (maximum messages exceeded); raise it with: nats stream edit " + test.stream
		if !isCode(err, sdk.CodeUnavailable) || sdk.AsError(err).Message != want {
			t.Errorf("%s: %v", name, err)
		}
		limit(test.stream, -1)
		if err := test.publish("2"); err != nil {
			t.Errorf("%s, with room: %v", name, err)
		}
	}
}

func TestStart_SaysThatNothingIsProvisioned(t *testing.T) {
	t.Parallel()
	c := connect(t, ConnectOptions{InProcess: startServer(t, embedded.Options{})})
	if err := c.Start(testContext(t), "travel.desk", event("e")); !isCode(err, sdk.CodeUnavailable) {
		t.Errorf("got %v", err)
	}
}

func TestStartAndControl_MayShareASubject(t *testing.T) {
	t.Parallel()
	c := provisioned(t)
	for _, id := range []string{"one", "two"} {
		mustPublish(t, c.Start(testContext(t), "travel.desk", event(id)))
		mustPublish(t, c.Control(testContext(t), wire.ControlCancel, "travel.desk", testRun, "", event(id)))
	}
	if starts, controls := stored(t, c, streams.Start), stored(t, c, streams.In); starts != 2 || controls != 2 {
		t.Errorf("%d init events and %d controls; want 2 of each", starts, controls)
	}
	first(t, c, streams.In, c.subjects.Control(wire.ControlCancel, "travel.desk", testRun))
}

func TestDeadLetter_KeepsTheMessageAndDropsInstructions(t *testing.T) {
	t.Parallel()
	s := startServer(t, embedded.Options{})
	c := connect(t, ConnectOptions{InProcess: s})
	apply(t, c, testPlan)
	subject := c.subjects.Reply(testCall)
	_, err := stranger(t, s).RequestMsgWithContext(testContext(t), &nats.Msg{
		Subject: subject, Data: []byte("no event"), Header: nats.Header{
			"Nats-Msg-Id": {"guess"}, "ce-id": {"1"}, "Agentd-Reason": {"forged"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	d := first(t, c, streams.In, subject)
	for range 2 {
		mustPublish(t, c.DeadLetter(testContext(t), d, sdk.CodeInvalidEvent, "line 1\nline 2"))
	}
	if n := stored(t, c, streams.DLQ); n != 1 {
		t.Errorf("%d dead letters; want 1", n)
	}
	dead := first(t, c, streams.DLQ, "agentd.dlq.invalid_event.agentd_in.1")
	want := map[string][]string{
		"ce-id": {"1"}, "agentd-reason": {"invalid_event"}, "agentd-detail": {"line 1 line 2"}, "agentd-subject": {subject},
	}
	got := dead.Headers()
	for name := range got {
		if strings.HasPrefix(name, "Nats-Expected-") {
			delete(got, name) // ours
		}
	}
	if diff := cmp.Diff(want, got); diff != "" || string(dead.Data()) != "no event" {
		t.Errorf("body %q, headers (-want +got):\n%s", dead.Data(), diff)
	}
}

// A message of the largest size does not fit with the headers of a dead letter; it must not come back for ever.
func TestDeadLetter_LeavesOutABodyThatDoesNotFit(t *testing.T) {
	t.Parallel()
	s := startServer(t, embedded.Options{MaxPayload: 4096})
	c := connect(t, ConnectOptions{InProcess: s})
	apply(t, c, testPlan)
	subject := c.subjects.Reply(testCall)
	if _, err := stranger(t, s).Request(subject, make([]byte, 4096), deadline); err != nil {
		t.Fatal(err)
	}
	d := first(t, c, streams.In, subject)
	for range 2 {
		mustPublish(t, c.DeadLetter(testContext(t), d, sdk.CodeInvalidEvent, strings.Repeat("why ", 1000)))
	}
	dead := first(t, c, streams.DLQ, "agentd.dlq.>")
	if len(dead.Data()) != 0 || dead.Header(headerOmitted) == "" || dead.Header(headerSubject) != subject {
		t.Errorf("body of %d bytes, headers %v", len(dead.Data()), dead.Headers())
	}
}

func TestLive_ReachesWhoListens(t *testing.T) {
	t.Parallel()
	c := provisioned(t)
	live := wire.Live{Run: "trip-7", Agent: "travel.desk", Revision: 3, Index: 1, Type: "model.reply", Data: json.RawMessage(`{}`)}
	c.Live(live) // nobody listens: nothing happens
	got := make(chan wire.Live, 10)
	stop, err := c.WatchLive("travel.desk", testRun, func(l wire.Live) { got <- l }, func(error) {})
	if err != nil {
		t.Fatal(err)
	}
	live.Revision = 4
	c.Live(live)
	if diff := cmp.Diff(live, receive(t, "a live event", got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestLive_IsLostWhileTheServerIsAway(t *testing.T) {
	t.Parallel()
	o := embedded.Options{Dir: shortDir(t), Listen: true, Port: ports.Free(t), PortOnly: true}
	s := startServer(t, o)
	c := connect(t, ConnectOptions{URL: s.URL()})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the loss is noticed", func() bool { return !c.Connected() })
	text, err := json.Marshal(strings.Repeat("x", 1<<16))
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		c.Live(wire.Live{Run: "trip-7", Agent: "travel.desk", Data: text})
	}
	if n, err := c.nc.Buffered(); err != nil || n >= 1<<16 {
		t.Errorf("%d bytes wait for the server (%v)", n, err)
	}
	startServer(t, o)
	eventually(t, "it is connected again", c.Connected)
}
