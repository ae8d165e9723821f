package browser

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"agentd/sdk/wire"
)

// Without JavaScript every action works.
func TestNoScript_EveryActionWorks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
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
	b.open("/agents/travel.desk")
	b.unfold("details.actions summary")
	b.click("#pause")
	b.shows("The agent is paused", "‖ paused")
	b.unfold("details.actions summary")
	b.click("#resume")
	b.shows("The agent goes on.", "✓ served")
	start("vienna", "Vienna, where the model fails", "done: error")
	act("retry", "The run goes on from where it ended.")

	w.publish("agentd.in.x.y.travel_desk.z.c", "this is not an event")
	b.comesTo("/dead-letters", "invalid_event")
	b.open("/dead-letters/1")
	b.shows("It cannot be redriven")
	b.unfold("details summary")
	b.fill("#number", "1")
	b.click(".danger")
	b.shows("The dead letter was deleted.")

	start("faro", "A night in Porto, or else Faro", "Waits for")
	w.answerWrongly("faro", w.asked("faro"))
	b.comesTo("/dead-letters", "contract_violation")
	b.click("table a")
	b.click(`form[action$="/redrive"] button`)
	b.shows("The message was published again, and its dead letter removed.")
	b.comesTo("/dead-letters", "contract_violation") // it came back, since the run still cannot use it
	b.click("table a")
	b.shows("1 time before")

	b.open("/runs")
	b.click("#bulk")
	b.choose("#verb", "tag")
	b.fill("#q", "run:faro")
	b.fill("#said", "ticket=4711")
	b.click("#propose")
	b.shows("Nothing is done yet", "faro")
	b.fill("#number", "1")
	b.click("#begin")
	job := b.location()
	b.comesTo(job, "Finished: 1 of 1 run, 1 asked")
	b.comesTo("/runs", "ticket=4711")
	b.open("/bulk?q=status:waiting&verb=cancel&said=no+time")
	b.fill("#rate", "1000")
	b.click("#propose")
	b.fill("#number", eval[string](b, `document.querySelector("dd strong").textContent`))
	b.click("#begin")
	b.comesTo(b.location(), "Finished")
	b.comesTo("/runs/faro", "done: cancelled")
}

// choose chooses in a list, as somebody does who types its value's beginning.
func (b *tab) choose(selector, value string) {
	b.t.Helper()
	b.do(chromedp.SetValue(chromedp.CSS(selector), value))
}

// answerWrongly answers the question of a run, whose page has that address, with what does not answer it.
func (w *world) answerWrongly(run, address string) {
	w.t.Helper()
	call := strings.TrimPrefix(address, "/inbox/")
	answer, err := json.Marshal(map[string]any{
		"specversion": "1.0", "id": "wrong", "source": "test", "type": "agentd.question.answered", "subject": run, "parentid": call,
		"data": map[string]any{"nothing": true},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.publish(wire.DefaultSubjects().Reply(wire.CallAddress{
		Domain: "human_interaction", Type: "agentd_question_ask", Agent: "travel_desk", Run: wire.NewRunKey(run), Call: call,
	}), string(answer))
}

// unfold opens what is folded, with the keyboard.
func (b *tab) unfold(selector string) {
	b.t.Helper()
	b.do(chromedp.Focus(chromedp.CSS(selector)), typing(kb.Enter))
}
