package conformance

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"agentd/sdk"
)

// try tries the cases on this test binary as the service with a defect.
func try(t *testing.T, defect string, patience time.Duration, cases ...string) Report {
	t.Helper()
	return tryOn(t, 1, defect, patience, cases...)
}

// tryOn is try where calls are divided.
func tryOn(t *testing.T, partitions int, defect string, patience time.Duration, cases ...string) Report {
	t.Helper()
	report, err := Run(t.Context(), Options{
		Partitions: partitions, Contract: weatherContract(), Command: []string{os.Args[0]}, Only: cases, Patience: patience, Output: t.Output(),
		Environ: []string{serviceVariable + "=" + defect, "CONFORMANCE_TEST_LOCK=" + filepath.Join(t.TempDir(), "lock")},
		Data:    json.RawMessage(`{"city":"Bern"}`), Fail: json.RawMessage(`{"city":"Atlantis"}`), Slow: json.RawMessage(`{"city":"Limbo"}`),
		Unsendable: json.RawMessage(`{"city":"Babel"}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// passes sees that all cases were tried and passed.
func (r Report) passes(t *testing.T, cases int) {
	t.Helper()
	if len(r.Results) != cases {
		t.Errorf("%d cases, want %d", len(r.Results), cases)
	}
	for _, result := range r.Results {
		if result.Outcome != Passed {
			t.Errorf("%s: %s: %s", result.Case, result.Outcome, result.Why)
		}
	}
}

// defect is what a program does wrong, and what a case must find of it.
type defect struct {
	is, found string
	outcome   Outcome
	why       string
}

// findsAll sees that each defect is found, and that each of the cases can find something.
func findsAll(t *testing.T, cases []string, defects []defect, try func(*testing.T, defect) Report) {
	t.Helper()
	for _, d := range defects {
		cases = slices.DeleteFunc(cases, func(name string) bool { return name == d.found })
		t.Run(d.found+" "+d.is, func(t *testing.T) {
			t.Parallel()
			r := try(t, d).Results[0]
			if r.Case != d.found || r.Outcome != d.outcome || !strings.Contains(r.Why, d.why) {
				t.Errorf("%s: %s: %s\nwant %s: …%s…", r.Case, r.Outcome, r.Why, d.outcome, d.why)
			}
		})
	}
	if len(cases) > 0 {
		t.Errorf("no defect shows that these cases can fail: %q", cases)
	}
}

// A service of sdk/service passes every case, and so does one that is written after docs/services.md.
func TestRun_GoodServicesPass(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"sdk", "none"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			try(t, name, 4*DefaultPatience).passes(t, 30)
		})
	}
}

// Where calls are divided, a service of sdk/service has those of all streams. One that knows of one stream has none: it is told that the
// consumer is not there, rather than given a part of its calls.
func TestRun_OnPartitions(t *testing.T) {
	t.Parallel()
	t.Run("sdk", func(t *testing.T) {
		t.Parallel()
		tryOn(t, 4, "sdk", 4*DefaultPatience).passes(t, 30)
	})
	t.Run("none", func(t *testing.T) {
		t.Parallel()
		r := tryOn(t, 2, "none", time.Second, "answer").Results[0]
		if r.Outcome != Failed || !strings.Contains(r.Why, "the program ended") && !strings.Contains(r.Why, "of the stream AGENTD_OUT_") {
			t.Errorf("%s: %s", r.Outcome, r.Why)
		}
	})
}

// Every case finds a service that does not keep to it.
func TestRun_FindsDefects(t *testing.T) {
	t.Parallel()
	findsAll(t, Names(), []defect{
		{"silent", "answer", Failed, "has no answer"},
		{"wrong-type", "answer", Failed, `the answer's type is "weather.forecast"; version 1.0.0 emits weather.forecast.done`},
		{"wrong-data", "answer", Failed, "$.text: expected string"},
		{"wrong-parent", "attributes", Failed, "the answer's parentid is"},
		{"bare", "attributes", Advised, "the answer has no parentid; the answer has no subject; the answer has no accesscontrol; the answer has no trace id"},
		{"needs-access", "optional", Failed, "it is not acknowledged within 5s"},
		{"knows-all", "extensions", Failed, "it is not acknowledged within 5s"},
		{"ascii", "run-text", Failed, "the answer's subject is \"trip+7"},
		{"redirects", "reply-subject", Failed, "it publishes where the event says"},
		{"one-uri", "contract-uri", Failed, "the answer is the error contract_missing"},
		{"any-version", "unknown-version", Failed, "it is answered with weather.forecast.done"},
		{"no-check", "invalid-data", Failed, "it is answered with weather.forecast.done"},
		{"errors-as-text", "error", Failed, "not with sys.weather.forecast.error"},
		{"nameless", "error", Failed, "the error has no errorName"},
		{"stack", "error", Advised, "the error has an errorStack"},
		{"oversends", "unsendable", Failed, "it is not acknowledged within 5s"},
		{"crashes", "not-an-event", Failed, "the program ended: exit status 7"},
		{"nak", "not-an-event", Failed, "it is not acknowledged"},
		{"any-id", "other-id", Failed, "it is answered"},
		{"any-run", "other-run", Advised, "it answers a call of another run than its subject names"},
		{"acks-first", "acknowledge", Failed, "it acknowledges the call before it answers"},
		{"responds", "acknowledge", Failed, "it responds to the delivery"},
		{"counts", "duplicate", Failed, "it is answered with"},
		{"appends", "duplicate", Advised, "the answer is stored 2 times"},
		{"counts", "attempt", Failed, "the same idempotency key is answered with"},
		{"short-ids", "domain", Failed, "it is not acknowledged"},
		{"answers-voids", "void", Failed, "it is answered"},
		{"loses", "many", Failed, "of 32: it is acknowledged, and"},
		{"exclusive", "copies", Failed, "the second copy ended: exit status 1"},
		{"exclusive-late", "copies", Failed, "the second copy ended: exit status 1"},
		{"acks-ahead", "kill", Failed, "of 32: it is acknowledged, and"},
		{"exclusive", "kill", Failed, "the program ended: exit status 1"},
		{"deaf", "drain", Failed, "it does not end within 5s of SIGTERM"},
		{"acks-ahead", "drain", Failed, "of 32: it is acknowledged, and"},
		{"no-reconnect", "reconnect", Failed, "it is not acknowledged"},
		{"exits", "reconnect", Advised, "it ends when the server is away (exit status 1)"},
		{"keeps-overdue", "overdue", Failed, "it is not acknowledged"},
		{"acks-refused", "room", Failed, "it is acknowledged, and"},
		{"keeps-refused", "room-voided", Advised, "it works on for longer than 5s at a call that nobody waits for"},
		{"no-heartbeat", "heartbeat", Failed, "nothing is said to the delivery for 14.3s"},
		{"keeps-voids", "voided", Failed, "the void: it is not acknowledged"},
		{"works-on", "voided", Advised, "it works on for longer than 5s at a call that nobody waits for"},
		{"nameless", "deadline", Failed, "the error has no errorName"},
	}, func(t *testing.T, d defect) Report {
		t.Helper()
		patience := 4 * DefaultPatience
		if strings.Contains(d.why, "within 5s") || strings.Contains(d.why, "longer than 5s") || strings.Contains(d.why, "it is not acknowledged") ||
			d.is == "crashes" {
			patience = 5 * time.Second // what is wrong is that nothing happens for so long
		}
		return try(t, d.is, patience, d.found)
	})
}

// Where there is nothing to try a case with, that is said, and is not a failure.
func TestRun_SkipsWhatItCannotTry(t *testing.T) {
	t.Parallel()
	report, err := Run(t.Context(), Options{
		Contract: weatherContract(), Command: []string{os.Args[0]}, Output: t.Output(), Only: []string{"error", "voided"},
		Environ: []string{serviceVariable + "=none"}, Data: json.RawMessage(`{"city":"Bern"}`),
	})
	if err != nil || report.Count(Skipped) != 2 || !strings.HasPrefix(report.Results[0].Why, "it needs --fail") {
		t.Errorf("%+v, %v", report, err)
	}
}

// Options that cannot be tried are refused, with every fault.
func TestRun_RefusesOptions(t *testing.T) {
	t.Parallel()
	_, err := Run(t.Context(), Options{
		Contract: weatherContract(), Slow: json.RawMessage(`{"city":7}`), Only: []string{"answers"},
	})
	e, ok := errors.AsType[*sdk.Error](err)
	if !ok || e.Code != sdk.CodeConfig || len(e.Faults) != 4 {
		t.Errorf("%v", err)
	}
}

// docs/conformance.md has every case with its rule, in their order: of services, then of clients.
func TestDocs_HaveTheCases(t *testing.T) {
	page, err := os.ReadFile("../../docs/conformance.md")
	if err != nil {
		t.Fatal(err)
	}
	const head = "| case | rule |\n| --- | --- |\n"
	var services, clients strings.Builder
	for _, c := range cases {
		services.WriteString("| `" + c.name + "` | " + c.rule + " |\n")
	}
	for _, c := range clientCases {
		clients.WriteString("| `" + c.name + "` | " + c.rule + " |\n")
	}
	tables := strings.Split(string(page), head)
	if len(tables) != 3 {
		t.Fatalf("%d tables of cases, want 2", len(tables)-1)
	}
	for i, want := range []string{services.String(), clients.String()} {
		if got, _, _ := strings.Cut(tables[i+1], "\n\n"); got+"\n" != want {
			t.Errorf("the table is\n%s\nwant\n%s", got, want)
		}
	}
}
