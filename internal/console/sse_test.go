package console_test

import (
	"bufio"
	"context"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"agentd/internal/console/live"
	"agentd/internal/core"
	"agentd/internal/harness"
	"agentd/internal/runner"
	"agentd/internal/setup"
	"agentd/sdk/wire"
)

// Rows and events come as the run goes on.
func TestLive_SendsWhatChanges(t *testing.T) {
	b := open(t, paying(), "anna", "")
	b.sendsWhatChanges()
	contains(t, b.get(http.StatusOK, "/runs"), ">live<")
}

// A console with an index has no worker tell it what all runs do.
func TestLive_SendsWhatAnIndexTakesUp(t *testing.T) {
	dir := t.TempDir()
	b := openWith(t, paying(), live.Options{Who: setup.Principal{Who: "anna"}, Index: dir})
	var mu sync.Mutex
	var watched []string
	_, stop, err := b.h.Conn().OnWatch(func(agent string, run wire.RunKey) {
		mu.Lock()
		defer mu.Unlock()
		watched = append(watched, agent+" "+run.Token)
	}, func() {})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.h.Conn().AskWatchers(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.sendsWhatChanges()
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if want := "payer " + wire.NewRunKey("live").Token; len(watched) == 0 || slices.ContainsFunc(watched, func(w string) bool { return w != want }) {
		t.Errorf("%q is watched, want only %q", watched, want)
	}
	if _, err := os.Stat(filepath.Join(dir, "index.db")); err != nil {
		t.Error(err)
	}
	page := b.get(http.StatusOK, "/runs")
	contains(t, page, ">live<")
	if strings.Contains(page, "may not be here yet") {
		t.Errorf("runs from before the index are said to be missing, and there are none:\n%s", page)
	}
}

func (b *browser) sendsWhatChanges() {
	b.t.Helper()
	run := b.start("live", "pay")
	request := b.asked()
	list := b.get(http.StatusOK, "/runs")
	for patience := time.Now().Add(harness.DefaultPatience()); !strings.Contains(list, ">live<"); list = b.get(http.StatusOK, "/runs") { // an index comes after
		if time.Now().After(patience) {
			b.t.Fatal("the list does not come to have the run")
		}
	}
	connect := sseAddress.FindStringSubmatch(list)
	rows := b.events(strings.ReplaceAll(connect[1], "&amp;", "&"))
	key := "run-" + wire.NewRunKey("live").String()
	rows(key, "permission for bank_pay")
	lines := b.events("/live" + run)
	lines("line", "calls")
	form := hiddenIn(b.get(http.StatusOK, request))
	form.Set("decision", "deny")
	b.post(http.StatusOK, request+"/decide", form)
	rows(key, "an answer")
	lines("line", "asks")
	b.h.Run("payer", map[string]string{"message": "other"})
	rows("news", "1 run new or changed")
	b.events("/live/runs?since=1")("news", "2 runs new or changed") // since the page was made
}

// A run that goes on, or whose history is gone, is not said to have ended just now.
func TestLive_SaysWhyARunCannotBeFollowed(t *testing.T) {
	b := open(t, asking, "anna", "")
	b.begin("gone")
	b.post(http.StatusSeeOther, "/runs/gone/cancel", nil)
	b.ended("gone")
	b.events("/live/runs/gone")("end", "The run has ended.")
	b.purge("gone")
	b.events("/live/runs/gone")("end", "The run cannot be followed: run gone is done (cancelled), and its history was removed")
}

// purge removes the history of a run that has ended.
func (b *browser) purge(name string) {
	b.t.Helper()
	store, key := b.store(), wire.NewRunKey(name)
	last, err := store.Head(b.t.Context(), key)
	if err != nil {
		b.t.Fatal(err)
	}
	end, err := core.DecodeEntry(last.Data)
	if err != nil {
		b.t.Fatal(err)
	}
	grave, err := core.Tombstone(&end, core.Digest(last.Data), "purged", 1)
	if err != nil {
		b.t.Fatal(err)
	}
	data, err := grave.Encode()
	if err != nil {
		b.t.Fatal(err)
	}
	keep := runner.Record{Version: runner.Version{Rev: grave.Rev, Etag: grave.Etag}, Data: data}
	if _, err := store.Purge(b.t.Context(), key, last.Version, keep); err != nil {
		b.t.Fatal(err)
	}
}

var sseAddress = regexp.MustCompile(`sse-connect="([^"]+)"`)

// events reads a stream: the function that it returns reads until an event of that name has that text.
func (b *browser) events(path string) func(name, text string) {
	b.t.Helper()
	ctx, stop := context.WithCancel(b.t.Context())
	b.t.Cleanup(stop)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, b.url+path, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	response, err := b.client.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { response.Body.Close() })
	if response.StatusCode != http.StatusOK {
		b.t.Fatalf("%s answers %d", path, response.StatusCode)
	}
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 1<<20)
	return func(name, text string) {
		b.t.Helper()
		defer time.AfterFunc(harness.DefaultPatience(), stop).Stop()
		var event, data string
		for lines.Scan() {
			field, value, _ := strings.Cut(lines.Text(), ": ")
			switch field {
			case "event":
				event = value
			case "data":
				data += value + "\n"
			case "":
				if event == name && strings.Contains(data, text) {
					return
				}
				event, data = "", ""
			}
		}
		b.t.Fatalf("the events ended before %s with %q: %v", name, text, lines.Err())
	}
}
