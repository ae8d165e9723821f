package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/requests"
)

// plans starts a run of the example's planner, and returns the short id of the request to approve its plan.
func (s *system) plans(run string) string {
	s.t.Helper()
	s.expect(cli.ExitOK, "run", "travel.planner", "-m", "Two nights in Lisbon", "--subject", run, "-d")
	return s.toApprove(run, "")
}

// toApprove is the short id of a run's request to approve a plan, after another.
func (s *system) toApprove(run, after string) string {
	s.t.Helper()
	for deadline := time.Now().Add(wait); time.Now().Before(deadline); {
		out, _ := s.expect(cli.ExitOK, "approvals", "list", "-o", "json")
		var items []requests.Item
		if err := json.Unmarshal([]byte(out), &items); err != nil {
			s.t.Fatalf("%s is not a list: %v", out, err)
		}
		for _, i := range items {
			if i.Run == run && i.Short != after {
				return i.Short
			}
		}
	}
	s.t.Fatalf("run %s asks for no approval", run)
	return ""
}

// Whoever approves a plan reads its steps, as proposed and as edited, and is told what their decision comes to.
func TestApprovals_OfPlans(t *testing.T) {
	s := startDev(t, filepath.Join(example, "planner.yaml"), filepath.Join(example, "planner_script.yaml"))
	s.serve()
	request := s.plans("edited")
	out, _ := s.expect(cli.ExitOK, "approvals", "list")
	contains(t, out, "approval of a plan", "1. Search hotels in Lisbon for 2 nights;")
	out, _ = s.expect(cli.ExitOK, "approvals", "show", request)
	contains(t, out, "plan, written by the model", "\n  3. Book flight TP-533 and 2 nights in the hotel\n       with: book_trip\n       after: 1\n       for each of: step1.hotels\n",
		"carries out exactly this plan")
	if strings.Contains(out, "contract ") || strings.Contains(out, `"steps"`) {
		t.Errorf("the request is shown with what says nothing:\n%s", out)
	}
	out, _ = s.expect(cli.ExitOK, "runs", "show", "edited")
	contains(t, out, "plan of 4 steps, to be approved: 4 to do")

	const first = `{"step": 1, "text": "Search hotels in Lisbon for 2 nights", "tool": "search_hotels"}`
	_, problem := s.expect(cli.ExitFailure, "approvals", "edit", request, "--args", `{"steps": [{"step": 1, "text": "Pay", "after": [3]}]}`)
	contains(t, problem, "refused: the edited plan cannot be carried out: step 1 comes after step 3, which is not before it; the request is still open")
	out, problem = s.expect(cli.ExitOK, "approvals", "edit", request, "--args",
		`{"steps": [`+first+`, {"step": 2, "text": "Book flight TP-533 and 2 nights in the hotel", "tool": "book_trip", "each": "step1.hotels"}]}`)
	contains(t, problem, "  1. Search hotels in Lisbon for 2 nights\n", "- 2. Get the weather in Lisbon on 2026-12-04\n", "+ 2. Book flight TP-533 and 2 nights in the hotel\n")
	contains(t, out, "approved; the plan is carried out")
	out, told := s.expect(cli.ExitOK, "runs", "follow", "edited")
	contains(t, out+told, "4 steps\n", "asks      approval of the plan: "+s.line("approvals", "show")+" ", "2 steps, edited by whoever approved it\n",
		"\n          2. Book flight TP-533 and 2 nights in the hotel (book_trip), each of step1.hotels, after 1\n", "step 2    done for 1 of 1")
	out, _ = s.expect(cli.ExitOK, "runs", "show", "edited")
	contains(t, out, "plan of 2 steps, edited by whoever approved it: 2 done", "each of step1.hotels: 1 of 1")

	request = s.plans("denied")
	out, _ = s.expect(cli.ExitOK, "approvals", "deny", request, "--reason", "book nothing")
	contains(t, out, "not approved; the planner is told why, and may make another plan")
	request = s.toApprove("denied", request)
	out, _ = s.expect(cli.ExitOK, "approvals", "show", request)
	contains(t, out, "  5. Search hotels in Lisbon for 2 nights\n")
	s.expect(cli.ExitOK, "approvals", "approve", request)
	s.expect(cli.ExitOK, "runs", "follow", "denied")
	out, _ = s.expect(cli.ExitOK, "runs", "show", "denied")
	contains(t, out, "[✓]  5. Search hotels in Lisbon for 2 nights (search_hotels)")
}
