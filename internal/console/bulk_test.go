package console_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"agentd/internal/core"
	"agentd/internal/harness"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

// asking has each run wait for a permission.
var asking = sdktest.ModelFunc(func(context.Context, sdk.ModelRequest) (sdk.ModelReply, error) {
	return sdktest.Ask(sdktest.Tool("bank_pay", map[string]any{"euros": 12})), nil
})

// propose fills in the form for many runs, and returns the address of the job.
func (b *browser) propose(verb, filter, said string) string {
	b.t.Helper()
	to, _ := b.post(http.StatusSeeOther, "/bulk", url.Values{"verb": {verb}, "q": {filter}, "said": {said}, "rate": {"1"}})
	return to
}

// comes loads a page until it has a text.
func (b *browser) comes(path, text string) string {
	b.t.Helper()
	page := ""
	for deadline := time.Now().Add(harness.DefaultPatience()); time.Now().Before(deadline); <-time.After(5 * time.Millisecond) {
		if page = b.get(http.StatusOK, path); strings.Contains(page, text) {
			return page
		}
	}
	b.t.Fatalf("%s does not come to have %q:\n%s", path, text, page)
	return ""
}

// What is done with many runs is counted first, begins with the right number alone, and says what it was not done to.
func TestBulk_IsCountedConfirmedAndSaysWhatWasLeftAlone(t *testing.T) {
	b := open(t, asking, "anna", "")
	for _, name := range []string{"one", "two", "three"} {
		b.begin(name)
	}
	contains(t, b.get(http.StatusOK, "/runs?q=run:t*"), `href="/bulk?q=run%3at%2a"`)
	page := b.get(http.StatusOK, "/bulk?q=run:*&verb=pause")
	contains(t, page, `value="run:*"`, `<option value="pause" selected>`, "Nothing was done with many runs yet")

	for problem, form := range map[string]url.Values{
		"colour":                       {"verb": {"cancel"}, "q": {"colour:red"}, "rate": {"20"}},
		"the filter is empty":          {"verb": {"cancel"}, "rate": {"20"}},
		"the rate is 1 to 1000":        {"verb": {"cancel"}, "q": {"run:*"}, "rate": {"many"}},
		"a message has 1 to 65536":     {"verb": {"message"}, "q": {"run:*"}, "rate": {"20"}},
		"cannot be asked to &#34;burn": {"verb": {"burn"}, "q": {"run:*"}, "rate": {"20"}},
	} {
		_, page := b.post(http.StatusUnprocessableEntity, "/bulk", form)
		contains(t, page, problem, "Nothing was looked up", `value="`+form.Get("q")+`"`)
	}
	none := b.propose("cancel", "run:four", "")
	contains(t, b.get(http.StatusOK, none), "No run matches")

	to, _ := b.post(http.StatusSeeOther, "/bulk", url.Values{"verb": {"cancel"}, "q": {"run:*"}, "said": {"no time"}, "rate": {"1000"}})
	before := b.published()
	page = b.get(http.StatusOK, to)
	contains(t, page, "Nothing is done yet", "Write 3 to begin", "run:* -status:done", `href="/runs/one"`, `href="/runs/two"`, `href="/runs/three"`, "by anna", "no time")
	_, page = b.post(http.StatusConflict, to+"/begin", url.Values{"number": {"2"}})
	contains(t, page, "has 3 runs, not 2")
	_, page = b.post(http.StatusUnprocessableEntity, to+"/begin", nil)
	contains(t, page, "write how many runs the job has, 3")
	b.post(http.StatusConflict, to+"/continue", nil)
	b.post(http.StatusNotFound, to+"/explode", nil)
	if after := b.published(); after != before {
		t.Errorf("what was not confirmed published %d messages", after-before)
	}
	b.post(http.StatusSeeOther, "/runs/two/cancel", nil)
	b.ended("two")
	b.post(http.StatusSeeOther, to+"/begin", url.Values{"number": {" 3 "}})
	page = b.comes(to, "Finished")
	contains(t, page, "3 of 3 runs, 2 asked, 1 skipped", `<a href="/runs/two">two</a>`, "the filter does not select it any more")
	for _, name := range []string{"one", "three"} {
		b.ended(name)
		contains(t, b.get(http.StatusOK, "/runs/"+name), "done: cancelled", "of anna: no time")
	}
	b.post(http.StatusConflict, to+"/begin", url.Values{"number": {"3"}})
	b.post(http.StatusConflict, to+"/stop", nil)
	contains(t, b.get(http.StatusOK, "/bulk"), "Cancel them", "finished", "proposed", "anna")
	for _, id := range []string{"nothing", strings.Repeat("a", 4200), "%00", "a.b", "%2e%2e"} {
		b.get(http.StatusNotFound, "/bulk/"+id)
	}
	b.get(http.StatusOK, "/bulk")
}

// begin starts a run, and waits until it waits for somebody.
func (b *browser) begin(name string) {
	b.t.Helper()
	b.start(name, "pay")
	b.h.Until(harness.Run{Agent: "payer", Subject: name, Key: wire.NewRunKey(name)}, "waiting", func(s core.State) bool { return s.Status == core.StatusWaiting })
}

// A job stops at once and goes on from there; a console that is closed leaves it to others.
func TestBulk_StopsAndGoesOn(t *testing.T) {
	b := open(t, asking, "anna", "")
	for n := range 40 {
		b.begin(fmt.Sprintf("run%d", n))
	}
	b.comes("/bulk", "Many runs")
	to := b.propose("tag", "agent:payer", "ticket=4711") // a run a second: it takes 40 s
	number := url.Values{"number": {"40"}}
	for range 2 {
		b.post(http.StatusSeeOther, to+"/begin", number)
		page := b.comes(to, "It is under way")
		contains(t, page, `hx-get="/live/bulk/`, `hx-trigger="every 1s"`, "/stop")
		b.post(http.StatusConflict, to+"/continue", nil)
		b.post(http.StatusSeeOther, to+"/stop", nil)
		page = b.get(http.StatusOK, to)
		contains(t, page, "Stopped", "Write 40 to go on")
		if strings.Contains(page, "hx-get=\"/live/bulk") {
			t.Error("a job that is stopped is asked for all the time")
		}
	}
	live := "/live" + to + "?said="
	contains(t, b.get(http.StatusOK, live+"running"), "Stopped")
	if body := b.get(http.StatusNoContent, live+"stopped+0+false"); body != "" {
		t.Errorf("what the page says already is sent: %s", body)
	}
}
