package pipeline

import (
	"bytes"
	"strings"
	"testing"

	"agentd/internal/broker"
	"agentd/internal/broker/streams"
	"agentd/internal/core"
	"agentd/internal/harness"
	"agentd/internal/runner"
	"agentd/internal/state/sealed"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/test/poll"
)

// safe is the store of runs in JetStream, sealed with keys that a test changes while no worker runs.
type safe struct {
	*sealed.Store
	inner runner.Store
}

// turn changes the keys: the first id is the current one.
func (s *safe) turn(t *testing.T, allowPlaintext bool, ids ...string) {
	t.Helper()
	o := sealed.Options{AllowPlaintext: allowPlaintext, Keys: map[string][]byte{}}
	for _, id := range ids {
		if o.Current == "" {
			o.Current = id
		}
		o.Keys[id] = bytes.Repeat([]byte(id[:1]), sealed.KeySize)
	}
	keys, err := sealed.NewKeyring(o)
	if err != nil {
		t.Fatal(err)
	}
	s.Store = sealed.New(s.inner, keys, nil)
}

// startSealed starts an agent whose runs are sealed with the key "a".
func startSealed(t *testing.T, spec sdk.AgentSpec, model sdk.Provider) (*harness.Harness, *safe) {
	t.Helper()
	s := &safe{}
	h := harness.Start(t, harness.Options{
		Agents: []sdk.Agent{{Spec: spec}}, Model: model,
		OpenStore: func(conn *broker.Conn) runner.Store {
			s.inner = natsStore(conn)
			s.turn(t, false, "a")
			return s
		},
	})
	return h, s
}

// TestSealed_NothingOfARunShowsInItsStore also turns the key while the run waits.
func TestSealed_NothingOfARunShowsInItsStore(t *testing.T) {
	t.Parallel()
	spec := desk()
	spec.System, spec.Model.ContextWindow = "xyzzy-system", 500_000
	h, s := startSealed(t, spec, sdktest.Script(sdktest.Ask(add(1, 2)), sdktest.Say("xyzzy-answer")))
	r := h.Run("desk", map[string]string{"message": "xyzzy-hello"})
	long := h.Init("desk", map[string]string{"message": string(bytes.Repeat([]byte("xyzzy-blob "), 40<<10))})
	long.Subject, long.ID = "long", "long"
	h.Suspended(h.Send("desk", long), 1)
	h.Suspended(r, 1)
	h.StopWorkers()
	s.turn(t, false, "b", "a")
	h.Restart()
	h.Call("calc.add").Answer("calc.added", sum(3))
	h.Call("calc.add").Answer("calc.added", sum(3))
	wantResponse(t, h.Done(r), "xyzzy-answer")
	if got := h.Messages(r)[0].PlainText(); got != "xyzzy-hello" {
		t.Errorf("the first message is %q", got)
	}

	stored := map[string]int{}
	err := h.Conn().Scan(t.Context(), streams.Run, ">", 1, func(m broker.Stored) (bool, error) {
		for _, text := range []string{"xyzzy", "calc", "desk", r.Subject} {
			if bytes.Contains(m.Data, []byte(text)) {
				t.Errorf("%q shows on %s", text, m.Subject)
			}
		}
		stored[strings.Split(m.Subject, ".")[1]]++
		return true, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"run", "blob", "spec"} {
		if stored[kind] == 0 {
			t.Errorf("nothing of kind %q is stored: %v", kind, stored)
		}
	}
}

func TestSealed_AMissingKeyLosesNothing(t *testing.T) {
	t.Parallel()
	h, s := startSealed(t, desk(), sdktest.Script(sdktest.Ask(add(1, 2)), sdktest.Say("three")))
	r := h.Run("desk", hello())
	h.Suspended(r, 1)
	h.StopWorkers()
	s.turn(t, false, "b")
	h.Restart()
	h.Call("calc.add").Answer("calc.added", sum(3))
	poll.Until(t, harness.Patience, "a worker that cannot open a run is not ready", func() bool { return s.Ready() != nil })
	// It serves what it can open.
	other := h.Init("desk", hello())
	other.Subject, other.ID = "other", "other"
	o := h.Send("desk", other)
	h.Call("calc.add").Answer("calc.added", sum(3))
	wantResponse(t, h.Done(o), "three")
	h.StopWorkers()
	s.turn(t, false, "b", "a")
	h.Restart()
	wantResponse(t, h.Done(r), "three")
	h.NoDeadLetter()
}

func TestSealed_AnAlteredEntryHarmsOnlyItsRun(t *testing.T) {
	t.Parallel()
	h, s := startSealed(t, desk(), sdktest.Script(sdktest.Ask(add(1, 2)), sdktest.Say("three")))
	r := h.Run("desk", hello())
	h.Suspended(r, 1)
	call := h.Call("calc.add")
	// Somebody who can write to the store puts the head of another run here.
	other := h.Init("desk", hello())
	other.Subject, other.ID = "other", "other"
	o := h.Send("desk", other)
	h.Suspended(o, 1)
	head, err := s.inner.Head(t.Context(), r.Key)
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := s.inner.Head(t.Context(), o.Key)
	if err != nil {
		t.Fatal(err)
	}
	foreign.Version = runner.Version{Rev: head.Rev + 1, Etag: foreign.Etag}
	if _, err := s.inner.Append(t.Context(), r.Key, head.Version, foreign); err != nil {
		t.Fatal(err)
	}
	call.Answer("calc.added", sum(3))
	if d := h.DeadLetter(); d.Reason != string(sdk.CodeCorrupt) || !strings.Contains(d.Detail, "does not authenticate") {
		t.Errorf("dead letter %+v", d)
	}
	h.Call("calc.add").Answer("calc.added", sum(3))
	wantResponse(t, h.Done(o), "three")
}

// TestSealed_TurnsOnForRunsThatWait: what was stored before is read while that is allowed, and sealed from then on.
func TestSealed_TurnsOnForRunsThatWait(t *testing.T) {
	t.Parallel()
	h, s := startSealed(t, desk(), sdktest.Script(sdktest.Ask(add(1, 2)), sdktest.Say("three")))
	h.StopWorkers()
	s.turn(t, false)
	h.Restart()
	r := h.Run("desk", hello())
	h.Suspended(r, 1)
	h.StopWorkers()
	s.turn(t, true, "a")
	h.Restart()
	h.Call("calc.add").Answer("calc.added", sum(3))
	wantResponse(t, h.Done(r), "three")
	head, err := s.inner.Head(t.Context(), r.Key)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := core.DecodeEntry(head.Data); err == nil {
		t.Error("the last entry is in plaintext")
	}
}
