package pipeline

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"agentd/internal/broker/streams"
	"agentd/internal/core"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

// An event that finds another one on its subject is not lost: it is among the dead letters, and its run goes on.
func TestConflict_IsDeadLettered(t *testing.T) {
	t.Parallel()
	h := start(t, desk(), sdktest.Script(sdktest.Ask(add(1, 2)), sdktest.Say("three")))
	r := h.Run("desk", hello())
	call := h.Call("calc.add")
	done := wire.DefaultSubjects().Done("desk", r.Key, r.Init)
	forged := h.Init("desk", hello())
	forged.ID = "forged"
	h.Publish(done, forged)
	call.Answer("calc.added", sum(3))
	d := h.DeadLetter()
	if d.Reason != string(sdk.CodeConflict) || d.Subject != done || !strings.Contains(string(d.Data), `{"response":"three"}`) {
		t.Errorf("dead letter %+v, want the terminal event that could not be published on %s", d, done)
	}
	h.Until(r, "done", func(s core.State) bool { return s.Status == core.StatusDone })
}

// A run whose last entry a later version wrote is left to a worker of that version.
func TestLaterLayout_IsLeftToOthers(t *testing.T) {
	t.Parallel()
	h := start(t, desk(), sdktest.Script(sdktest.Ask(add(1, 2)), sdktest.Say("three")))
	r := h.Run("desk", hello())
	h.Suspended(r, 1)
	last, err := h.Conn().Last(t.Context(), wire.DefaultSubjects().Journal(r.Key))
	if err != nil {
		t.Fatal(err)
	}
	later := &nats.Msg{Subject: last.Subject, Data: []byte(`{"v":99,"rev":3}`), Header: nats.Header{"Agentd-Rev": {"3"}, "Agentd-Etag": {"later"}}}
	if _, err := h.Conn().JetStream().PublishMsg(t.Context(), later); err != nil {
		t.Fatal(err)
	}
	h.Call("calc.add").Answer("calc.added", sum(3))
	rig := rig{t: t, client: h.Conn()}
	rig.until("the answer is given back and delivered again", func() bool { return rig.deliveries(streams.In) > 1 })
	h.NoDeadLetter()
}
