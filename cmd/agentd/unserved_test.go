package main

import (
	"path/filepath"
	"regexp"
	"testing"

	"agentd/cmd/agentd/internal/cli"
)

// A service that nobody runs is what a waiting run most often waits for.
func TestRun_TellsThatNobodyServesWhatItCalls(t *testing.T) {
	s := startDev(t, filepath.Join(example, "agentd.yaml"), filepath.Join(example, "script.yaml"))
	var out, progress output
	s.background(&out, &progress, "run", "travel.desk", "-m", "Two nights in Lisbon", "--subject", "trip 1", "--answer", "Yes, book both")
	s.until(&progress, "waits     nobody serves flights.search now; the call waits, due in 2")
	s.until(&progress, "waits     nobody serves hotels.search now; the call waits, due in 2")

	shown, _ := s.expect(cli.ExitOK, "runs", "show", "trip 1")
	if !regexp.MustCompile(`\n +nobody serves flights\.search now; the call waits, due in \d\ds\n`).MatchString(shown) {
		t.Errorf("the run is shown as\n%s", shown)
	}
	found, _ := s.expect(cli.ExitOK, "doctor")
	contains(t, found, "warning    nobody serves bookings.book: calls wait until their deadline", "→ start the service")

	s.serve()
	s.until(&out, "TRIP-TP-533-casa-do-rio")
	found, _ = s.expect(cli.ExitOK, "doctor")
	contains(t, found, "nothing found")
}
