package find_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"agentd/internal/broker/streams"
	"agentd/internal/harness"
	"agentd/internal/index"
	"agentd/internal/index/find"
	"agentd/internal/runner"
	"agentd/internal/state"
	"agentd/internal/state/natsstore"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// counted is a store, and how often pages of all its runs were read.
type counted struct {
	state.Store
	pages int
}

func (s *counted) Runs(ctx context.Context, cursor string, limit int) ([]runner.StoredRun, string, error) {
	s.pages++
	return s.Store.Runs(ctx, cursor, limit)
}

// Without an index, the runs that changed last are found from the end of the store: not all are read, and none that was only purged lately
// comes before them. Where that does not find enough, all are.
func TestNewest_ReadsTheStoreFromItsEnd(t *testing.T) {
	t.Parallel()
	spec := sdk.AgentSpec{
		Name: "desk", Version: "1.0.0", Model: sdk.ModelSpec{Provider: "test", Name: "scripted"},
		Contract: sdk.Contract{URI: "#/test/desk", Type: "desk", Versions: map[string]sdk.ContractVersion{"1.0.0": {
			Accepts: json.RawMessage(`{"type":"object"}`),
			Emits:   map[string]json.RawMessage{"desk.done": json.RawMessage(`{"type":"object","properties":{"response":{"type":"string"}},"required":["response"]}`)},
		}}},
	}
	h := harness.Start(t, harness.Options{Agents: []sdk.Agent{{Spec: spec}}, Model: sdktest.Script(sdktest.Say("hi"))})
	model := h.Run("desk", map[string]string{"message": "hello"})
	h.Done(model)
	conn := h.Conn()
	store := &counted{Store: natsstore.New(conn.JetStream(), streams.Name(conn.Subjects(), streams.Run), conn.Subjects())}
	journal := h.Journal(model)
	last := journal[len(journal)-1]
	name := func(n int) string { return fmt.Sprintf("run %d", n) }
	entry := func(n int, etag string, at int64) runner.Record {
		e := last
		e.Head.Run, e.Rev, e.Etag, e.Prev, e.At = name(n), 1, fmt.Sprint(etag, "-", n), "", at
		data, err := e.Encode()
		if err != nil {
			t.Error(err)
		}
		return runner.Record{Version: runner.Version{Rev: 1, Etag: e.Etag}, Data: data}
	}
	const runs, inOrder = 2_500, 100 // more than are listed at once
	var bases [runs]runner.Version
	write := func(n int, at int64) (err error) {
		bases[n], err = store.Append(t.Context(), wire.NewRunKey(name(n)), runner.Version{}, entry(n, "etag", at))
		return err
	}
	var writing errgroup.Group
	writing.SetLimit(32)
	for n := range runs - inOrder {
		writing.Go(func() error { return write(n, conn.Now()) })
	}
	if err := writing.Wait(); err != nil {
		t.Fatal(err)
	}
	for n, at := runs-inOrder, conn.Now(); n < runs; n++ {
		at = max(at+1, conn.Now())
		if err := write(n, at); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 300 { // more than one look at the end finds
		tombstone := entry(n, "purged", conn.Now()-time.Hour.Milliseconds())
		if _, err := store.Purge(t.Context(), wire.NewRunKey(name(n)), bases[n], tombstone); err != nil {
			t.Fatal(err)
		}
	}
	finder := find.Finder{Conn: conn, Store: store}
	newest := func(filter string, limit int) find.Found {
		t.Helper()
		f, err := index.ParseFilter(filter)
		if err != nil {
			t.Fatal(err)
		}
		found, err := finder.Newest(t.Context(), f, limit)
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	expect := func(found find.Found, first string, count int, more bool, pages int) {
		t.Helper()
		if len(found.Runs) != count || found.More != more || found.Index != nil || count > 0 && found.Runs[0].Run != first {
			t.Errorf("%d runs, more %v; the first is %+v, not %s", len(found.Runs), found.More, found.Runs[:min(1, len(found.Runs))], first)
		}
		if store.pages != pages {
			t.Errorf("%d pages of all runs were read; want %d", store.pages, pages)
		}
	}
	expect(newest("", 50), name(runs-1), 50, true, 0)
	expect(newest(`run:"run 24"*`, 20), name(runs-1), 20, true, 0)
	expect(newest(`run:"run 7"`, 5), name(7), 1, false, 3)
	store.pages = 0
	expect(newest("", 0), name(runs-1), runs+1, false, 3)
}
