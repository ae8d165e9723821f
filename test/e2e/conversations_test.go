// Package e2e replays recorded conversations of a real model through the built binaries: agentd, the airline's services
// and customer, and a NATS server, each a process of its own; the model is behind HTTP.
package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"agentd/internal/broker"
	"agentd/internal/core"
	"agentd/internal/llm/mockllm"
	"agentd/internal/runner"
	"agentd/sdk"
	"agentd/sdk/wire"
	"agentd/test/e2e/recorded"
)

var enabled = flag.Bool("e2e", false, "replay the recorded conversations through the binaries in bin/ (make e2e)")

// scenario is one way to run the workers.
type scenario struct {
	store   string
	workers int
	kill    bool
	// gated holds the calls that change something until another process allows them.
	gated bool
}

func (s scenario) name() string {
	n := fmt.Sprintf("%s-%d", s.store, s.workers)
	if s.kill {
		n += "-kill"
	}
	if s.gated {
		n += "-gated"
	}
	return n
}

func TestRecordedConversations(t *testing.T) {
	if !*enabled {
		t.Skip("runs the built binaries for minutes: make e2e")
	}
	data := findRecords(t)
	for _, s := range []scenario{
		{store: "jetstream", workers: 1},
		{store: "jetstream", workers: 3},
		{store: "jetstream", workers: 3, kill: true},
		{store: "jetstream", workers: 3, gated: true},
		{store: "jetstream", workers: 3, kill: true, gated: true},
		{store: "redis", workers: 1},
		{store: "redis", workers: 3},
		{store: "redis", workers: 3, kill: true},
		{store: "redis", workers: 3, kill: true, gated: true},
	} {
		t.Run(s.name(), func(t *testing.T) { s.replay(t, data) })
	}
}

// replay plays every record at once and compares how each run ends and what it remembers.
func (s scenario) replay(t *testing.T, data records) {
	script, err := recorded.Script(data.records, data.tools)
	if err != nil {
		t.Fatal(err)
	}
	model := mockllm.New(script)
	server := httptest.NewServer(model)
	defer server.Close()
	w := s.world(t, data, server.URL+"/v1")
	began := time.Now()
	for _, r := range data.records {
		w.start(r)
	}
	turns, mismatches := 0, 0
	for _, r := range data.records {
		done := w.wait(r)
		problems := append(checkEnd(r, done), checkHistory(r, w.history(r))...)
		for _, p := range problems {
			t.Errorf("%s: %s", r.Run(), p)
		}
		if len(problems) > 0 {
			w.explain(r)
		}
		mismatches += len(problems)
		turns += replies(r)
	}
	kills := w.stopKilling()
	stats := model.Stats()
	t.Logf("%s: %d conversations, %d turns, %d mismatches, %d permissions, %d kills, %d repeated model calls, %s",
		s.name(), len(data.records), turns, mismatches+stats.Mismatches, w.permissions, kills, stats.Repeats,
		time.Since(began).Round(time.Millisecond))
	if (w.permissions > 0) != s.gated {
		t.Errorf("%d permissions were asked for", w.permissions)
	}
	for _, d := range stats.Details {
		t.Errorf("model: %+v", d)
	}
}

// world is a set of running processes.
type world struct {
	t       *testing.T
	prefix  string
	conn    *broker.Conn
	store   runner.Store
	workers []*process
	killing func() int
	// permissions counts the permission requests in the journals that were read.
	permissions int
}

// patience is how long all conversations together may take.
const patience = 10 * time.Minute

func (w *world) start(r recorded.Record) {
	data, err := json.Marshal(map[string]string{"message": firstUser(r)})
	if err != nil {
		w.t.Fatal(err)
	}
	err = w.conn.Start(w.t.Context(), agentName, wire.Event{
		ID: r.Run(), Source: "com.test.customer", Type: agentName, Subject: w.subject(r), Data: data,
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) subject(r recorded.Record) string { return w.prefix + r.Run() }

func (w *world) wait(r recorded.Record) wire.Event {
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	init := wire.InitToken("com.test.customer", r.Run())
	done, err := w.conn.WaitDone(ctx, agentName, wire.NewRunKey(w.subject(r)), init)
	if err != nil {
		w.t.Fatalf("%s does not end: %v", r.Run(), err)
	}
	return done
}

func (w *world) journal(r recorded.Record) []core.Entry {
	reader := runner.New(runner.Options{Store: w.store})
	entries, err := reader.Journal(w.t.Context(), wire.NewRunKey(w.subject(r)))
	if err != nil {
		w.t.Fatal(err)
	}
	return entries
}

// explain prints the end of a run's journal.
func (w *world) explain(r recorded.Record) {
	entries := w.journal(r)
	for _, e := range entries[max(0, len(entries)-10):] {
		w.t.Logf("%s: entry %d at %s: %s, caused by %s %d (%s); driver %+v", r.Run(), e.Rev,
			time.UnixMilli(e.At).UTC().Format(time.TimeOnly+".000"), e.Kind, e.Cause.Stream, e.Cause.Sequence, e.Cause.EventID, e.Head.Driver)
	}
}

// history folds the run's journal.
func (w *world) history(r recorded.Record) []sdk.Message {
	entries := w.journal(r)
	var state core.State
	var err error
	for i := range entries {
		w.permissions += len(entries[i].Requests)
		if j := entries[i].Judged; j != nil {
			w.t.Errorf("%s: entry %d: a judge objects to a model that needs none: %+v", r.Run(), entries[i].Rev, *j)
		}
		for _, g := range entries[i].Guards {
			w.t.Errorf("%s: entry %d: a guard corrects a model that needs none: %+v", r.Run(), entries[i].Rev, g)
		}
		if state, err = core.Apply(state, &entries[i]); err != nil {
			w.t.Fatal(err)
		}
	}
	return state.Messages()
}

// records are the conversations with what belongs to them.
type records struct {
	records []recorded.Record
	// dir holds transcripts.jsonl.
	dir               string
	toolsJSON, policy string
	tools             []string
}

// findRecords reads AGENTD_TRANSCRIPTS, or the records beside the project; without any the test is skipped.
func findRecords(t *testing.T) records {
	fallback := filepath.Join("..", "..", "..", "shared", "data", "airline")
	dir := os.Getenv("AGENTD_TRANSCRIPTS")
	if dir == "" {
		dir = fallback
	}
	if _, err := os.Stat(filepath.Join(dir, "transcripts.jsonl")); err != nil {
		t.Skipf("no recorded conversations in %s; set AGENTD_TRANSCRIPTS to a folder with transcripts.jsonl", dir)
	}
	beside := func(name string) string {
		if path := filepath.Join(dir, name); fileExists(path) {
			return path
		}
		return filepath.Join(fallback, name)
	}
	d := records{dir: dir, toolsJSON: beside("tools.json"), policy: beside("policy.md")}
	var err error
	if d.records, err = recorded.LoadTranscripts(dir); err != nil {
		t.Fatal(err)
	}
	if d.tools, err = recorded.LoadToolNames(d.toolsJSON); err != nil {
		t.Fatal(err)
	}
	return d
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func firstUser(r recorded.Record) string {
	for _, m := range r.Messages {
		if m.Role == "user" {
			return m.Text
		}
	}
	return ""
}

func replies(r recorded.Record) int {
	n := 0
	for _, m := range r.Messages {
		if m.Role == "assistant" {
			n++
		}
	}
	return n
}

// equalJSON compares two JSON texts by value.
func equalJSON(a, b []byte) bool {
	ca, errA := wire.Canonicalize(a)
	cb, errB := wire.Canonicalize(b)
	return errA == nil && errB == nil && bytes.Equal(ca, cb)
}
