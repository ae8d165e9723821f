package browser

import "testing"

// A page of a request says when somebody else has answered it, and keeps what was written in it.
func TestRequest_ThePageSaysWhenItIsNoLongerOpen(t *testing.T) {
	t.Parallel()
	_, _, b := listed(t)
	b.click(`a[href="/runs/lisbon"]`)
	b.click(".waits a")
	b.shows("Exactly these arguments")
	other, editing := newTab(t, b.address), newTab(t, b.address)
	other.open(b.location())
	editing.open(b.location())
	editing.click("#edit")
	editing.shows("Nothing counts before you approve it")
	b.fill("#reason", "the price is")
	other.click("#deny")
	other.shows("Denied")
	for _, late := range []*tab{b, editing} {
		late.shows("is not open: it was decided, or its run no longer waits for it")
		late.accessible()
	}
	if got := eval[string](b, `document.getElementById("reason").value`); got != "the price is" {
		t.Errorf("the reason is %q after the page has said that", got)
	}
}
