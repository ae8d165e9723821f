package browser

import (
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// Without JavaScript every action works.
func TestNoScript_EveryActionWorks(t *testing.T) {
	t.Parallel()
	needsBrowser(t)
	w := newWorld(t, "testdata/script.yaml")
	b := newTab(t, w.dev())
	call(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	b.open("/")
	if eval[bool](b, `document.documentElement.classList.contains("scripted") || document.querySelector("#help-open").checkVisibility()`) {
		t.Fatal("the page runs scripts, or offers what needs one")
	}
	start := func(name, message, until string) {
		t.Helper()
		b.open("/agents/travel.desk")
		b.fill("#field-0", message)
		b.fill("#name", name)
		b.click("#start")
		b.shows("The run is started.")
		b.comesTo("/runs/"+name, until)
	}
	act := func(verb, told string) {
		t.Helper()
		b.unfold("details.actions summary") // it opens without leading anywhere
		b.click(`form[action$="/` + verb + `"] button`)
		b.shows(told)
	}

	start("lisbon", "Two nights in Lisbon, please", "Waits for")
	b.comesTo("/inbox", "book_trip")
	b.click("table a")
	b.click("#edit")
	b.fill(`input[name="field.nights"]`, "4")
	b.click("#compare")
	b.shows(`+   "nights": 4`)
	b.click("#confirm")
	b.shows("Allowed")
	b.comesTo("/runs/lisbon", "done: completed")

	start("madrid", "Lisbon, or else Madrid", "Waits for")
	b.comesTo("/inbox", "book_trip")
	b.click("table a")
	b.fill("#reason", "who pays?")
	b.click("#ask")
	b.shows("Asked back")
	b.comesTo("/runs/madrid", "who pays?")

	start("rome", "Lisbon, or else Rome", "Waits for")
	b.comesTo("/inbox", "book_trip")
	b.click("table a")
	b.click("#deny")
	b.shows("Denied")
	b.comesTo("/runs/rome", "done: completed")

	start("porto", "A night in Porto", "Waits for")
	b.comesTo("/inbox", "Shall I book it?")
	b.click("table a")
	b.click(".suggestion")
	b.shows("Answered")
	b.comesTo("/runs/porto", "done: completed")

	start("bergen", "A night in Porto, or else Bergen", "Waits for")
	act("pause", "The run is paused.")
	act("resume", "The run goes on.")
	b.unfold("details.actions summary")
	b.fill("#message", "hurry")
	b.unfold("details.actions summary") // again, for act
	act("send", "The run has the message.")
	act("cancel", "The run was asked to end.")
	b.comesTo("/runs/bergen", "done: cancelled")
	start("vienna", "Vienna, where the model fails", "done: error")
	act("retry", "The run goes on from where it ended.")

	w.publish("agentd.in.x.y.travel_desk.z.c", "this is not an event")
	b.comesTo("/dead-letters", "invalid_event")
	b.open("/dead-letters/1")
	b.unfold("details summary")
	b.fill("#number", "1")
	b.click(".danger")
	b.shows("The dead letter was deleted.")
}

// unfold opens what is folded, with the keyboard.
func (b *tab) unfold(selector string) {
	b.t.Helper()
	b.do(chromedp.Focus(chromedp.CSS(selector)), typing(kb.Enter))
}
