package console_test

import (
	"bufio"
	"context"
	"html"
	"net/http"
	"regexp"
	"sync"
	"testing"

	"agentd/internal/console/live"
	"agentd/internal/harness"
	"agentd/internal/setup"
	"agentd/sdk/sdktest"
)

var follows = regexp.MustCompile(`sse-connect="([^"]+)"`)

// Open consoles are told of runs; what they cost those who work, test/bench measures.
func TestOpen_ConsolesFollowTheSameRuns(t *testing.T) {
	const open = 5
	b := openWith(t, sdktest.Script(sdktest.Say("hi")), live.Options{Who: setup.Principal{Who: "anna"}, Index: t.TempDir()})
	address := html.UnescapeString(follows.FindStringSubmatch(b.get(http.StatusOK, "/runs"))[1])
	ctx, stop := context.WithTimeout(t.Context(), harness.DefaultPatience())
	defer stop()
	var told, reading sync.WaitGroup
	told.Add(open)
	for range open {
		reading.Go(func() { b.reads(ctx, address, told.Done) })
	}
	b.h.Run("payer", map[string]string{"message": "hi"})
	all := make(chan struct{})
	go func() {
		told.Wait()
		close(all)
	}()
	select {
	case <-all:
	case <-ctx.Done():
		t.Errorf("not all of %d open consoles were told of a run", open)
	}
	stop()
	reading.Wait()
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
