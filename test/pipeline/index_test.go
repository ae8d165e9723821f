package pipeline

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"agentd/internal/broker"
	"agentd/internal/broker/provision"
	"agentd/internal/harness"
	"agentd/internal/index"
	"agentd/internal/index/ask"
	"agentd/internal/index/sqlite"
	"agentd/internal/reconcile"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

// indexed makes the index of runs, and has workers find it.
func indexed(t *testing.T, h *harness.Harness) {
	t.Helper()
	if _, err := provision.Apply(t.Context(), h.Conn(), provision.Plan{Index: true}); err != nil {
		t.Fatal(err)
	}
	h.StopWorkers()
	h.Restart()
}

var errEnough = errors.New("enough")

// documents are those that come to be stored from a sequence on, up to one that is the last.
func documents(t *testing.T, h *harness.Harness, from uint64, last func(broker.IndexedRun) bool) []broker.IndexedRun {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), harness.DefaultPatience())
	defer cancel()
	var all []broker.IndexedRun
	err := h.Conn().TailIndex(ctx, from, func(i broker.IndexedRun, _ uint64) error {
		if all = append(all, i); last(i) {
			return errEnough
		}
		return nil
	})
	if !errors.Is(err, errEnough) {
		t.Fatalf("%d documents came, and not the one that was waited for: %v", len(all), err)
	}
	return all
}

func decoded(t *testing.T, i broker.IndexedRun) *index.Document {
	t.Helper()
	d, err := index.Decode(i.Data)
	if err != nil {
		t.Fatal(err)
	}
	return &d
}

// TestIndex_SaysHowARunGetsOn also loses a document, and removes the run's history.
func TestIndex_SaysHowARunGetsOn(t *testing.T) {
	t.Parallel()
	spec := desk()
	h := harness.Start(t, harness.Options{Agents: []sdk.Agent{{Spec: spec}}, Model: sdktest.Script(sdktest.Ask(add(1, 2)), sdktest.Say("3"))})
	indexed(t, h)
	published := make(chan string, 100)
	stop, err := h.Conn().Tail(h.Conn().Subjects().Root()+".idx.*.*", func(subject string, _ map[string][]string, _ []byte) { published <- subject })
	if err != nil {
		t.Fatal(err)
	}
	init := h.Init("desk", map[string]any{"message": "Add one and two", "from": map[string]string{"place": "Lisbon"}})
	init.Extensions = map[string]any{wire.TagsAttribute: "tenant=acme,order=7"}
	r := h.Send("desk", init)
	call := h.Call("calc.add")
	waits := documents(t, h, 1, func(i broker.IndexedRun) bool { return bytes.Contains(i.Data, []byte(`"waits"`)) })
	last := waits[len(waits)-1]
	got := decoded(t, last)
	want := &index.Document{
		V: 1, Run: r.Subject, Agent: "desk", Status: wire.StatusWaiting, Waits: []index.Wait{{Kind: "service", Tool: "calc_add"}},
		Tags: map[string]string{"tenant": "acme", "order": "7"}, Text: "Add one and two Lisbon", Turns: 1,
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(index.Document{}, "Spec", "Rev", "Etag", "Started", "Changed", "Due", "Deadline", "Tokens"), cmpopts.IgnoreFields(index.Wait{}, "ID")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	journal := h.Journal(r)
	opened := journal[got.Rev-1]
	if got.Etag != opened.Etag || got.Started != journal[0].At || got.Changed != opened.At || got.Due != opened.Head.Calls[0].Due || got.Waits[0].ID != opened.Head.Calls[0].ID || got.Deadline != opened.Head.Deadline {
		t.Errorf("%+v is not of entry %+v", got, opened)
	}
	if opened.Head.Tags != "order=7,tenant=acme" || opened.V != 5 {
		t.Errorf("the head has tags %q in layout %d", opened.Head.Tags, opened.V)
	}

	call.Answer("calc.added", sum(3))
	wantResponse(t, h.Done(r), "3")
	ended := documents(t, h, last.Sequence+1, func(i broker.IndexedRun) bool { return decoded(t, i).Done() })
	if done := decoded(t, ended[len(ended)-1]); done.Reason != wire.ReasonCompleted || done.Text != "Add one and two Lisbon" || done.Started != journal[0].At {
		t.Errorf("at its end: %+v", done)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if len(published) > 3 {
		t.Errorf("%d documents were published, want 3 at most", len(published))
	}

	// Somebody loses the document.
	lost := ended[len(ended)-1]
	if err := h.Conn().PublishIndexed(broker.IndexedRun{Run: lost.Run, Revision: 1, Data: []byte("{}")}); err != nil {
		t.Fatal(err)
	}
	documents(t, h, lost.Sequence+1, func(i broker.IndexedRun) bool { return i.Revision == 1 })
	report := reconciled(t, h, time.Hour)
	if report.Found[reconcile.IndexLost] != 1 || report.Unrepaired != 0 {
		t.Errorf("%+v, want one document that was lost", report)
	}
	again := documents(t, h, lost.Sequence+2, func(broker.IndexedRun) bool { return true })
	if diff := cmp.Diff(decoded(t, lost), decoded(t, again[0])); diff != "" {
		t.Errorf("published again, -before +after:\n%s", diff)
	}
	if report := reconciled(t, h, time.Nanosecond); report.Purged != 1 || len(report.Found) != 0 {
		t.Errorf("%+v, want one history that was removed", report)
	}
	gone := documents(t, h, again[0].Sequence+1, func(broker.IndexedRun) bool { return true })
	if len(gone[0].Data) != 0 || gone[0].Run != lost.Run || gone[0].Revision <= lost.Revision {
		t.Errorf("%+v, want the document withdrawn", gone[0])
	}
	if report := reconciled(t, h, time.Hour); len(report.Found) != 0 {
		t.Errorf("%+v, want nothing to find", report)
	}

	// Whoever published late has put a document back.
	late := broker.IndexedRun{Run: lost.Run, Revision: lost.Revision - 1, Data: lost.Data}
	if err := h.Conn().PublishIndexed(late); err != nil {
		t.Fatal(err)
	}
	back := documents(t, h, gone[0].Sequence+1, func(broker.IndexedRun) bool { return true })
	if report := reconciled(t, h, time.Hour); report.Found[reconcile.IndexLost] != 1 || report.Unrepaired != 0 {
		t.Errorf("%+v, want a document of a history that is removed", report)
	}
	gone = documents(t, h, back[0].Sequence+1, func(broker.IndexedRun) bool { return true })
	if len(gone[0].Data) != 0 || gone[0].Revision != lost.Revision+1 {
		t.Errorf("%+v, want the document withdrawn, of the entry after %d", gone[0], lost.Revision)
	}
	if report := reconciled(t, h, time.Hour); len(report.Found) != 0 {
		t.Errorf("%+v, want nothing to find any more", report)
	}
}

// reconciled makes a pass that keeps histories for that long.
func reconciled(t *testing.T, h *harness.Harness, history time.Duration) reconcile.Report {
	t.Helper()
	o, err := h.Worker().Reconciling(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	o.OlderThan, o.History = time.Nanosecond, history
	report, err := reconcile.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func TestIndex_IsSealedWhereRunsAre(t *testing.T) {
	t.Parallel()
	h, s := startSealed(t, desk(), sdktest.Script(sdktest.Say("xyzzy-answer")))
	indexed(t, h)
	init := h.Init("desk", map[string]string{"message": "xyzzy-hello"})
	init.Extensions = map[string]any{wire.TagsAttribute: "tenant=xyzzy"}
	r := h.Send("desk", init)
	h.Done(r)
	var last *index.Document
	for _, i := range documents(t, h, 1, func(i broker.IndexedRun) bool {
		data, err := s.OpenDocument(i.Run, i.Revision, i.Data)
		if err != nil {
			t.Fatal(err)
		}
		last = decoded(t, broker.IndexedRun{Data: data})
		return last.Done()
	}) {
		if bytes.Contains(i.Data, []byte("xyzzy")) || bytes.Contains(i.Data, []byte("desk")) {
			t.Errorf("%q shows what the run is about", i.Data)
		}
		if _, err := s.OpenDocument(i.Run, i.Revision+1, i.Data); err == nil {
			t.Error("a document opens as one of another revision")
		}
		if _, err := s.OpenDocument(i.Run, i.Revision, []byte(`{"v":1}`)); err == nil {
			t.Error("a document that is not sealed is read")
		}
	}
	if last.Run != r.Subject || last.Tags["tenant"] != "xyzzy" || last.Text != "" {
		t.Errorf("%+v", last)
	}
}

// TestIndex_IsNotToldOfAnythingUnlessAskedFor: workers publish nothing without an index.
func TestIndex_IsNotToldOfAnythingUnlessAskedFor(t *testing.T) {
	t.Parallel()
	h := harness.Start(t, harness.Options{Agents: []sdk.Agent{{Spec: desk()}}, Model: sdktest.Script(sdktest.Say("3"))})
	published := make(chan string, 100)
	stop, err := h.Conn().Tail(h.Conn().Subjects().Root()+".idx.>", func(subject string, _ map[string][]string, _ []byte) { published <- subject })
	if err != nil {
		t.Fatal(err)
	}
	h.Done(h.Run("desk", hello()))
	h.StopWorkers()
	if err := stop(); err != nil || len(published) > 0 {
		t.Errorf("%d documents, %v", len(published), err)
	}
}

// TestIndex_IsNoticedByWorkersThatRun before it is made, within seconds.
func TestIndex_IsNoticedByWorkersThatRun(t *testing.T) {
	t.Parallel()
	model := sdktest.ModelFunc(func(context.Context, sdk.ModelRequest) (sdk.ModelReply, error) { return sdktest.Say("3"), nil })
	h := harness.Start(t, harness.Options{Agents: []sdk.Agent{{Spec: desk()}}, Model: model})
	h.Done(h.Run("desk", hello()))
	if err := provision.Index(t.Context(), h.Conn()); err != nil {
		t.Fatal(err)
	}
	for n, made := 0, time.Now(); ; n++ {
		if time.Since(made) > harness.DefaultPatience() {
			t.Fatalf("no document of %d runs came in %s", n, time.Since(made))
		}
		init := h.Init("desk", hello())
		init.Subject, init.ID = fmt.Sprintf("run %d", n), fmt.Sprintf("run-%d", n)
		h.Done(h.Send("desk", init))
		state, err := h.Conn().IndexState(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !state.Late {
			t.Fatal("the run from before the index is not known of")
		}
		if state.Last > 0 {
			t.Logf("after %s and %d runs", time.Since(made), n+1)
			return
		}
	}
}

// TestTags_ThatAreNotValidAreRefused, whoever publishes the event.
func TestTags_ThatAreNotValidAreRefused(t *testing.T) {
	t.Parallel()
	h := harness.Start(t, harness.Options{Agents: []sdk.Agent{{Spec: desk()}}, Model: sdktest.Script()})
	init := h.Init("desk", hello())
	init.Extensions = map[string]any{wire.TagsAttribute: "Tenant=acme"}
	wantProblem(t, h.Done(h.Send("desk", init)), "desk", sdk.CodeInvalidEvent)
}

// TestIndex_IsFollowedInAFile also deletes the file, and asks over the broker.
func TestIndex_IsFollowedInAFile(t *testing.T) {
	t.Parallel()
	h, s := startSealed(t, desk(), sdktest.Script(sdktest.Ask(add(1, 2)), sdktest.Say("3")))
	path := filepath.Join(t.TempDir(), "runs.db")
	ctx, cancel := context.WithTimeout(t.Context(), harness.DefaultPatience())
	defer cancel()
	x, stop, err := sqlite.Start(ctx, path, sqlite.Source{Conn: h.Conn(), Open: s.OpenDocument, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	indexed(t, h)
	changes := x.Changes(ctx)
	until := func(run string, status wire.Status) {
		t.Helper()
		for together := range changes {
			if slices.ContainsFunc(together, func(d index.Document) bool { return d.Run == run && d.Status == status }) {
				return
			}
		}
		t.Fatalf("%s was not said to be %s", run, status)
	}
	r := h.Run("desk", hello())
	call := h.Call("calc.add")
	until(r.Subject, wire.StatusWaiting)
	waiting, err := index.ParseFilter("status:waiting waits:service tool:calc_*")
	if err != nil {
		t.Fatal(err)
	}
	page, known, err := ask.Query(ctx, h.Conn(), index.Query{Filter: waiting})
	if err != nil || !known || len(page.Documents) != 1 || page.Documents[0].Run != r.Subject || page.AsOf == 0 {
		t.Errorf("%+v %v %v, want the run", page, known, err)
	}
	if _, _, err := ask.Query(ctx, h.Conn(), index.Query{After: "?"}); !errors.Is(err, &sdk.Error{Code: sdk.CodeInvalidEvent}) {
		t.Errorf("%v, want the fault of the question", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	call.Answer("calc.added", sum(3))
	h.Done(r)
	second := h.Init("desk", hello())
	second.Subject, second.ID = "second", "second"
	again := h.Send("desk", second)
	h.Call("calc.add").Answer("calc.added", sum(3))
	h.Done(again)
	until(r.Subject, wire.StatusDone) // from the beginning, if that is after the file was found missing
	for {
		_, missing := os.Stat(path)
		found, err := x.Query(ctx, index.Query{})
		if missing == nil && len(found.Documents) == 2 {
			break
		}
		if ctx.Err() != nil {
			t.Fatal(found, missing, err)
		}
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
	if _, known, err := ask.Query(ctx, h.Conn(), index.Query{}); known || err != nil {
		t.Errorf("somebody answers, %v", err)
	}
}
