package console_test

import (
	"html"
	"net/http"
	"strings"
	"testing"
)

// Another filter leaves the order of a list as it is, and so does what leads to runs that are new.
func TestList_KeepsItsOrder(t *testing.T) {
	b := open(t, paying(), "anna", "")
	b.start("ordered", "pay")
	b.asked()
	page := b.get(http.StatusOK, "/runs?sort=duration")
	form := hiddenIn(page)
	form.Set("q", "status:waiting")
	contains(t, b.get(http.StatusOK, "/runs?"+form.Encode()), "Runs, those that took longest first", ">ordered<")
	live := html.UnescapeString(sseAddress.FindStringSubmatch(page)[1])
	if !strings.Contains(live, "sort=duration") {
		t.Errorf("the page follows %s", live)
	}
	b.events("/live/runs?since=0&sort=duration")("news", `href="/runs?sort=duration"`)
	if form := hiddenIn(b.get(http.StatusOK, "/runs")); form.Has("sort") {
		t.Errorf("a list in the usual order says %q of it", form["sort"])
	}
}
