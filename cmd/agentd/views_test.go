package main

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"agentd/cmd/agentd/internal/cli"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Who is shown a request is in the run's journal, once for each principal, and so in every trail; so is a decision that came too
// late, which the journal has no place for.
func TestApprovals_ViewsAndRefusalsAreInTheTrail(t *testing.T) {
	g := startGuarded(t, "")
	g.as("shop", "run", "clerk", "-m", "Pay", "--subject", "one", "-d")
	request := g.request("one")
	for range 3 {
		if out := g.as("jane", "approvals", "show", request.Short); strings.Contains(out, "could not be recorded") {
			t.Fatal(out)
		}
	}
	// An operator reads everything, and may publish no view: it is said.
	contains(t, g.as("operator", "approvals", "show", request.Short),
		"that you saw it could not be recorded: the NATS server does not let this user publish on agentd.in.human_interaction.")
	viewed := func(log string) int { return strings.Count(log, `"event": "viewed"`) }
	g.eventually("the view in the journal", func() bool {
		return viewed(g.as("operator", "approvals", "log", "one", "-o", "json")) > 0
	})
	g.as("jane", "approvals", "deny", request.Short, "--reason", "no")

	nc, _ := g.connect("jane")
	late := decision(t, request, "late", sdk.ArgsHash([]byte("{}")))
	late.ParentID = "another"
	data, err := late.Encode()
	if err != nil {
		t.Fatal(err)
	}
	subject := "agentd.in.human_interaction.agentd_permission_request.clerk." + wire.NewRunKey("one").String() + ".c9-0-" + request.ID[len(request.ID)-26:] + ".jane"
	if _, err := nc.Request(subject, data, wait); err != nil {
		t.Fatal(err)
	}
	contains(t, g.letter("late"), "no run waits for this message")
	log := g.as("operator", "approvals", "log", "one", "-o", "json")
	if viewed(log) != 1 || strings.Count(log, `"letter":`) != 1 {
		t.Errorf("the log is %s", log)
	}
	contains(t, g.as("operator", "approvals", "log", "one"), "viewed     pay", "jane: allow, which does not count: unknown_run: no run waits for this message")

	g.as("operator", "audit", "verify", "one")
	trail := g.as("operator", "audit", "export", "one")
	contains(t, trail, `"event":"viewed"`, `"who":"jane"`, `"event":"refused"`, `"letter":`)
	path := filepath.Join(t.TempDir(), "one.jsonl")
	write(t, path, trail)
	out, _ := g.expect(cli.ExitOK, "audit", "verify", "--file", path)
	contains(t, out, "nothing was changed")
	write(t, path, strings.Replace(trail, `"event":"viewed"`, `"event":"moved "`, 1))
	_, problem := g.expect(cli.ExitFailure, "audit", "verify", "--file", path)
	contains(t, problem, "is not what was exported")
}

// A view over HTTP is one of the desk's principal.
func TestApprovals_ViewsOverHTTPAreRecorded(t *testing.T) {
	config, script := clerkProject(t, "approvals: {http: 127.0.0.1:0, as: carol}\n")
	s := startDev(t, config, script)
	s.expect(cli.ExitOK, "run", "clerk", "-m", "Pay", "--subject", "one", "-d")
	s.until(&s.out, "approvals http://")
	_, rest, _ := strings.Cut(s.out.String(), "approvals http://")
	address, _, _ := strings.Cut(rest, "/")
	get := func(path string, into any) {
		t.Helper()
		response, err := http.Get("http://" + strings.TrimSpace(address) + path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		if err := json.NewDecoder(response.Body).Decode(into); err != nil || response.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s, %v", path, response.Status, err)
		}
	}
	var list struct{ Requests []struct{ ID, Kind string } }
	s.holds("the request", func() bool {
		get("/v1/requests", &list)
		return len(list.Requests) == 2
	})
	for _, r := range list.Requests {
		if r.Kind == "permission" {
			var shown struct{ Unrecorded string }
			for range 2 {
				if get("/v1/requests/"+r.ID, &shown); shown.Unrecorded != "" {
					t.Error(shown.Unrecorded)
				}
			}
		}
	}
	s.holds("the view", func() bool {
		log, _ := s.expect(cli.ExitOK, "approvals", "log", "one", "-o", "json")
		return strings.Count(log, `"event": "viewed"`) == 1 && strings.Contains(log, `"who": "carol"`)
	})
}
