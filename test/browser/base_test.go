package browser

import (
	"testing"

	"github.com/chromedp/chromedp/kb"
)

// Under a path, pages have their styles and scripts, keys lead to pages under it, rows change by themselves, and forms act.
func TestBase_AConsoleUnderAPathIsWhole(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.served()
	b := newTab(t, w.startConsole("--as", "anna", "--base-path", "/ops/agentd").address())
	b.open("/")
	b.goes("gr")
	if got := b.location(); got != "/ops/agentd/runs" {
		t.Fatalf("the keys lead to %s", got)
	}
	b.shows("There are no runs yet")
	w.waits("lisbon", "Two nights in Lisbon, please")
	b.shows("1 run new or changed")
	b.click(".news")
	b.press("j")
	b.goes(kb.Enter)
	if got := b.location(); got != "/ops/agentd/runs/lisbon" {
		t.Fatalf("the row leads to %s", got)
	}
	list := newTab(t, b.address)
	list.open("/runs")
	list.shows("permission for book_trip")
	b.click(".waits a")
	b.shows("Exactly these arguments")
	b.click("#approve")
	b.shows("Allowed")
	b.untouched()
	list.shows("done: completed")
}
