package main

import (
	"encoding/json"
	"strings"
	"testing"

	"agentd/cmd/agentd/internal/cli"
	"agentd/sdk"
)

// What is allowed for whoever started a run covers their later ones, until it is taken back.
func TestApprovals_GrantsAreListedAndRevoked(t *testing.T) {
	config, script := clerkProject(t, "identity: required\n")
	write(t, config, strings.Replace("identity: required\n"+clerk, "scopes: [call,", "scopes: [call, principal+agent+tool,", 1))
	s := startDev(t, config, script)
	out, _ := s.expect(cli.ExitOK, "approvals", "grants")
	contains(t, out, "nothing is allowed beyond single runs")
	begin := func(run string) {
		s.expect(cli.ExitOK, "run", "clerk", "-m", "Pay", "--subject", run, "-d", "--as", "ann")
	}

	begin("first")
	request := s.waitingFor("first", "pay")
	s.expect(cli.ExitOK, "approvals", "approve", request, "--scope", "principal+agent+tool", "--uses", "5", "--as", "joe")
	out, _ = s.expect(cli.ExitOK, "approvals", "grants", "-o", "json")
	var kept []sdk.KeptGrant
	if err := json.Unmarshal([]byte(out), &kept); err != nil || len(kept) != 1 || kept[0].Principal != "ann" || kept[0].Tool != "pay" {
		t.Fatalf("%v: %s", err, out)
	}
	begin("second")
	s.eventually(cli.ExitOK, "1 of 5", "approvals", "grants")
	out, _ = s.expect(cli.ExitOK, "approvals", "grants")
	contains(t, out, "ALLOWED BY", "ann", "clerk", "pay", "joe", "1 of 5")
	id := strings.Fields(strings.Split(out, "\n")[1])[0]

	_, problem := s.expect(cli.ExitFailure, "approvals", "revoke", "nothing")
	contains(t, problem, `there is no grant "nothing"`)
	out, _ = s.expect(cli.ExitOK, "approvals", "revoke", id)
	contains(t, out, "clerk may not call pay for ann any more without being asked")
	_, problem = s.expect(cli.ExitFailure, "approvals", "revoke", id)
	contains(t, problem, "there is no grant")
	begin("third")
	s.waitingFor("third", "pay")
}
