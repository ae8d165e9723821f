package console_test

import (
	"bufio"
	"context"
	"fmt"
	"html"
	"net/http"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"agentd/internal/console/live"
	"agentd/internal/harness"
	"agentd/internal/setup"
	"agentd/sdk/sdktest"
)

// openVariable is the environment variable with how many consoles are open while it is measured how quick workers are.
const openVariable = "AGENTD_TEST_OPEN"

var follows = regexp.MustCompile(`sse-connect="([^"]+)"`)

// Open consoles are told of runs, and cost workers nothing that shows: rounds with them and without take turns.
func TestOpen_ConsolesFollowTheSameRuns(t *testing.T) {
	open, err := strconv.Atoi(os.Getenv(openVariable))
	measured := err == nil
	rounds, runs := 1, 5
	if measured {
		rounds, runs = 10, 300
	} else {
		open = 5
	}
	b := openWith(t, sdktest.Script(sdktest.Say("hi")), live.Options{Who: setup.Principal{Who: "anna"}, Index: t.TempDir()})
	address := html.UnescapeString(follows.FindStringSubmatch(b.get(http.StatusOK, "/runs"))[1])
	var took [2]time.Duration
	n := 0
	round := func() time.Duration {
		began := time.Now()
		var all []harness.Run
		for range runs {
			n++
			init := b.h.Init("payer", map[string]string{"message": "hi"})
			init.Subject, init.ID = fmt.Sprint("run ", n), fmt.Sprint("run-", n)
			all = append(all, b.h.Send("payer", init))
		}
		for _, r := range all {
			b.h.Done(r)
		}
		return time.Since(began)
	}
	round()
	for i := range rounds {
		without := round()
		ctx, stop := context.WithCancel(t.Context())
		var told atomic.Int64
		var reading sync.WaitGroup
		for range open {
			reading.Go(func() { b.reads(ctx, address, func() { told.Add(1) }) })
		}
		with := round()
		for deadline := time.Now().Add(harness.DefaultPatience()); told.Load() < int64(open) && time.Now().Before(deadline); <-time.After(5 * time.Millisecond) {
		}
		stop()
		reading.Wait()
		if told.Load() != int64(open) {
			t.Errorf("%d of %d open consoles were told of runs", told.Load(), open)
		}
		t.Logf("round %d: %d runs took %s, and with %d open consoles %s", i, runs, without.Round(time.Millisecond), open, with.Round(time.Millisecond))
		took[0], took[1] = took[0]+without, took[1]+with
	}
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	t.Logf("a run took %s, and with %d open consoles %s; the heap has %d MB", took[0]/time.Duration(rounds*runs), open, took[1]/time.Duration(rounds*runs), memory.HeapAlloc>>20)
}

// reads follows what an open page does until ctx ends, and says when it is told of a run for the first time.
func (b *browser) reads(ctx context.Context, address string, told func()) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, b.url+address, nil)
	if err != nil {
		b.t.Error(err)
		return
	}
	response, err := b.client.Do(r)
	if err != nil {
		return // it is too late
	}
	defer response.Body.Close()
	told = sync.OnceFunc(told)
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		if lines.Text() == "event: news" {
			told()
		}
	}
}
