package browser

import (
	"regexp"
	"testing"
)

// How long ago something was, and how far away it is, goes on being true while a page is open.
func TestTimes_GoOnWhileAPageIsOpen(t *testing.T) {
	t.Parallel()
	_, _, b := listed(t)
	b.click(`a[href="/runs/lisbon"]`)
	b.click(".waits a")
	texts := func() string {
		return eval[string](b, `[...document.querySelectorAll("[data-ago]")].map((e) => e.textContent).join(", ")`)
	}
	if first := texts(); !regexp.MustCompile(`^\d+s ago, in (4h|3h59m)$`).MatchString(first) {
		t.Fatalf("the page has the times %s", first)
	}
	eval[bool](b, `(() => { const now = Date.now; Date.now = () => now() + 65 * 60_000; return true; })()`)
	await(t, "an hour has passed", func() bool { return regexp.MustCompile(`^1h5m ago, in 2h5[45]m$`).MatchString(texts()) })
}
