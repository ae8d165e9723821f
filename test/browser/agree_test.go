package browser

import (
	"encoding/json"
	"testing"
)

// Two consoles and the terminal say the same, and a request is decided once.
func TestConsoles_AgreeWithEachOtherAndTheTerminal(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, indexed := w.served()
	one, two := newTab(t, indexed.address()), newTab(t, w.startConsole("--as", "bert").address()) // which has no index, and asks workers
	request := w.waits("lisbon", "Two nights in Lisbon, please")
	for _, b := range []*tab{one, two} {
		b.comesTo("/inbox", "book_trip")
		b.comesTo("/runs", "permission for book_trip")
	}
	one.open(request)
	two.open(request)
	two.fill("#reason", "too dear")
	two.click("#deny")
	two.shows("Denied", "Said as bert")
	// The other console has the old page still.
	one.expects("404", "409")
	if status := one.click("#approve"); status != 404 && status != 409 {
		t.Errorf("what was decided is decided again, with the status %d:\n%s", status, one.main())
	}
	for _, b := range []*tab{one, two} {
		b.comesTo("/runs", "done: completed")
		b.comesTo("/runs/lisbon", "denied: too dear (bert)")
		b.comesTo("/inbox", "Nothing waits for a person")
	}
	if left := w.open(); len(left) > 0 {
		t.Errorf("the terminal lists %v", left)
	}
	var listed []struct{ Run, Status, Reason string }
	if err := json.Unmarshal([]byte(w.agentd("runs", "list", "-o", "json")), &listed); err != nil {
		t.Fatal(err)
	}
	if len(listed) != 1 || listed[0].Run != "lisbon" || listed[0].Reason != "completed" {
		t.Errorf("the terminal lists %v", listed)
	}
}
