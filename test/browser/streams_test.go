package browser

import (
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
)

// within is how quickly a row must change after its run; 0 is that it must, some time.
var within = flag.Duration("browser.within", 0, "how soon after a run a row that is shown must change")

// A browser has six connections to a host over HTTP/1.1: a seventh tab opens nevertheless, says that it does not follow what happens, and
// does when others are closed or hidden.
func TestStreams_LeaveConnectionsForFurtherTabs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, console := w.served()
	w.waits("porto", "A night in Porto")
	first := newTab(t, console.address())
	first.comesTo("/runs", "an answer")
	all := []*tab{first}
	for range 6 {
		all = append(all, first.beside())
	}
	for _, b := range all {
		call(b, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true}) // none is behind another
		if status := b.open("/runs"); status != 200 {
			t.Fatalf("a tab beside others comes with the status %d", status)
		}
	}
	var following, waiting []*tab
	split := func(n int) {
		t.Helper()
		await(t, fmt.Sprintf("%d tabs say that they do not follow", n), func() bool {
			following, waiting = nil, nil
			for _, b := range all {
				if eval[bool](b, `document.querySelector(".late").checkVisibility()`) {
					waiting = append(waiting, b)
				} else {
					following = append(following, b)
				}
			}
			return len(waiting) == n
		})
	}
	split(3)
	hidden := following[0]
	hidden.hide(true) // so another one follows
	split(2)
	w.agentd("runs", "cancel", "porto")
	for _, b := range following {
		if b != hidden {
			b.shows("done: cancelled")
			b.close()
		}
	}
	w.run("bergen", "Porto, or else Bergen", "--detach")
	hidden.hide(false)
	for _, b := range append(waiting, hidden) { // they have what they missed
		b.shows("done: cancelled", "1 run new or changed")
	}
	all = append(waiting, hidden)
	split(0)
}

// hide has the tab be one that nobody sees, or somebody does.
func (b *tab) hide(hidden bool) {
	b.t.Helper()
	eval[bool](b, `Object.defineProperty(document, "hidden", {value: `+map[bool]string{true: "true", false: "false"}[hidden]+`, configurable: true}),
		document.dispatchEvent(new Event("visibilitychange"))`)
}

// A row that is shown changes soon after its run does, without loading the page.
func TestRows_ChangeSoonAfterTheirRuns(t *testing.T) {
	t.Parallel()
	w, _, b := listed(t)
	eval[bool](b, `(() => {
		new MutationObserver(() => {
			const row = document.querySelector("table.list tbody tr");
			if (!window.took && row.innerText.includes("cancelled")) window.took = Date.now() - new Date(row.querySelector("time").dateTime);
		}).observe(document.querySelector("table.list"), {subtree: true, childList: true});
		return true;
	})()`)
	w.agentd("runs", "cancel", "lisbon")
	b.shows("done: cancelled")
	took := time.Duration(eval[int64](b, `window.took`)) * time.Millisecond
	t.Logf("the row changed %s after the run", took)
	if *within > 0 && took > *within {
		t.Errorf("a row changed %s after its run; want at most %s", took, *within)
	}
}
