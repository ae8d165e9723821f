package console_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"agentd/internal/broker/streams"
	"agentd/internal/core"
	"agentd/internal/runner"
	"agentd/internal/state/natsstore"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

// manyEntries is how many entries the longest run has.
const manyEntries = 10_000

// longRun is a console, and a run of so many entries in it: each reply makes a call, and the next entry has its result.
func longRun(tb testing.TB, entries uint64, text string) (b *browser, run string) {
	tb.Helper()
	b = open(tb, sdktest.Script(sdktest.Say("done")), "anna", "")
	run = b.start("long", "hello")
	b.ended("long")
	store := b.store()
	key := wire.NewRunKey("long")
	records, err := store.Entries(tb.Context(), key, runner.Version{})
	if err != nil {
		tb.Fatal(err)
	}
	at := records[len(records)-1]
	last, err := core.DecodeEntry(at.Data)
	if err != nil {
		tb.Fatal(err)
	}
	first, err := core.DecodeEntry(records[0].Data)
	if err != nil {
		tb.Fatal(err)
	}
	args, err := json.Marshal(map[string]string{"to": text})
	if err != nil {
		tb.Fatal(err)
	}
	for rev := at.Rev + 1; rev <= entries; rev++ {
		call := fmt.Sprintf("call-%d", rev/2*2)
		e := core.Entry{V: last.V, Rev: rev, Etag: fmt.Sprintf("etag-%d", rev), Prev: core.Digest(at.Data), At: last.At + int64(rev)*1000}
		e.Head, e.Cause = first.Head, last.Cause
		e.Head.Turns = int(rev / 2)
		switch {
		case rev == entries:
			e.Kind, e.Head = core.KindEnded, last.Head
			e.Messages = []sdk.Message{{Role: sdk.RoleAssistant, Content: []sdk.Content{said(rev)}}}
		case rev%2 == 0:
			e.Kind = core.KindReplied
			e.Messages = []sdk.Message{{Role: sdk.RoleAssistant, Content: []sdk.Content{
				said(rev), {Kind: sdk.ContentToolUse, CallID: call, Tool: "bank_pay", Args: args},
			}}}
		default:
			e.Kind = core.KindReturned
			data, err := json.Marshal(fmt.Sprintf("result %d %s", rev, text))
			if err != nil {
				tb.Fatal(err)
			}
			e.Results = []core.Result{{Call: call, Kind: core.ResultInline, Data: data}}
			e.Messages = []sdk.Message{{Role: sdk.RoleUser, Content: []sdk.Content{{Kind: sdk.ContentToolResult, CallID: call, Tool: "bank_pay"}}}}
		}
		data, err := e.Encode()
		if err != nil {
			tb.Fatal(err)
		}
		next := runner.Record{Version: runner.Version{Rev: rev, Etag: e.Etag}, Data: data}
		if next.Version, err = store.Append(tb.Context(), key, at.Version, next); err != nil {
			tb.Fatal(err)
		}
		at = next
	}
	return b, run
}

// store is where the runs are.
func (b *browser) store() *natsstore.Store {
	conn := b.h.Conn()
	return natsstore.New(conn.JetStream(), streams.Name(conn.Subjects(), streams.Run), conn.Subjects())
}

func said(rev uint64) sdk.Content {
	return sdk.Content{Kind: sdk.ContentText, Text: fmt.Sprintf("message %d", rev)}
}

// longPages are the pages of a long run.
var longPages = []string{
	"", "?before=5000.0", "/timeline", "/timeline?before=5000.0", "/journal", "/journal?before=5000", "/journal?kind=returned", "/journal?kind=started",
	"/journal?kind=returned&not=1&before=9000", "/journal/5000", "/journal/10000", "/state", "/state?at=5000", "/events", "/events?before=5000.0",
}

// Every page of a run of 10,000 entries is small, and made of a few of them.
func TestRun_OfManyEntriesHasSmallPages(t *testing.T) {
	const (
		mostBytes = 300_000
		mostRead  = 12 << 20
	)
	b, run := longRun(t, manyEntries, strings.Repeat(`{"a long": "text"} `, 150))
	connection := b.h.Conn().JetStream().Conn()
	before := connection.Stats()
	for _, path := range longPages {
		began := time.Now()
		page := b.get(http.StatusOK, run+path)
		after := connection.Stats()
		read := after.InBytes - before.InBytes
		t.Logf("%-45s %7d bytes, %8d read, %s", cmp.Or(path, "/"), len(page), read, time.Since(began).Round(time.Millisecond))
		if len(page) > mostBytes {
			t.Errorf("%s has %d bytes; want at most %d", path, len(page), mostBytes)
		}
		if read > mostRead {
			t.Errorf("%s is made of %d bytes of the journal; want at most %d", path, read, mostRead)
		}
		before = after
	}
}

// Who follows the links to what was before comes to everything once.
func TestRun_OfManyEntriesIsWholeOverItsPages(t *testing.T) {
	const entries = 1_300
	b, run := longRun(t, entries, "short")
	for _, c := range []struct {
		tab  string
		want *regexp.Regexp
		// each is how many there are of what want finds.
		each int
	}{
		{"", regexp.MustCompile(`result (\d+) short`), entries/2 - 1},
		{"/journal", regexp.MustCompile(`/journal/(\d+)"`), entries},
		{"/journal?kind=returned", regexp.MustCompile(`/journal/(\d+)"`), entries/2 - 1},
		{"/timeline", regexp.MustCompile(`<td>model call (\d+)</td>`), entries/2 - 1},
		{"/events", regexp.MustCompile(`message (\d+)<`), entries/2 - 1},
	} {
		path, _, _ := strings.Cut(c.tab, "?")
		seen := map[string]int{}
		for next := c.tab; ; {
			page := b.get(http.StatusOK, run+next)
			for _, m := range c.want.FindAllStringSubmatch(page, -1) {
				seen[m[1]]++
			}
			m := previous.FindStringSubmatch(page)
			if m == nil {
				break
			}
			next = path + html.UnescapeString(m[1])
		}
		more := 0
		for what, times := range seen {
			if times > 1 {
				t.Errorf("%q shows %s %d times", c.tab, what, times)
			}
			more++
		}
		if more != c.each {
			t.Errorf("%q shows %d; want %d", c.tab, more, c.each)
		}
	}
}

// previous is a link to what was before.
var previous = regexp.MustCompile(`<a href="([^"]+)"[^>]*>(?:Earlier [a-z]+|Older)</a>`)

// BenchmarkRun_OfManyEntries measures the time to the first byte of each page.
func BenchmarkRun_OfManyEntries(bm *testing.B) {
	b, run := longRun(bm, manyEntries, strings.Repeat(`{"a long": "text"} `, 150))
	for _, path := range longPages {
		bm.Run(cmp.Or(strings.TrimPrefix(path, "/"), "conversation"), func(bm *testing.B) {
			for bm.Loop() {
				b.get(http.StatusOK, run+path)
			}
		})
	}
}
