package browser

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"net/http"
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

// Where as many pages follow as one console takes, a further one says that it asks from time to time, does so, and follows when there is room.
func TestStreams_OfAFullConsoleAreAskedFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, console := w.served()
	w.waits("porto", "A night in Porto")
	b := newTab(t, console.address())
	b.comesTo("/runs", "an answer")
	b.open("/inbox") // which follows nothing
	stop := b.fills()
	b.open("/runs")
	const says = "This one asks what happened every 10s."
	b.shows(says)
	b.accessible()
	w.agentd("runs", "cancel", "porto")
	b.shows("done: cancelled", says)
	stop()
	b.lacks(says)
	w.run("bergen", "Porto, or else Bergen", "--detach")
	b.shows("1 run new or changed")
}

// fills follows what happens as often as the console allows, until stop is called.
func (b *tab) fills() (stop func()) {
	b.t.Helper()
	ctx, stop := context.WithCancel(b.t.Context())
	b.t.Cleanup(stop)
	for following := 0; following < 200; {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, b.address+"/live/runs?q=run:nothing", nil)
		if err != nil {
			b.t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			b.t.Fatal(err)
		}
		b.t.Cleanup(func() { response.Body.Close() })
		first, err := bufio.NewReader(response.Body).ReadString(':')
		if err != nil {
			b.t.Fatal(err)
		}
		if first == "event:" { // otherwise the tab's own is not over yet, and this one is to ask again
			following++
		}
	}
	return stop
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
