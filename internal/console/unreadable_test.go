package console_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"agentd/internal/core"
	"agentd/internal/runner"
	"agentd/sdk/wire"
)

// An entry that cannot be read is an error that names it, on every page that needs it, and never a page without it. Entries that have
// nothing to do with it are shown.
func TestRun_SaysWhichEntryCannotBeRead(t *testing.T) {
	b, run := longRun(t, 300, "text")
	store := b.store()
	key := wire.NewRunKey("long")
	last, err := store.Head(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	end, err := core.DecodeEntry(last.Data)
	if err != nil {
		t.Fatal(err)
	}
	after := func(data string) {
		t.Helper()
		next := runner.Version{Rev: last.Rev + 1, Etag: fmt.Sprint("torn-", last.Rev)}
		if last.Version, err = store.Append(t.Context(), key, last.Version, runner.Record{Version: next, Data: []byte(data)}); err != nil {
			t.Fatal(err)
		}
		last.Data = []byte(data)
	}
	after(`{"v":1,<script>`)
	says := func(path, want string) {
		t.Helper()
		page := b.get(http.StatusInternalServerError, run+path)
		contains(t, page, "This run cannot be read", want)
		if strings.Contains(page, "<script>a") || strings.Contains(page, "No entry") {
			t.Errorf("%s has more than the error:\n%s", path, page)
		}
	}
	for _, path := range []string{"", "/timeline", "/journal", "/journal/301", "/state", "/events"} {
		says(path, "entry 301: ")
	}
	if program := b.get(http.StatusInternalServerError, "/api/v1"+run+"/journal"); !strings.Contains(program, `"code":"corrupt_journal"`) {
		t.Errorf("programs are told %s", program)
	}
	// One in the middle: pages that do not need it are whole.
	end.Rev, end.Etag, end.Prev = 302, "torn-301", core.Digest(last.Data)
	data, err := end.Encode()
	if err != nil {
		t.Fatal(err)
	}
	after(string(data))
	for _, path := range []string{"", "/journal", "/journal/301", "/state?at=301"} {
		says(path, "entry 301")
	}
	contains(t, b.get(http.StatusOK, run+"/journal/298"), "Entry 298: replied")
	contains(t, b.get(http.StatusOK, run+"/journal?before=300"), "/journal/299")
	after(`{"v":99}`)
	says("", "a later version of agentd wrote run long; look at it with a console of that version")
}
