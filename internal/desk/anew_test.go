package desk_test

import (
	"testing"
	"time"

	"agentd/internal/broker"
	"agentd/internal/broker/provision"
	"agentd/internal/broker/streams"
	"agentd/internal/desk"
	"agentd/internal/harness"
	"agentd/internal/requests"
	"agentd/internal/worker"
	"agentd/sdk"
	"agentd/sdk/sdktest"
)

// makeAnew deletes the stream of calls and provisions it again.
func makeAnew(t *testing.T, h *harness.Harness) {
	t.Helper()
	conn := h.Conn()
	if err := conn.JetStream().DeleteStream(t.Context(), streams.Name(conn.Subjects(), streams.Out)); err != nil {
		t.Fatal(err)
	}
	if _, err := provision.Apply(t.Context(), conn, worker.Plan([]sdk.AgentSpec{payer(sdk.PermissionPolicyTerms{})})); err != nil {
		t.Fatal(err)
	}
}

// A desk whose connection is closed says that it reads nothing any more.
func TestDesk_FailsWithItsConnection(t *testing.T) {
	t.Parallel()
	h := start(t, payer(sdk.PermissionPolicyTerms{}))
	conn, err := broker.Connect(t.Context(), broker.ConnectOptions{InProcess: h, Subjects: h.Conn().Subjects()})
	if err != nil {
		t.Fatal(err)
	}
	d, err := desk.Open(t.Context(), desk.Options{Conn: conn, Patience: harness.Patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-d.Failed():
		if !broker.Closed(err) {
			t.Errorf("it failed with %v", err)
		}
	case <-time.After(harness.Patience):
		t.Error("it goes on as if it read")
	}
}

// A desk whose stream of calls was made anew shows what is asked then, and not what is gone; and takes decisions.
func TestDesk_ReadsAStreamThatWasMadeAnew(t *testing.T) {
	t.Parallel()
	h := start(t, payer(sdk.PermissionPolicyTerms{}), sdktest.Ask(pay(1), pay(2)), sdktest.Say("paid"))
	d := open(t, h)
	h.Run("payer", map[string]string{})
	lost := untilOpen(t, d, 2)
	after := d.Number()
	makeAnew(t, h)
	event := h.Init("payer", map[string]string{})
	event.ID, event.Subject = "init-2", "another"
	r := h.Send("payer", event)
	items := until(t, d, "the requests of the other run alone", func(items []requests.Item) bool {
		return len(items) == 2 && items[0].Run == r.Subject && items[1].Run == r.Subject
	})
	gone := map[string]requests.Reason{}
	changes, _, err := d.Changes(t.Context(), after)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range changes {
		if c.Kind == requests.ChangeRemoved {
			gone[c.Item.ID] = c.Reason
		}
	}
	for _, i := range lost {
		if gone[i.ID] != requests.ReasonGone {
			t.Errorf("the request %s, which is gone, was removed with %q", i.ID, gone[i.ID])
		}
	}
	for _, i := range items {
		wantCounted(t, decide(t, d, i.ID, "", allow))
		h.Call("bank.pay").Answer("bank.paid", map[string]any{})
	}
	h.Done(r)
}
