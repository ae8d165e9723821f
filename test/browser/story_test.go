package browser

import (
	"strings"
	"testing"
)

// From an empty page to a finished run: what a newcomer does.
func TestStory_FromAnEmptyPageToABookedTrip(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := newTab(t, w.dev())
	b.open("/")
	b.shows("There are no runs yet")
	if text := b.main(); strings.Contains(text, "▲") {
		t.Errorf("a new console warns:\n%s", text)
	}
	b.click(".empty a")
	b.click(`a[href="/agents/travel.desk"]`)
	b.fill("#field-0", "Two nights in Lisbon, please")
	b.fill("#name", "lisbon")
	b.click("#start")
	if got := b.location(); got != "/runs/lisbon?told=started" {
		t.Fatalf("the start leads to %s", got)
	}
	b.shows("The run is started.")

	list := newTab(t, b.address)
	list.open("/runs")
	list.shows("permission for book_trip") // the row changes by itself
	list.click(`a[href="/runs/lisbon"]`)
	list.shows("Let me see what there is.", "TP-533")
	list.click(".waits a")
	list.shows("A booking costs money.", `"nights": 2`)

	// The number that is edited stays a number, and reaches the service.
	list.click("#edit")
	list.fill(`input[name="field.nights"]`, "3")
	list.click("#compare")
	list.shows(`-   "nights": 2`, `+   "nights": 3`)
	list.accessible()
	list.click("#confirm")
	list.shows("Allowed", "Said as")
	list.accessible()

	b.comesTo("/runs/lisbon", "✓ done: completed")
	b.shows("edited to", `"nights": 3`, "travel.desk.done")
	if got := w.agentd("runs", "show", "lisbon"); !strings.Contains(got, "completed") {
		t.Errorf("agentd runs show says\n%s", got)
	}
	b.open("/runs")
	b.shows("✓ done: completed")
}
