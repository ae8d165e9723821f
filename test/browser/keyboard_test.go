package browser

import (
	"strings"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// typing presses keys, each on what has the focus by then. A page that handles a key keeps it from being a letter, as with a keyboard.
func typing(keys string) chromedp.Action[chromedp.Void] {
	return chromedp.KeyEvent(keys, func(key *input.DispatchKeyEventParams) {
		if key.Type == kb.KeyDown {
			key.Type = "rawKeyDown"
		}
	})
}

// press presses keys.
func (b *tab) press(keys string) {
	b.t.Helper()
	b.do(typing(keys))
}

// goes presses keys that lead to another page.
func (b *tab) goes(keys string) {
	b.t.Helper()
	b.leads(typing(keys))
}

// tabTo presses the tab key until what has the focus fits.
func (b *tab) tabTo(selector string) {
	b.t.Helper()
	await(b.t, "the tab key comes to "+selector, func() bool {
		b.press(kb.Tab)
		return eval[bool](b, `document.activeElement.matches(`+quoted(selector)+`)`)
	})
}

// A run is started, decided and looked at without a pointer. No key decides by itself.
func TestKeyboard_IsEnough(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := newTab(t, w.dev())
	b.open("/")
	b.press("?")
	b.press(kb.Escape)
	b.goes("ga")
	b.press("j")
	b.goes(kb.Enter)
	b.tabTo("#field-0")
	b.press("gj Two nights in Lisbon") // letters in a field are letters
	b.tabTo("#name")
	b.press("lisbon")
	b.goes(kb.Enter)
	b.shows("The run is started.")
	w.asked("lisbon")
	b.goes("gi")
	b.press("j")
	b.goes(kb.Enter)
	b.shows("Exactly these arguments")
	request := b.location()
	b.press("d")
	if focus := eval[string](b, `document.activeElement.id`); focus != "deny" {
		t.Errorf("d moves to %q", focus)
	}
	b.press("r")
	if focus := eval[string](b, `document.activeElement.id`); focus != "reason" {
		t.Errorf("r moves to %q", focus)
	}
	b.press(kb.Escape + kb.Tab) // out of the field, where letters are letters
	for eval[bool](b, `document.activeElement.matches("input, textarea, select")`) {
		b.press(kb.Tab)
	}
	b.press("a")
	await(t, "a moves to the button that approves", func() bool { return eval[string](b, `document.activeElement.id`) == "approve" })
	if got := b.location(); got != request || len(w.open()) != 1 {
		t.Fatalf("a key has decided; the page is %s", got)
	}
	b.goes(kb.Enter)
	b.shows("Allowed")
	b.goes("u")
	b.shows("Nothing waits for a person")
	b.goes("gr")
	b.shows("done: completed")
	b.press("/")
	b.press("status:running")
	b.goes(kb.Enter)
	b.shows("No run matches")
	// Keys can be turned off.
	b.press(kb.Tab)
	b.press("?")
	b.tabTo("#keys-off")
	b.press(" ")
	b.press(kb.Escape)
	b.open("/")
	b.press("?")
	if eval[bool](b, `document.getElementById("help").open`) {
		t.Error("keys that were turned off do something")
	}
}

// A row that changes stays where it is, and keeps the focus that somebody has in it.
func TestRows_StayUnderThePointerAndKeepTheFocus(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := newTab(t, w.dev())
	w.waits("porto", "A night in Porto")
	w.run("bergen", "Porto, or else Bergen", "--detach")
	w.asked("bergen")
	await(t, "the list has both runs", func() bool {
		b.open("/runs")
		return strings.Count(b.main(), "an answer") == 2
	})
	b.press("jj") // to the run that changed first
	order := `[...document.querySelectorAll("table.list tbody a")].map((a) => a.textContent).join(" ")`
	focus := `document.activeElement.textContent`
	if got := eval[string](b, order) + ", " + eval[string](b, focus); got != "bergen porto, porto" {
		t.Fatalf("the rows are %s", got)
	}
	w.agentd("runs", "cancel", "porto")
	b.shows("done: cancelled")
	if got := eval[string](b, order) + ", " + eval[string](b, focus); got != "bergen porto, porto" {
		t.Errorf("after one has changed, the rows are %s", got)
	}
}
