package conformance

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"agentd/sdk"
)

// tryClient tries the cases on this test binary as the client with a defect.
func tryClient(t *testing.T, defect string, patience time.Duration, cases ...string) Report {
	t.Helper()
	report, err := RunClient(t.Context(), ClientOptions{
		Command: []string{os.Args[0]}, Only: cases, Patience: patience, Output: t.Output(), Environ: []string{clientVariable + "=" + defect},
	})
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// A client of sdk/client passes every case, and so does one that is written after docs/wire.md.
func TestRunClient_GoodClientsPass(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"sdk", "none"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tryClient(t, name, 4*DefaultPatience).passes(t, 40)
		})
	}
}

// Every case finds a client that does not keep to it.
func TestRunClient_FindsDefects(t *testing.T) {
	t.Parallel()
	findsAll(t, ClientNames(), []defect{
		{"mute-client", "start", Failed, `it does not answer "start" within 15s`},
		{"dots", "start", Failed, "the init event is on agentd.start.travel.desk, not on agentd.start.travel_desk"},
		{"wrong-data", "start", Failed, `the data is {"input"`},
		{"wrong-agent-type", "start", Failed, `the type of the init event is "start"`},
		{"headerless", "start", Advised, "the header Content-Type is missing"},
		{"wrong-init", "identity", Failed, "it says that the init token is"},
		{"counts-requests", "unique", Failed, "4 requests have 2 identities"},
		{"forgets-keys", "key", Failed, "the same key is source"},
		{"cuts-names", "run-text", Failed, `the subject of the init event is "trip"`},
		{"no-attributes", "attributes", Failed, "the attribute accesscontrol is"},
		{"nobody", "principal", Failed, "as alice it publishes on agentd.start.travel_desk"},
		{"forgets", "stored", Failed, "it says that a run is started"},
		{"own-codes", "stored", Advised, `the code of the error is "EIO"`},
		{"own-codes", "too-large", Advised, `the code of the error is "EIO"`},
		{"no-reconnect-client", "reconnect", Failed, "after the server was away: it reports the error unavailable"},
		{"empty-results", "wait", Failed, "the result is travel.desk.done {}"},
		{"only-looks-once", "wait-late", Failed, "before the run has ended"},
		{"any-end", "wait-other", Failed, "before the run has ended"},
		{"errors-are-results", "wait-error", Failed, "it reports no error of a run that ended with one"},
		{"wants-codes", "wait-bare-error", Failed, "it reports no error of a run that ended with one"},
		{"strict", "extensions", Failed, "it reports the error internal"},
		{"no-reconnect-client", "wait-reconnect", Failed, `it does not answer "wait" within 45s`},
		{"only-hears", "wait-kill", Failed, `it does not answer "wait"`},
		{"repeats", "follow", Failed, "milestone (2, 0) is told again"},
		{"only-live", "follow", Failed, "milestone (4, 0) is not told"},
		{"one-page", "pages", Failed, "it does not answer"},
		{"from-the-start", "mark", Failed, "milestone (1, 0) is told again"},
		{"asks-for-ever", "purged", Failed, `it does not answer "follow" within`},
		{"unconcerned", "purged", Failed, "it reports no error"},
		{"own-codes", "purged", Advised, `the code of the error is "EIO"`},
		{"wants-runs", "early", Failed, "it ends following before the run's end"},
		{"strict", "ephemeral", Failed, "it reports the error internal"},
		{"unannounced", "announce", Failed, "within 15s: workers tell live events to who says that they read them"},
		{"announces-late", "announce", Failed, "it asks for the history before it announces that it follows"},
		{"announces-once", "announce", Failed, "again: nothing is published"},
		{"from-the-start", "follow-kill", Failed, "milestone (1, 0) is told again"},
		{"no-reconnect-client", "follow-reconnect", Failed, `it does not answer "follow"`},
		{"plain-names", "announce", Failed, "nothing is published on agentd.watch.travel_desk"},
		{"asks-by-key", "status", Failed, "it reports the error unknown_run"},
		{"own-codes", "unavailable", Advised, `the code of the error is "EIO"`},
		{"reads-no-headers", "unknown-run", Failed, "the worker says unknown_run"},
		{"one-page", "list", Failed, "it lists"},
		{"shouts", "answer", Failed, `"answer" of the data is IM MÄRZ`},
		{"plain-names", "answer", Failed, "the answer is on agentd.in"},
		{"wrong-parentid", "answer", Failed, "the answer's parentid is"},
		{"endless", "turn", Failed, `"end" of the data is false`},
		{"one-answer", "answer-again", Failed, "the second answer has the id of the first"},
		{"takes-any", "several", Failed, "it answers one of two calls that wait"},
		{"no-digest", "decide", Failed, `"args_sha256" of the data is`},
		{"decides-blindly", "decide-other", Advised, "it sends a decision on arguments"},
		{"own-verbs", "send", Failed, "it is on agentd.ctl.note"},
		{"no-reason", "cancel", Failed, `"reason" of the data is`},
		{"sees-its-own", "others", Failed, "decide: it reports the error permission_denied"},
		{"cancels-as-itself", "others", Failed, "cancel of a run that bob started is on agentd.ctl.cancel.travel_desk"},
	}, func(t *testing.T, d defect) Report {
		t.Helper()
		patience := 4 * DefaultPatience
		if strings.Contains(d.why, "within") || strings.Contains(d.why, "does not answer") || strings.Contains(d.why, "nothing is published") {
			patience = DefaultPatience // what is wrong is that nothing happens for so long
		}
		return tryClient(t, d.is, patience, d.found)
	})
}

// Options that cannot be tried are refused, with every fault.
func TestRunClient_RefusesOptions(t *testing.T) {
	t.Parallel()
	_, err := RunClient(t.Context(), ClientOptions{Only: []string{"starts"}})
	e, ok := errors.AsType[*sdk.Error](err)
	if !ok || e.Code != sdk.CodeConfig || len(e.Faults) != 2 {
		t.Errorf("%v", err)
	}
}
