package browser

import (
	"testing"

	"github.com/chromedp/chromedp/kb"
)

// With the keyboard alone, runs are chosen, counted and cancelled, and the page says by itself how far that is.
func TestBulk_WithTheKeyboardAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, console := w.served()
	for _, run := range []string{"porto", "bergen", "lisbon"} {
		message := "A night in Porto, for " + run
		if run == "lisbon" {
			message = "Two nights in Lisbon, please"
		}
		w.waits(run, message)
	}
	b := newTab(t, console.address())
	b.comesTo("/runs?q=waits:question", "bergen")
	await(t, "the index has both runs", func() bool {
		b.open("/runs?q=waits:question")
		return eval[int](b, `document.querySelectorAll("table.list tbody tr").length`) == 2
	})
	b.tabTo("#bulk")
	b.goes(kb.Enter)
	b.tabTo("#said")
	b.press("no time")
	b.tabTo("#propose")
	b.goes(kb.Enter)
	b.shows("Nothing is done yet", "waits:question -status:done", "bergen", "porto")
	b.lacks("lisbon")
	b.tabTo("#number")
	b.press("3")
	b.expects("409")
	b.goes(kb.Enter)
	b.shows("has 2 runs, not 3")
	b.goes("gr")
	b.open("/bulk")
	b.press("j")
	b.goes(kb.Enter)
	b.tabTo("#number")
	b.press("2")
	b.goes(kb.Enter)
	b.shows("Finished: 2 of 2 runs, 2 asked") // without loading it again
	b.comesTo("/runs/porto", "done: cancelled")
	b.comesTo("/runs/bergen", "no time")
	b.comesTo("/runs/lisbon", "Waits for")

	reading := newTab(t, w.startConsole().address())
	reading.comesTo("/runs", "lisbon")
	reading.lacks("Do something with")
	reading.expects("403")
	if status := reading.open("/bulk"); status != 403 {
		t.Errorf("a console that is read-only answers %d", status)
	}
}
