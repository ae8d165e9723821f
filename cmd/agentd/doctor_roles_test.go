package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/cmd/agentd/internal/cli"
)

// What a server refuses to a role is neither missing nor wrong.
func TestDoctor_TellsWhatIsRefusedFromWhatIsNotThere(t *testing.T) {
	g := newGuarded(t, "", func(agents string) string { return agents })
	const (
		streams, store, workers = "not_permitted: look at stream", "not_permitted: read the store", "not_permitted: ask workers of"
		consumers               = "not_permitted: look at the"
		sync, nobody            = "sync_unknown", "no_worker"
	)
	// front are those who start runs or answer.
	front := []string{streams, consumers, sync, store}
	roles := map[string][]string{
		"operator": {sync}, "worker": {consumers, sync}, "shop": front, "ann": front, "jane": front,
		"svc_local_bank_pay": {streams, consumers, sync, store, workers},
	}
	// Two services that nobody runs are seen by who may look at their consumers.
	unserved := map[string][]string{"operator": {"no_service", "no_service"}, "worker": {"no_service", "no_service"}}
	for user, want := range roles {
		want = slices.Clip(want)
		if user != "svc_local_bank_pay" { // it cannot know
			want = append(want, nobody)
		}
		if diff := cmp.Diff(append(want, unserved[user]...), g.findings(user)); diff != "" {
			t.Errorf("without a worker, doctor as %s (-want +got):\n%s", user, diff)
		}
	}
	g.work()
	for user, want := range roles {
		if diff := cmp.Diff(append(slices.Clip(want), unserved[user]...), g.findings(user)); diff != "" {
			t.Errorf("with a worker, doctor as %s (-want +got):\n%s", user, diff)
		}
	}
}

// Without that, a command waits for an answer that does not come, and says that there was none.
func TestCommands_SayWhatTheServerRefuses(t *testing.T) {
	g := newGuarded(t, "", func(agents string) string { return agents })
	for _, command := range [][]string{
		{"provision"}, {"approvals", "list"}, {"dlq", "list"}, {"audit", "verify", "--all"}, {"contracts", "list"},
	} {
		code, out, problems := g.agentd(append(command, "--nats", g.url("svc_local_bank_pay"))...)
		if code != cli.ExitFailure || out != "" || !strings.Contains(problems, "the NATS server does not let this user") ||
			strings.Contains(problems, "NATS reports an error") {
			t.Errorf("agentd %q exits with %d:\n%s%s", command, code, out, problems)
		}
	}
}

// findings are what doctor finds as a user: the codes, with what is not permitted.
func (g *guarded) findings(user string) []string {
	g.t.Helper()
	out, problems := g.expect(cli.ExitOK, "doctor", "--nats", g.url(user), "-o", "json")
	if problems != "" {
		g.t.Errorf("doctor as %s logs:\n%s", user, problems)
	}
	var found struct {
		Findings []struct{ Code, Message string } `json:"findings"`
	}
	if err := json.Unmarshal([]byte(out), &found); err != nil {
		g.t.Fatal(err)
	}
	var list []string
	for _, f := range found.Findings {
		if _, rest, ok := strings.Cut(f.Message, "may not "); ok {
			f.Code += ": " + strings.Join(strings.Fields(rest)[:3], " ")
		}
		list = append(list, f.Code)
	}
	return list
}
