package console_test

import (
	"fmt"
	"html"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"agentd/internal/broker"
	"agentd/internal/broker/streams"
	"agentd/internal/console/live"
	"agentd/internal/core"
	"agentd/internal/harness"
	"agentd/internal/index"
	"agentd/internal/index/ask"
	"agentd/internal/index/find"
	"agentd/internal/runner"
	"agentd/internal/setup"
	"agentd/internal/state/natsstore"
	"agentd/sdk/wire"
)

// manyVariable is the environment variable with how many runs the lists have. Where it is set, they must be quick too: on a machine that does
// nothing else.
const manyVariable = "AGENTD_TEST_RUNS"

// quick is how long the slowest of a hundred lists may take.
const quick = 100 * time.Millisecond

var chip = regexp.MustCompile(`<li><a href="(/runs\?[^"]*)"`)

// Lists of many runs are quick, on every page and with every preset, and agentd runs list needs no more than a page of the index.
func TestList_OfManyRuns(t *testing.T) {
	runs, err := strconv.Atoi(os.Getenv(manyVariable))
	measured := err == nil
	if !measured {
		runs = 1_000
	}
	b := openWith(t, asking, live.Options{Who: setup.Principal{Who: "anna"}, Index: t.TempDir()})
	b.begin("waits")
	b.begin("ended")
	b.post(http.StatusSeeOther, "/runs/ended/cancel", nil)
	b.ended("ended")
	conn := b.h.Conn()
	store := natsstore.New(conn.JetStream(), streams.Name(conn.Subjects(), streams.Run), conn.Subjects())
	finder := find.Finder{Conn: conn, Store: store}
	told := b.events("/live/runs?since=0")
	b.writeRuns(store, runs)

	state, err := conn.IndexState(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); ; <-time.After(10 * time.Millisecond) {
		page, known, err := ask.Query(t.Context(), conn, index.Query{Limit: 1})
		if err == nil && known && page.Sequence >= state.Last {
			t.Logf("the index followed within %s", time.Since(began).Round(time.Millisecond))
			break
		}
		if time.Since(began) > harness.DefaultPatience()+time.Duration(runs)*time.Millisecond {
			t.Fatalf("the index is at %d of %d: %v", page.Sequence, state.Last, err)
		}
	}

	told("news", "More than 1000 runs new or changed") // which are counted no further

	list := b.get(http.StatusOK, "/runs")
	paths := []string{"/", "/runs", "/runs?q=tag.tenant:t7", "/runs?q=" + url.QueryEscape(`agent:pay* "customer 7"`)}
	for _, m := range append(chip.FindAllStringSubmatch(list, -1), nextPage.FindStringSubmatch(list)) {
		paths = append(paths, html.UnescapeString(m[1]))
	}
	for _, path := range paths {
		var took []time.Duration
		for range 100 {
			began := time.Now()
			b.get(http.StatusOK, path)
			if took = append(took, time.Since(began)); !measured {
				break
			}
		}
		slices.Sort(took)
		slowest := took[len(took)-1]
		t.Logf("%8d runs  %-60.60s  median %s, slowest of %d %s", runs, path, took[len(took)/2].Round(time.Microsecond), len(took), slowest.Round(time.Microsecond))
		if measured && slowest > quick {
			t.Errorf("%s takes %s; want at most %s", path, slowest, quick)
		}
	}
	var memory runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&memory)
	t.Logf("the heap of console, worker and broker has %d MB", memory.HeapAlloc>>20)

	began := time.Now()
	found, err := finder.Newest(t.Context(), index.Filter{}, 50)
	if err != nil || len(found.Runs) != 50 || found.Index == nil || !found.More {
		t.Fatalf("%v, %d runs were found", err, len(found.Runs))
	}
	t.Logf("agentd runs list, of the index: %s", time.Since(began).Round(time.Millisecond))
	began = time.Now()
	read := 0
	enough, err := store.Recent(t.Context(), func(some []runner.StoredRun, _ int64) (bool, error) { read += len(some); return read <= 50, nil })
	if err != nil || measured && !enough {
		t.Fatalf("%v, %d runs were read from the end of the store", err, read)
	}
	t.Logf("agentd runs list, from the end of the store: %s, %d runs", time.Since(began).Round(time.Millisecond), read)
	began = time.Now()
	scanned := 0
	if err := finder.Scan(t.Context(), index.Filter{}, func(find.Run) error { scanned++; return nil }); err != nil || scanned != runs+2 {
		t.Fatalf("%v, %d runs were read", err, scanned)
	}
	t.Logf("agentd runs list, of all heads: %s", time.Since(began).Round(time.Millisecond))
}

var nextPage = regexp.MustCompile(`<a href="([^"]+)" rel="next">`)

// writeRuns writes the last entries of so many runs, and their documents: one of ten waits for a permission, one has failed.
func (b *browser) writeRuns(store *natsstore.Store, runs int) {
	b.t.Helper()
	last := func(name string) core.Entry {
		record, err := store.Head(b.t.Context(), wire.NewRunKey(name))
		if err != nil {
			b.t.Fatal(err)
		}
		e, err := core.DecodeEntry(record.Data)
		if err != nil {
			b.t.Fatal(err)
		}
		return e
	}
	waits, ended, began := last("waits"), last("ended"), time.Now()
	var writing errgroup.Group
	writing.SetLimit(64)
	for n := range runs {
		writing.Go(func() error {
			e := ended
			switch n % 10 {
			case 0:
				e = waits
			case 1:
				e.Head.Reason = wire.ReasonError
			}
			e.Head.Run = fmt.Sprint("order ", n)
			e.Head.Tags = fmt.Sprintf("order=%d,tenant=t%d", n, n%1000)
			e.Rev, e.Etag, e.Prev = 1, fmt.Sprint("etag-", n), ""
			e.At = began.Add(-time.Duration(n) * 100 * time.Millisecond).UnixMilli()
			data, err := e.Encode()
			if err != nil {
				return err
			}
			key := wire.NewRunKey(e.Head.Run)
			version := runner.Version{Rev: 1, Etag: e.Etag}
			if _, err := store.Append(b.t.Context(), key, runner.Version{}, runner.Record{Version: version, Data: data}); err != nil {
				return err
			}
			input := fmt.Appendf(nil, `{"message":"Two weeks in Lisbon for customer %d, please"}`, n%5000)
			d := index.Of(runner.Indexed{Head: &e.Head, Version: version, At: e.At, Started: e.At - 60_000, Input: input})
			if data, err = d.Encode(); err != nil {
				return err
			}
			return b.h.Conn().PublishIndexed(broker.IndexedRun{Run: key, Revision: 1, Data: data})
		})
	}
	if err := writing.Wait(); err != nil {
		b.t.Fatal(err)
	}
	b.t.Logf("%d runs were written in %s", runs, time.Since(began).Round(time.Millisecond))
}
