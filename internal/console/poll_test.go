package console_test

import (
	"bufio"
	"context"
	"fmt"
	"html"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"agentd/internal/console/live"
	"agentd/internal/harness"
	"agentd/internal/setup"
)

// follow opens a stream, which stop or the test's end ends.
func (b *browser) follow(path string) (body io.Reader, stop func()) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), harness.DefaultPatience())
	b.t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, b.url+path, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	response, err := b.client.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { response.Body.Close() })
	if response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") != "text/event-stream" {
		b.t.Fatalf("%s answers %d, %s", path, response.StatusCode, response.Header.Get("Content-Type"))
	}
	return response.Body, cancel
}

// Where as many pages follow as may, a further one is told that, what happened by now, and to ask again later: it is never left with an error.
func TestLive_FurtherPagesAskFromTimeToTime(t *testing.T) {
	b := open(t, paying(), "anna", "")
	b.start("polled", "pay")
	b.asked()
	var others []func()
	for n := range 200 {
		body, stop := b.follow(fmt.Sprint("/live/runs?q=run:nothing&n=", n))
		others = append(others, stop)
		if begins(t, body) != "event: polled" {
			t.Fatalf("page %d does not follow what happens", n)
		}
	}
	for path, want := range map[string]string{
		"/live/runs?run=polled&since=0": "permission for bank_pay", "/live/runs?since=0": "1 run new or changed", "/live/runs/polled": "event: line\nid: ",
	} {
		polled := b.polls(path)
		for _, text := range []string{want, "This one asks what happened every 10s."} {
			if !strings.Contains(polled, text) {
				t.Errorf("%s: %q is not in\n%s", path, text, polled)
			}
		}
	}
	ids := regexp.MustCompile(`id: ([0-9.]+)\n`).FindAllStringSubmatch(b.polls("/live/runs/polled"), -1)
	if len(ids) == 0 {
		t.Fatal("no line has a number")
	}
	if again := b.polls("/live/runs/polled?after=" + ids[len(ids)-1][1]); strings.Contains(again, "event: line") {
		t.Errorf("what was told is told again:\n%s", again)
	}
	if again := b.polls("/live/runs/polled?after=" + ids[len(ids)-2][1]); strings.Count(again, "event: line") != 1 {
		t.Errorf("what was not told is not told:\n%s", again)
	}
	for _, stop := range others {
		stop()
	}
	for late := time.Now().Add(harness.DefaultPatience()); ; <-time.After(5 * time.Millisecond) { // the console notices that they are gone
		body, stop := b.follow("/live/runs?since=0")
		begins := begins(t, body)
		stop()
		if begins == "event: polled" {
			break
		}
		if time.Now().After(late) {
			t.Fatalf("a page begins with %q though nobody else follows", begins)
		}
	}
}

// begins is the first line of a stream.
func begins(t *testing.T, body io.Reader) string {
	t.Helper()
	line, err := bufio.NewReader(body).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// polls is all of a stream that ends by itself, and says when to ask again.
func (b *browser) polls(path string) string {
	b.t.Helper()
	body, _ := b.follow(path)
	all, err := io.ReadAll(body)
	if err != nil || !strings.HasPrefix(string(all), "retry: 10000\n\n") {
		b.t.Errorf("%s: %v, and no time to ask again in\n%s", path, err, all)
	}
	return string(all)
}

// A request leads to the call in the conversation that asks, and that is there.
func TestRequest_LeadsToItsMessage(t *testing.T) {
	b := open(t, paying(), "anna", "")
	run := b.start("leads", "pay")
	request := b.asked()
	for _, next := range []string{"deny", ""} {
		page := b.get(http.StatusOK, request)
		to := regexp.MustCompile(`href="([^"#]+)#(call-[^"]+)" id="message"`).FindStringSubmatch(page)
		if to == nil || to[1] != run {
			t.Fatalf("the request leads to %q:\n%s", to, page)
		}
		if conversation := b.get(http.StatusOK, to[1]); strings.Count(conversation, `id="`+to[2]+`"`) != 1 {
			t.Errorf("%q is not once in the conversation:\n%s", to[2], conversation)
		}
		if next != "" {
			form := hiddenIn(page)
			form.Set("decision", next)
			b.post(http.StatusOK, request+"/decide", form)
			request = b.asked(request)
		}
	}
}

// A page of a request is told what it does not say yet: that it is no longer open, or that it is again.
func TestRequest_SaysWhenItIsNoLongerOpen(t *testing.T) {
	const closed = "is not open: it was decided, or its run no longer waits for it"
	b := open(t, paying(), "anna", "")
	b.start("closes", "pay")
	request := b.asked()
	b.get(http.StatusNoContent, "/live"+request)
	if again := b.get(http.StatusOK, "/live"+request+"?said=closed"); !strings.Contains(again, `hx-get="/live`+request+`"`) || strings.Contains(again, "not open") {
		t.Errorf("a page of an open request that takes it for closed is told\n%s", again)
	}
	form := hiddenIn(b.get(http.StatusOK, request))
	form.Set("decision", "deny")
	b.post(http.StatusOK, request+"/decide", form)
	b.asked(request) // the run goes on
	contains(t, b.get(http.StatusOK, "/live"+request), closed, `hx-get="/live`+request+`?said=closed"`)
	b.get(http.StatusNoContent, "/live"+request+"?said=closed")
}

// An agent's page counts the runs under way by the spec that they keep, and leads to them.
func TestAgent_HasTheSpecsInUse(t *testing.T) {
	b := openWith(t, asking, live.Options{Who: setup.Principal{Who: "anna"}, Index: t.TempDir()})
	b.begin("one")
	b.begin("two")
	b.begin("ended")
	b.post(http.StatusSeeOther, "/runs/ended/cancel", nil)
	b.ended("ended")
	var link []string
	for patience := time.Now().Add(harness.DefaultPatience()); ; <-time.After(5 * time.Millisecond) { // an index comes after
		link = regexp.MustCompile(`</code>: <a href="([^"]+)">2 runs under way</a>`).FindStringSubmatch(b.get(http.StatusOK, "/agents/payer"))
		if link != nil {
			break
		}
		if time.Now().After(patience) {
			t.Fatalf("the page does not come to count two runs:\n%s", b.get(http.StatusOK, "/agents/payer"))
		}
	}
	contains(t, b.get(http.StatusOK, html.UnescapeString(link[1])), ">one<", ">two<")
}
